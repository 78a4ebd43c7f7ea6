"""Run by test_sharding.py in processes of its own: the device count must be set before JAX starts.

Usage: sharded_program.py DEVICES [PROCESSES RANK PORT]. Prints OK when sharded fit and search equal one device's.
"""

import os
import sys

devices = int(sys.argv[1])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

if len(sys.argv) > 2:
    processes, rank, port = (int(a) for a in sys.argv[2:5])
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=processes, process_id=rank)
else:
    processes = 1

from gemjax.kernels import search as ks  # noqa: E402
from gemjax.kernels.metric import dense_covariance, fit_metric_jit  # noqa: E402
from gemjax.kernels.moments import moments_from_rows, psum_moments  # noqa: E402

assert jax.device_count() == devices * processes
rng = np.random.default_rng(0)
n, d, k = 4096, 16, 10
rows = 0.2 + rng.standard_normal((n, d))
rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
rows[1000:3000:7] = rows[5]  # ties across the shards
queries = rows[[5, 9, 100]] + np.float32(0.1)
queries /= np.linalg.norm(queries, axis=1, keepdims=True)
count = 3500  # the last shards are partly and wholly padding
eligible = (np.arange(n) < count) & (np.arange(n) % 5 != 0)

one = fit_metric_jit(moments_from_rows(rows, jnp.arange(n) < count))
mesh = Mesh(np.array(jax.devices()), ("rows",))


def spread(x):
    """A global array of which every process holds its part only."""
    sharding = NamedSharding(mesh, PartitionSpec("rows"))
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


local = jax.shard_map(
    lambda x, keep: psum_moments(moments_from_rows(x, keep), "rows"),
    mesh=mesh,
    in_specs=(PartitionSpec("rows"), PartitionSpec("rows")),
    out_specs=PartitionSpec(),
    check_vma=False,
)
far = jax.jit(local)(spread(rows), spread(np.arange(n) < count))
far = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), far)
many = fit_metric_jit(far)
np.testing.assert_allclose(dense_covariance(many), dense_covariance(one), atol=1e-5)

for form in ks.FORMS:
    for alpha in (0.0, 0.5, 1.0):
        prepared = ks.prepare_queries(one, queries)
        norms = None if form == "similarity" else np.asarray(ks.memory_norms(one, rows, jnp.int32(count)))
        want = ks.fused_search(
            rows, jnp.asarray(eligible), jnp.int32(count), prepared, jnp.float32(alpha), norms, k=k, form=form
        )
        host = jax.tree.map(np.asarray, prepared)
        got = ks.sharded_search(
            mesh, "rows", spread(rows), spread(eligible), np.int32(count), host, np.float32(alpha),
            None if norms is None else spread(norms), k=k, form=form,
        )  # fmt: skip
        for name, a, b in zip(want._fields, want, got, strict=True):
            b = np.asarray(b.addressable_data(0))
            if name in ("indices", "valid"):
                np.testing.assert_array_equal(a, b, err_msg=f"{form} {alpha} {name}")
            else:
                np.testing.assert_allclose(a, b, atol=1e-5, err_msg=f"{form} {alpha} {name}")
print("OK")

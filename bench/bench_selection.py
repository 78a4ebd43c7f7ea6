"""Residual completion against NumPy and SciPy, in one run: `pytest bench/bench_selection.py --benchmark-enable`.

Every gemjax entry carries `extra_info`: n, d, the backend, and `ratio_numpy` / `ratio_scipy`, the median over paired,
alternating rounds of our time over the rival's (below 1: we are faster). `test_import_and_first_call` reports what the
first completion of a process costs.

OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE must be unset: they pin OpenBLAS to kernels of an older processor, and NumPy and
SciPy would lose for that reason. A busy machine also favours us, since OpenBLAS waits for all its threads.

The rivals are what a careful user would write: NumPy computes the same function (masks, zero rows), orthogonalises each
direction twice, updates in place and treats all seeds in one QR and one product; SciPy computes no Q. At n = 4096 the
matrix (16 MB) is read once for each direction by either, so that both run at the speed of the memory.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from gemjax.kernels.linalg import independence_tolerance
from gemjax.kernels.selection import residual_completion

CAPACITY, EXHAUST = 16, 2.0  # a target above 1 never stops: all 16 directions are built
SIZES = [(256, 1024), (4096, 1024)]

complete = jax.jit(partial(residual_completion, max_rank=CAPACITY))
complete_prefixes = jax.jit(
    jax.vmap(partial(residual_completion, max_rank=CAPACITY), in_axes=(None, 0, 0, 0, None, None))
)
complete_each = jax.jit(jax.vmap(partial(residual_completion, max_rank=CAPACITY), in_axes=(0, 0, 0, 0, None, None)))


@pytest.fixture(autouse=True)
def fair_openblas() -> None:
    pinned = [name for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if name in os.environ]
    if pinned:
        pytest.skip(f"unset {' and '.join(pinned)}: NumPy would run kernels of another processor")


def history(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Unit rows with a common direction, some 40 topics and noise of their own, as block embeddings have."""
    rng = np.random.default_rng(seed)
    topics = rng.standard_normal((40, d)) * np.exp(-np.arange(40) / 15)[:, None]
    x = rng.standard_normal(d) + rng.standard_normal((n, 40)) @ topics / 3 + 0.5 * rng.standard_normal((n, d))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def numpy_completion(
    x: np.ndarray, protected: np.ndarray, eligible: np.ndarray, capacity: int, target: float
) -> tuple[list[int], np.ndarray, float]:
    """Vectorised NumPy: the chosen rows in order, the residuals and the coverage."""
    d = x.shape[1]
    tol = independence_tolerance(x.dtype, d)
    chosen = np.flatnonzero(protected).tolist()
    capacity = max(capacity, len(chosen))
    basis = np.empty((capacity, d), x.dtype)
    residual, rank = np.vecdot(x, x), 0
    total = residual.sum()
    residual[np.abs(residual - 1) < tol] = 1  # rounding decides no tie
    if chosen:
        q, r = np.linalg.qr(x[chosen].T)
        q = q[:, np.diag(r) ** 2 > tol]
        rank = q.shape[1]
        basis[:rank] = q.T
        along = x @ q
        residual -= np.einsum("nr,nr->n", along, along)
    score = np.where(eligible, residual, -1)
    score[chosen] = -1
    while len(chosen) < capacity and 1 - residual.sum() / total < target:
        j = int(score.argmax())
        if score[j] <= tol:
            break
        used = basis[:rank]
        left = x[j] - (used @ x[j]) @ used
        left -= (used @ left) @ used
        np.divide(left, np.sqrt(left @ left), out=basis[rank])
        along = x @ basis[rank]
        along *= along
        residual -= along
        score -= along  # chosen rows only fall further below zero
        score[j] = -1
        chosen.append(j)
        rank += 1
    return chosen, residual, 1 - float(residual.sum() / total)


def scipy_order(x: np.ndarray) -> np.ndarray:
    """LAPACK's column-pivoted QR; it always factors in full."""
    return scipy.linalg.qr(x.T, mode="r", pivoting=True, check_finite=False)[1]


def paired_ratio(ours: Callable[[], Any], rival: Callable[[], Any], rounds: int) -> float:
    """Median of our time over the rival's, measured in turn so that both meet the same machine."""
    ratios = []
    for _ in range(rounds):
        start = time.perf_counter()
        ours()
        middle = time.perf_counter()
        rival()
        ratios.append((middle - start) / (time.perf_counter() - middle))
    return statistics.median(ratios)


def note(benchmark: Any, **values: Any) -> None:
    benchmark.extra_info.update(jax=jax.__version__, backend=jax.devices()[0].device_kind, **values)


def check(ours: Any, theirs: tuple[list[int], np.ndarray, float]) -> None:
    """The same rows in the same order, and the same coverage."""
    chosen, _, coverage = theirs
    added = [int(j) for j in ours.order if j >= 0]
    assert chosen[len(chosen) - len(added) :] == added
    assert abs(float(ours.coverage) - coverage) < 1e-5


@pytest.mark.parametrize("seeds", [0, 12])
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_completion(benchmark: Any, n: int, d: int, seeds: int) -> None:
    x, every = history(n, d), np.ones(n, bool)
    protected = np.arange(n) >= n - seeds
    args = jax.device_put((x, protected, every, every, jnp.int32(CAPACITY), jnp.float32(EXHAUST)))
    ours = lambda: jax.block_until_ready(complete(*args))  # noqa: E731
    rival = lambda: numpy_completion(x, protected, every, CAPACITY, EXHAUST)  # noqa: E731
    check(ours(), rival())
    benchmark.group = f"completion n={n} d={d} seeds={seeds}"
    benchmark(ours)
    note(benchmark, n=n, d=d, seeds=seeds, ratio_numpy=paired_ratio(ours, rival, 100 if n < 1000 else 30))
    if not seeds:
        scipy_order(x)
        ratio = paired_ratio(ours, lambda: scipy_order(x), 10 if n < 1000 else 2)
        benchmark.extra_info["ratio_scipy"] = ratio


@pytest.mark.parametrize("seeds", [0, 12])
@pytest.mark.parametrize(("n", "d"), SIZES)
def test_numpy(benchmark: Any, n: int, d: int, seeds: int) -> None:
    x, protected = history(n, d), np.arange(n) >= n - seeds
    benchmark.group = f"completion n={n} d={d} seeds={seeds}"
    benchmark(numpy_completion, x, protected, np.ones(n, bool), CAPACITY, EXHAUST)
    note(benchmark, n=n, d=d, seeds=seeds)


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_scipy(benchmark: Any, n: int, d: int) -> None:
    x = history(n, d)
    benchmark.group = f"completion n={n} d={d} seeds=0"
    benchmark.pedantic(scipy_order, (x,), rounds=10 if n < 1000 else 2)
    note(benchmark, n=n, d=d, seeds=0)


@pytest.mark.parametrize(("n", "d"), [(64, 384), (256, 1024)])
def test_512_checkpoints_of_one_trajectory(benchmark: Any, n: int, d: int) -> None:
    """Each checkpoint sees a prefix of one history, its last four blocks protected."""
    x, lengths = history(n, d), np.linspace(16, n, 512).astype(int)
    index = np.arange(n)
    valid = index < lengths[:, None]
    protected = valid & (index >= lengths[:, None] - 4)
    args = jax.device_put((x, protected, valid, valid, jnp.int32(CAPACITY), jnp.float32(EXHAUST)))
    ours = lambda: jax.block_until_ready(complete_prefixes(*args))  # noqa: E731

    def one_by_one() -> list[Any]:
        masks = zip(lengths, protected, valid, strict=True)
        return [numpy_completion(x[:m], p[:m], v[:m], CAPACITY, EXHAUST) for m, p, v in masks]

    run_checkpoints(benchmark, ours, one_by_one, n=n, d=d, matrices=1)


@pytest.mark.parametrize(("n", "d"), [(64, 384), (64, 1024)])
def test_512_checkpoints_with_a_matrix_each(benchmark: Any, n: int, d: int) -> None:
    """Unrelated checkpoints: nothing can be shared."""
    x = np.stack([history(n, d, seed) for seed in range(512)])
    every = np.ones((512, n), bool)
    protected = every & (np.arange(n) >= n - 4)
    args = jax.device_put((x, protected, every, every, jnp.int32(CAPACITY), jnp.float32(EXHAUST)))
    ours = lambda: jax.block_until_ready(complete_each(*args))  # noqa: E731

    def one_by_one() -> list[Any]:
        return [numpy_completion(m, p, e, CAPACITY, EXHAUST) for m, p, e in zip(x, protected, every, strict=True)]

    run_checkpoints(benchmark, ours, one_by_one, n=n, d=d, matrices=512)


def run_checkpoints(benchmark: Any, ours: Callable[[], Any], one_by_one: Callable[[], list[Any]], **about: int) -> None:
    done, expected = ours(), one_by_one()
    for i in range(0, 512, 37):
        check(jax.tree.map(lambda leaf, i=i: leaf[i], done), expected[i])
    benchmark.group = f"512 checkpoints n={about['n']} d={about['d']} matrices={about['matrices']}"
    benchmark.pedantic(ours, rounds=10, warmup_rounds=1)
    note(benchmark, checkpoints=512, ratio_numpy=paired_ratio(ours, one_by_one, 5), **about)


FIRST = """
import json, time
start = time.perf_counter()
from gemjax.kernels.selection import residual_completion
imported = time.perf_counter()
import jax, numpy as np
jax.devices()
every = np.ones(256, bool)
x = np.eye(256, 1024, dtype=np.float32)
complete = jax.jit(residual_completion, static_argnames="max_rank")
ready = time.perf_counter()
jax.block_until_ready(complete(x, ~every, every, every, 16, 0.9, max_rank=16))
called = time.perf_counter()
jax.block_until_ready(complete(x, ~every, every, every, 16, 0.9, max_rank=16))
warm = time.perf_counter()
print(json.dumps({"import_s": imported - start, "first_call_s": called - ready, "warm_s": warm - called}))
"""


def test_import_and_first_call(benchmark: Any) -> None:
    """A new process: import of the kernels (JAX included), first call (trace and compile), second call."""
    reports = []

    def process() -> None:
        out = subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, text=True)
        reports.append(json.loads(out.stdout))

    benchmark.pedantic(process, rounds=3)
    note(benchmark, n=256, d=1024, **{key: statistics.median(r[key] for r in reports) for key in reports[0]})

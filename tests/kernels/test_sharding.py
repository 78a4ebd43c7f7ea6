"""Sharded moments and search equal one device's: on 8 simulated devices, and in two processes over loopback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("sharded_program.py")


def start(*arguments):
    root = str(PROGRAM.parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(processes):
    try:
        outputs = [p.communicate(timeout=240)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    for p, output in zip(processes, outputs, strict=True):
        assert p.returncode == 0 and output.rstrip().endswith("OK"), output[-3000:]


def test_eight_devices():
    finish([start(8)])


def test_two_processes_over_loopback():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    finish([start(2, 2, rank, port) for rank in range(2)])


def test_rows_that_do_not_split_are_refused():
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh

    from gemjax.kernels import search as ks
    from gemjax.kernels.metric import fit_metric
    from gemjax.kernels.moments import empty_moments

    mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
    queries = ks.prepare_queries(fit_metric(empty_moments(4)), jnp.ones((1, 4)))
    with pytest.raises(ValueError, match=r"`k` is .*; expected 1 to"):
        ks.sharded_search(mesh, "rows", jnp.ones((6, 4)), jnp.ones(6, bool), jnp.int32(6), queries, 0.5, k=7)

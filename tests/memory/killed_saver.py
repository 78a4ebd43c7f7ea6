"""Run by test_persist.py: forks savers over one directory and kills them at random points.

Usage: killed_saver.py DIRECTORY KILLS SEED. JAX is imported but never started, so forking is safe. After every kill the
directory must hold one of the two banks, whole. Prints the number of kills that fell inside a save.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from gemjax.memory import persist
from gemjax.memory.config import MemoryConfig
from gemjax.memory.record import Memory

folder, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))


def snapshot(value, count):
    header = persist.Header(count, 32, "float32", None, count, MemoryConfig())
    tensors = {
        "vectors": np.full((count, 32), value / 32**0.5, np.float32),
        "moments.count": np.array([count], np.int32),
        "moments.mean": np.zeros(32, np.float32),
        "moments.scatter": np.eye(32, dtype=np.float32),
    }
    return persist.Saved(header, tensors, [Memory(i, f"memory {i} of {value}") for i in range(count)])


banks = [snapshot(1.0, 2000), snapshot(-1.0, 1500)]
persist.write_bank(folder, banks[0])
inside = 0
for _ in range(kills):
    mark = folder.parent / "saves"
    mark.write_text("")
    child = os.fork()
    if child == 0:
        try:
            for i in range(1000):
                with open(mark, "a") as file:
                    file.write("(")
                persist.write_bank(folder, banks[i % 2])
                with open(mark, "a") as file:
                    file.write(")")
        finally:
            os._exit(0)
    time.sleep(rng.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    inside += mark.read_text().endswith("(")
    found = persist.read_bank(folder)
    expected = banks[0 if found.tensors["vectors"][0, 0] > 0 else 1]
    assert all(np.array_equal(found.tensors[key], expected.tensors[key]) for key in expected.tensors)
    assert found.memories == expected.memories and found.header == expected.header
persist.write_bank(folder, banks[0])
left = sorted(path.name for path in folder.iterdir())
assert len(left) == 4, left  # header, lock, two data files: the left-overs of the killed are gone
print(inside)

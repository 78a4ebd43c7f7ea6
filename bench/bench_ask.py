"""A whole `gemjax ask`, process by process: seconds from its start and the most memory it held, by size of the memory.

    python -m pytest bench/bench_ask.py --benchmark-enable -s
    python bench/bench_ask.py [1000 10000 100000 ...] [--no-answer]

Each memory is a sentence of twenty words with a random unit vector (time and room do not depend on what they say). The
first run of a size compiles into an empty cache, the second finds the programs there, as every later one does.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from gemjax.encoders import default_encoder
from gemjax.errors import WeightsError
from gemjax.memory import MemoryBank, MemoryConfig

WORDS = np.array(
    [a + b for a in ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki") for b in ("ran", "tel", "vin", "sor")]
)
QUESTION = "What did Ann say about lotel?"
SIZES = (1_000, 10_000, 100_000)


def made(size: int) -> MemoryBank:
    """A bank of synthetic turns, ten to a session."""
    rng = np.random.default_rng(size)
    bank = MemoryBank(config=MemoryConfig.hybrid())
    step = 10_000
    for start in range(0, size, step):
        count = min(step, size - start)
        words = WORDS[rng.integers(len(WORDS), size=(count, 20))]
        texts = [f"{'Ann' if i % 2 else 'Bob'}: {' '.join(row)}." for i, row in enumerate(words)]
        sessions = [f"s{(start + i) // 10}" for i in range(count)]
        bank.add(texts, vectors=rng.standard_normal((count, default_encoder().dim)), sessions=sessions)
    return bank


def asked(folder: Path, cache: Path, options: list[str]) -> tuple[float, float, dict]:
    """Seconds from the process's start to its end, seconds of processor, and its ledger."""
    command = [sys.executable, "-m", "gemjax.cli", "ask", str(folder), QUESTION, "--json", *options]
    start, used = time.perf_counter(), _processor()
    done = subprocess.run(command, env={**os.environ, "GEMJAX_CACHE": str(cache)}, capture_output=True, check=True)
    seconds = time.perf_counter() - start
    return seconds, _processor() - used, json.loads(done.stdout)["ledger"]


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_ask(benchmark, size, tmp_path):
    """Seconds of a later `gemjax ask`, whose programs are compiled already, and its peak memory; no rival does this."""
    try:
        made(size).save(tmp_path / "bank")
        asked(tmp_path / "bank", tmp_path / "cache", [])
    except WeightsError as error:
        pytest.skip(str(error))
    runs = []
    benchmark.pedantic(lambda: runs.append(asked(tmp_path / "bank", tmp_path / "cache", [])), rounds=2)
    peak = max(ledger["peak_memory_bytes"] for _, _, ledger in runs) / 2**30
    benchmark.extra_info.update(memories=size, peak_gb=peak)
    print(f"\n{size:,} memories: {min(seconds for seconds, _, _ in runs):.1f} s, peak {peak:.2f} GB")


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()] or list(SIZES)
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder, cache = Path(name) / "bank", Path(name) / "cache"
            start = time.perf_counter()
            made(size).save(folder)
            making = time.perf_counter() - start
            bank = sum(file.stat().st_size for file in folder.iterdir())
            cold, first, _ = asked(folder, cache, options)
            warm, later, ledger = min((asked(folder, cache, options) for _ in range(2)), key=lambda run: run[1])
            peak = ledger["peak_memory_bytes"] / 2**30
            stages = " ".join(f"{stage} {ms:.0f}" for stage, ms in ledger["milliseconds"].items())
            print(
                f"{size:>9,} memories: made in {making:.0f} s, {bank / 2**20:.0f} MB on disk; first ask {cold:.1f} s "
                f"({first:.1f} of processor), later {warm:.1f} s ({later:.1f}); ms: {stages}; peak {peak:.2f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""The default encoder against sentence-transformers (torch) on the same texts, threads and run.

    python -m pytest bench/bench_encoder.py --benchmark-enable -s

Each ratio is ours over theirs, the median of paired measurements: theirs, ours, theirs, ours, ... `cpu_ratio` counts
processor seconds of all threads instead of time on the clock: less of it is somebody else's load. Texts are cut from
this project's own files, so that anyone can repeat the measurement.

    ENCODER_BENCH_ROUNDS   pairs a benchmark (default 3)
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = int(os.environ.get("ENCODER_BENCH_ROUNDS", "3"))
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def source() -> list[str]:
    """This project's own code and prose, and the outputs in the example history."""
    files = [*sorted(ROOT.glob("gemjax/**/*.py")), *sorted(ROOT.glob("docs/*.md"))]
    example = json.loads((ROOT / "docs" / "examples" / "agent_history.json").read_text("utf-8"))
    messages = example["messages"] if isinstance(example, dict) else example
    return [path.read_text("utf-8") for path in files] + [str(message.get("content")) for message in messages]


def short_texts(count: int = 512) -> list[str]:
    """About 60 tokens each, as unequal as real ones."""
    rng, whole = random.Random(0), "\n".join(source())
    lengths = [max(20, round(rng.gauss(205, 70))) for _ in range(count)]
    return [whole[start : start + n] for n in lengths for start in [rng.randrange(len(whole) - n)]]


def long_texts(count: int = 64) -> list[str]:
    rng, whole = random.Random(1), "\n".join(source())
    return [whole[start : start + 4000] for start in (rng.randrange(len(whole) - 4000) for _ in range(count))]


@pytest.fixture(scope="module")
def ours() -> Any:
    from gemjax.encoders import default_encoder

    return default_encoder()


@pytest.fixture(scope="module")
def theirs() -> Any:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    from gemjax.models.weights import DEFAULT_ENCODER, find_model

    torch.set_num_threads(THREADS)
    return library.SentenceTransformer(str(find_model(DEFAULT_ENCODER).folder), device="cpu")


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock and of processors."""
    clock, processors = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processors


def paired(benchmark: Any, mine: Callable[[], Any], rival: Callable[[], Any], **facts: Any) -> None:
    mine(), rival()  # compiled and warm
    pairs: list[tuple[float, float, float, float]] = []

    def once() -> None:
        other = timed(rival)
        pairs.append((*timed(mine), *other))

    benchmark.pedantic(once, rounds=ROUNDS)
    own, own_cpu, other, other_cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
    benchmark.extra_info.update(
        ratio=statistics.median(p[0] / p[2] for p in pairs),
        cpu_ratio=statistics.median(p[1] / p[3] for p in pairs),
        seconds=own,
        rival_seconds=other,
        cpu_seconds=own_cpu,
        rival_cpu_seconds=other_cpu,
        threads=THREADS,
        **facts,
    )
    info = benchmark.extra_info
    spread = np.array([p[0] / p[2] for p in pairs]).round(2)
    print(
        f"\n{benchmark.name}: {info['ratio']:.2f} x rival on the clock {spread}, {info['cpu_ratio']:.2f} x processors "
        f"({own:.2f} s against {other:.2f} s; processors {own_cpu:.2f} s against {other_cpu:.2f} s)"
    )


def test_short_texts(benchmark: Any, ours: Any, theirs: Any) -> None:
    """512 texts of about 60 tokens; at most 1.0, target 0.7."""
    texts = short_texts()
    tokens = sum(ours.count_tokens(texts)) / len(texts)
    paired(benchmark, lambda: ours.encode(texts), lambda: theirs.encode(texts), mean_tokens=tokens)


def test_long_texts_truncated(benchmark: Any, ours: Any, theirs: Any) -> None:
    """64 texts of 4,000 characters as sentence-transformers sees them: the first window; at most 1.0, target 0.7."""
    from gemjax.encoders import FlaxSentenceEncoder

    texts = long_texts()
    first = FlaxSentenceEncoder(long_texts="truncate")
    np.testing.assert_allclose(first.encode(texts[:2]), theirs.encode(texts[:2]), atol=1e-5)
    paired(benchmark, lambda: first.encode(texts), lambda: theirs.encode(texts))


def test_long_texts_pooled(benchmark: Any, ours: Any, theirs: Any) -> None:
    """The same texts read whole, windows pooled, by both; at most 1.0, target 0.7."""
    from gemjax.encoders import SentenceTransformerEncoder

    texts = long_texts()
    rival = SentenceTransformerEncoder(theirs)
    tokens = sum(ours.count_tokens(texts)) / len(texts)
    paired(benchmark, lambda: ours.encode(texts), lambda: rival.encode(texts), mean_tokens=tokens)


def test_one_query(benchmark: Any, ours: Any, theirs: Any) -> None:
    """One short text, as a goal or an action is."""
    text = ["Repair the failing tests of the parser module"]
    paired(benchmark, lambda: ours.encode(text), lambda: theirs.encode(text))


_OURS = """
import sys, time
start = time.perf_counter()
if sys.argv[1]:
    import jax
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from gemjax.encoders import default_encoder
imported = time.perf_counter()
encoder = default_encoder()
"""
_THEIRS = """
import sys, time
start = time.perf_counter()
from sentence_transformers import SentenceTransformer
imported = time.perf_counter()
encoder = SentenceTransformer(sys.argv[1], device="cpu")
"""
_FIRST_CALL = """
made = time.perf_counter()
encoder.encode(["one short text"])
first = time.perf_counter()
encoder.encode(["one short text"])
print(imported - start, made - imported, first - made, time.perf_counter() - first)
"""


def stages(code: str, argument: str) -> list[float]:
    """Seconds of a fresh process: whole, import, construction, first call, second call."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code + _FIRST_CALL, argument], capture_output=True, text=True, check=True
    )
    return [time.perf_counter() - start, *map(float, done.stdout.split())]


def test_process_start(benchmark: Any, tmp_path: Path) -> None:
    """From process start to the first vector, with an empty and with a filled compilation cache; at most 0.5."""
    from gemjax.models.weights import DEFAULT_ENCODER, find_model

    folder, cache = str(find_model(DEFAULT_ENCODER).folder), str(tmp_path)
    stages(_OURS, cache)
    runs: dict[str, list[list[float]]] = {"theirs": [], "cold": [], "cached": []}

    def once() -> None:
        runs["theirs"].append(stages(_THEIRS, folder))
        runs["cold"].append(stages(_OURS, ""))
        runs["cached"].append(stages(_OURS, cache))

    benchmark.pedantic(once, rounds=ROUNDS)
    print()
    for name, rows in runs.items():
        middle = np.median(np.array(rows), 0)
        parts = dict(
            zip(("process", "import", "construction", "first_call", "second_call"), middle.tolist(), strict=True)
        )
        ratio = statistics.median(row[0] / rival[0] for row, rival in zip(rows, runs["theirs"], strict=True))
        benchmark.extra_info[name] = {**parts, "ratio": ratio}
        print(f"{name:8} {ratio:.2f} x theirs; seconds: " + ", ".join(f"{k} {v:.2f}" for k, v in parts.items()))

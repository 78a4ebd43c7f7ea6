"""The façade against one `json.dumps` of the same request (1 MB, 400 blocks), without encoding.

    python -m pytest bench/bench_history.py --benchmark-enable

`ratio` in the extra information is the median of paired measurements: `json.dumps`, façade, `json.dumps`, façade, ...
"""

import json
import statistics
import time
import zlib

import numpy as np
import pytest

from gemjax import GEMConfig, HistoryCompressor
from gemjax.history import CostAwarePolicy, PaperPolicy

BLOCKS, CHARS, DIM, ROUNDS = 400, 1_000_000, 384, 30
WORDS = ("assert", "return", "value", "path", "index", "node", "tests", "module", "error", "config", "parse", "token")


def vectors(texts: list[str]) -> np.ndarray:
    """Stands in for an encoder that costs next to nothing."""
    rows = [np.random.default_rng(zlib.crc32(t.encode())).standard_normal(DIM) for t in texts]
    return np.asarray(rows, np.float32)


def block(number: int, size: int) -> list[dict]:
    rng = np.random.default_rng(number)
    lines = [" ".join(rng.choice(WORDS, 9)) for _ in range(size // 60)]
    command = f"sed -n '{number},{number + 40}p' src/pkg_{number % 37}/module_{number % 11}.py"
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return [
        {
            "role": "assistant",
            "content": f"I look at part {number}.",
            "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "\n".join(lines)},
    ]


def history(blocks: int = BLOCKS) -> dict:
    messages = [{"role": "system", "content": "You are careful."}, {"role": "user", "content": "Repair the module."}]
    for number in range(blocks):
        messages += block(number, CHARS // BLOCKS)
    return {"model": "m", "messages": messages}


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def paired(benchmark, step, request) -> float:
    """Median ratio of `step()` to one `json.dumps(request)`, measured in turn."""
    ratios = []

    def once():
        rival = seconds(lambda: json.dumps(request))
        ratios.append(seconds(step) / rival)

    benchmark.pedantic(once, rounds=ROUNDS, warmup_rounds=5)
    ratio = statistics.median(ratios[5:])
    benchmark.extra_info.update(ratio=ratio, blocks=len(request["messages"]) // 2, chars=len(json.dumps(request)))
    print(f"\n{benchmark.name}: {ratio:.2f} x json.dumps (quartiles {np.percentile(ratios[5:], [25, 75]).round(2)})")
    return ratio


@pytest.mark.parametrize("policy", [PaperPolicy(), CostAwarePolicy()], ids=["paper", "cost-aware"])
def test_append_event(benchmark, policy):
    """One more block each time; target at most 2."""
    gem = HistoryCompressor(vectors, GEMConfig(policy=policy, delta=0.05, encoder_timeout=None))
    request = history()
    assert gem.compress(request, goal="repair").status == "compressed"
    number = iter(range(BLOCKS, 10**6))
    events = []

    def step():
        request["messages"] += block(next(number), CHARS // BLOCKS)
        events.append(gem.compress(request, goal="repair").event)

    paired(benchmark, step, request)
    benchmark.extra_info["events"] = sum(events)


def test_global_reselection(benchmark):
    """The same request under a new goal each time, so that the paper's policy reselects; target at most 4."""
    gem = HistoryCompressor(vectors, GEMConfig.paper(encoder_timeout=None))
    request = history()
    goals = iter(range(10**6))

    def step():
        assert gem.compress(request, goal=f"goal {next(goals)}").event

    paired(benchmark, step, request)


def test_first_sight(benchmark):
    """Everything is new: nothing parsed, no signals known (the encoder still costs nothing)."""
    request = history()

    def step():
        gem = HistoryCompressor(vectors, GEMConfig(encoder_timeout=None))
        assert gem.compress(request, goal="repair").event

    paired(benchmark, step, request)


@pytest.mark.parametrize("blocks", [500, 1000, 1400, 2000])
def test_long_session(benchmark, blocks):
    """One more block of 2,500 characters each time; the ratio must not grow with the session."""
    gem = HistoryCompressor(vectors, GEMConfig(encoder_timeout=None))
    request = {"model": "m", "messages": [{"role": "user", "content": "Repair the module."}]}
    for number in range(blocks):
        request["messages"] += block(number, 2500)
    gem.compress(request, goal="repair")
    number = iter(range(blocks, 10**6))

    def step():
        request["messages"] += block(next(number), 2500)
        gem.compress(request, goal="repair")

    paired(benchmark, step, request)

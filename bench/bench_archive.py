"""What archiving adds to a request, and what a recall costs at 10,000 archived exchanges, encoding left out.

python -m pytest bench/bench_archive.py --benchmark-enable
"""

import json
from typing import Any

import numpy as np
import pytest

from gemjax import GEMConfig, HistoryCompressor

BLOCKS = 10_000


def encode(texts: list[str]) -> np.ndarray:
    """As many dimensions as the default encoder's, at no cost worth mentioning."""
    seeds = np.array([hash(t) % 2**31 for t in texts], np.uint64)
    return np.sin(np.outer(seeds % 10_007 + 1, np.arange(1, 385)))


def history(n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(5_000)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix it."}]
    for i in range(n):
        call = {"name": "read_file", "arguments": json.dumps({"path": f"src/module_{i % 700}/file_{i}.py"})}
        calls = [{"id": f"c{i}", "type": "function", "function": call}]
        text = " ".join(words[j] for j in rng.zipf(1.3, 120) % 5_000) + f" token-{i:06d}"
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": text})
    return messages


def compressor(archive_blocks: int = 20_000) -> HistoryCompressor:
    return HistoryCompressor(encode, GEMConfig.paper(delta=1.0, archive_blocks=archive_blocks))


@pytest.fixture(scope="module")
def full() -> HistoryCompressor:
    gem = compressor()
    result = gem.compress({"messages": history(BLOCKS + 20)})
    assert BLOCKS + 20 - len(result.forwarded) >= BLOCKS - 30
    gem.recall("token-000100")  # indexes what was dropped
    return gem


@pytest.mark.parametrize(
    "query", ["token-000100", "read_file src/module_17 word4711 where the port is set, word12 word99"]
)
def test_recall(benchmark: Any, full: HistoryCompressor, query: str) -> None:
    encode_once = encode([query])
    full._encoder.encode([query])  # kept: what is timed is without encoding
    assert encode_once.shape == (1, 384)
    found = benchmark(full.recall, query)
    assert found.status == "found"


@pytest.mark.parametrize("archive", [0, 20_000], ids=["without", "with"])
def test_request(benchmark: Any, archive: int) -> None:
    """One more exchange on a history of 1,000; the ratio of the two is what archiving adds."""
    messages = history(1_400)
    gem = compressor(archive)
    gem.compress({"messages": messages[:2001]})
    at = iter(range(2003, len(messages), 2))
    benchmark.pedantic(
        lambda request: gem.compress(request), setup=lambda: (({"messages": messages[: next(at)]},), {}), rounds=150
    )

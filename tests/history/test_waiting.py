"""How long a request waits: for its vectors, and altogether."""

import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from gemjax import GEMConfig, HistoryCompressor
from gemjax.history.deadline import Deadline
from tests.conftest import HashingEncoder
from tests.history.requests import chat, chat_block


class Slow(HashingEncoder):
    """Answers once the gate is open."""

    name = "slow"

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.order: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.order += texts
        assert self.gate.wait(60)
        return super().encode(texts)


def settled(gem: HistoryCompressor) -> None:
    """Until nothing is encoded any more."""
    for _ in range(3000):
        if gem._encoder._background._thread is None:
            return
        time.sleep(0.01)
    raise AssertionError("the encoder never came to an end")


def test_vectors_that_come_late_serve_the_next_request():
    encoder = Slow()
    gem = HistoryCompressor(encoder, GEMConfig(delta=1.0, encoder_wait=0.02))
    request = chat(40)
    first = gem.compress(request)
    assert first.request is request and first.status == "unchanged"
    assert first.reason.startswith("waited 0.02 s for vectors: 4") and "for later requests" in first.reason
    encoder.gate.set()
    settled(gem)
    asked = encoder.texts
    second = gem.compress(request)
    assert second.status == "compressed" and second.event and encoder.texts == asked
    # What is asked first is what any selection needs, then the newest block.
    newest = [t for t in encoder.order if t.startswith(("ACTION", "ASSISTANT"))]
    assert "call 39" in newest[1] or "39" in newest[1]


def test_with_and_without_a_limit_the_same_is_chosen():
    request = chat(60)
    results = [
        HistoryCompressor(HashingEncoder(), GEMConfig(delta=1.0, encoder_wait=wait)).compress(request).report()
        for wait in (None, 60.0)
    ]
    for result in results:
        del result["encoder"]
    assert results[0] == results[1]


def test_meanwhile_the_earlier_selection_stands():
    encoder = Slow()
    encoder.gate.set()
    gem = HistoryCompressor(encoder, GEMConfig(delta=1.0, encoder_wait=30.0))
    request = chat(40)
    first = gem.compress(request)
    gone = set(range(40)) - set(first.forwarded)
    assert gone
    encoder.gate.clear()
    object.__setattr__(gem.config, "encoder_wait", 0.02)
    request["messages"] += chat_block(40)
    pinned = min(gone)
    late = gem.compress(request)
    assert late.status == "compressed" and late.reason.startswith("kept the earlier selection: waited 0.02 s")
    assert set(range(41)) - set(late.forwarded) == gone and late.first_changed_message is None
    request["messages"] += chat_block(41)
    kept = gem.compress(request, keep=lambda block: block.index == pinned)
    assert pinned in kept.forwarded and set(range(42)) - set(kept.forwarded) == gone - {pinned}
    # A history that is another one goes out whole.
    request["messages"][2]["content"] = "another"
    other = gem.compress(request)
    assert other.request is request and other.status == "unchanged"
    encoder.gate.set()
    settled(gem)
    assert "waited" not in gem.compress(request).reason


def test_a_deadline_sends_the_request_out_unchanged_and_loses_nothing():
    encoder = Slow()
    gem = HistoryCompressor(encoder, GEMConfig(delta=1.0, encoder_wait=None, deadline=0.05), strict=True)
    request = chat(40)
    first = gem.compress(request)
    assert first.request is request and first.status == "unchanged"
    assert first.reason == "the deadline of 0.05 s passed while vectors were made"
    assert json.dumps(gem.state_dict())
    encoder.gate.set()
    settled(gem)
    object.__setattr__(gem.config, "deadline", 60.0)
    asked = encoder.texts
    assert gem.compress(request).status == "compressed" and encoder.texts == asked


def test_a_deadline_holds_while_the_encoder_is_loaded(monkeypatch):
    gate = threading.Event()

    def load(given):
        assert gate.wait(60)
        return given

    monkeypatch.setattr("gemjax.encoders.as_encoder", load)
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(deadline=0.05))
    request = chat(20)
    result = gem.compress(request)
    assert result.request is request and result.reason == "the deadline of 0.05 s passed while the encoder was loaded"
    gate.set()


@pytest.mark.parametrize("field", ["encoder_wait", "deadline"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "2", True])
def test_limits_are_positive_seconds(field, value):
    from gemjax.errors import ConfigError

    with pytest.raises(ConfigError, match=f"{field} must be a positive number of seconds or None"):
        GEMConfig(**{field: value})


def ran(command: str) -> list[dict]:
    """The first block, with a command of its own."""
    block = chat_block(0)
    block[0]["tool_calls"][0]["function"]["arguments"] = json.dumps({"command": command})
    return block


def test_a_deadline_ends_the_reading_of_one_block_and_keeps_what_was_read(monkeypatch):
    """The clock stands still but for the costly block, whose work moves it."""
    now = [0.0]
    monkeypatch.setattr("gemjax.history.deadline.time", SimpleNamespace(monotonic=lambda: now[0]))
    costly = ran("echo $(( 1 + 1 )); " * 30_000)
    request = chat(0)
    request["messages"] += costly
    for number in range(1, 30):
        request["messages"] += chat_block(number)
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(delta=1.0, encoder_wait=None, deadline=5.0))
    real = Deadline.check

    def check(self, step):
        if step == "what the blocks did was read":
            now[0] += 10.0 * (len(gem._session("default").signals) == 29)
        real(self, step)

    monkeypatch.setattr(Deadline, "check", check)
    result = gem.compress(request)
    assert result.request is request and result.status == "unchanged"
    assert result.reason == "the deadline of 5 s passed while what the blocks did was read"
    assert len(gem._session("default").signals) == 29  # the newest first; the costly one is the oldest
    monkeypatch.setattr(Deadline, "check", real)
    assert gem.compress(request).status == "compressed"


def test_blocks_that_are_too_costly_to_read_are_named(capsys):
    request = chat(0)
    request["messages"] += ran("x='" + "echo a; " * 1400 + "'; " + "eval $x; " * 40)
    for number in range(1, 30):
        request["messages"] += chat_block(number)
    result = HistoryCompressor(HashingEncoder(), GEMConfig(delta=1.0, encoder_wait=None)).compress(request)
    assert result.unknown == (0,) and result.report()["unknown"] == [0]
    assert [block.unknown for block in result.blocks] == [True] + [False] * 29
    assert result.blocks[0].why.endswith("(not known what it did: reading it would cost too much work)")
    result.explain(width=200)
    said = capsys.readouterr().out
    assert "1 block too costly to read" in said and "not known what it did" in said

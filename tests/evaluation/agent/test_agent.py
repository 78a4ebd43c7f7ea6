"""The scripted agent: it uses only what it sees, and its outcome is the benchmark's own."""

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemjax.encoders import CallableEncoder
from gemjax.errors import ConfigError
from gemjax.evaluation.agent import dojo
from gemjax.evaluation.agent.actor import Actor, leaves
from gemjax.evaluation.agent.run import run
from gemjax.evaluation.agent.schedule import Move, interleaved
from tests.evaluation.agent.diary import Diary

needs_dojo = pytest.mark.skipif(bool(dojo.missing()), reason=f"AgentDojo is {dojo.missing()}")


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(0, 60), st.integers(1, 4))
def test_a_chain_holds_every_call_in_order_and_is_padded(lengths: list[int], least: int, width: int):
    moves = interleaved(lengths, [(0, 0), (1, 0)], least, width)
    for task, length in enumerate(lengths):
        assert [m.call for m in moves if m.task == task and not m.padding] == list(range(length))
    assert len(moves) <= max(least, sum(lengths))
    assert len(moves) >= min(least, sum(lengths)) - 1
    # As many tasks as `width` have begun and not ended, at any time.
    done = dict.fromkeys(range(len(lengths)), 0)
    for move in moves:
        if not move.padding:
            done[move.task] += 1
            assert sum(0 < n < lengths[t] for t, n in done.items()) <= width


MOVES = [Move(0, 0), Move(0, 1)]


def test_what_is_shown_is_used():
    tally = Actor([Diary()], lambda m: m, None, "").run(MOVES, [])
    assert (tally.passed, tally.needed, tally.missing, tally.calls, tally.distances) == (1, 1, 0, 2, [1])


def test_what_is_gone_is_read_again_if_that_changes_nothing():
    world = Diary()
    tally = Actor([world], lambda m: m[:1], None, "").run(MOVES, [])
    assert (tally.passed, tally.missing, tally.reread, tally.lost, world.reads) == (1, 1, 1, 0, 2)


def test_else_the_task_is_lost():
    world = Diary(used_up=True)
    tally = Actor([world], lambda m: m[:1], None, "").run(MOVES, [])
    assert (tally.passed, tally.missing, tally.reread, tally.lost, world.told) == (0, 1, 0, 1, [])


def test_a_recall_does_not_name_what_is_gone_and_may_bring_it_back():
    asked: list[str] = []

    def answer(call: dict[str, Any]) -> dict[str, Any]:
        asked.append(json.loads(call["function"]["arguments"])["query"])
        return {"role": "tool", "tool_call_id": call["id"], "content": "earlier: swordfish-99"}

    world = Diary(used_up=True)
    actor = Actor([world], lambda m: [m[0], *m[3:]], answer, "recall")
    tally = actor.run(MOVES, [])
    assert (tally.passed, tally.missing, tally.recalled, tally.recalls, tally.reread) == (1, 1, 1, 1, 0)
    assert len(asked) == 1 and "swordfish" not in asked[0] and "tell" in asked[0]


def test_the_leaves_of_arguments():
    assert leaves({"a": [1, {"b": "x"}], "c": None, "d": True}) == ["1", "x"]


def test_without_the_benchmark_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dojo.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape("pip install --no-deps agentdojo")):
        dojo.Suite("banking")
    with pytest.raises(ConfigError, match="suite must be"):
        dojo.Suite("casino")


def by_length(texts: list[str]) -> np.ndarray:
    return np.array([[1.0, len(t) % 13, len(t) % 7] for t in texts])


@needs_dojo
def test_every_task_passes_with_everything_sent_and_none_is_lost_with_recall():
    encoder = CallableEncoder(by_length, name="lengths", dim=3)
    chains = run(["banking"], ["none", "keep-last-16", "cost-aware+recall"], encoder, least_calls=60)
    none, last, recall = chains
    assert none.tally.passed == none.tally.tasks == 16 and none.tally.missing == none.tally.lost == 0
    assert none.tally.calls == none.tally.padding + 33 >= 59
    assert last.tally.missing > 0 and last.tally.calls == none.tally.calls + last.tally.reread
    assert recall.tally.passed == 16
    assert recall.tally.missing >= recall.tally.recalled
    for chain in chains:
        assert json.loads(json.dumps(chain.to_json()))["suite"] == "banking"


def test_only_a_compressing_method_has_a_recall():
    with pytest.raises(ConfigError, match="archive to recall from"):
        run(["banking"], ["keep-last-16+recall"])
    with pytest.raises(ConfigError, match="unknown method"):
        run(["banking"], ["luck"])

"""Real histories, damaged: what comes back is the identical object, or valid."""

import random

import pytest

from gemjax import GEMConfig, HistoryCompressor
from gemjax.history import PaperPolicy
from tests.conftest import HashingEncoder
from tests.history.contract import dropped_indices, faults, torn
from tests.history.damage import double, drop, run, spoil, swap, truncate
from tests.history.requests import varied

MUTATIONS = 500


@pytest.mark.data
def test_a_damaged_history_comes_back_as_it_is_or_valid(data_dir):
    """`python -m tests.history.damage 25000` does it for longer."""
    outcomes, found = run(data_dir, MUTATIONS)
    assert found == []
    assert {status for _, _, status in outcomes} == {"failed", "unchanged", "compressed"}
    for name in ("chat", "anthropic", "responses"):
        assert outcomes[name, "whole", "compressed"] > 20 < outcomes[name, "damaged", "failed"]


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_histories_of_every_kind_grow_through_the_facade_and_stay_valid(name):
    """What is forwarded is valid at every step, holds what must stay, and tears no response apart.

    Signed thinking is not bound here, so that forwarded messages are the caller's own objects: `test_bound_thinking`.
    """
    key = "input" if name == "responses" else "messages"
    config = GEMConfig(
        rules=(),
        policy=PaperPolicy(every=4),
        delta=1.0,
        min_blocks=6,
        capacity=3,
        encoder_timeout=None,
        bound_thinking="ignore",
    )
    gem = HistoryCompressor(HashingEncoder(), config)
    compressed = 0
    for seed in range(12):
        rng = random.Random(seed)
        request, of, stays = varied(rng, name, 40)
        messages = request[key]
        # A request goes out after a whole response with its results, or when the user spoke.
        stops = [i + 1 for i in range(len(of) - 1) if of[i] != of[i + 1] and not faults({key: messages[: i + 1]})]
        for stop in [*stops[15::4], len(messages)]:
            part = {**request, key: messages[:stop]}
            result = gem.compress(part, session=str(seed), format=name)
            assert result.status in ("compressed", "unchanged"), result.reason
            if result.request is part:
                continue
            compressed += 1
            dropped = dropped_indices(part[key], result.request[key])
            assert not stays.intersection(dropped)
            assert faults(result.request) == [] and torn(of[:stop], part[key], dropped) == []
    assert compressed >= 25


@pytest.mark.parametrize("name", ["responses", "anthropic"])
def test_damaged_histories_of_every_kind_come_back_as_they_are_or_valid(name):
    key = "input" if name == "responses" else "messages"
    gem = HistoryCompressor(
        HashingEncoder(), GEMConfig(delta=1.0, min_blocks=6, capacity=3, encoder_timeout=None, bound_thinking="ignore")
    )
    outcomes = {}
    for seed in range(200):
        rng = random.Random(seed)
        messages = varied(rng, name, 25)[0][key]
        for _ in range(rng.choice([0, 1, 2])):
            if messages:
                rng.choice([drop, double, swap, truncate, spoil])(rng, messages)
        request = {key: messages}
        result = gem.compress(request, session=f"s{seed % 8}", format=name)
        outcomes[result.status] = outcomes.get(result.status, 0) + 1
        if result.request is not request:
            assert result.status == "compressed" and dropped_indices(messages, result.request[key])
            # A call that ends the history is in flight: it went in unanswered, and goes out as it is.
            assert set(faults(result.request)) <= {f for f in faults(request) if "unanswered" in f}
    assert outcomes.keys() >= {"failed", "compressed"} and "reverted" not in outcomes, outcomes


def test_a_call_that_stands_behind_older_reasoning_once_a_response_is_gone_is_no_fault():
    """Found among 25,000 damaged requests: responses with and without ids in one history came back uncompressed."""
    items = [{"role": "user", "content": "go"}]
    for number in range(8):
        named = {"id": f"rs_{number}"} if number < 4 else {}
        items.append({"type": "reasoning", "summary": [], "encrypted_content": f"x{number}", **named})
        for k in range(2):
            call = {"type": "function_call", "call_id": f"call_{number}_{k}", "name": "f", "arguments": "{}"}
            items += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "y"}]
    first = items.index(next(i for i in items if i.get("call_id") == "call_4_0"))
    config = GEMConfig(rules=(), delta=1.0, capacity=1, min_blocks=4, encoder_timeout=None)
    gem = HistoryCompressor(HashingEncoder(), config)
    request = {"input": items}
    result = gem.compress(request, keep=lambda block: first not in block.messages)
    # The second call of that response, whose reasoning has no id, now stands behind the response before.
    assert result.status == "compressed" and faults(result.request) == []
    assert dropped_indices(items, result.request["input"]) == [first - 1, first, first + 1]

"""Faults that a hostile tester found, each as a test of its kind."""

import copy
import json

import numpy as np
import pytest

import gemjax
import gemjax.history
from gemjax import GEMConfig, HistoryCompressor
from gemjax.history.blocks import Reader
from tests.conftest import HashingEncoder
from tests.history.requests import BUILDERS, anthropic, chat, chat_block, responses


def compressor(**changes):
    return HistoryCompressor(HashingEncoder(), GEMConfig(**{"encoder_timeout": None, **changes}))


def test_a_history_that_is_taken_back_keeps_the_block_it_ends_with_and_what_is_recent():
    full = chat(60)
    for end in range(18, 60):
        gem = compressor()
        gem.compress(full)
        taken_back = {**full, "messages": full["messages"][: 2 + 2 * end]}
        restarted = compressor()
        restarted.load_state_dict("default", json.loads(json.dumps(gem.state_dict())))
        here, there = gem.compress(taken_back), restarted.compress(taken_back)
        assert set(range(end - 3, end)) <= set(here.forwarded)
        assert here.request["messages"][-1] is taken_back["messages"][-1]
        assert here.forwarded == there.forwarded


def test_the_last_block_stays_even_without_rules():
    gem = compressor(rules=(), capacity=4)
    request = chat(40)
    asked = {**request, "messages": [*request["messages"], {"role": "user", "content": "well?"}]}
    gem.compress(asked)
    result = gem.compress(request)
    assert result.request["messages"][-1] is request["messages"][-1]


def test_references_stay_with_what_they_stand_before():
    request = responses(0)
    for number in range(30):
        request["input"] += [
            {"type": "item_reference", "id": f"rs_{number}"},
            {"type": "function_call", "call_id": f"c{number}", "name": "shell", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": "x"},
        ]
    assert gemjax.validate(request) == []
    assert compressor().compress(request).request is request
    bare = {"input": [{"id": "fc_1"}, {"type": "function_call_output", "call_id": "c1", "output": "x"}]}
    assert gemjax.validate(bare) == []


def test_requests_that_continue_a_stored_conversation_are_compressed():
    request = responses(40)
    first = request["input"].pop(1), request["input"].pop(1)
    assert first[1]["type"] == "function_call"
    assert compressor().compress(request).status == "failed"
    result = compressor().compress({**request, "previous_response_id": "resp_1"})
    assert result.status == "compressed"


def test_a_server_tool_answered_in_a_later_message_keeps_that_message():
    request = anthropic(20)
    request["messages"][1]["content"].insert(0, {"type": "server_tool_use", "id": "s", "name": "code", "input": {}})
    request["messages"][3]["content"].insert(
        0, {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {}}
    )
    kept = compressor(rules=(), capacity=1).compress(request).request["messages"]
    assert all(any(m is request["messages"][i] for m in kept) for i in (1, 2, 3, 4))


def test_moving_cache_marks_are_no_rewritten_history():
    gem = compressor()
    request = anthropic(0)
    events = 0
    for number in range(60):
        request["messages"] += anthropic(number + 1)["messages"][-2:]
        marked = copy.deepcopy(request)
        marked["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        result = gem.compress(marked)
        events += result.event
        assert result.event or result.first_changed_message is None
    assert events <= 8


def test_the_reader_holds_no_more_than_the_latest_request():
    reader, request = Reader(), chat(20)
    for number in range(50):
        reader.parse({**request, "messages": [*request["messages"], {"role": "user", "content": f"{number}" * 100}]})
    held = len(reader._messages) + len(reader._settled.records if reader._settled else ())
    assert held <= 43


@pytest.mark.parametrize("name", BUILDERS)
def test_fields_of_any_type_are_problems(name):
    for bad in ([], {}, 5, None, True, ["x"], {"a": 1}):
        for field in ("type", "role", "content", "id", "name", "tool_calls", "call_id", "output", "summary"):
            request = BUILDERS[name](18)
            key = "input" if name == "responses" else "messages"
            for message in (request[key][0], request[key][1]):
                message[field] = bad
            assert isinstance(gemjax.validate(request), list)
            assert compressor().compress(request).status in ("failed", "unchanged", "compressed")
    request = {"messages": [{"role": "user", "content": [{"type": ["x"]}]}]}
    assert [p.rule for p in gemjax.validate(request)] == ["content-type"]


def test_a_refusal_and_an_untyped_output_message_are_valid():
    assert (
        gemjax.validate([{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "refusal": "no"}])
        == []
    )
    message = {"id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}], "type": None}
    assert gemjax.validate({"input": [{"role": "user", "content": "x"}, message]}) == []


def test_rules_cannot_change_what_they_look_at():
    class Vandal:
        name = "vandal"

        def __call__(self, view):
            view.blocks.clear()
            return {}

    request = chat(30)
    result = compressor(rules=(*GEMConfig().rules, Vandal())).compress(request)
    assert result.request is request and "rule 'vandal'" in result.reason


def test_states_that_nobody_saved_are_refused_or_harmless():
    gem = compressor()
    request = chat(40)
    gem.compress(request)
    state = gem.state_dict()
    with pytest.raises(gemjax.StateError, match="overlap"):
        gem.load_state_dict("default", {**state, "dropped": list(range(39))})
    with pytest.raises(gemjax.StateError, match="holds every block"):
        gem.load_state_dict("default", {**state, "core": [], "dropped": list(range(40))})
    with pytest.raises(gemjax.StateError, match="field 'keys'"):
        gem.load_state_dict("default", {**state, "keys": []})
    for rent in (float("nan"), float("inf"), 10**400):
        with pytest.raises(gemjax.StateError, match=r"memory\.rent"):
            gem.load_state_dict("default", {**state, "memory": {"rent": rent}})
    for rent in ("abc", None, [1], -1e300):
        gem.load_state_dict("default", {**state, "memory": {"rent": rent}})
        request["messages"] += chat_block(99)
        assert gem.compress(request).status == "compressed"


def test_policies_may_return_numpy_values():
    class Numbers:
        name, delta, appends_evidence = "numbers", 1.0, False

        def decide(self, situation, memory):
            return gemjax.history.Decision(np.bool_(True), "always", {})

    gem = compressor(policy=Numbers())
    result = gem.compress(chat(30))
    json.dumps([gem.state_dict(), result.report()])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: GEMConfig(encoder_timeout=float("inf")), "encoder_timeout"),
        (lambda: GEMConfig(capacity=2**31), "capacity"),
        (lambda: HistoryCompressor(HashingEncoder), "encoder must have encode, name and dim"),
        (lambda: HistoryCompressor(HashingEncoder(), vectors="/dev/null/x"), "vectors must be a folder"),
        (lambda: compressor().reset([]), "session must be a string"),
        (lambda: compressor().state_dict(5), "session must be a string"),
        (lambda: compressor().load_state_dict(5, {}), "session must be a string"),
    ],
)
def test_bad_settings_are_refused_at_once(make, text):
    with pytest.raises(gemjax.ConfigError, match=text):
        make()


def test_an_encoder_that_exits_does_not_take_the_agent_with_it():
    def leaving(texts):
        raise SystemExit(3)

    request = chat(20)
    assert HistoryCompressor(leaving, GEMConfig(encoder_timeout=None)).compress(request).request is request

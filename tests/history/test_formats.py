"""What stays, what pairs, what is read: the kinds of messages that carry more than a call and its result."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.history.blocks import Reader, parse
from tests.history.contract import faults, torn
from tests.history.requests import anthropic, chat, responses, varied


def spans(request):
    return [b.messages for b in parse(request).blocks]


def call(number, **extra):
    return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}", **extra}


def output(number, **extra):
    return {"type": "function_call_output", "call_id": f"c{number}", "output": "ok", **extra}


USER = {"role": "user", "content": "go"}
DEVELOPER = {"type": "message", "role": "developer", "content": "approved"}


def reasoning(number):
    return {"type": "reasoning", "id": f"rs_{number}", "summary": []}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        # a note between call and output belongs to nobody's block
        ([USER, call(0), DEVELOPER, output(0), call(1), output(1)], [(1, 3), (4, 5)]),
        ([USER, call(0), USER, output(0)], [(1, 3)]),
        ([USER, reasoning(0), DEVELOPER, call(0), output(0)], [(1, 3, 4)]),
        # calls made while another waits are of one response
        ([USER, reasoning(0), call(0), DEVELOPER, call(1), output(1), output(0)], [(1, 2, 4, 5, 6)]),
        ([USER, call(0), DEVELOPER, call(1), output(1), output(0)], [(1, 3, 4, 5)]),
        # outputs in between: the second call may be of the response whose reasoning stands before the first
        ([USER, reasoning(0), call(0), output(0), call(1), output(1), reasoning(2), call(2), output(2)],
         [(1, 2, 3, 4, 5), (6, 7, 8)]),
        # without named reasoning, or after the user spoke, there is nothing to go with
        ([USER, call(0), output(0), call(1), output(1)], [(1, 2), (3, 4)]),
        ([USER, {"type": "reasoning", "summary": []}, call(0), output(0), call(1), output(1)], [(1, 2, 3), (4, 5)]),
        ([USER, reasoning(0), call(0), output(0), USER, call(1), output(1)], [(1, 2, 3), (5, 6)]),
        # an unknown item stays, and so does the exchange that it speaks of
        ([USER, call(0), {"type": "wizard"}, output(0), call(1), output(1)], [(1, 3), (4, 5)]),
        ([USER, call(0), output(0), {"type": "wizard_output", "call_id": "c0"}, call(1), output(1)], [(4, 5)]),
        ([USER, call(0), {"type": "wizard_output", "call_id": "c0"}, call(1), output(1)], [(3, 4)]),
    ],
)  # fmt: skip
def test_responses_items_pair_by_call_id(items, expected):
    parsed = parse({"model": "m", "input": items})
    assert parsed.problems == []
    assert [b.messages for b in parsed.blocks] == expected


KEPT_ITEMS = [
    [{"type": "mcp_approval_request", "id": "a", "name": "f", "arguments": "{}", "server_label": "s"}],
    [{"type": "mcp_call", "id": "a", "name": "f", "arguments": "{}", "server_label": "s"}],
    [{"type": "mcp_list_tools", "id": "a", "server_label": "s", "tools": []}],
    [{"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}},
     {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": []}],
    [{"type": "program", "id": "p", "call_id": "g", "code": "x", "fingerprint": "f"}],
    [{"type": "code_interpreter_call", "id": "ci", "container_id": "k", "code": "x"}],
]  # fmt: skip


@pytest.mark.parametrize("kept", KEPT_ITEMS, ids=[k[0]["type"] for k in KEPT_ITEMS])
def test_an_exchange_with_an_item_that_later_requests_need_stays(kept):
    request = {"input": [USER, *kept, call(0), output(0), call(1), output(1)]}
    n = 1 + len(kept)
    assert parse(request).problems == [] == parse(request).warnings
    assert spans(request) == [(n + 2, n + 3)]


def test_calls_of_a_program_stay_and_direct_ones_do_not():
    by_program = {"type": "program", "caller_id": "g"}
    items = [
        USER,
        call(0, caller=by_program),
        output(0, caller=by_program),
        call(1, caller={"type": "direct"}),
        output(1),
    ]
    assert spans({"input": items}) == [(3, 4)]
    request = anthropic(2)
    request["messages"][1]["content"][2]["caller"] = {"type": "code_execution_20250825", "tool_id": "srv"}
    request["messages"][3]["content"][2]["caller"] = {"type": "direct"}
    assert spans(request) == [(3, 4)]


def test_a_search_for_tools_by_the_caller_is_a_pair():
    search = {"type": "tool_search_call", "execution": "client", "call_id": "t", "arguments": {"paths": ["chat"]}}
    found = {"type": "tool_search_output", "execution": "client", "call_id": "t", "tools": []}
    assert spans({"input": [USER, search, found, call(1), output(1)]}) == [(3, 4)]
    assert [p.rule for p in parse({"input": [USER, search, USER]}).problems] == ["missing-result"]
    assert [p.rule for p in parse({"input": [USER, found]}).problems] == ["orphan-result"]


@pytest.mark.parametrize(
    "part",
    [{"type": "compaction", "content": "so far"}, {"type": "container_upload", "file_id": "f"},
     {"type": "mcp_tool_use", "id": "m", "name": "f", "input": {}, "server_name": "s"},
     {"type": "advisor_tool_result", "tool_use_id": "m", "content": []}, {"type": "wizard"}],
)  # fmt: skip
def test_a_claude_message_with_a_part_that_stands_for_more_stays(part):
    request = anthropic(2)
    request["messages"][1]["content"].insert(0, part)
    parsed = parse(request)
    assert parsed.problems == [] and [b.messages for b in parsed.blocks] == [(3, 4)]
    assert [w.rule for w in parsed.warnings] == (["part-type"] if part["type"] == "wizard" else [])


@pytest.mark.parametrize("name", ["tool_reference", "wizard"])
def test_a_result_that_loads_tools_stays(name):
    request = anthropic(2)
    request["messages"][2]["content"][0]["content"] = [{"type": name, "tool_name": "post"}]
    assert spans(request) == [(3, 4)]
    request = chat(2)
    request["messages"][3]["content"] = [{"type": "tool_reference", "tool_name": "post"}]
    assert spans(request) == [(4, 5)]


def test_an_item_type_that_nobody_knows_is_a_warning():
    request = responses(2)
    request["input"].append({"type": "wizard"})
    parsed = parse(request)
    assert parsed.problems == [] and [(w.rule, w.index) for w in parsed.warnings] == [("item-type", 7)]
    assert len(parsed.blocks) == 2


def test_items_of_the_documented_shapes_are_read():
    request = responses(1)
    request["input"] += [
        USER,
        {
            "type": "apply_patch_call",
            "call_id": "p",
            "status": "completed",
            "operation": {"type": "delete_file", "path": "a"},
        },
        {"type": "apply_patch_call_output", "call_id": "p", "status": "failed"},
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "function_call_output", "name": "clock", "output": "noon"},
        {"type": "compaction_trigger"},
    ]
    parsed = parse(request)
    assert parsed.problems == [] == parsed.warnings
    assert [b.messages for b in parsed.blocks] == [(1, 2, 3), (5, 6)]
    assert parsed.blocks[1].content.results[0].is_error


def test_a_call_that_runs_on_may_be_answered_much_later():
    items = [USER, call(0, **{"async": True}), USER, call(1), output(1)]
    parsed = parse({"input": items})
    assert parsed.problems == [] and [b.messages for b in parsed.blocks] == [(3, 4)]
    parsed = parse({"input": [*items, output(0)]})
    assert parsed.problems == [] and [b.messages for b in parsed.blocks] == [(3, 4)]


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([{"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}], "a"),
        ([{"stdout": "a\n", "stderr": "b\n", "outcome": {"type": "exit", "exit_code": 2}}], "a\nb\nExit code: 2"),
        ([{"stdout": "a", "stderr": "", "outcome": {"type": "timeout"}}, {"stdout": "c"}], "a\nCommand timed out\nc"),
        ([{"type": "input_text", "text": "plain"}], "plain"),
        ([], ""),
    ],
)
def test_a_shell_says_what_it_printed_and_how_it_ended(chunks, text):
    request = {"input": [USER, {"type": "shell_call", "call_id": "s", "action": {"commands": ["x"]}},
                         {"type": "shell_call_output", "call_id": "s", "output": chunks}]}  # fmt: skip
    assert parse(request).blocks[0].content.results[0].text == text


def test_thinking_in_parts_does_not_turn_chat_into_another_format():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "They greet."}]}
    request = chat(2)
    request["messages"].insert(2, {"role": "assistant", "content": [thinking, {"type": "text", "text": "Hm."}]})
    request["messages"][3]["content"] = [{"type": "thinking", "thinking": "look", "signature": "x"}]
    parsed = parse(request)
    assert parsed.format.name == "chat" and parsed.problems == []
    assert parsed.blocks[0].content.reasoning == "look" and parsed.blocks[0].content.text == ""
    assert parsed.records[2].view.text == "Hm." and parsed.records[2].view.reasoning == "They greet."
    # thinking alone is Anthropic's if its words are a string
    assert parse([USER, {"role": "assistant", "content": [thinking]}]).format.name == "chat"
    alone = {"type": "thinking", "thinking": "x", "signature": "s"}
    assert parse([USER, {"role": "assistant", "content": [alone]}]).format.name == "anthropic"


def marked(value):
    """The same messages with a mark on every object that is not data."""
    if isinstance(value, list):
        return [marked(v) for v in value]
    if isinstance(value, dict):
        data = ("input", "arguments")
        return {k: v if k in data else marked(v) for k, v in value.items()} | {"cache_control": {"type": "ephemeral"}}
    return value


@pytest.mark.parametrize("builder", [chat, anthropic])
def test_marks_for_the_cache_are_no_part_of_a_blocks_identity(builder):
    request = builder(3)
    request["messages"][-1]["content"] = [{"type": "tool_result", "tool_use_id": "toolu_2", "content": [
        {"type": "text", "text": "deep"}]}] if builder is anthropic else [{"type": "text", "text": "deep"}]  # fmt: skip
    plain = parse(request)
    other = parse({**request, "messages": marked(copy.deepcopy(request["messages"]))})
    assert [b.key for b in plain.blocks] == [b.key for b in other.blocks]
    assert [r.identity for r in plain.records] == [r.identity for r in other.records]
    assert [r.digest for r in plain.records] != [r.digest for r in other.records]


def test_an_argument_called_like_a_mark_is_data():
    one, two = anthropic(1), anthropic(1)
    one["messages"][1]["content"][2]["input"] = {"cache_control": {"type": "a"}}
    two["messages"][1]["content"][2]["input"] = {"cache_control": {"type": "b"}}
    assert parse(one).blocks[0].key != parse(two).blocks[0].key


def test_more_than_four_marks_are_refused_by_one_provider():
    mark = {"cache_control": {"type": "ephemeral"}}
    request = anthropic(4)
    for message in request["messages"][1::2]:
        message["content"][1].update(mark)
    assert parse(request).problems == []
    request["system"] = [{"type": "text", "text": "s", **mark}]
    (found,) = parse(request).problems
    assert found.rule == "cache-marks" and "5 cache_control marks" in found.message
    request = {**anthropic(4), **mark, "tools": [{"name": "t", "input_schema": {}, **mark}] * 4}
    assert [p.rule for p in parse(request).problems] == ["cache-marks"]
    talk = chat(2)
    talk["messages"] = [{**m, **mark} for m in talk["messages"]]
    assert parse(talk).problems == [] and [w.rule for w in parse(talk).warnings] == ["cache-marks"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1}, iter("ab"), object(), int])
@pytest.mark.parametrize("place", ["message", "frame"])
def test_what_has_no_json_form_is_named_with_its_place_and_a_remedy(value, place):
    request = chat(2)
    if place == "message":
        request["messages"][3]["content"] = [{"type": "text", "text": "x", "extra": [value]}]
    else:
        request["metadata"] = {"extra": [value]}
    (found,) = parse(request).problems
    assert found.rule == "not-json" and found.fix and found.fix != "send JSON values only"
    assert found.index == (3 if place == "message" else -1)
    assert ("message 3.content[0].extra[0]" if place == "message" else "the request.metadata.extra[0]") in found.message


class Row(dict):
    pass


class Text(str):
    pass


def test_tuples_and_subclasses_read_as_what_they_hold():
    request = anthropic(3)
    other = dict(request)
    other["messages"] = tuple(
        Row(m, content=tuple(Row(p) for p in m["content"]) if isinstance(m["content"], list) else Text(m["content"]))
        for m in request["messages"]
    )
    here, there = parse(request), parse(other)
    assert there.problems == [] and there.chars == here.chars == len(json.dumps(other, separators=(",", ":")))
    assert [b.key for b in here.blocks] == [b.key for b in there.blocks]
    assert all(a is b for a, b in zip(there.messages, other["messages"], strict=True))


@pytest.mark.parametrize(
    ("content", "rules"),
    [
        ([{"type": "text", "text": " \n"}], ["empty-content"]),
        (" ", ["empty-content"]),
        ("", ["empty-content"]),
        ([], ["empty-content"]),
        ("said", []),
    ],
)
def test_empty_text_of_the_assistant_is_refused_unless_it_is_last(content, rules):
    said = {"role": "assistant", "content": content}
    request = {"system": "s", "messages": [USER, said, USER]}
    assert [p.rule for p in parse(request).problems] == rules
    last = {"system": "s", "messages": [USER, said]}
    assert [p.rule for p in parse(last).problems] == (rules if isinstance(content, list) and content else [])


def test_empty_instructions_are_refused_by_one_provider():
    request = anthropic(2)
    request["system"] = [{"type": "text", "text": "s"}, {"type": "text", "text": " "}]
    assert [(p.rule, p.index) for p in parse(request).problems] == [("empty-content", -1)]
    request = anthropic(2)
    request["messages"].append({"role": "system", "content": [{"type": "text", "text": ""}]})
    assert [(p.rule, p.index) for p in parse(request).problems] == [("empty-content", 5)]
    request["messages"][-1] = {"role": "system", "output_config": {"effort": "low"}}
    assert parse(request).problems == []


def test_the_last_assistant_message_may_not_end_in_white_space():
    request = {"system": "s", "messages": [USER, {"role": "assistant", "content": "It is "}]}
    assert [p.rule for p in parse(request).problems] == ["trailing-whitespace"]
    assert parse({"system": "s", "messages": [*request["messages"], USER]}).problems == []


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(["chat", "responses", "anthropic"]), st.randoms(use_true_random=False))
def test_any_choice_of_blocks_can_be_dropped(name, rng):
    """Valid by the second opinion, whole responses, nothing that must stay, and the same other blocks."""
    request, of, stays = varied(rng, name, rng.randrange(1, 14))
    assert faults(request) == []
    key = "input" if name == "responses" else "messages"
    parsed = parse(request, name)
    assert parsed.problems == [], [str(p) for p in parsed.problems]
    members = [i for b in parsed.blocks for i in b.messages]
    assert len(members) == len(set(members)) and not set(members) & stays
    for _ in range(4):
        gone = [b for b in parsed.blocks if rng.random() < 0.5]
        dropped = sorted(i for b in gone for i in b.messages)
        kept = [m for i, m in enumerate(request[key]) if i not in set(dropped)]
        again = parse({**request, key: kept}, name)
        assert faults({**request, key: kept}) == [] and again.problems == []
        assert torn(of, request[key], dropped) == []
        rest = [b.key for b in parsed.blocks if b not in gone]
        assert sorted(k.partition("#")[0] for k in rest) == sorted(b.key.partition("#")[0] for b in again.blocks)


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(["chat", "responses", "anthropic"]), st.randoms(use_true_random=False))
def test_reading_these_kinds_as_they_grow_equals_reading_them_afresh(name, rng):
    request, _, _ = varied(rng, name, 12)
    key = "input" if name == "responses" else "messages"
    reader = Reader()
    stop = 0
    while stop < len(request[key]):
        stop += rng.randrange(1, 5)
        part = {**request, key: request[key][:stop]}
        here, fresh = reader.parse(part, name), parse(part, name)
        for field in ("blocks", "latest", "last_block", "chars", "problems", "warnings", "records"):
            assert getattr(here, field) == getattr(fresh, field), field

"""The validity contract: one case a rule and format."""

import copy
import subprocess
import sys

import pytest

import gemjax
from gemjax.history.problems import Problem
from tests.history.requests import BUILDERS, anthropic, chat, chat_block, legacy, responses


def rules(request, **options):
    return [p.rule for p in gemjax.validate(request, **options)]


def broken(builder, change):
    request = copy.deepcopy(builder(3))
    change(request.get("messages") or request["input"])
    return request


@pytest.mark.parametrize("name", BUILDERS)
def test_valid_requests_have_no_problems(name):
    assert gemjax.validate(BUILDERS[name](3)) == []
    assert gemjax.validate(BUILDERS[name](3), warnings=True) == []


CASES = [
    # what is wrong, builder, change of the messages, the rules it breaks
    ("missing result", chat, lambda m: m.pop(3), ["missing-result"]),
    ("missing call", chat, lambda m: m.pop(2), ["orphan-result"]),
    ("doubled result", chat, lambda m: m.insert(4, dict(m[3])), ["duplicate-result"]),
    ("swapped results", chat, lambda m: m.__setitem__(3, m[5]), ["orphan-result", "missing-result"]),
    ("late result", chat, lambda m: m.insert(3, dict(m[1])), ["missing-result", "orphan-result"]),
    ("calls share an id", chat, lambda m: m[2]["tool_calls"].append(m[2]["tool_calls"][0]), ["duplicate-call-id"]),
    ("no call id", chat, lambda m: m[2]["tool_calls"][0].pop("id"), ["missing-id", "orphan-result"]),
    ("number as call id", chat, lambda m: m[2]["tool_calls"][0].update(id=7), ["missing-id", "orphan-result"]),
    ("no result id", chat, lambda m: m[3].pop("tool_call_id"), ["missing-result", "missing-id"]),
    ("empty result id", chat, lambda m: m[3].update(tool_call_id=""), ["missing-result", "missing-id"]),
    ("unknown role", chat, lambda m: m[1].update(role="wizard"), ["role"]),
    ("no role", chat, lambda m: m[1].pop("role"), ["role"]),
    ("role is a list", chat, lambda m: m[1].update(role=["user"]), ["role"]),
    ("message is a string", chat, lambda m: m.__setitem__(1, "hello"), ["message-type"]),
    ("message is null", chat, lambda m: m.__setitem__(1, None), ["message-type"]),
    ("content is a number", chat, lambda m: m[1].update(content=5), ["content-type"]),
    ("content is missing", chat, lambda m: m[1].pop("content"), ["content-type"]),
    ("part is a number", chat, lambda m: m[1].update(content=[5]), ["content-type"]),
    ("text part without text", chat, lambda m: m[1].update(content=[{"type": "text", "text": 1}]), ["content-type"]),
    ("empty assistant", chat, lambda m: m.append({"role": "assistant", "content": None}), ["content-type"]),
    ("tool_calls is an object", chat, lambda m: m[2].update(tool_calls={}), ["calls-type", "orphan-result"]),
    ("call is a string", chat, lambda m: m[2].update(tool_calls=["x"]), ["calls-type", "orphan-result"]),
    ("call without function", chat, lambda m: m[2]["tool_calls"][0].pop("function"), ["calls-type"]),
    ("call without name", chat, lambda m: m[2]["tool_calls"][0]["function"].pop("name"), ["calls-type"]),
    ("not JSON", chat, lambda m: m[1].update(content={1, 2}), ["not-json"]),
    ("legacy: no result", legacy, lambda m: m.pop(2), ["missing-result"]),
    ("legacy: other function", legacy, lambda m: m[2].update(name="other"), ["missing-result", "orphan-result"]),
    ("no output", responses, lambda m: m.pop(3), ["missing-result"]),
    ("no call item", responses, lambda m: m.pop(2), ["orphan-result"]),
    ("doubled output", responses, lambda m: m.insert(4, dict(m[3])), ["duplicate-result"]),
    ("output without output", responses, lambda m: m[3].pop("output"), ["content-type"]),
    ("arguments no text", responses, lambda m: m[2].update(arguments={}), ["arguments-type"]),
    ("no tool_result", anthropic, lambda m: m.pop(2), ["missing-result"]),
    ("no tool_use", anthropic, lambda m: m[1]["content"].pop(), ["orphan-result"]),
    ("reused id", anthropic, lambda m: m.extend(copy.deepcopy(m[1:3])), ["reused-id"]),
    ("empty text", anthropic, lambda m: m[1]["content"].append({"type": "text", "text": ""}), ["empty-content"]),
    ("input is text", anthropic, lambda m: m[1]["content"][2].update(input="x"), ["arguments-type"]),
    ("text first", anthropic, lambda m: m[2]["content"].insert(0, {"type": "text", "text": "x"}), ["result-order"]),
    ("starts with assistant", anthropic, lambda m: m.pop(0), ["first-role"]),
    ("no content", anthropic, lambda m: m[0].pop("content"), ["content-type"]),
    ("empty content", anthropic, lambda m: m[0].update(content=[]), ["empty-content"]),
    ("part without a type", anthropic, lambda m: m[1]["content"][0].pop("type"), ["content-type"]),
    ("tool role", anthropic, lambda m: m[0].update(role="developer"), ["role"]),
]  # fmt: skip


@pytest.mark.parametrize(("builder", "change", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_each_fault_is_named(builder, change, expected):
    request = broken(builder, change)
    assert sorted(rules(request)) == sorted(expected)


@pytest.mark.parametrize(
    ("request_", "rule", "text"),
    [
        (None, "request-type", "got null"),
        ("hello", "request-type", "got a string"),
        (3, "request-type", "got a number"),
        ({}, "no-messages", "got nothing"),
        ({"messages": []}, "no-messages", "got an empty array"),
        ({"messages": "x"}, "no-messages", "got a string"),
        ({"input": {}}, "no-messages", "got an object"),
        ([], "no-messages", "empty"),
    ],
)
def test_what_is_no_request(request_, rule, text):
    (problem,) = gemjax.validate(request_)
    assert problem.rule == rule and text in problem.message and problem.index == -1


def test_a_problem_names_message_id_and_remedy():
    request = chat(3)
    request["messages"].pop(3)
    (problem,) = gemjax.validate(request)
    assert problem == Problem(
        "missing-result",
        2,
        "call_0",
        "a tool call has no result directly after its turn",
        "send its result, or leave the call out",
    )
    assert str(problem).startswith("message 2: missing-result (id 'call_0'): ")


def test_ids_that_restart_every_turn_are_valid_chat():
    request = chat(0)
    for number in range(4):
        request["messages"] += chat_block(number, ids=["call_0"])
    assert gemjax.validate(request) == []


def test_warnings_are_listed_on_request_only():
    request = chat(1)
    request["messages"].append({"role": "assistant", "content": "done", "tool_calls": []})
    request["messages"][2]["tool_calls"][0]["function"]["arguments"] = {"command": "ls"}
    assert rules(request) == []
    assert rules(request, warnings=True) == ["arguments-type", "empty-calls"]


def test_outputs_whose_calls_are_on_the_server_are_valid():
    request = responses(1)
    output = request["input"].pop()
    request["input"] = [output]
    assert rules(request) == ["orphan-result"]
    assert rules({**request, "previous_response_id": "resp_1"}) == []
    assert rules({**request, "conversation": "conv_1"}) == []


def test_reasoning_without_its_item_is_a_warning():
    request = responses(0)
    request["input"] += [{"type": "reasoning", "id": "r", "summary": []}, {"role": "user", "content": "x"}]
    assert rules(request) == [] and rules(request, warnings=True) == ["dangling-reasoning"]


def test_gemini_requests_are_said_to_be_unread():
    (problem,) = gemjax.validate({"contents": [{"role": "user", "parts": [{"text": "x"}]}]})
    assert problem.rule == "no-messages" and "Gemini" in problem.message


def test_unknown_format_is_a_configuration_error():
    with pytest.raises(
        gemjax.ConfigError, match="format must be one of auto, chat, responses, anthropic, got 'gemini'"
    ):
        gemjax.validate(chat(1), format="gemini")


def test_deep_nesting_is_a_problem_not_a_crash():
    request = chat(1)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    request["messages"][1]["content"] = deep
    assert rules(request) == ["not-json"]
    # A list this deep cannot be freed recursively by every interpreter; take it apart.
    while deep:
        deep = deep.pop()


def test_import_and_validate_need_no_heavy_package():
    code = (
        "import sys, gemjax; gemjax.validate([{'role': 'user', 'content': 'x'}]);"
        "print([m for m in ('jax', 'torch', 'transformers', 'flax', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

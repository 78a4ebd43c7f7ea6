"""Histories that hold the objects of SDKs: the real ones where they are installed, and models of their shape."""

from typing import Any

import pytest

from gemjax import GEMConfig, HistoryCompressor
from gemjax.history.blocks import Reader, parse
from tests.conftest import HashingEncoder
from tests.history.contract import dropped_indices, faults
from tests.history.requests import BUILDERS, anthropic, chat, responses

pydantic = pytest.importorskip("pydantic")


class Model(pydantic.BaseModel):
    """Has any field, as the SDKs' models do with what is newer than they are; `unset` is one that was not sent."""

    model_config = pydantic.ConfigDict(extra="allow")
    unset: str | None = None
    hidden: str = pydantic.Field(default="", alias="from")


class Other:
    """Another library's: `model_dump` without options, attributes for fields."""

    def __init__(self, fields: dict) -> None:
        self.__dict__.update(fields)

    def model_dump(self) -> dict:
        return dict(self.__dict__)


def built(value: Any, make: Any) -> Any:
    """The message with objects for what an SDK returns: the whole message, or the parts of an assistant's content."""
    if value.get("role") == "assistant" and isinstance(value.get("content"), list):
        return {**value, "content": [make(p) for p in value["content"]]}
    if value.get("role") == "assistant" or value.get("type") in ("function_call", "reasoning"):
        return make(value)
    return value


@pytest.mark.parametrize("make", [lambda v: Model.model_validate(v), Other], ids=["pydantic", "other"])
@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_objects_read_as_the_dicts_they_stand_for(name, make):
    request = BUILDERS[name](30)
    key = "input" if name == "responses" else "messages"
    held = {**request, key: [built(m, make) for m in request[key]]}
    here, there = parse(request), parse(held)
    assert there.problems == [] and there.format is here.format
    assert [b.key for b in there.blocks] == [b.key for b in here.blocks]
    assert [b.content for b in there.blocks] == [b.content for b in here.blocks]
    assert there.chars == here.chars
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(capacity=3, encoder_timeout=None))
    for stop in (len(held[key]) - 6, len(held[key])):
        part = {**held, key: held[key][:stop]}
        result = gem.compress(part)
        assert result.status == "compressed", result.reason
        dropped = dropped_indices(part[key], result.request[key])
        assert dropped and not faults({key: [m for i, m in enumerate(request[key][:stop]) if i not in dropped]})


def test_a_history_of_objects_that_grows_is_read_as_afresh():
    reader = Reader()
    items = [built(m, lambda v: Model.model_validate(v)) for m in responses(8)["input"]]
    for stop in range(1, len(items) + 1):
        here, there = reader.parse({"input": items[:stop]}), parse({"input": items[:stop]})
        assert (here.blocks, here.chars, here.problems) == (there.blocks, there.chars, there.problems)
    items[2].arguments = '{"n": 99}'
    assert reader.parse({"input": items}).blocks == parse({"input": items}).blocks


class Broken(Other):
    def model_dump(self) -> dict:
        raise OSError("closed")


@pytest.mark.parametrize(
    ("value", "what", "cure"),
    [
        (Broken({}), "Broken.model_dump raised OSError: closed", "plain JSON values"),
        (Other({"x": object()}), "an object is none of JSON's types", "the object's fields"),
        (Model, "Model is a class", "an instance"),
        (b"x", "a bytes", "base64"),
        ((c for c in "ab"), "a generator", "make it a list"),
        ({1}, "a set", "make it a list"),
    ],
)
def test_what_cannot_be_read_is_said_with_a_remedy(value, what, cure):
    request = chat(3)
    request["messages"][1]["content"] = [value]
    (found,) = parse(request).problems
    assert found.rule == "not-json" and what in found.message and cure in found.fix
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(encoder_timeout=None))
    result = gem.compress(request)
    assert result.request is request and result.status == "failed" and what in result.reason and cure in result.reason


def test_the_openai_sdk():
    openai = pytest.importorskip("openai")
    from openai.types.chat import ChatCompletionMessage
    from openai.types.responses import ResponseFunctionToolCall, ResponseReasoningItem

    request = chat(4)
    messages = [ChatCompletionMessage.model_validate(m) if "tool_calls" in m else m for m in request["messages"]]
    parsed = parse({**request, "messages": messages, "tools": openai.NOT_GIVEN, "temperature": openai.omit})
    assert parsed.problems == [] and [b.key for b in parsed.blocks] == [b.key for b in parse(request).blocks]
    request = responses(4)
    models = {"reasoning": ResponseReasoningItem, "function_call": ResponseFunctionToolCall}
    items = [models[i["type"]].model_validate(i) if i.get("type") in models else i for i in request["input"]]
    assert [b.key for b in parse(items).blocks] == [b.key for b in parse(request).blocks]


def test_the_anthropic_sdk():
    types = pytest.importorskip("anthropic.types")
    request = anthropic(4)
    envelope = {"id": "m", "type": "message", "model": "c", "stop_reason": "tool_use", "stop_sequence": None}
    envelope["usage"] = {"input_tokens": 1, "output_tokens": 1}
    messages = [
        {**m, "content": types.Message.model_validate(envelope | m).content} if m["role"] == "assistant" else m
        for m in request["messages"]
    ]
    parsed = parse({**request, "messages": messages})
    assert parsed.problems == [] and [b.key for b in parsed.blocks] == [b.key for b in parse(request).blocks]

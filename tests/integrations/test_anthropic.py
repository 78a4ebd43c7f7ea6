"""The Anthropic SDK with our middleware: sync, async and streamed."""

import asyncio

import pytest

pytest.importorskip("anthropic", reason="the extra `anthropic` is not installed")

import anthropic

from gemjax.integrations.anthropic import middleware
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback
from tests.provider.script import wire_tool, work

FIXED = {"model": "scripted", "max_tokens": 1000, "tools": [wire_tool("anthropic")], "system": "Be exact."}


def marked(messages):
    """The last message carries the cache mark, as agents send it."""
    last = messages[-1]
    parts = [{"type": "text", "text": last["content"]}] if isinstance(last["content"], str) else last["content"]
    return [*messages[:-1], {**last, "content": [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]}]


def take(messages, content):
    messages.append({"role": "assistant", "content": [p.model_dump(exclude_none=True) for p in content]})
    calls = [p for p in content if p.type == "tool_use"]
    if calls:
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": work(**c.input)} for c in calls]
        messages.append({"role": "user", "content": results})
    return bool(calls)


def run(client, stream=False):
    messages = [{"role": "user", "content": "Go through the steps."}]
    while True:
        if stream:
            with client.messages.stream(messages=marked(messages), **FIXED) as events:
                content = events.get_final_message().content
        else:
            content = client.messages.create(messages=marked(messages), **FIXED).content
        if not take(messages, content):
            return messages


async def run_async(client, stream=False):
    messages = [{"role": "user", "content": "Go through the steps."}]
    while True:
        if stream:
            async with client.messages.stream(messages=marked(messages), **FIXED) as events:
                content = (await events.get_final_message()).content
        else:
            content = (await client.messages.create(messages=marked(messages), **FIXED)).content
        if not take(messages, content):
            return messages


def client(url, key, **settings):
    return anthropic.Anthropic(api_key=key, base_url=url, **settings)


@pytest.fixture(scope="module")
def whole(provider):
    run(client(provider.url, "whole"))
    return "whole"


@pytest.mark.parametrize("stream", [False, True])
def test_messages(provider, gem, compare, whole, stream):
    messages = run(client(provider.url, f"sync-{stream}", middleware=[middleware(gem)]), stream)
    assert len(messages) == 2 + 2 * provider.calls
    compare(f"sync-{stream}", whole)


@pytest.mark.parametrize("stream", [False, True])
def test_messages_async(provider, gem, compare, whole, stream):
    async def go():
        settings = {"api_key": f"async-{stream}", "base_url": provider.url, "middleware": [middleware(gem)]}
        async with anthropic.AsyncAnthropic(**settings) as made:
            await run_async(made, stream)

    asyncio.run(go())
    compare(f"async-{stream}", whole)


def test_tokens_are_counted_on_what_is_sent(provider, gem):
    made = client(provider.url, "count", middleware=[middleware(gem)])
    from tests.serve.agents import history

    messages = history("anthropic", 40).messages
    fixed = {k: v for k, v in FIXED.items() if k != "max_tokens"}
    before = made.messages.count_tokens(messages=messages, **fixed).input_tokens
    made.messages.create(messages=messages, **FIXED)
    assert made.messages.count_tokens(messages=messages, **fixed).input_tokens < 0.95 * before


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-5", "scripted"])
def test_signed_thinking_is_never_refused(gem, model, monkeypatch):
    provider = Provider(thinking="error" if "4-5" not in model else None)
    monkeypatch.setitem(FIXED, "model", model)
    with on_loopback(provider.app) as url:
        run(client(url, "bound", middleware=[middleware(gem)]))
        run(client(url, "whole"))
    account, whole = provider.account("bound"), provider.account("whole")
    assert account.turn == 61 and not account.refused
    if model == "claude-opus-5-5":
        assert account.cost <= whole.cost and sum(map(len, account.bodies)) < sum(map(len, whole.bodies))


def test_the_provider_refuses_what_the_real_one_does():
    provider = Provider(calls=3, thinking="error")
    with on_loopback(provider.app) as url:
        made = client(url, "cut", max_retries=0)
        messages = run(made)
        del messages[3:5]
        with pytest.raises(anthropic.BadRequestError, match="bound to"):
            made.messages.create(messages=messages[:-1], **FIXED)
        with pytest.raises(anthropic.BadRequestError, match="without `tool_result` blocks"):
            made.messages.create(messages=messages[:2], **FIXED)

"""LiteLLM: the callback on `acompletion`, the wrapper of `completion`, the proxy's hook."""

import asyncio
import json

import pytest

pytest.importorskip("litellm", reason="litellm is not installed")

import litellm

from gemjax.integrations.litellm import callback, completion_with, proxy_hook
from tests.integrations.litellm_agent import take
from tests.provider.script import wire_tool
from tests.serve.agents import history


def settings(provider, key, stream=False):
    base = {"model": "openai/scripted", "api_base": f"{provider.url}/v1", "api_key": key, "stream": stream}
    return {**base, "tools": [wire_tool("chat")]}


def run(provider, key, complete, stream=False):
    messages = [{"role": "user", "content": "Go through the steps."}]
    while True:
        answer = complete(messages=messages, **settings(provider, key, stream))
        if stream:
            answer = litellm.stream_chunk_builder(list(answer))
        # The library's own message objects go back into the history.
        if not take(messages, answer.choices[0].message):
            return messages


def run_async(provider, key, stream=False):
    async def go():
        messages = [{"role": "user", "content": "Go through the steps."}]
        while True:
            answer = await litellm.acompletion(messages=messages, **settings(provider, key, stream))
            if stream:
                answer = litellm.stream_chunk_builder([chunk async for chunk in answer])
            if not take(messages, answer.choices[0].message):
                return messages

    return asyncio.run(go())


@pytest.fixture(scope="module")
def whole(provider):
    run(provider, "whole", litellm.completion)
    return "whole"


@pytest.mark.parametrize("stream", [False, True])
def test_completion(provider, gem, compare, whole, stream):
    messages = run(provider, f"sync-{stream}", completion_with(gem), stream)
    assert len(messages) == 2 + 2 * provider.calls
    compare(f"sync-{stream}", whole)


@pytest.mark.parametrize("stream", [False, True])
def test_acompletion(provider, gem, compare, whole, stream, monkeypatch):
    monkeypatch.setattr(litellm, "callbacks", [callback(gem)])
    messages = run_async(provider, f"async-{stream}", stream)
    assert len(messages) == 2 + 2 * provider.calls
    compare(f"async-{stream}", whole)


def test_the_proxys_hook_shortens_chat_and_nothing_else(gem):
    hook = proxy_hook(gem)
    assert "async_pre_call_hook" in vars(type(hook)), "the proxy does not call an inherited one"
    data = {"model": "m", "messages": history("chat", 40).messages}
    before = json.dumps(data)
    shorter = asyncio.run(hook.async_pre_call_hook(None, None, data, "acompletion"))
    assert len(shorter["messages"]) < len(data["messages"]) and json.dumps(data) == before
    assert all(any(m is k for m in data["messages"]) for k in shorter["messages"])
    assert asyncio.run(hook.async_pre_call_hook(None, None, data, "aembedding")) is data

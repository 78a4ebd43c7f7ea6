"""The OpenAI SDK on our transports: chat and Responses, sync, async and streamed."""

import asyncio
import json

import pytest

pytest.importorskip("openai", reason="the extra `openai` is not installed")

import openai

from gemjax.integrations.openai import async_transport, transport
from tests.provider.script import wire_tool, work

TASK = "Go through the steps, größte zuerst."


def chat_run(client, stream=False):
    messages = [{"role": "user", "content": TASK}]
    while True:
        answer = client.chat.completions.create(
            model="scripted", messages=messages, tools=[wire_tool("chat")], stream=stream
        )
        messages.append(_chat_message(answer, stream))
        if not messages[-1].get("tool_calls"):
            return messages
        messages += _chat_results(messages[-1])


async def chat_run_async(client, stream=False):
    messages = [{"role": "user", "content": TASK}]
    while True:
        answer = await client.chat.completions.create(
            model="scripted", messages=messages, tools=[wire_tool("chat")], stream=stream
        )
        if stream:
            answer = [chunk async for chunk in answer]
        messages.append(_chat_message(answer, stream))
        if not messages[-1].get("tool_calls"):
            return messages
        messages += _chat_results(messages[-1])


def _chat_message(answer, stream):
    if not stream:
        return answer.choices[0].message.model_dump(exclude_none=True)
    content, calls = "", []
    for chunk in answer:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                if call.id:
                    function = {"name": call.function.name, "arguments": ""}
                    calls.append({"id": call.id, "type": "function", "function": function})
                calls[-1]["function"]["arguments"] += call.function.arguments or ""
    return {"role": "assistant", "tool_calls": calls} if calls else {"role": "assistant", "content": content}


def _chat_results(message):
    return [
        {"role": "tool", "tool_call_id": c["id"], "content": work(**json.loads(c["function"]["arguments"]))}
        for c in message["tool_calls"]
    ]


def responses_run(client, stream=False, typed=False):
    """`typed`: the SDK checks every item against its types, as a user has it; seconds of the SDK's own at 60 calls."""
    items = [{"role": "user", "content": TASK}]
    while True:
        given = {"input": items} if typed else {"extra_body": {"input": items}}
        answer = client.responses.create(model="scripted", tools=[wire_tool("responses")], stream=stream, **given)
        if stream:
            answer = next(event for event in answer if event.type == "response.completed").response
        new = [item.model_dump(exclude_none=True) for item in answer.output]
        items += new
        calls = [i for i in new if i["type"] == "function_call"]
        if not calls:
            return items
        for call in calls:
            output = work(**json.loads(call["arguments"]))
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": output})


def sync_client(provider, key, **settings):
    http = openai.DefaultHttpxClient(trust_env=False, **settings)
    return openai.OpenAI(api_key=key, base_url=f"{provider.url}/v1", http_client=http)


@pytest.fixture(scope="module")
def whole(provider):
    """The same agents without us; their keys."""
    chat_run(sync_client(provider, "whole-chat"))
    responses_run(sync_client(provider, "whole-responses"))
    return {"chat": "whole-chat", "responses": "whole-responses"}


@pytest.mark.parametrize("stream", [False, True])
def test_chat(provider, gem, compare, whole, stream):
    messages = chat_run(sync_client(provider, f"chat-{stream}", transport=transport(gem)), stream)
    assert len(messages) == 2 + 2 * provider.calls, "the agent's own history is whole"
    compare(f"chat-{stream}", whole["chat"])


@pytest.mark.parametrize("stream", [False, True])
def test_chat_async(provider, gem, compare, whole, stream):
    async def run():
        http = openai.DefaultAsyncHttpxClient(trust_env=False, transport=async_transport(gem))
        settings = {"api_key": f"async-{stream}", "base_url": f"{provider.url}/v1", "http_client": http}
        async with openai.AsyncOpenAI(**settings) as client:
            await chat_run_async(client, stream)

    asyncio.run(run())
    compare(f"async-{stream}", whole["chat"])


@pytest.mark.parametrize("stream", [False, True])
def test_responses(provider, gem, compare, whole, stream):
    responses_run(sync_client(provider, f"responses-{stream}", transport=transport(gem)), stream, typed=not stream)
    compare(f"responses-{stream}", whole["responses"], "input")


def test_the_sdks_retries_send_the_same_body_and_are_no_requests(provider, gem):
    from tests.serve.agents import history

    agent = history("chat", 40)
    client = sync_client(provider, "retry", transport=transport(gem, session="one"))
    provider.faults += ["500", "429"]
    client = client.with_options(max_retries=3)
    openai._base_client.MAX_RETRY_DELAY, delay = 0.01, openai._base_client.MAX_RETRY_DELAY
    try:
        # 429 says to wait 17 seconds, which the SDK would do.
        provider.faults.remove("429")
        client.chat.completions.create(model="scripted", messages=agent.messages, tools=[wire_tool("chat")])
    finally:
        openai._base_client.MAX_RETRY_DELAY = delay
    assert len(provider.account("retry").paths) == 2
    assert len(provider.account("retry").requests()[0]["messages"]) < len(agent.messages)
    (name,) = gem._sessions
    assert gem.state_dict(name)["requests"] == 1


def test_other_requests_are_not_touched(provider, gem):
    client = sync_client(provider, "other", transport=transport(gem))
    client.get("/models?x=1", cast_to=object)
    assert provider.account("other").paths == ["/v1/models"]
    assert not gem._sessions

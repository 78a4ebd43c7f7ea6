"""Hooks that get a framework's own messages, before a provider that refuses thinking whose prefix has changed."""

import asyncio
import importlib.util

import pytest

from gemjax.integrations.shortener import Shortener
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback
from tests.provider.script import wire_tool, work
from tests.serve.agents import history

TASK = "Go through the steps."
MODEL = "claude-opus-5-5"


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.fixture
def binding():
    made = Provider(calls=50, thinking="error")
    with on_loopback(made.app) as url:
        made.url = url
        yield made


def check(provider, key):
    account = provider.account(key)
    assert not account.refused and account.turn == provider.calls + 1
    thoughts = [p for m in account.requests()[-1]["messages"] for p in m["content"] if "signature" in p]
    assert thoughts, "the framework sent no signed thinking, so nothing was tested"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_pydantic_ai(binding, gem, mode):
    needs("pydantic_ai")
    from gemjax.integrations.pydantic_ai import capability
    from tests.integrations.pydantic_agent import agent, run

    run(agent(binding, "bound", capability(gem), anthropic=True), mode)
    check(binding, "bound")


def test_strands(binding, gem):
    needs("strands")
    from strands import Agent, agent, tool
    from strands.models.anthropic import AnthropicModel

    from gemjax.integrations.strands import install

    given = {"client_args": {"api_key": "bound", "base_url": binding.url}, "model_id": MODEL, "max_tokens": 100}
    made = Agent(
        AnthropicModel(**given),
        tools=[tool(work, description="Do one step.", inputSchema={"json": wire_tool("anthropic")["input_schema"]})],
        callback_handler=None,
        conversation_manager=agent.NullConversationManager(),
    )
    install(made, gem)
    made(TASK)
    check(binding, "bound")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_litellm(binding, gem, mode, monkeypatch):
    needs("litellm")
    import litellm

    from gemjax.integrations.litellm import callback, completion_with
    from tests.integrations.litellm_agent import take

    base = {"model": f"anthropic/{MODEL}", "api_base": binding.url, "api_key": "bound", "tools": [wire_tool("chat")]}
    messages = [{"role": "user", "content": TASK}]
    if mode == "sync":
        complete = completion_with(gem)
        while take(messages, complete(messages=messages, **base).choices[0].message):
            pass
    else:
        monkeypatch.setattr(litellm, "callbacks", [callback(gem)])

        async def go():
            while take(messages, (await litellm.acompletion(messages=messages, **base)).choices[0].message):
                pass

        asyncio.run(go())
    check(binding, "bound")


SHAPES = {
    "thinking": {"content": [{"type": "thinking", "thinking": "so", "signature": "s"}]},
    "redacted": {"content": [{"type": "redacted_thinking", "data": "s"}]},
    "Converse": {"content": [{"type": "reasoning_content", "reasoning_content": {"text": "so", "signature": "s"}}]},
    "LangChain's own": {"content": [{"type": "reasoning", "reasoning": "so", "extras": {"signature": "s"}}]},
    "beside": {"content": None, "thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": "s"}]},
    "a gateway's": {"content": None, "reasoning_details": [{"type": "reasoning.text", "text": "so", "signature": "s"}]},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_signed_thinking_in_any_shape_holds_the_history(gem, shape):
    messages = history("chat", 60).messages
    objects = [object() for _ in messages]
    assert len(Shortener(gem).kept(objects, lambda: messages, format="chat")) < len(objects)
    signed = [{**m, **SHAPES[shape]} if i == 3 else m for i, m in enumerate(messages)]
    assert Shortener(gem).kept(objects, lambda: signed, format="chat", scope=shape) is objects


def test_langchain_shows_what_gateways_keep_beside_the_message(gem):
    needs("langchain_core")
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from gemjax.integrations.langchain import pre_model_hook

    def messages(**beside):
        made = [HumanMessage("Go through the steps.")]
        for step in range(60):
            call = {"name": "work", "args": {"step": step}, "id": f"c{step}"}
            made += [
                AIMessage("", tool_calls=[call], additional_kwargs=beside),
                ToolMessage(work(step), tool_call_id=f"c{step}"),
            ]
        return made

    hook = pre_model_hook(gem)
    assert len(hook({"messages": messages()})["llm_input_messages"]) < 121
    signed = [{"type": "thinking", "thinking": "so", "signature": "s"}]
    assert len(hook({"messages": messages(thinking_blocks=signed)})["llm_input_messages"]) == 121

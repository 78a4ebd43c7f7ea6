"""The OpenAI Agents SDK with our input filter: run, streamed, and with a session; on Responses and on chat."""

import asyncio

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed")
pytest.importorskip("openai", reason="openai is not installed")

import agents
import openai

from gemjax.integrations.openai_agents import input_filter
from tests.provider.script import work as run_step


def run(provider, key, filter_=None, *, stream=False, session=None, chat=False):
    @agents.function_tool
    def work(step: int) -> str:
        """Do one step."""
        return run_step(step)

    async def go():
        agents.set_tracing_disabled(True)
        http = openai.DefaultAsyncHttpxClient(trust_env=False)
        async with openai.AsyncOpenAI(api_key=key, base_url=f"{provider.url}/v1", http_client=http) as client:
            kind = agents.OpenAIChatCompletionsModel if chat else agents.OpenAIResponsesModel
            made = agents.Agent("worker", instructions="Be exact.", tools=[work], model=kind("scripted", client))
            settings = {"max_turns": 100, "session": session, "run_config": agents.RunConfig()}
            settings["run_config"].call_model_input_filter = filter_
            if stream:
                result = agents.Runner.run_streamed(made, "Go through the steps.", **settings)
                async for _ in result.stream_events():
                    pass
            else:
                result = await agents.Runner.run(made, "Go through the steps.", **settings)
            return result.to_input_list()

    return asyncio.run(go())


@pytest.fixture(scope="module")
def whole(provider):
    run(provider, "whole")
    return "whole"


@pytest.mark.parametrize("stream", [False, True])
def test_responses(provider, gem, compare, whole, stream):
    items = run(provider, f"run-{stream}", input_filter(gem), stream=stream)
    assert sum(i.get("type") == "function_call_output" for i in items) == provider.calls
    compare(f"run-{stream}", whole, "input")


def test_a_session_keeps_everything(provider, gem, compare, whole):
    session = agents.SQLiteSession("s")
    run(provider, "session", input_filter(gem), session=session)
    stored = asyncio.run(session.get_items())
    assert sum(i.get("type") == "function_call_output" for i in stored) == provider.calls
    compare("session", whole, "input")


def test_chat(provider, gem, compare):
    run(provider, "chat", input_filter(gem), chat=True)
    run(provider, "chat-whole", chat=True)
    compare("chat", "chat-whole")


def test_where_the_server_holds_the_history_nothing_is_done(gem):
    from agents.run import CallModelData, ModelInputData

    items = [{"type": "function_call_output", "call_id": "c1", "output": "x"}]
    data = CallModelData(ModelInputData(items, None), agents.Agent("a"), None)
    assert asyncio.run(input_filter(gem)(data)).input is items
    assert not gem._sessions

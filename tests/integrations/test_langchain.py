"""LangChain's `create_agent` and LangGraph's `create_react_agent` with a real chat model, sync, async and streamed."""

import asyncio
import warnings

import pytest

pytest.importorskip("langchain", reason="langchain is not installed")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

import langchain_openai

from gemjax.integrations.langchain import middleware, pre_model_hook
from tests.provider.script import work as run_step

TASK = {"messages": [{"role": "user", "content": "Go through the steps."}]}
LIMIT = {"recursion_limit": 400}


def work(step: int) -> str:
    """Do one step."""
    return run_step(step)


def model(provider, key, **settings):
    return langchain_openai.ChatOpenAI(model="scripted", api_key=key, base_url=f"{provider.url}/v1", **settings)


def agent(provider, key, *middlewares, **settings):
    from langchain.agents import create_agent

    return create_agent(model(provider, key, **settings), [work], system_prompt="Be exact.", middleware=middlewares)


@pytest.fixture(scope="module")
def whole(provider):
    agent(provider, "whole").invoke(TASK, LIMIT)
    return "whole"


def test_invoke(provider, gem, compare, whole):
    state = agent(provider, "sync", middleware(gem)).invoke(TASK, LIMIT)
    assert len(state["messages"]) == 2 + 2 * provider.calls, "the graph's own state is whole"
    compare("sync", whole)


def test_ainvoke(provider, gem, compare, whole):
    state = asyncio.run(agent(provider, "async", middleware(gem)).ainvoke(TASK, LIMIT))
    assert len(state["messages"]) == 2 + 2 * provider.calls
    compare("async", whole)


def test_stream(provider, gem, compare, whole):
    for _ in agent(provider, "stream", middleware(gem), streaming=True).stream(TASK, LIMIT, stream_mode="messages"):
        pass
    compare("stream", whole)


def test_threads_of_one_agent_keep_apart(provider, gem):
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver

    made = create_agent(model(provider, "threads"), [work], middleware=[middleware(gem)], checkpointer=InMemorySaver())
    for thread in ("a", "b"):
        provider.account("threads").turn = 0
        state = made.invoke(TASK, {**LIMIT, "configurable": {"thread_id": thread}})
        assert len(state["messages"]) == 2 + 2 * provider.calls
    assert not provider.account("threads").refused
    assert len(gem._sessions) == 2


def test_the_hook_of_create_react_agent(provider, gem, compare):
    from langgraph.prebuilt import create_react_agent

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = create_react_agent(model(provider, "react"), [work], pre_model_hook=pre_model_hook(gem))
        plain = create_react_agent(model(provider, "react-whole"), [work])
    state = made.invoke(TASK, LIMIT)
    assert len(state["messages"]) == 2 + 2 * provider.calls
    plain.invoke(TASK, LIMIT)
    compare("react", "react-whole")

"""Strands Agents with our input handler."""

import asyncio

import pytest

pytest.importorskip("strands", reason="strands-agents is not installed")

import strands

from gemjax.integrations.strands import install
from tests.provider.script import work as run_step


def agent(provider, key, *tools):
    from strands.models.openai import OpenAIModel

    @strands.tool
    def work(step: int) -> str:
        """Do one step."""
        return run_step(step)

    model = OpenAIModel(client_args={"api_key": key, "base_url": f"{provider.url}/v1"}, model_id="scripted")
    return strands.Agent(
        model,
        tools=[work, *tools],
        system_prompt="Be exact.",
        callback_handler=None,
        conversation_manager=strands.agent.NullConversationManager(),
    )


@pytest.fixture(scope="module")
def whole(provider):
    agent(provider, "whole")("Go through the steps.")
    return "whole"


def test_sync(provider, gem, compare, whole):
    made = agent(provider, "sync")
    install(made, gem)
    made("Go through the steps.")
    assert len(made.messages) == 2 + 2 * provider.calls, "the agent's own messages are whole"
    compare("sync", whole)


@pytest.mark.parametrize("stream", [False, True])
def test_async(provider, gem, compare, whole, stream):
    made = agent(provider, f"async-{stream}")
    install(made, gem)

    async def go():
        if not stream:
            await made.invoke_async("Go through the steps.")
            return
        async for _ in made.stream_async("Go through the steps."):
            pass

    asyncio.run(go())
    compare(f"async-{stream}", whole)

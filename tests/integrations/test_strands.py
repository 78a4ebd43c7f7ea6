"""Strands Agents with our input handler."""

import asyncio

import pytest

pytest.importorskip("strands", reason="strands-agents is not installed")

from gemjax.integrations.strands import install
from tests.integrations.strands_agent import agent


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

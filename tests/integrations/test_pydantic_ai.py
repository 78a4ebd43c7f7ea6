"""pydantic-ai with our capability: run, run_sync and run_stream, on OpenAI's and Anthropic's models."""

import pytest

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")


from gemjax.integrations.pydantic_ai import capability
from tests.integrations.pydantic_agent import agent, run


@pytest.fixture(scope="module")
def whole(provider):
    run(agent(provider, "whole"))
    return "whole"


@pytest.mark.parametrize("mode", ["sync", "async", "stream"])
def test_openai(provider, gem, compare, whole, mode):
    messages = run(agent(provider, mode, capability(gem)), mode)
    assert len(messages) == 2 + 2 * provider.calls, "the history is whole"
    compare(mode, whole)


def test_anthropic(provider, gem, compare):
    run(agent(provider, "claude", capability(gem), anthropic=True))
    run(agent(provider, "claude-whole", anthropic=True))
    compare("claude", "claude-whole")

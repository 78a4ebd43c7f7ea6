"""The recall tool as each framework's own tool: the model asks for what was left out, and gets the original."""

import asyncio
import copy
import importlib.util
import json
import threading

import pytest

from gemjax.errors import ConfigError
from gemjax.history import HistoryCompressor
from gemjax.integrations.recall import text_of
from gemjax.integrations.shortener import Shortener
from tests.conftest import HashingEncoder
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback
from tests.provider.script import work as run_step
from tests.provider.script import working
from tests.serve.agents import FIELDS, history

ASKED, STEPS = 58, (3, 4)
QUERY = " ".join(f"step {step}: opened src/module_{step}.py" for step in STEPS)
TASK = "Go through the steps."


def work(step: int) -> str:
    """Do one step."""
    return run_step(step)


@pytest.fixture
def shortener():
    return Shortener(HistoryCompressor(HashingEncoder()))


@pytest.fixture(scope="module")
def asking():
    """A provider whose model looks for an early step late."""

    def calling(turn):
        return ("recall_dropped_history", {"query": QUERY}) if turn == ASKED else working(turn)

    made = Provider(calling=calling)
    with on_loopback(made.app) as url:
        made.url = url
        yield made


def seen(step):
    """How the beginning of a step's result stands in a request."""
    return f"step {step}: opened src/module_{step}.py\\nfile"


def needs(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


def check(provider, key, api):
    """The step was not in the request that the model answered with its question, and is in the one after."""
    account = provider.account(key)
    assert not account.refused and account.turn == provider.calls + 1
    requests = account.requests()
    assert len({json.dumps(r["tools"]) for r in requests}) == 1, "the definition changed"
    before, after = (json.dumps(r[FIELDS[api]]) for r in requests[ASKED : ASKED + 2])
    lost = [seen(step) for step in STEPS if seen(step) not in before]
    assert lost and all(text in after for text in lost)
    (answer,) = [m for m in requests[ASKED + 1][FIELDS[api]][-2:] if lost[0] in json.dumps(m)]
    assert f"call_{ASKED}" in json.dumps(answer) or f"toolu_{ASKED}" in json.dumps(answer)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_langchain(asking, shortener, mode):
    needs("langchain", "langchain_openai")
    import langchain_openai
    from langchain.agents import create_agent

    from gemjax.integrations.langchain import middleware, recall_tool

    model = langchain_openai.ChatOpenAI(model="scripted", api_key=f"chain-{mode}", base_url=f"{asking.url}/v1")
    agent = create_agent(model, [work, recall_tool(shortener)], middleware=[middleware(shortener)])
    task = {"messages": [{"role": "user", "content": TASK}]}, {"recursion_limit": 400}
    state = asyncio.run(agent.ainvoke(*task)) if mode == "async" else agent.invoke(*task)
    assert len(state["messages"]) == 2 + 2 * asking.calls
    check(asking, f"chain-{mode}", "chat")


@pytest.mark.parametrize("stream", [False, True])
def test_openai_agents(asking, shortener, stream):
    needs("agents")
    import agents
    import openai

    from gemjax.integrations.openai_agents import input_filter, recall_tool

    async def go():
        agents.set_tracing_disabled(True)
        http = openai.DefaultAsyncHttpxClient(trust_env=False)
        async with openai.AsyncOpenAI(
            api_key=f"agents-{stream}", base_url=f"{asking.url}/v1", http_client=http
        ) as client:
            tools = [agents.function_tool(work), recall_tool(shortener)]
            made = agents.Agent("worker", tools=tools, model=agents.OpenAIResponsesModel("scripted", client))
            config = agents.RunConfig(call_model_input_filter=input_filter(shortener))
            if stream:
                result = agents.Runner.run_streamed(made, TASK, max_turns=100, run_config=config)
                async for _ in result.stream_events():
                    pass
            else:
                await agents.Runner.run(made, TASK, max_turns=100, run_config=config)

    asyncio.run(go())
    check(asking, f"agents-{stream}", "responses")


@pytest.mark.parametrize("anthropic", [False, True])
def test_pydantic_ai(asking, shortener, anthropic):
    needs("pydantic_ai")
    import pydantic_ai

    from gemjax.integrations.pydantic_ai import capability, recall_tool
    from tests.integrations.pydantic_agent import agent

    key = f"pydantic-{anthropic}"
    made = agent(asking, key, capability(shortener), anthropic=anthropic, tools=[recall_tool(shortener)])
    made.run_sync(TASK, usage_limits=pydantic_ai.UsageLimits(request_limit=None))
    check(asking, key, "anthropic" if anthropic else "chat")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_strands(asking, shortener, mode):
    needs("strands")
    from gemjax.integrations.strands import install, recall_tool
    from tests.integrations.strands_agent import agent

    made = agent(asking, f"strands-{mode}", recall_tool(shortener))
    install(made, shortener)
    if mode == "sync":
        made(TASK)
    else:
        asyncio.run(made.invoke_async(TASK))
    check(asking, f"strands-{mode}", "chat")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_anthropic(asking, shortener, mode):
    needs("anthropic")
    import anthropic

    from gemjax.integrations.anthropic import async_recall_tool, middleware, recall_tool

    given = {"api_key": f"claude-{mode}", "base_url": asking.url, "middleware": [middleware(shortener)]}
    task = {"model": "scripted", "max_tokens": 100, "messages": [{"role": "user", "content": TASK}]}

    async def awork(step: int) -> str:
        """Do one step."""
        return run_step(step)

    async def go():
        tools = [anthropic.beta_async_tool(awork, name="work"), async_recall_tool(shortener)]
        async with anthropic.AsyncAnthropic(**given) as client:
            await client.beta.messages.tool_runner(tools=tools, thread=False, **task).until_done()

    if mode == "async":
        asyncio.run(go())
    else:
        tools = [anthropic.beta_tool(work), recall_tool(shortener)]
        anthropic.Anthropic(**given).beta.messages.tool_runner(tools=tools, thread=False, **task).until_done()
    check(asking, f"claude-{mode}", "anthropic")


@pytest.mark.parametrize("arguments", [{}, {"q": "x"}, {"query": 7}, {"query": None, "more": []}])
@pytest.mark.parametrize("framework", ["langchain", "openai_agents", "pydantic_ai", "strands", "anthropic"])
def test_a_call_that_makes_no_sense_does_not_end_the_run(shortener, framework, arguments):
    """The model forgets the query, or makes up other arguments: it is told so, and the agent goes on."""
    provider = Provider(3, calling=lambda t: ("recall_dropped_history", arguments) if t == 1 else working(t))
    with on_loopback(provider.app) as url:
        provider.url = url
        if framework == "langchain":
            needs("langchain", "langchain_openai")
            import langchain_openai
            from langchain.agents import create_agent

            from gemjax.integrations.langchain import middleware, recall_tool

            model = langchain_openai.ChatOpenAI(model="scripted", api_key="odd", base_url=f"{url}/v1")
            made = create_agent(model, [work, recall_tool(shortener)], middleware=[middleware(shortener)])
            made.invoke({"messages": [{"role": "user", "content": TASK}]})
        elif framework == "openai_agents":
            needs("agents")
            import agents
            import openai

            from gemjax.integrations.openai_agents import recall_tool

            agents.set_tracing_disabled(True)
            client = openai.AsyncOpenAI(
                api_key="odd", base_url=f"{url}/v1", http_client=openai.DefaultAsyncHttpxClient(trust_env=False)
            )
            tools = [agents.function_tool(work), recall_tool(shortener)]
            made = agents.Agent("worker", tools=tools, model=agents.OpenAIResponsesModel("scripted", client))
            agents.Runner.run_sync(made, TASK)
        elif framework == "pydantic_ai":
            needs("pydantic_ai")
            from gemjax.integrations.pydantic_ai import recall_tool
            from tests.integrations.pydantic_agent import agent, run

            run(agent(provider, "odd", tools=[recall_tool(shortener)]))
        elif framework == "strands":
            needs("strands")
            from gemjax.integrations.strands import recall_tool
            from tests.integrations.strands_agent import agent

            agent(provider, "odd", recall_tool(shortener))(TASK)
        else:
            needs("anthropic")
            import anthropic

            from gemjax.integrations.anthropic import recall_tool

            tools = [anthropic.beta_tool(work), recall_tool(shortener)]
            given = {"model": "scripted", "max_tokens": 100, "messages": [{"role": "user", "content": TASK}]}
            client = anthropic.Anthropic(api_key="odd", base_url=url)
            client.beta.messages.tool_runner(tools=tools, thread=False, **given).until_done()
    account = provider.account("odd")
    assert account.turn == 4 and not account.refused


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
def test_a_loop_of_ones_own(shortener, api):
    agent = history(api, 60)
    shortener.shorten(json.loads(agent.body()), format=api)
    query = {"query": QUERY}
    name = text_of(shortener).name
    call = {
        "chat": {"id": "c", "type": "function", "function": {"name": name, "arguments": json.dumps(query)}},
        "responses": {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(query)},
        "anthropic": {"type": "tool_use", "id": "c", "name": name, "input": query},
    }[api]
    grown = [*agent.messages, {"role": "assistant", "content": "one more"}]
    text = json.dumps(shortener.answer(call, lambda: grown))
    assert any(seen(step) in text for step in STEPS)
    assert shortener.answer({**call, "name": "work", "function": {"name": "work"}}, lambda: grown) is None


def test_nobody_recalls_what_another_conversation_had(shortener):
    outcome = shortener.shorten({"messages": history("chat", 60).messages}, format="chat")
    assert shortener.recall("src/module_4.py", lambda: history("chat", 60).messages).status == "found"
    other = history("chat", 60, task="Another task.")
    for messages in (None, lambda: other.messages, lambda: [], lambda: 1 / 0, lambda: [object()]):
        found = shortener.recall("src/module_4.py", messages)
        assert found.status == "failed" and "module_4" not in found.text
    shortener.sent(outcome.session)
    assert shortener.recall("src/module_4.py").status == "found"
    assert Shortener(shortener.compressor).recall("src/module_4.py").status == "failed"
    seen = []
    thread = threading.Thread(target=lambda: seen.append(shortener.recall("src/module_4.py").status))
    thread.start()
    thread.join()
    assert seen == ["failed"]


def test_a_branch_does_not_inherit_what_its_history_never_had(shortener):
    """The first conversation is compacted by its agent, which leaves its exchanges to the archive alone."""
    messages = history("chat", 60).messages
    first = shortener.shorten({"messages": messages}, format="chat")
    conversation = shortener.lineages._known[first.session]
    shortener.compressor.compress({"messages": [messages[0], *messages[-40:]]}, session=first.session, format="chat")
    conversation.chain = conversation.chain[:1]
    conversation.chain = (*conversation.chain, b"what another agent said")
    branch = [messages[0], {"role": "user", "content": "Someone else's."}]
    second = shortener.shorten({"messages": branch}, format="chat")
    assert second.session != first.session
    assert shortener.recall("src/module_4.py", lambda: branch).status == "nothing"


def test_the_tool_wants_the_hooks_own_shortener(shortener):
    before = copy.deepcopy(text_of(shortener))
    assert text_of(shortener) == before
    with pytest.raises(ConfigError, match="Shortener"):
        text_of(shortener.compressor)

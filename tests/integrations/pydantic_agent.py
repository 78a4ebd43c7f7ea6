"""An agent of pydantic-ai whose one tool does the scripted work."""

import asyncio

import pydantic_ai

from tests.provider.script import work as run_step


def agent(provider, key, *capabilities, anthropic=False, tools=()):
    if anthropic:
        from pydantic_ai.models.anthropic import AnthropicModel as Model
        from pydantic_ai.providers.anthropic import AnthropicProvider as Maker
    else:
        from pydantic_ai.models.openai import OpenAIChatModel as Model
        from pydantic_ai.providers.openai import OpenAIProvider as Maker
    base = provider.url if anthropic else f"{provider.url}/v1"
    model = Model("scripted", provider=Maker(api_key=key, base_url=base))
    made = pydantic_ai.Agent(model, instructions="Be exact.", capabilities=capabilities, tools=tools)

    @made.tool_plain
    def work(step: int) -> str:
        """Do one step."""
        return run_step(step)

    return made


def run(made, mode="sync"):
    limits = pydantic_ai.UsageLimits(request_limit=None)
    task = "Go through the steps."
    if mode == "sync":
        return made.run_sync(task, usage_limits=limits).all_messages()

    async def go():
        if mode == "async":
            return (await made.run(task, usage_limits=limits)).all_messages()
        async with made.run_stream(task, usage_limits=limits) as result:
            await result.get_output()
            return result.all_messages()

    return asyncio.run(go())

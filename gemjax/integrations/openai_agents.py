"""OpenAI Agents SDK: an input filter for `RunConfig`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from gemjax.history import HistoryCompressor
from gemjax.history.archive.tool import query_of
from gemjax.integrations.recall import text_of
from gemjax.integrations.shortener import Shortener, shortener_of

if TYPE_CHECKING:
    from agents import FunctionTool
    from agents.run import ModelInputData


def input_filter(
    compressor: HistoryCompressor | Shortener | None = None, *, session: str | None = None
) -> "Callable[[Any], Awaitable[ModelInputData]]":
    """For `RunConfig(call_model_input_filter=input_filter())`: called before each model call, streamed or not.

    The session keeps all items; the model gets the ones that stay, which are the SDK's own objects. With
    `previous_response_id` or a conversation id only new items come, and they all go out.

    Args:
        compressor: None makes one with the default encoder.
        session: name of the conversation, if there is one only; else histories tell them apart.
    """
    shortener = shortener_of(compressor)

    async def call_model_input_filter(data: Any) -> "ModelInputData":
        from agents.run import ModelInputData

        given = data.model_data
        if _continued_on_the_server(given.input):
            return ModelInputData(input=given.input, instructions=given.instructions)
        scope = f"{session}/{data.agent.name}" if session is not None else f"agent/{data.agent.name}"
        items = await shortener.akept(given.input, lambda: list(given.input), format="responses", scope=scope)
        return ModelInputData(input=list(items), instructions=given.instructions)

    return call_model_input_filter


def recall_tool(shortener: Shortener) -> "FunctionTool":
    """A tool for `Agent(tools=[recall_tool(shortener), ...])` that finds what was left out of its conversation.

    Args:
        shortener: the one that `input_filter` was given.
    """
    from agents import FunctionTool

    text = text_of(shortener)

    async def on_invoke_tool(context: Any, arguments: str) -> str:
        # The run loop's task, in which the filter ran, starts its tools: that tells which conversation asks.
        return (await asyncio.to_thread(shortener.recall, query_of(arguments))).text

    return FunctionTool(
        name=text.name,
        description=text.description,
        params_json_schema=text.schema,
        on_invoke_tool=on_invoke_tool,
        strict_json_schema=False,
    )


def _continued_on_the_server(items: Any) -> bool:
    """Whether an output answers a call that is not here: the provider holds the rest."""
    called = {i.get("call_id") for i in items if isinstance(i, dict) and str(i.get("type")).endswith("_call")}
    return any(
        isinstance(i, dict) and str(i.get("type")).endswith("_call_output") and i.get("call_id") not in called
        for i in items
    )

"""LangChain and LangGraph: a middleware for `create_agent`, and a hook for `create_react_agent`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from gemjax.history import HistoryCompressor
from gemjax.integrations.recall import text_of
from gemjax.integrations.shortener import Shortener, shortener_of

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.tools import BaseTool


def middleware(compressor: HistoryCompressor | Shortener | None = None) -> "AgentMiddleware[Any, Any, Any]":
    """For `create_agent(..., middleware=[middleware()])`: the model gets fewer messages, the state keeps them all.

    Conversations are told apart by the thread id, where there is one, and by their histories.
    """
    from langchain.agents.middleware import AgentMiddleware

    shortener = shortener_of(compressor)

    def shorter(request: Any) -> Any:
        info = getattr(request.runtime, "execution_info", None)
        messages = _kept(shortener, request.messages, getattr(info, "thread_id", None))
        return request if messages is request.messages else request.override(messages=messages)

    class GEMMiddleware(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            return handler(shorter(request))

        async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
            return await handler(await asyncio.to_thread(shorter, request))

    return GEMMiddleware()


def pre_model_hook(
    compressor: HistoryCompressor | Shortener | None = None,
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """For `create_react_agent(..., pre_model_hook=pre_model_hook())`.

    Returns `llm_input_messages`: `messages` would overwrite the graph's state.
    """
    shortener = shortener_of(compressor)

    def hook(state: dict[str, Any]) -> dict[str, Any]:
        return {"llm_input_messages": list(_kept(shortener, state["messages"], None))}

    return hook


def recall_tool(shortener: Shortener) -> "BaseTool":
    """A tool for `create_agent(tools=[recall_tool(shortener), ...])` that finds what was left out of its conversation.

    Args:
        shortener: the one that `middleware` or `pre_model_hook` was given.
    """
    from langchain_core.tools import StructuredTool
    from langgraph.prebuilt import ToolRuntime

    text = text_of(shortener)

    def recall(query: str, runtime: Any) -> str:
        return shortener.recall(query, lambda: _wire(runtime.state["messages"])).text

    # Annotations tell the framework what the model is shown, and what it passes by itself.
    recall.__annotations__ = {"query": Annotated[str, text.query], "runtime": ToolRuntime, "return": str}
    return StructuredTool.from_function(recall, name=text.name, description=text.description)


def _kept(shortener: Shortener, messages: Sequence[Any], thread: str | None) -> Sequence[Any]:
    return shortener.kept(messages, lambda: _wire(messages), format="chat", scope=thread)


def _wire(messages: Sequence[Any]) -> list[Any]:
    from langchain_core.messages import convert_to_openai_messages

    wire = []
    for message in messages:
        # One at a time: a message that becomes several has no one place to be cut at.
        converted: Any = convert_to_openai_messages(message)
        # Where gateways' models keep signed thinking; the conversion leaves it out.
        beside = {k: v for k, v in message.additional_kwargs.items() if k in ("thinking_blocks", "reasoning_details")}
        wire.append({**converted, **beside} if beside and isinstance(converted, dict) else converted)
    return wire

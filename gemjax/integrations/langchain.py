"""LangChain and LangGraph: a middleware for `create_agent`, and a hook for `create_react_agent`."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from gemjax.history import HistoryCompressor
from gemjax.integrations.shortener import Shortener, shortener_of

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentMiddleware


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


def _kept(shortener: Shortener, messages: Sequence[Any], thread: str | None) -> Sequence[Any]:
    from langchain_core.messages import convert_to_openai_messages

    def wire() -> list[Any]:
        # One at a time: a message that becomes several has no one place to be cut at.
        return [convert_to_openai_messages(message) for message in messages]

    return shortener.kept(messages, wire, format="chat", scope=thread)

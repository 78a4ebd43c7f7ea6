"""Anthropic SDK: a middleware that shortens Messages requests, sync, async and streamed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gemjax.history import HistoryCompressor
from gemjax.integrations.recall import text_of
from gemjax.integrations.shortener import Outcome, Shortener, shortener_of
from gemjax.integrations.wire import format_of

if TYPE_CHECKING:
    from anthropic import Middleware
    from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool


def middleware(compressor: HistoryCompressor | Shortener | None = None, *, session: str | None = None) -> "Middleware":
    """For `Anthropic(middleware=[middleware()])` and `AsyncAnthropic`.

    The SDK calls it once an attempt; a repeated request is answered with what went out before.

    Args:
        compressor: None makes one with the default encoder.
        session: name of the conversation, if the client serves one only; else histories tell them apart.
    """
    from anthropic import Middleware

    shortener = shortener_of(compressor)

    def shorter(request: Any) -> tuple[Any, Outcome | None]:
        path, body = urlsplit(request.url).path, request.json
        if request.method.upper() != "POST" or not isinstance(body, dict):
            return request, None
        if path.rstrip("/").endswith("/messages/count_tokens"):
            outcome = shortener.preview(body, format="anthropic", scope=session)
        elif format_of(path) == "anthropic":
            outcome = shortener.shorten(body, format="anthropic", scope=session)
        else:
            return request, None
        return request if outcome.request is body else request.copy(body=outcome.request), outcome

    class Shortening(Middleware):
        def handle(self, request: Any, call_next: Callable[[Any], Any]) -> Any:
            shortened, outcome = shorter(request)
            if outcome is not None:
                shortener.sent(outcome.session)
            return call_next(shortened)

        async def handle_async(self, request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
            shortened, outcome = await asyncio.to_thread(shorter, request)
            if outcome is not None:
                shortener.sent(outcome.session)
            return await call_next(shortened)

    return Shortening()


def recall_tool(shortener: Shortener) -> "BetaFunctionTool[Any]":
    """A tool for `client.beta.messages.tool_runner(tools=[recall_tool(shortener), ...])`: finds what was left out.

    Answers for the conversation whose request went out last in the same thread or task.

    Args:
        shortener: the one that `middleware` was given.
    """
    from anthropic import beta_tool

    text = text_of(shortener)

    def recall(query: str) -> str:
        return shortener.recall(query).text

    return beta_tool(recall, name=text.name, description=text.description, input_schema=text.schema)


def async_recall_tool(shortener: Shortener) -> "BetaAsyncFunctionTool[Any]":
    """`recall_tool` for `AsyncAnthropic`."""
    from anthropic import beta_async_tool

    text = text_of(shortener)

    async def recall(query: str) -> str:
        return (await asyncio.to_thread(shortener.recall, query)).text

    return beta_async_tool(recall, name=text.name, description=text.description, input_schema=text.schema)

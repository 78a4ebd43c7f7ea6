"""Anthropic SDK: a middleware that shortens Messages requests, sync, async and streamed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gemjax.history import HistoryCompressor
from gemjax.integrations.shortener import Shortener, shortener_of
from gemjax.integrations.wire import format_of

if TYPE_CHECKING:
    from anthropic import Middleware


def middleware(compressor: HistoryCompressor | Shortener | None = None, *, session: str | None = None) -> "Middleware":
    """For `Anthropic(middleware=[middleware()])` and `AsyncAnthropic`.

    The SDK calls it once an attempt; a repeated request is answered with what went out before.

    Args:
        compressor: None makes one with the default encoder.
        session: name of the conversation, if the client serves one only; else histories tell them apart.
    """
    from anthropic import Middleware

    shortener = shortener_of(compressor)

    def shorter(request: Any) -> Any:
        path, body = urlsplit(request.url).path, request.json
        if request.method.upper() != "POST" or not isinstance(body, dict):
            return request
        if path.rstrip("/").endswith("/messages/count_tokens"):
            outcome = shortener.preview(body, format="anthropic", scope=session)
        elif format_of(path) == "anthropic":
            outcome = shortener.shorten(body, format="anthropic", scope=session)
        else:
            return request
        return request if outcome.request is body else request.copy(body=outcome.request)

    class Shortening(Middleware):
        def handle(self, request: Any, call_next: Callable[[Any], Any]) -> Any:
            return call_next(shorter(request))

        async def handle_async(self, request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
            return await call_next(await asyncio.to_thread(shorter, request))

    return Shortening()

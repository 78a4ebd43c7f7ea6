"""OpenAI SDK (and any other client on `httpx2`): transports that shorten chat, Responses and Messages bodies."""

import asyncio
from typing import TYPE_CHECKING

from gemjax.history import HistoryCompressor
from gemjax.integrations.shortener import Shortener, shortener_of
from gemjax.integrations.wire import format_of, shortened_body

if TYPE_CHECKING:
    import httpx2


def transport(
    compressor: HistoryCompressor | Shortener | None = None,
    *,
    session: str | None = None,
    inner: "httpx2.BaseTransport | None" = None,
) -> "httpx2.BaseTransport":
    """A transport for a synchronous client: `OpenAI(http_client=DefaultHttpxClient(transport=transport()))`.

    Args:
        compressor: None makes one with the default encoder.
        session: name of the conversation, if the client serves one only; else histories tell them apart.
        inner: sends what comes out; None makes an `httpx2.HTTPTransport`.
    """
    import httpx2

    shortener = shortener_of(compressor)
    sender = inner or httpx2.HTTPTransport()

    class Shortening(httpx2.BaseTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            if _concerns(request):
                body = request.read()
                request = _with_body(request, shortened_body(shortener, request.url.path, body, session), body)
            return sender.handle_request(request)

        def close(self) -> None:
            sender.close()

    return Shortening()


def async_transport(
    compressor: HistoryCompressor | Shortener | None = None,
    *,
    session: str | None = None,
    inner: "httpx2.AsyncBaseTransport | None" = None,
) -> "httpx2.AsyncBaseTransport":
    """`transport` for an asynchronous client. Shortening runs in a worker thread, so that the event loop goes on."""
    import httpx2

    shortener = shortener_of(compressor)
    sender = inner or httpx2.AsyncHTTPTransport()

    class Shortening(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if _concerns(request):
                body = await request.aread()
                shorter = await asyncio.to_thread(shortened_body, shortener, request.url.path, body, session)
                request = _with_body(request, shorter, body)
            return await sender.handle_async_request(request)

        async def aclose(self) -> None:
            await sender.aclose()

    return Shortening()


def _concerns(request: "httpx2.Request") -> bool:
    packed = "content-encoding" in request.headers
    return request.method == "POST" and not packed and format_of(request.url.path) is not None


def _with_body(request: "httpx2.Request", body: bytes, before: bytes) -> "httpx2.Request":
    import httpx2

    if body is before:
        return request
    headers = [(k, v) for k, v in request.headers.raw if k.lower() not in (b"content-length", b"transfer-encoding")]
    return httpx2.Request(request.method, request.url, headers=headers, content=body, extensions=request.extensions)

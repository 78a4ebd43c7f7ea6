"""A WebSocket through the proxy: messages in both directions as they come, and the closing code."""

import asyncio
import contextlib
from typing import Any

import websockets.asyncio.client
import websockets.exceptions

from gemjax.serve.relay import Receive, Scope, Send, forwarded_headers

_OWN = (b"host", b"content-length", b"origin")
_UNSENDABLE = frozenset((1005, 1006, 1015))


async def relay_websocket(url: str, scope: Scope, receive: Receive, send: Send, timeout: float) -> None:
    """Connect to `url` as the client asked to, then pass messages on until one side closes."""
    if (await receive())["type"] != "websocket.connect":
        return
    raw = forwarded_headers(scope["headers"], *_OWN)
    headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in raw if not k.startswith(b"sec-websocket-")]
    try:
        upstream = await websockets.asyncio.client.connect(
            url,
            additional_headers=headers,
            user_agent_header=None,
            subprotocols=scope.get("subprotocols") or None,
            open_timeout=timeout,
            max_size=None,
            proxy=None,
        )
    except websockets.exceptions.InvalidStatus as error:
        await _denied(send, scope, error.response.status_code, bytes(error.response.body or b""))
        return
    except (OSError, TimeoutError, websockets.exceptions.WebSocketException):
        await _denied(send, scope, 502, b"gemjax serve: the upstream could not be reached")
        return
    async with upstream:
        await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol})
        tasks = [asyncio.ensure_future(_up(upstream, receive)), asyncio.ensure_future(_down(upstream, send))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task


async def _up(upstream: Any, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            code = message.get("code", 1000)
            await upstream.close(1000 if code in _UNSENDABLE else code)
            return
        text = message.get("text")
        with contextlib.suppress(websockets.exceptions.ConnectionClosed):
            await upstream.send(text if text is not None else message.get("bytes", b""))


async def _down(upstream: Any, send: Send) -> None:
    try:
        while True:
            message = await upstream.recv()
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    except websockets.exceptions.ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd else 1011
        reason = closed.rcvd.reason if closed.rcvd else ""
        await send({"type": "websocket.close", "code": 1000 if code in _UNSENDABLE else code, "reason": reason})


async def _denied(send: Send, scope: Scope, status: int, body: bytes) -> None:
    """The upstream's refusal of the handshake, with its status where the server can say it."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})

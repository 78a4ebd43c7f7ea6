"""One HTTP request through the proxy: read, shorten, forward, and pass the answer on byte by byte."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2

from gemjax.serve.config import ServeConfig
from gemjax.serve.encodings import TooLarge
from gemjax.serve.endpoints import Endpoint, endpoint_of, path_problem
from gemjax.serve.metrics import Metrics
from gemjax.serve.rewriter import Rewriter, Rewritten

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

# RFC 9110, 7.6.1: meant for the next hop only.
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade expect".split()
)
_WAITING = 64
_PATIENCE = 20


class ClientGone(Exception):
    """The client closed its connection; there is nobody to answer."""


class Refused(Exception):
    """A request that is not forwarded, with the status and the words for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Relay:
    """The proxy's ASGI application for everything that goes upstream.

    Args:
        config: where upstreams are, and the limits.
        rewriter: shortens bodies.
        metrics: counts.
    """

    def __init__(self, config: ServeConfig, rewriter: Rewriter, metrics: Metrics) -> None:
        self.config, self.rewriter, self.metrics = config, rewriter, metrics
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="gemjax-serve")
        self._waiting = 0
        self._bases = {name: httpx2.URL(getattr(config, name)) for name in ("openai", "anthropic")}
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(
                connect=config.connect_timeout, read=config.read_timeout, write=config.read_timeout, pool=None
            ),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60),
            follow_redirects=False,
            # A netrc or proxy variable must not change what the client sends or where it goes.
            trust_env=False,
            proxy=config.proxy,
        )

    async def close(self) -> None:
        """Close connections and wait for what is being written."""
        await self._client.aclose()
        # A hung encoder must not keep the process from ending.
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.metrics.in_flight += 1
        try:
            await self._handle(scope, receive, send)
        except Refused as refusal:
            self.metrics.failed(f"refused_{refusal.status}")
            await _answer(send, refusal.status, str(refusal))
        except ClientGone:
            self.metrics.failed("client_gone")
        finally:
            self.metrics.in_flight -= 1

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: RawHeaders = list(scope["headers"])
        headers = _mapping(raw)
        endpoint = endpoint_of(scope["method"], scope["path"], headers)
        url = self.url(endpoint, scope)
        content: bytes | AsyncIterator[bytes]
        if endpoint.kind == "pass":
            if "content-length" in headers or "transfer-encoding" in headers:
                content = _chunks(receive, self.config.body_timeout)
            else:
                content = b""
            outgoing = forwarded_headers(raw, b"host")
        else:
            body = await self._read(receive, headers)
            rewritten = await self._rewritten(endpoint, headers, body)
            content = rewritten.body
            # What is written anew is not packed again. Its length is that of what goes out.
            changed = (b"content-encoding",) if rewritten.body is not body else ()
            outgoing = forwarded_headers(raw, b"host", b"content-length", *changed)
        request = httpx2.Request(scope["method"], url, headers=outgoing, content=content)
        await self._forward(endpoint, request, receive, send, watch=endpoint.kind != "pass" or content == b"")

    def url(self, endpoint: Endpoint, scope: Scope) -> httpx2.URL:
        """The fixed upstream with the client's path and query, byte for byte. Raises `Refused` for a bad path."""
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "replace")
        raw_path = raw_path.partition(b"?")[0]
        if problem := path_problem(raw_path):
            raise Refused(400, problem)
        base = self._bases[endpoint.upstream]
        query = scope["query_string"]
        target = base.raw_path.rstrip(b"/") + raw_path + (b"?" + query if query else b"")
        return base.copy_with(raw_path=target)

    async def _read(self, receive: Receive, headers: MutableMapping[str, str]) -> bytes:
        limit = self.config.body_limit
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise Refused(413, f"the request body is larger than {limit} bytes")
        chunks = []
        size = 0
        async for chunk in _chunks(receive, self.config.body_timeout):
            size += len(chunk)
            if size > limit:
                raise Refused(413, f"the request body is larger than {limit} bytes")
            chunks.append(chunk)
        return b"".join(chunks)

    async def _rewritten(self, endpoint: Endpoint, headers: MutableMapping[str, str], body: bytes) -> Rewritten:
        """The body to send, within the deadline; else the one that came."""
        began = time.perf_counter()
        if self._waiting >= _WAITING:
            # Too much is waiting already, most likely for an encoder that hangs.
            rewritten = Rewritten(body, "busy")
        else:
            self._waiting += 1
            late = threading.Event()
            job = asyncio.get_running_loop().run_in_executor(
                self._pool, self.rewriter.rewrite, endpoint, headers, body, late
            )
            job.add_done_callback(self._finished)
            try:
                rewritten = await asyncio.wait_for(asyncio.shield(job), self.config.deadline)
            except TimeoutError:
                late.set()
                rewritten = Rewritten(body, "deadline")
            except TooLarge:
                raise Refused(413, f"the unpacked body is larger than {self.config.body_limit} bytes") from None
        self.metrics.shortened(endpoint.label, rewritten.status, time.perf_counter() - began)
        return rewritten

    def _finished(self, job: "asyncio.Future[Rewritten]") -> None:
        self._waiting -= 1
        if not job.cancelled():
            job.exception()  # looked at, so that a late one is not reported

    async def _forward(
        self, endpoint: Endpoint, request: httpx2.Request, receive: Receive, send: Send, watch: bool
    ) -> None:
        """Send the request and relay the answer; stop both as soon as the client is gone."""
        relay = asyncio.ensure_future(self._relay(endpoint, request, send))
        # A body that is still being passed on is read by the upstream's side; only then may nobody else receive.
        gone = asyncio.ensure_future(_disconnected(receive)) if watch else None
        try:
            await asyncio.wait({relay, gone} if gone else {relay}, return_when=asyncio.FIRST_COMPLETED)
            if not relay.done():
                raise ClientGone
            await relay
        finally:
            for task in (relay, gone):
                if task is not None and not task.done():
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await task

    async def _relay(self, endpoint: Endpoint, request: httpx2.Request, send: Send) -> None:
        try:
            response = await self._client.send(request, stream=True)
        except httpx2.ConnectTimeout:
            raise Refused(504, "the upstream could not be reached in time") from None
        except httpx2.TimeoutException:
            raise Refused(504, "the upstream did not answer in time") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError):
            raise Refused(502, "the upstream could not be reached, or closed the connection") from None
        try:
            self.metrics.responded(endpoint.label, response.status_code)
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status_code,
                    "headers": [(k.lower(), v) for k, v in forwarded_headers(response.headers.raw)],
                }
            )
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except httpx2.HTTPError:
            # Cut here as it was cut there: the answer is left unfinished, and the server closes the connection.
            self.metrics.failed("upstream_cut")
        finally:
            await response.aclose()


def forwarded_headers(raw: Iterable[tuple[bytes, bytes]], *without: bytes) -> RawHeaders:
    """Headers for the other side: order and bytes kept, what is meant for one hop left out."""
    raw = list(raw)
    named = {n.strip().lower() for k, v in raw if k.lower() == b"connection" for n in v.split(b",")}
    gone = _HOP_BY_HOP | named | set(without)
    return [(k, v) for k, v in raw if k.lower() not in gone and not k.lower().startswith(b"x-gemjax-")]


def _mapping(raw: RawHeaders) -> dict[str, str]:
    """Header values by lower-case name. Raises `Refused` where two readers may see different lengths."""
    names = [k.lower() for k, _ in raw]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Refused(400, "Content-Length and Transfer-Encoding exclude each other")
    for single in (b"content-length", b"transfer-encoding", b"host"):
        if names.count(single) > 1:
            raise Refused(400, f"{single.decode()} stands twice")
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in raw}


async def _chunks(receive: Receive, silence: float) -> AsyncIterator[bytes]:
    """The body as it comes. Raises `Refused` for a client that stays silent, `ClientGone` for one that left."""
    # A client that sends a byte now and then is not silent, yet it must come to an end.
    clock = asyncio.get_running_loop().time
    end = clock() + _PATIENCE * silence
    while True:
        try:
            message = await asyncio.wait_for(receive(), min(silence, max(end - clock(), 0.0)))
        except TimeoutError:
            raise Refused(408, "the request body did not come in time") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        if chunk := message.get("body", b""):
            yield chunk
        if not message.get("more_body", False):
            return


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(send: Send, status: int, message: str) -> None:
    """A refusal of our own, in the shape that the SDKs of both providers read."""
    error = {"type": "error", "error": {"type": "gemjax_proxy_error", "message": f"gemjax serve: {message}"}}
    body = json.dumps(error).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})

"""The proxy as one ASGI application: its own pages, and the relay for everything else."""

import contextlib
import ipaddress
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from gemjax.history import GEMConfig, HistoryCompressor
from gemjax.integrations.shortener import Shortener
from gemjax.integrations.store import ConversationStore
from gemjax.serve.config import ServeConfig
from gemjax.serve.endpoints import endpoint_of
from gemjax.serve.ledger import Ledger
from gemjax.serve.metrics import Metrics
from gemjax.serve.page import page
from gemjax.serve.relay import Receive, Refused, Relay, Scope, Send
from gemjax.serve.rewriter import Rewriter
from gemjax.serve.websocket import relay_websocket

_LOCAL = frozenset(("127.0.0.1", "localhost", "::1"))
_SAFE = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Proxy:
    """The application. Build one with `create_app`.

    Attributes:
        relay, ledger, metrics: its parts.
    """

    def __init__(self, config: ServeConfig, relay: Relay, ledger: Ledger, metrics: Metrics) -> None:
        self.config, self.relay, self.ledger, self.metrics = config, relay, ledger, metrics
        self._own = Starlette(
            routes=[
                Route("/", self._page),
                Route("/healthz", self._health),
                Route("/metrics", self._metrics),
                Route("/favicon.ico", self._nothing),
            ],
            lifespan=self._lifespan,
        )
        self._own_paths = frozenset(("/", "/healthz", "/metrics", "/favicon.ico"))
        self._hosts = _LOCAL | {h.lower() for h in config.allowed_hosts} | {config.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._own(scope, receive, send)
        elif not self._welcome(scope):
            # A page of another site whose name was pointed at this machine (DNS rebinding) says so in Host.
            self.metrics.failed("refused_421")
            if scope["type"] == "http":
                await PlainTextResponse("gemjax serve: unknown Host", 421)(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["path"] in self._own_paths and scope["method"] in ("GET", "HEAD"):
            await self._own(scope, receive, send)
        else:
            await self.relay(scope, receive, send)

    def _welcome(self, scope: Scope) -> bool:
        values = [v for k, v in scope["headers"] if k == b"host"]
        if len(values) != 1:
            return False
        host = values[0].decode("latin-1").strip().lower()
        if host.startswith("["):
            host = host[1:].partition("]")[0]
        else:
            host = host.partition(":")[0]
        return host in self._hosts

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            url = self.relay.url(endpoint_of("GET", scope["path"], headers), scope)
        except Refused:
            await send({"type": "websocket.close", "code": 1008})
            return
        target = str(url).replace("http", "ws", 1)
        await relay_websocket(target, scope, receive, send, self.config.connect_timeout)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        yield
        await self.relay.close()

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(page(self.config, self.ledger), headers=_SAFE)

    async def _health(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.metrics.text(self.ledger), media_type="text/plain; version=0.0.4")

    async def _nothing(self, _: Request) -> Response:
        return Response(status_code=404)


def create_app(
    config: ServeConfig | None = None,
    compressor: HistoryCompressor | None = None,
    prices: tuple[float, float] = (0.1, 1.25),
) -> Proxy:
    """The proxy as an ASGI application.

    Args:
        config: settings; the defaults forward to the providers' own addresses.
        compressor: shortens; None makes one with the default encoder, which waits no longer than the deadline.
        prices: of a cached and of a newly cached character, in input prices, for the figures on the page.

    Raises: `ConfigError`, and `OSError` if the folder for the state cannot be made.
    """
    config = config or ServeConfig()
    if compressor is None:
        wait = 0.8 * config.deadline
        settings = GEMConfig(
            max_sessions=config.max_sessions, encoder_timeout=wait, encoder_wait=min(wait, 2.0), archive_blocks=0
        )
        compressor = HistoryCompressor(config=settings)
    # What a dry run chose was never sent, so nothing of it may be continued.
    store = ConversationStore(config.state) if config.state is not None and not config.dry_run else None
    shortener = Shortener(compressor, max_sessions=config.max_sessions, store=store, patience=0.5 * config.deadline)
    ledger = Ledger(config.max_sessions, *prices)
    metrics = Metrics()
    relay = Relay(config, Rewriter(shortener, ledger, config.body_limit, config.dry_run), metrics)
    return Proxy(config, relay, ledger, metrics)


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

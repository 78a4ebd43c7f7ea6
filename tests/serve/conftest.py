"""A provider, a proxy before it, and a client that shows raw bytes."""

import contextlib
import dataclasses

import httpx2
import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from gemjax.commands.serve import server_settings
from gemjax.history import GEMConfig, HistoryCompressor
from gemjax.serve.app import Proxy, create_app
from gemjax.serve.config import ServeConfig
from tests.conftest import HashingEncoder
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback


@dataclasses.dataclass
class Stand:
    """What a test of the proxy needs."""

    provider: Provider
    proxy: Proxy
    url: str
    direct: str

    def client(self, **settings):
        return httpx2.Client(base_url=self.url, trust_env=False, timeout=20, **settings)


@contextlib.contextmanager
def stand(provider=None, encoder=None, **settings):
    provider = provider or Provider()
    with on_loopback(provider.app) as direct:
        config = ServeConfig(**{"openai": direct, "anthropic": direct, **settings})
        gem = HistoryCompressor(encoder or HashingEncoder(), GEMConfig(encoder_timeout=0.8 * config.deadline))
        app = create_app(config, gem)
        options = {k: v for k, v in server_settings(config).items() if k not in ("log_level",)}
        with on_loopback(app, **{**options, "timeout_graceful_shutdown": 1}) as url:
            yield Stand(provider, app, url, direct)


@pytest.fixture(scope="module")
def shared():
    """One stand for tests that leave nothing behind but their own conversations."""
    with stand() as made:
        yield made

"""The proxy's settings."""

import dataclasses
import os
from urllib.parse import urlsplit

from gemjax.errors import ConfigError

OPENAI, ANTHROPIC = "https://api.openai.com", "https://api.anthropic.com"


@dataclasses.dataclass(frozen=True)
class ServeConfig:
    """Settings of the proxy.

    Args:
        openai, anthropic: where requests go, `https://host[:port][/path]`. Nothing in a request can change that.
        host: address to listen on. Anything but this machine's own is the caller's decision.
        port: TCP port, 1 to 65535.
        allowed_hosts: further names (without a port) that may stand in `Host`, beside this machine's own.
        dry_run: forward everything unchanged; show what would have been saved.
        body_limit: bytes of a request's body that is looked into, also after it is unpacked; more is answered with 413.
        head_timeout: seconds that a client may take for the head of a request.
        body_timeout: seconds that a client may be silent while it sends its body.
        connect_timeout, read_timeout: seconds that the upstream may take to connect, and be silent.
        deadline: seconds that shortening may take; after that the request goes out as it came.
        max_sessions: conversations remembered.
        state: folder for what must survive a restart, or None.
        proxy: an HTTP proxy between here and the upstreams.

    Raises: `ConfigError`, naming the argument.
    """

    openai: str = OPENAI
    anthropic: str = ANTHROPIC
    host: str = "127.0.0.1"
    port: int = 8787
    allowed_hosts: tuple[str, ...] = ()
    dry_run: bool = False
    body_limit: int = 64 * 1024 * 1024
    head_timeout: float = 15.0
    body_timeout: float = 30.0
    connect_timeout: float = 15.0
    read_timeout: float = 900.0
    deadline: float = 10.0
    max_sessions: int = 256
    state: str | os.PathLike[str] | None = None
    proxy: str | None = None

    def __post_init__(self) -> None:
        for name in ("openai", "anthropic"):
            object.__setattr__(self, name, _upstream(name, getattr(self, name)))
        if type(self.port) is not int or not 1 <= self.port <= 65535:
            raise ConfigError(f"port must be between 1 and 65535, got {self.port!r}")
        for name in ("body_limit", "max_sessions"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name} must be a positive integer, got {value!r}")
        for name in ("head_timeout", "body_timeout", "connect_timeout", "read_timeout", "deadline"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value <= 1e6:
                raise ConfigError(f"{name} must be a positive number of seconds, got {value!r}")


def _upstream(name: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or parts.username is not None or parts.query or parts.fragment or not url.isascii():
        raise ConfigError(f"{name} must be http(s)://host[:port][/path], got {url!r}")
    # `/v1` belongs to the paths that clients send.
    return url.rstrip("/").removesuffix("/v1")

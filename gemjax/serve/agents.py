"""The tools that can be pointed at a local proxy: the line that does it, and how to see that it works."""

import dataclasses
import http.client
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

DEFAULT_BASE = "http://127.0.0.1:8787"


@dataclasses.dataclass(frozen=True)
class Agent:
    """One tool.

    Attributes:
        line: what to type, with `{base}` for the proxy's address.
        variable: environment variable that the tool reads, empty if it is set another way.
        suffix: what the tool's base URL has after the proxy's address.
    """

    line: str
    variable: str = ""
    suffix: str = ""


AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent("export ANTHROPIC_BASE_URL={base}", "ANTHROPIC_BASE_URL"),
    "codex": Agent("codex -c openai_base_url={base}/v1"),
    "openai-sdk": Agent("export OPENAI_BASE_URL={base}/v1", "OPENAI_BASE_URL", "/v1"),
    "anthropic-sdk": Agent("export ANTHROPIC_BASE_URL={base}", "ANTHROPIC_BASE_URL"),
    "aider": Agent("export OPENAI_API_BASE={base}/v1", "OPENAI_API_BASE", "/v1"),
    "litellm": Agent("export OPENAI_API_BASE={base}/v1", "OPENAI_API_BASE", "/v1"),
}


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at: whether it is as it should be, and what to do or what was seen."""

    good: bool
    text: str


def checks(name: str, base: str, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """Look at whether a tool started from here would reach the proxy.

    Args:
        name: a key of `AGENTS`.
        base: address of the proxy.
        environment: variables that the tool would see.
    """
    agent = AGENTS[name]
    found = [_reached(base)]
    if agent.variable:
        wanted, value = base + agent.suffix, environment.get(agent.variable)
        if value is None:
            found.append(Check(False, f"{agent.variable} is not set in this shell"))
        elif value.rstrip("/") != wanted:
            found.append(Check(False, f"{agent.variable} is {value}, expected {wanted}"))
        else:
            found.append(Check(True, f"{agent.variable} is set"))
    for variable in ("HTTP_PROXY", "http_proxy"):
        if variable in environment and not _excepted(base, environment):
            found.append(Check(False, f"{variable} is set: add {urlsplit(base).hostname} to NO_PROXY"))
            break
    return found


def _reached(base: str) -> Check:
    parts = urlsplit(base)
    if parts.scheme != "http" or not parts.hostname:
        return Check(False, f"the proxy's address must be http://host:port, got {base}")
    try:
        connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=3)
        try:
            connection.request("GET", "/healthz")
            response = connection.getresponse()
            body = response.read(100)
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException):
        return Check(False, f"nothing answers at {base}; start it with: gemjax serve --port {parts.port or 80}")
    if response.status == 200 and body == b"ok\n":
        return Check(True, f"gemjax serve answers at {base}")
    return Check(False, f"something else than gemjax serve answers at {base} (status {response.status})")


def _excepted(base: str, environment: Mapping[str, str]) -> bool:
    names = (environment.get("NO_PROXY") or environment.get("no_proxy") or "").split(",")
    return any(n.strip() in ("*", urlsplit(base).hostname) for n in names)

"""Which API a path belongs to, where it goes, and which session a request names."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from gemjax.integrations.lineage import scope_digest

Kind = Literal["shorten", "count", "pass"]


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """What is done with a request: `kind`, the wire `format` of its body, where it goes, a `label` for counters."""

    kind: Kind
    format: str
    upstream: Literal["openai", "anthropic"]
    label: str


_KNOWN = {
    "/chat/completions": Endpoint("shorten", "chat", "openai", "chat"),
    "/responses": Endpoint("shorten", "responses", "openai", "responses"),
    "/messages": Endpoint("shorten", "anthropic", "anthropic", "messages"),
    "/messages/count_tokens": Endpoint("count", "anthropic", "anthropic", "count_tokens"),
}
_PASS_OPENAI = Endpoint("pass", "", "openai", "other")
_PASS_ANTHROPIC = Endpoint("pass", "", "anthropic", "other")

# Explicit names first. Claude Code's sub-agents share their parent's, so histories tell agents apart within one.
_SESSION_HEADERS = (
    "x-gemjax-session",
    "x-claude-code-session-id",
    "session_id",
    "session-id",
    "conversation_id",
    "conversation-id",
)


def endpoint_of(method: str, path: str, headers: Mapping[str, str]) -> Endpoint:
    """The endpoint of a request; what is not known passes through, to Anthropic if its headers say so."""
    known = _KNOWN.get(path.removeprefix("/v1").rstrip("/"))
    if known is not None and method == "POST":
        return known
    if known is not None:
        return dataclasses.replace(known, kind="pass", label="other")
    anthropic = "anthropic-version" in headers or "x-api-key" in headers or path.startswith("/v1/messages/")
    return _PASS_ANTHROPIC if anthropic else _PASS_OPENAI


def scope_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """The session that a request names, as a digest; None if it names none."""
    for name in _SESSION_HEADERS:
        if value := headers.get(name):
            return scope_digest(name, value)
    key = body.get("prompt_cache_key")
    return scope_digest("prompt_cache_key", key) if isinstance(key, str) and key else None


def path_problem(raw_path: bytes) -> str | None:
    """Why a path is refused: it must not be able to leave the upstream's own."""
    if not raw_path.startswith(b"/"):
        return "the path must start with /"
    if any(c < 0x21 or c > 0x7E or c in b'\\"<>^`{|}#' for c in raw_path):
        return "the path holds characters that a URL does not"
    plain = raw_path.lower().replace(b"%2e", b".").replace(b"%2f", b"/").replace(b"%5c", b"/")
    if b"%00" in plain or b"%0d" in plain or b"%0a" in plain:
        return "the path holds control characters"
    if b"%25" in plain:
        # Encoded twice: whoever decodes it again would see another path.
        plain = plain.replace(b"%252e", b".").replace(b"%252f", b"/").replace(b"%255c", b"/")
    if any(segment in (b".", b"..") for segment in plain.split(b"/")):
        return "the path holds dot segments"
    return None

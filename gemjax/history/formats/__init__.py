"""Wire formats: chat completions, Responses items, Anthropic Messages; detection and lookup by name."""

from typing import Any

from gemjax.errors import ConfigError
from gemjax.history.formats.anthropic import AnthropicFormat
from gemjax.history.formats.base import Exchange, Format, View, compact_json
from gemjax.history.formats.chat import ChatFormat
from gemjax.history.formats.objects import NotJSON, plain
from gemjax.history.formats.responses import ResponsesFormat

__all__ = ["FORMATS", "Exchange", "Format", "NotJSON", "View", "compact_json", "detect", "format_named", "plain"]

FORMATS: dict[str, Format] = {f.name: f for f in (ChatFormat(), ResponsesFormat(), AnthropicFormat())}

_ANTHROPIC_PARTS = frozenset({"tool_use", "tool_result", "server_tool_use", "redacted_thinking", "mcp_tool_use"})
_ANTHROPIC_FIELDS = ("system", "anthropic_version", "anthropic_beta", "stop_sequences", "thinking")


def format_named(name: str) -> Format:
    """The format called `name`. Raises `ConfigError` for an unknown one."""
    try:
        return FORMATS[name]
    except (KeyError, TypeError):
        known = ", ".join(("auto", *FORMATS))
        raise ConfigError(f"format must be one of {known}, got {name!r}") from None


def detect(request: Any) -> Format:
    """The format a request is written in; chat completions where nothing tells them apart.

    Looks at the request's fields, then at its messages: an Anthropic history shows itself by typed content blocks, a
    Responses history by items with a `type` of their own. Thinking parts alone decide only where nothing else does,
    since servers for chat completions have them too.
    """
    messages = request
    if isinstance(request, dict):
        if "messages" not in request and "input" in request:
            return FORMATS["responses"]
        messages = request.get("messages")
    thinks = False
    for message in messages if isinstance(messages, list | tuple) else ():
        message = _readable(message)
        if not isinstance(message, dict):
            continue
        if message.get("role") in ("tool", "function") or "tool_calls" in message or "function_call" in message:
            return FORMATS["chat"]
        if not isinstance(request, dict) and "type" in message:
            return FORMATS["responses"]
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            name = part.get("type") if isinstance(part, dict) else None
            if isinstance(name, str) and name in _ANTHROPIC_PARTS:
                return FORMATS["anthropic"]
            thinks |= name == "thinking" and isinstance(part.get("thinking"), str)
    if isinstance(request, dict):
        tools = request.get("tools")
        schema = isinstance(tools, list) and any(isinstance(t, dict) and "input_schema" in t for t in tools)
        if schema or any(f in request for f in _ANTHROPIC_FIELDS):
            return FORMATS["anthropic"]
    return FORMATS["anthropic" if thinks else "chat"]


def _readable(message: Any) -> Any:
    """A message as plain JSON where it is an object of an SDK, or holds some; as it is where that fails."""
    try:
        return plain(message)
    except (NotJSON, RecursionError):
        return message

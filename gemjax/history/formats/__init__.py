"""Wire formats: chat completions, Responses items, Anthropic Messages; detection and lookup by name."""

from typing import Any

from gemjax.errors import ConfigError
from gemjax.history.formats.anthropic import AnthropicFormat
from gemjax.history.formats.base import Exchange, Format, View, compact_json
from gemjax.history.formats.chat import ChatFormat
from gemjax.history.formats.responses import ResponsesFormat

__all__ = ["FORMATS", "Exchange", "Format", "View", "compact_json", "detect", "format_named"]

FORMATS: dict[str, Format] = {f.name: f for f in (ChatFormat(), ResponsesFormat(), AnthropicFormat())}

_ANTHROPIC_PARTS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})
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
    Responses history by items with a `type` of their own.
    """
    messages = request
    if isinstance(request, dict):
        if "messages" not in request and "input" in request:
            return FORMATS["responses"]
        messages = request.get("messages")
    if isinstance(messages, list):
        for message in messages:
            if not isinstance(message, dict):
                continue
            if message.get("role") in ("tool", "function") or "tool_calls" in message or "function_call" in message:
                return FORMATS["chat"]
            if "type" in message and (message["type"] != "message" or isinstance(request, list)):
                return FORMATS["responses"]
            content = message.get("content")
            if isinstance(content, list) and any(
                isinstance(part, dict) and str(part.get("type")) in _ANTHROPIC_PARTS for part in content
            ):
                return FORMATS["anthropic"]
    if isinstance(request, dict):
        tools = request.get("tools")
        schema = isinstance(tools, list) and any(isinstance(t, dict) and "input_schema" in t for t in tools)
        if schema or any(f in request for f in _ANTHROPIC_FIELDS):
            return FORMATS["anthropic"]
    return FORMATS["chat"]

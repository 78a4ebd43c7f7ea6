"""The texts of a message's tool results, and the message with other texts in their place."""

from collections.abc import Callable
from typing import Any

Replace = Callable[[str, str], str]
"""From the id of a call and a text of its result to the text that takes its place; the same one leaves it alone."""

_ITEMS = frozenset({"function_call_output", "custom_tool_call_output", "local_shell_call_output"})
_TEXT = frozenset({"text", "input_text", "output_text"})


def with_results(message: Any, format_name: str, replace: Replace) -> Any:
    """A copy of a message whose results hold other texts; the same object if none of them changes.

    Results that report a failure by the provider's flag, pictures and other parts stay as they are.

    Args:
        message: as plain JSON.
        format_name: `chat`, `responses` or `anthropic`.
        replace: asked for each text.
    """
    if not isinstance(message, dict):
        return message
    if format_name == "anthropic":
        return _with_parts(message, replace)
    if format_name == "responses":
        kind, field, name = message.get("type"), "output", message.get("call_id")
        if kind == "shell_call_output":
            return _changed(message, field, _printed(message.get(field), name, replace))
        if kind not in _ITEMS or message.get("status") == "failed":
            return message
    else:
        field, name = "content", message.get("tool_call_id", message.get("name"))
        if message.get("role") not in ("tool", "function") or message.get("is_error") is True:
            return message
    return _changed(message, field, _content(message.get(field), name, replace))


def _with_parts(message: dict[str, Any], replace: Replace) -> Any:
    parts = message.get("content")
    if message.get("role") != "user" or not isinstance(parts, list):
        return message
    new = [
        _changed(part, "content", _content(part.get("content"), part.get("tool_use_id"), replace))
        if isinstance(part, dict) and part.get("type") == "tool_result" and part.get("is_error") is not True
        else part
        for part in parts
    ]
    return _changed(message, "content", _same_or(parts, new))


def _content(value: Any, name: Any, replace: Replace) -> Any:
    """A string, or a list of parts of which some are text."""
    if not isinstance(name, str):
        return value
    if isinstance(value, str):
        return replace(name, value)
    if not isinstance(value, list):
        return value
    return _same_or(value, [_part(part, name, replace) for part in value])


def _part(part: Any, name: str, replace: Replace) -> Any:
    if isinstance(part, dict) and part.get("type") in _TEXT and isinstance(part.get("text"), str):
        return _changed(part, "text", replace(name, part["text"]))
    return part


def _printed(chunks: Any, name: Any, replace: Replace) -> Any:
    """What a shell printed, chunk by chunk."""
    if not isinstance(chunks, list) or not isinstance(name, str):
        return chunks
    new = []
    for chunk in chunks:
        for field in ("stdout", "stderr"):
            if isinstance(chunk, dict) and isinstance(chunk.get(field), str):
                chunk = _changed(chunk, field, replace(name, chunk[field]))
        new.append(chunk)
    return _same_or(chunks, new)


def _changed(value: dict[str, Any], field: str, new: Any) -> dict[str, Any]:
    return value if new is value.get(field) else {**value, field: new}


def _same_or(old: list[Any], new: list[Any]) -> list[Any]:
    return old if all(a is b for a, b in zip(old, new, strict=True)) else new

"""Arguments of a call as fields: a JSON object, a Python literal that some agents send instead, or free text."""

import ast
import json
from typing import Any

from gemjax.history.signals.work import MOST, Work

MAX_LITERAL, _PARSED = 20_000, 12
"""Longest text tried as a Python literal, in characters; units of work that parsing costs for each of them."""
TEXT = "text"
"""Field under which free text stands."""


def fields(arguments: str, work: Work | None = None) -> dict[str, Any]:
    """The fields of a call's arguments; free text becomes the one field `TEXT`. Raises `WorkSpent` only.

    >>> fields('{"path": "a.py"}'), fields("{'path': 'a.py'}"), fields("*** Begin Patch")
    ({'path': 'a.py'}, {'path': 'a.py'}, {'text': '*** Begin Patch'})
    """
    text = arguments.strip()
    if text[:1] == "{":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = _literal(text, work or Work(MOST))
        if isinstance(value, dict):
            return {str(key): item for key, item in value.items()}
    elif text[:1] == '"':  # free text that was encoded once more
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, str):
            return {TEXT: value}
    return {TEXT: arguments} if text else {}


def _literal(text: str, work: Work) -> Any:
    if len(text) > MAX_LITERAL or "'" not in text:
        return None
    work.spend(_PARSED * len(text))
    try:
        return ast.literal_eval(text.replace("\\", "\\\\"))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def strings(value: Any, limit: int = 64) -> list[str]:
    """The strings of a field that may hold one or several: a string, a list of strings or of objects with paths.

    >>> strings(["a.py", {"path": "b.py"}, 3])
    ['a.py', 'b.py']
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return []
    out: list[str] = []
    for item in value[:limit]:
        if isinstance(item, str):
            out.append(item)
        elif isinstance(item, dict):
            out.extend(v for k, v in item.items() if k in ("path", "file_path", "file", "url") and isinstance(v, str))
    return out[:limit]

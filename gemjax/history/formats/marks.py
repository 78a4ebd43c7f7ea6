"""`cache_control`: marks that say where a provider should end a cached prefix. They say nothing else."""

from typing import Any

from gemjax.history.formats.base import problem, warning
from gemjax.history.problems import Problem

MAX_MARKS = 4
"""Most marks that a request may carry (Anthropic, prompt caching)."""

_MARK = "cache_control"
_OPAQUE = frozenset({"input", "arguments", "action", "operation", "parameters", "input_schema", "schema"})
"""What stands under these names is the caller's or the model's data, where a key may be called anything."""


def unmarked(value: Any) -> Any:
    """`value` without its marks, at any depth; the same object where there are none."""
    if isinstance(value, dict):
        return _unmarked_object(value)
    if isinstance(value, list):
        bare = [unmarked(item) if isinstance(item, dict | list) else item for item in value]
        return value if all(a is b for a, b in zip(bare, value, strict=True)) else bare
    return value


def _unmarked_object(value: dict[Any, Any]) -> dict[Any, Any]:
    out = None
    for key, item in value.items():
        if key == _MARK and (item is None or isinstance(item, dict)):
            out = dict(value) if out is None else out
            del out[key]
        elif isinstance(item, dict | list) and key not in _OPAQUE:
            bare = unmarked(item)
            if bare is not item:
                out = dict(value) if out is None else out
                out[key] = bare
    return value if out is None else out


def count_marks(value: Any) -> int:
    """How many marks are set in `value`, at any depth."""
    if isinstance(value, dict):
        own = isinstance(value.get(_MARK), dict)
        return own + sum(
            count_marks(item)
            for key, item in value.items()
            if isinstance(item, dict | list) and key not in _OPAQUE and key != _MARK
        )
    if isinstance(value, list):
        return sum(count_marks(item) for item in value if isinstance(item, dict | list))
    return 0


def too_many_marks(count: int, format_name: str) -> list[Problem]:
    """What a provider says to more than `MAX_MARKS`. Servers for chat completions pass marks on, or take no notice."""
    if count <= MAX_MARKS or format_name == "responses":
        return []
    make = problem if format_name == "anthropic" else warning
    return [make("cache-marks", f"{count} cache_control marks, {MAX_MARKS} are allowed", "take the oldest marks off")]

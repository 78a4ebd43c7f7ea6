"""Plain JSON values of what a history may hold beside them: SDK objects, tuples, subclasses of dict, list and str.

What comes out is for reading only; the caller's own objects are what is forwarded.
"""

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping
from typing import Any

_TEXT = "turn it into text"
_CURES: dict[type, str] = {
    bytes: "encode it as base64 text",
    bytearray: "encode it as base64 text",
    memoryview: "encode it as base64 text",
    set: "make it a list",
    frozenset: "make it a list",
    complex: _TEXT,
}
_ABSENT = frozenset({"NotGiven", "Omit"})
_SDKS = frozenset({"openai", "anthropic"})


class NotJSON(Exception):
    """A value in the request has no JSON form. `where` is its place, `cure` what to do, `index` the message it
    is in. Internal: becomes a `Problem`."""

    def __init__(self, what: str, cure: str, where: str = "", index: int | None = None) -> None:
        super().__init__(what, cure, where, index)
        self.what = what
        self.cure = cure
        self.where = where
        self.index = index

    def under(self, step: str, index: int | None = None) -> "NotJSON":
        """The same, seen from one level further out."""
        return NotJSON(self.what, self.cure, step + self.where, index)

    def __str__(self) -> str:
        return f"{self.where.lstrip('.') or 'it'} has no JSON form ({self.what})"


def plain(value: Any) -> Any:
    """`value` as exact dicts, lists, strings, numbers, booleans and null; the very same object where it is one.

    Objects are read through `model_dump` (the fields that are set, as the SDKs send them), mappings as objects, tuples
    as arrays, data classes by their fields, members of an enumeration by their value.

    Raises: `NotJSON` for anything else, with its place and a remedy.
    """
    kind = type(value)
    if kind is str or kind is bool or kind is int or value is None:
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise NotJSON(f"{value} is no JSON number", "send null or text instead")
    if kind is dict:
        return _object(value)
    if kind is list:
        return _array(value)
    return _unusual(value)


def _object(value: dict[Any, Any]) -> dict[Any, Any]:
    out = None
    for key, item in value.items():
        kind = type(item)
        if kind is str or item is None:
            continue
        try:
            new = plain(item)
        except NotJSON as error:
            raise error.under(f".{key}") from None
        if new is not item:
            out = dict(value) if out is None else out
            if new is _Missing:
                del out[key]
            else:
                out[key] = new
    return value if out is None else out


def _array(value: list[Any]) -> list[Any]:
    out = None
    for index, item in enumerate(value):
        if type(item) is str:
            continue
        try:
            new = plain(item)
        except NotJSON as error:
            raise error.under(f"[{index}]") from None
        if new is not item:
            out = list(value) if out is None else out
            out[index] = None if new is _Missing else new
    return value if out is None else out


class _Missing:
    """Stands for an argument that an SDK leaves out of what it sends."""


def _unusual(value: Any) -> Any:
    """Anything whose type is not one of JSON's own."""
    kind = type(value)
    if isinstance(value, enum.Enum) and not isinstance(value, str | int | float):
        return plain(value.value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return plain(float(value))
    if isinstance(value, Mapping):
        return _object({_key(key): item for key, item in value.items()})
    if isinstance(value, list | tuple):
        return _array(list(value))
    if kind.__name__ in _ABSENT and kind.__module__.partition(".")[0] in _SDKS:
        return _Missing
    if isinstance(value, type):
        raise NotJSON(f"{value.__name__} is a class", "send an instance, or its schema as JSON")
    if callable(getattr(value, "model_dump", None)):
        return plain(_dumped(value))
    if dataclasses.is_dataclass(value):
        return _object({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    raise NotJSON(f"{_article(kind.__name__)} is none of JSON's types", _cure(value))


def _key(key: Any) -> Any:
    return str.__str__(key) if isinstance(key, str) else key


def _dumped(value: Any) -> Any:
    """The wire form of an SDK's model: the fields that are set, under the names that are sent."""
    left_out = getattr(value, "__api_exclude__", None)
    options = {"mode": "json", "exclude_unset": True, "by_alias": True, "warnings": False, "exclude": left_out}
    try:
        try:
            dumped = value.model_dump(**options)
        except TypeError:  # another library's method of this name
            dumped = value.model_dump()
    except RecursionError:
        raise
    except Exception as error:
        what = f"{type(value).__name__}.model_dump raised {type(error).__name__}: {error}"
        raise NotJSON(what, "send plain JSON values instead of the object") from None
    if not isinstance(dumped, Mapping | list | tuple | str):
        what = f"{type(value).__name__}.model_dump returned {_article(type(dumped).__name__)}"
        raise NotJSON(what, "send plain JSON values instead of the object")
    return dumped


def _cure(value: Any) -> str:
    if type(value) in _CURES:
        return _CURES[type(value)]
    if isinstance(value, Iterator):
        return "make it a list: reading it here would use it up"
    for method in ("to_dict", "tolist", "dict", "isoformat"):
        if callable(getattr(value, method, None)):
            return f"send what its .{method}() returns"
    return "send plain JSON values, such as the object's fields in a dict"


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"

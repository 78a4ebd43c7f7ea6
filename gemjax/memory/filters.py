"""The `where` of a search: conditions on metadata, times and session, joined by and, or, not.

    {"user": "ann"}                                    the key is there and equal
    {"year": {"gte": 2020, "lt": 2024}}                eq ne gt gte lt lte in nin contains icontains
    {"or": [{"kind": "fact"}, {"not": {"n": 3}}]}      and or not, to any depth

A key is looked up in the metadata, then among `id`, `text`, `session`, `created_at`, `updated_at`, `happened_at` and
`expires_at`. A missing key fulfils only `ne`, `nin` and `not`. True and 1 are two values, 1 and 1.0 are one. Values of
different kinds have no order.
"""

import dataclasses
import datetime as dt
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from gemjax.errors import MemoryBankError
from gemjax.memory.record import TIMES, Memory, moment

Where = Callable[[Mapping[str, Any]], bool] | Mapping[str, Any]
Test = Callable[[Memory], bool]
OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")
FIELDS = ("id", "text", "session", *TIMES)
MOST_DEPTH = 50
MISSING = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """One operator on one key."""

    key: str
    name: str
    operand: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """`"and"` or `"or"` of conditions; `"not"` of one."""

    how: str
    parts: "tuple[Condition, ...]"


Condition = Leaf | Joined


def compiled(where: Where) -> Test:
    """A test of one memory. Raises MemoryBankError for a condition that has no meaning."""
    if callable(where) and not isinstance(where, Mapping):
        predicate = where
        return lambda memory: bool(predicate(MappingProxyType(memory.metadata or {})))
    return _test(parsed(where))


def parsed(where: Where) -> Condition:
    """The conditions as a tree. Raises MemoryBankError for a predicate, and for a condition that has no meaning."""
    if not isinstance(where, Mapping):
        raise MemoryBankError(f"where must be a mapping or a predicate on the metadata, got {where!r:.80}")
    return _all(where, 0)


def _all(where: Mapping[str, Any], depth: int) -> Condition:
    if depth > MOST_DEPTH:
        raise MemoryBankError(f"where is nested more than {MOST_DEPTH} deep")
    parts = tuple(_condition(key, value, depth) for key, value in where.items())
    return parts[0] if len(parts) == 1 else Joined("and", parts)


def _condition(key: Any, value: Any, depth: int) -> Condition:
    if not isinstance(key, str):
        raise MemoryBankError(f"where: a key must be a string, got {key!r:.40}")
    if key in ("and", "or") and isinstance(value, list | tuple):
        if not all(isinstance(part, Mapping) for part in value):
            raise MemoryBankError(f"where: {key!r} takes a list of conditions")
        return Joined(key, tuple(_all(part, depth + 1) for part in value))
    if key == "not" and isinstance(value, Mapping):
        return Joined("not", (_all(value, depth + 1),))
    if isinstance(value, Mapping) and value and all(name in OPERATORS for name in value):
        return Joined("and", tuple(_leaf(key, name, operand) for name, operand in value.items()))
    return _leaf(key, "eq", value)


def _leaf(key: str, name: str, operand: Any) -> Leaf:
    if name in ("in", "nin") and not isinstance(operand, list | tuple | set | frozenset):
        raise MemoryBankError(f"where: {key!r}: {name!r} takes a list, got {operand!r:.40}")
    if name == "icontains" and not isinstance(operand, str):
        raise MemoryBankError(f"where: {key!r}: 'icontains' takes a string, got {operand!r:.40}")
    if name in ("in", "nin"):
        return Leaf(key, name, tuple(map(plain, operand)))
    return Leaf(key, name, plain(operand))


def _test(condition: Condition) -> Test:
    if isinstance(condition, Joined):
        tests = [_test(part) for part in condition.parts]
        if condition.how == "not":
            return lambda memory: not tests[0](memory)
        if len(tests) == 1:
            return tests[0]
        join = all if condition.how == "and" else any
        return lambda memory: join(test(memory) for test in tests)
    key, operand = condition.key, condition.operand
    check, negated = _CHECKS[condition.name], condition.name in ("ne", "nin")

    def test(memory: Memory) -> bool:
        value = value_of(memory, key)
        return negated if value is MISSING else check(value, operand)

    return test


def value_of(memory: Memory, key: str) -> Any:
    """What a memory has under a key; `MISSING` if nothing."""
    if memory.metadata is not None and key in memory.metadata:
        return memory.metadata[key]
    if key in FIELDS and (value := getattr(memory, key)) is not None:
        return value
    return MISSING


def plain(value: Any) -> Any:
    """Tuples as the lists that JSON knows, NumPy's numbers as Python's."""
    return list(value) if isinstance(value, tuple) else value.item() if isinstance(value, np.generic) else value


def equal(a: Any, b: Any) -> bool:
    """Equality as JSON has it: True is not 1, 1.0 is 1. A time equals its text in ISO 8601."""
    a, b = plain(a), plain(b)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dt.datetime):
        return a == as_time(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    return bool(a == b)


def as_time(value: Any) -> dt.datetime | None:
    """A text in ISO 8601 or a date as a moment; None for anything else."""
    try:
        return moment(value, "time") if isinstance(value, str | dt.date) else None
    except MemoryBankError:
        return None


def _order(a: Any, b: Any) -> int | None:
    """-1, 0, 1; None for values of different kinds."""
    if isinstance(a, dt.datetime) or (isinstance(a, str) and isinstance(b, dt.date)):
        a, b = as_time(a), as_time(b)
        if a is None or b is None:
            return None
    elif (
        isinstance(a, bool)
        or isinstance(b, bool)
        or (
            not (isinstance(a, str) and isinstance(b, str))
            and not (isinstance(a, int | float) and isinstance(b, int | float))
        )
    ):
        return None
    return None if a != a or b != b else int(a > b) - int(a < b)


def _ordered(wanted: tuple[int, ...]) -> Callable[[Any, Any], bool]:
    return lambda value, operand: _order(value, operand) in wanted


def _contains(value: Any, operand: Any) -> bool:
    if isinstance(value, str):
        return isinstance(operand, str) and operand in value
    if isinstance(value, list):
        return any(equal(part, operand) for part in value)
    return isinstance(value, Mapping) and isinstance(operand, str) and operand in value


def _icontains(value: Any, operand: str) -> bool:
    wanted = operand.casefold()
    if isinstance(value, str):
        return wanted in value.casefold()
    return isinstance(value, list) and any(isinstance(part, str) and part.casefold() == wanted for part in value)


_CHECKS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": equal,
    "ne": lambda value, operand: not equal(value, operand),
    "gt": _ordered((1,)),
    "gte": _ordered((0, 1)),
    "lt": _ordered((-1,)),
    "lte": _ordered((-1, 0)),
    "in": lambda value, operand: any(equal(value, part) for part in operand),
    "nin": lambda value, operand: not any(equal(value, part) for part in operand),
    "contains": _contains,
    "icontains": _icontains,
}

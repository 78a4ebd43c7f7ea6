"""Values under a namespace and a key, with conditions and expiry: what a LangGraph store keeps beside its index."""

import copy
import dataclasses
import datetime as dt
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from gemjax.memory.record import Id

Namespace = tuple[str, ...]
Index = Literal[False] | tuple[str, ...] | None
"""Which paths of a value are searched by meaning: None for the store's own, False for none."""


@dataclasses.dataclass(slots=True)
class Record:
    """One item. `value` is the store's own copy."""

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: dt.datetime
    updated_at: dt.datetime
    ttl: float | None = None
    """Minutes from the last access to expiry."""
    expires_at: dt.datetime | None = None
    index: Index = None
    memories: tuple[Id, ...] = ()
    """The bank's memories that stand for it."""

    def own_value(self) -> dict[str, Any]:
        """A copy that shares nothing with the store's."""
        return copy.deepcopy(self.value)


class Items:
    """Items by namespace, in the order in which namespaces, then keys, came. Not thread-safe."""

    def __init__(self) -> None:
        self._spaces: dict[Namespace, dict[str, Record]] = {}
        # One entry an item that can expire, no later than its expiry: reads that renew it push nothing.
        self._due: list[tuple[dt.datetime, int, Record]] = []
        self._count = itertools.count()

    def __len__(self) -> int:
        return sum(map(len, self._spaces.values()))

    def __iter__(self) -> Iterator[Record]:
        return (record for space in self._spaces.values() for record in space.values())

    def get(self, namespace: Namespace, key: str) -> Record | None:
        """The item, or None."""
        return self._spaces.get(namespace, {}).get(key)

    def put(self, record: Record) -> None:
        """Write an item in the place of the one that was there."""
        self._spaces.setdefault(record.namespace, {})[record.key] = record
        if record.expires_at is not None:
            heapq.heappush(self._due, (record.expires_at, next(self._count), record))

    def drop(self, namespace: Namespace, key: str) -> Record | None:
        """Take an item out; the last one takes its namespace with it."""
        space = self._spaces.get(namespace, {})
        record = space.pop(key, None)
        if record is not None and not space:
            del self._spaces[namespace]
        return record

    def expired(self, now: dt.datetime) -> list[Record]:
        """Take out and return the items whose time has come."""
        gone = []
        while self._due and self._due[0][0] <= now:
            _, _, record = heapq.heappop(self._due)
            if self.get(record.namespace, record.key) is not record or record.expires_at is None:
                continue  # replaced or removed since
            if record.expires_at <= now:
                self.drop(record.namespace, record.key)
                gone.append(record)
            else:
                heapq.heappush(self._due, (record.expires_at, next(self._count), record))
        return gone

    def within(self, prefix: Namespace, test: Callable[[Record], bool]) -> Iterator[Record]:
        """The items of the namespaces that begin so and pass the test."""
        for namespace, space in self._spaces.items():
            if namespace[: len(prefix)] == prefix:
                yield from filter(test, space.values())

    def namespaces(self, conditions: Sequence[tuple[str, Namespace]], max_depth: int | None) -> list[Namespace]:
        """Sorted namespaces that hold items and fulfil every (`"prefix"` or `"suffix"`, path), cut to a depth."""
        found = {ns[:max_depth] for ns in self._spaces if all(_matches(ns, *c) for c in conditions)}
        return sorted(found)


def renewed(now: dt.datetime, ttl: float | None) -> dt.datetime | None:
    """The moment of expiry after an access; None for one beyond the calendar."""
    if ttl is None:
        return None
    try:
        return now + dt.timedelta(minutes=ttl)
    except OverflowError:
        return None


def _matches(namespace: Namespace, kind: str, path: Namespace) -> bool:
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if kind == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", name) for name, wanted in zip(part, path, strict=True))


def compiled_filter(conditions: Mapping[str, Any] | None) -> Callable[[Record], bool]:
    """A LangGraph filter as a test: equal values, nested ones too, or `$eq $ne $gt $gte $lt $lte`.

    A value that has no order with the condition's does not fulfil it. Raises ValueError for another operator.
    """
    for condition in (conditions or {}).values():
        _check(condition)
    pairs = list((conditions or {}).items())
    return lambda record: all(_fulfils(record.value.get(key), wanted) for key, wanted in pairs)


def _check(condition: Any) -> None:
    if isinstance(condition, Mapping):
        operators = [name for name in condition if isinstance(name, str) and name.startswith("$")]
        if not operators:
            for part in condition.values():
                _check(part)
        elif unknown := sorted(str(name) for name in condition if name not in _OPERATORS):
            raise ValueError(f"filter: unknown operator {unknown[0]!r}; known: {', '.join(_OPERATORS)}")
    elif isinstance(condition, list | tuple):
        for part in condition:
            _check(part)


def _fulfils(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(isinstance(name, str) and name.startswith("$") for name in wanted):
            return all(_OPERATORS[name](value, operand) for name, operand in wanted.items())
        return isinstance(value, Mapping) and all(_fulfils(value.get(name), part) for name, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_fulfils(a, b) for a, b in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _ordered(test: Callable[[int], bool]) -> Callable[[Any, Any], bool]:
    def check(value: Any, operand: Any) -> bool:
        try:
            a, b = float(value), float(operand)
        except (TypeError, ValueError, OverflowError):
            if not (isinstance(value, str) and isinstance(operand, str)):
                return False
            return test((value > operand) - (value < operand))
        return a == a and b == b and test((a > b) - (a < b))

    return check


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, operand: bool(value == operand),
    "$ne": lambda value, operand: bool(value != operand),
    "$gt": _ordered(lambda order: order > 0),
    "$gte": _ordered(lambda order: order >= 0),
    "$lt": _ordered(lambda order: order < 0),
    "$lte": _ordered(lambda order: order <= 0),
}

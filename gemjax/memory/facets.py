"""What a database must know of a memory to answer a bank's conditions, and the conditions in those terms.

A memory's metadata and fields become *facets*: tokens for what is equal or contained, and by key the numbers, texts and
moments that have an order. A condition becomes a tree of tests on them. Both sides are made here, so that a database
needs neither JSON nor our rules of equality, and finds what `gemjax.memory.filters` finds.
"""

import dataclasses
import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from gemjax.errors import MemoryBankError
from gemjax.memory.filters import FIELDS, MISSING, Condition, Leaf, Where, as_time, parsed, plain, value_of
from gemjax.memory.record import TIMES, Memory, Scope

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
KINDS = ("number", "text", "folded", "moment", "dated")
"""By key: numbers, texts, casefolded texts, moments (in microseconds since 1970), and the moments that texts spell."""


@dataclasses.dataclass(frozen=True, slots=True)
class Facets:
    """One memory's. `ordered[kind][key]`."""

    tokens: list[str]
    ordered: dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class AnyToken:
    """The memory has one of these tokens."""

    tokens: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Compare:
    """The key has a value of the kind that stands so (`= < <= > >=`) to this one; None: any value of the kind."""

    kind: str
    key: str
    sign: str
    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Holds:
    """The key's text of this kind contains the needle."""

    kind: str
    key: str
    needle: str


@dataclasses.dataclass(frozen=True, slots=True)
class Every:
    """All of them; true of none."""

    parts: "tuple[Test, ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Some:
    """One of them; false of none."""

    parts: "tuple[Test, ...]"


@dataclasses.dataclass(frozen=True, slots=True)
class Opposite:
    """Not this one, which is no `Every` or `Some`."""

    part: "AnyToken | Compare | Holds"


Test = AnyToken | Compare | Holds | Every | Some | Opposite


def microseconds(when: dt.datetime) -> int:
    """Since 1970, exactly."""
    return (when - _EPOCH) // dt.timedelta(microseconds=1)


def facets_of(memory: Memory) -> Facets:
    """The facets of a memory."""
    tokens = [scope_token(memory.scope[:depth]) for depth in range(1, len(memory.scope) + 1)]
    ordered: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for key in dict.fromkeys((*(memory.metadata or {}), *FIELDS)):
        value = value_of(memory, key)
        if value is MISSING:
            continue
        if isinstance(value, dt.datetime):
            ordered["moment"][key] = microseconds(value)
            continue
        tokens.append(_token("is", key, _canonical(value)))
        if isinstance(value, str):
            ordered["text"][key], ordered["folded"][key] = value, value.casefold()
            if (when := as_time(value)) is not None:
                ordered["dated"][key] = microseconds(when)
        elif isinstance(value, list | Mapping):
            tokens += [_token("has", key, _canonical(part)) for part in value]
            if isinstance(value, list):
                tokens += [_token("folds", key, part.casefold()) for part in value if isinstance(part, str)]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            ordered["number"][key] = value
    return Facets(list(dict.fromkeys(tokens)), ordered)


def scope_token(scope: Scope) -> str:
    """The token of all memories in a scope or within it."""
    return json.dumps(["scope", *scope])


def tests_of(where: Where | None, scope: Scope) -> Test:
    """Conditions and scope as a tree without negation but of leaves.

    Raises: MemoryBankError for a predicate, which no database can run, or a condition that has no meaning.
    """
    inside = (AnyToken((scope_token(scope),)),) if scope else ()
    if where is None:
        return Every(inside)
    if callable(where) and not isinstance(where, Mapping):
        raise MemoryBankError("a database cannot run a predicate: give `where` as a mapping of conditions")
    return _every([*inside, _tree(parsed(where), True)])


def _tree(condition: Condition, wanted: bool) -> Test:
    if isinstance(condition, Leaf):
        test = _leaf(condition)
        negated = condition.name in ("ne", "nin")
        return test if wanted != negated else _negated(test)
    if condition.how == "not":
        return _tree(condition.parts[0], not wanted)
    parts = [_tree(part, wanted) for part in condition.parts]
    return _every(parts) if (condition.how == "and") == wanted else _some(parts)


def _every(parts: Iterable[Test]) -> Test:
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Every) else (part,))]
    return flat[0] if len(flat) == 1 else Every(tuple(flat))


def _some(parts: Iterable[Test]) -> Test:
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Some) else (part,))]
    return flat[0] if len(flat) == 1 else Some(tuple(flat))


def _negated(test: Test) -> Test:
    if isinstance(test, Every):
        return _some(map(_negated, test.parts))
    if isinstance(test, Some):
        return _every(map(_negated, test.parts))
    return test.part if isinstance(test, Opposite) else Opposite(test)


def _leaf(leaf: Leaf) -> Test:
    """The test for the operator; for `ne` and `nin` that of their opposites."""
    key, operand = leaf.key, leaf.operand
    if leaf.name in ("eq", "ne"):
        return _same(key, [operand])
    if leaf.name in ("in", "nin"):
        return _same(key, list(leaf.operand))
    if leaf.name == "contains":
        canonical = _canonical(operand)
        tests: list[Test] = [] if canonical is None else [AnyToken((_token("has", key, canonical),))]
        return _some([*tests, *([Holds("text", key, operand)] if isinstance(operand, str) else [])])
    if leaf.name == "icontains":
        folded = operand.casefold()
        return _some([Holds("folded", key, folded), AnyToken((_token("folds", key, folded),))])
    return _compared(key, {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}[leaf.name], operand)


def _same(key: str, operands: list[Any]) -> Test:
    canonical = [text for operand in operands if (text := _canonical(operand)) is not None]
    tests: list[Test] = [AnyToken(tuple(_token("is", key, text) for text in dict.fromkeys(canonical)))]
    if key in TIMES:
        times = [when for operand in operands if (when := as_time(operand)) is not None]
        tests += [Compare("moment", key, "=", microseconds(when)) for when in times]
    return _some(tests if canonical else tests[1:])


def _compared(key: str, sign: str, operand: Any) -> Test:
    tests: list[Test] = []
    if (when := as_time(operand)) is not None:
        tests.append(Compare("moment", key, sign, microseconds(when)))
        if not isinstance(operand, str):
            tests.append(Compare("dated", key, sign, microseconds(when)))
    if isinstance(operand, str):
        tests.append(Compare("text", key, sign, operand))
    elif isinstance(operand, int | float) and not isinstance(operand, bool):
        if isinstance(operand, float) and not math.isfinite(operand):
            below = "<" in sign
            return Some(()) if operand != operand or below != (operand > 0) else Compare("number", key, sign, None)
        tests.append(Compare("number", key, sign, operand))
    return _some(tests)


def _token(kind: str, key: str, payload: Any) -> str:
    return json.dumps([kind, key, payload])


def _canonical(value: Any) -> str | None:
    """A text that two values share exactly when `filters.equal` has them equal; None for what no metadata can hold."""
    value = plain(value)
    if value is None or isinstance(value, bool | str):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return None if not math.isfinite(value) else str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, list):
        parts = [_canonical(part) for part in value]
        return None if None in parts else "[" + ",".join(map(str, parts)) + "]"
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return None
        pairs = [(json.dumps(key), _canonical(part)) for key, part in sorted(value.items())]
        return None if any(part is None for _, part in pairs) else "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}"
    return None

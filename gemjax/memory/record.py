"""One memory, its times, and how both are written as JSON."""

import dataclasses
import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

from gemjax.errors import MemoryBankError

Id = str | int
Scope = tuple[str, ...]
When = dt.datetime | dt.date | str | None
"""A moment as a caller gives it: aware datetimes are converted to UTC, naive ones and bare dates are taken as UTC."""

TIMES = ("created_at", "updated_at", "happened_at", "expires_at")


MOST_VERSIONS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """What a memory said until it was replaced."""

    text: str
    metadata: Mapping[str, Any] | None
    until: dt.datetime


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """One memory. Times are UTC; None where they are not known."""

    id: Id
    text: str
    metadata: Mapping[str, Any] | None = None
    scope: Scope = ()
    """Whose it is, from the widest name to the narrowest: `("ann", "planner", "session-3")`."""
    session: str | None = None
    """The dialogue it is a turn of: turns of one session that were added one after the other are neighbours."""
    created_at: dt.datetime | None = None
    """When the bank took it in."""
    updated_at: dt.datetime | None = None
    """When its text was last replaced."""
    happened_at: dt.datetime | None = None
    """When what it says was said or took place."""
    expires_at: dt.datetime | None = None
    """From this moment on no search returns it."""
    history: "tuple[Version, ...]" = ()
    """What it said before, oldest first, the last `MOST_VERSIONS` of them."""

    def after(self, old: "Memory", now: dt.datetime) -> "Memory":
        """This memory in the place of another: with its first moment, and its past."""
        past = (*old.history, Version(old.text, old.metadata, now))[-MOST_VERSIONS:]
        return dataclasses.replace(self, created_at=old.created_at, updated_at=now, history=past)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; times as ISO 8601, what is not set left out."""
        out: dict[str, Any] = {"id": self.id, "text": self.text}
        if self.metadata is not None:
            out["metadata"] = copied(self.metadata)
        return out | extras(self)


def extras(memory: Memory) -> dict[str, Any]:
    """Scope, session, times and history, where set, JSON-ready."""
    out: dict[str, Any] = {"scope": list(memory.scope)} if memory.scope else {}
    if memory.session is not None:
        out["session"] = memory.session
    for name in TIMES:
        if (when := getattr(memory, name)) is not None:
            out[name] = when.isoformat()
    if memory.history:
        out["history"] = [[old.text, copied(old.metadata), old.until.isoformat()] for old in memory.history]
    return out


def versions(value: Any) -> tuple[Version, ...]:
    """A history as `extras` writes it. Raises MemoryBankError for anything else."""
    if not isinstance(value, list) or len(value) > MOST_VERSIONS:
        raise MemoryBankError(f"history must be a list of at most {MOST_VERSIONS} versions")
    out = []
    for entry in value:
        if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str):
            raise MemoryBankError("a version in history must be [text, metadata, until]")
        until = moment(entry[2], "history")
        if until is None:
            raise MemoryBankError("a version in history has no moment")
        out.append(Version(entry[0], own_metadata(entry[1], "metadata in history"), until))
    return tuple(out)


def moment(value: Any, name: str) -> dt.datetime | None:
    """A moment in UTC. Raises MemoryBankError for what is none."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise MemoryBankError(f"{name} must be a date in ISO 8601, got {value[:40]!r}") from None
    elif isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime):
        raise MemoryBankError(f"{name} must be a datetime, a date or a string in ISO 8601, got {type(value).__name__}")
    try:
        return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    except (OverflowError, ValueError):
        raise MemoryBankError(f"{name} lies outside the years 1 to 9999 in UTC, got {value!r}") from None


def scope_of(value: Any) -> Scope:
    """A scope: a name, or a sequence of names. Raises MemoryBankError."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) and name for name in names):
        raise MemoryBankError(f"scope must be a non-empty string or a sequence of such, got {value!r:.80}")
    return tuple(names)


def own_metadata(data: Any, what: str) -> dict[str, Any] | None:
    """The bank's own copy of a caller's metadata, as JSON keeps it. Raises MemoryBankError."""
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise MemoryBankError(f"{what} must be a mapping or None, got {type(data).__name__}")
    try:
        copy = json.loads(json.dumps(dict(data), allow_nan=False)) if data else {}
    except (TypeError, ValueError) as exc:
        raise MemoryBankError(f"{what} cannot be written as JSON: {exc}") from exc
    except RecursionError:
        raise MemoryBankError(f"{what} cannot be written as JSON: it is nested too deeply") from None
    assert isinstance(copy, dict)
    return copy


def copied(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A copy that shares nothing with the bank's own."""
    return None if metadata is None else {key: _copied(value) for key, value in metadata.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list) else value

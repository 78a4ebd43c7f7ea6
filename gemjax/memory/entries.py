"""The host side of a bank: ids, texts and metadata of every row, and which rows are alive."""

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from gemjax.errors import MemoryBankError
from gemjax.kernels.host import unit_rows_host
from gemjax.memory.duplicates import digest
from gemjax.memory.record import Id, Memory, Scope, moment, own_metadata, scope_of


def unit_vectors(vectors: Any, count: int, what: str | None, error: type[Exception]) -> Float[np.ndarray, "n d"]:
    """`vectors` as float32 unit rows, or `error` naming the first row that is wrong."""
    try:
        out = np.asarray(vectors, np.float32)
    except (TypeError, ValueError) as exc:
        raise error(f"vectors must be an array of numbers: {exc}") from exc
    if out.ndim != 2 or out.shape[0] != count or out.shape[1] == 0:
        raise error(f"expected vectors of shape ({count}, dim), got {out.shape}")
    finite = np.isfinite(out).all(axis=1)
    name = what or "vector"
    if not finite.all():
        raise error(f"{name} {int(np.argmin(finite))} has a NaN or infinite component")
    directed = out.any(axis=1)
    if not directed.all():
        raise error(
            f"{name} {int(np.argmin(directed))} has a zero vector: it has no direction and could never be found"
        )
    return unit_rows_host(out)


def _plain(id: Any) -> Any:
    """NumPy's integers as Python's; anything else as it is, to be checked."""
    return int(id) if isinstance(id, np.integer) else id


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """Scope, session and times of the texts of one addition, one of each a text but for the scope."""

    scope: Scope
    sessions: list[str | None]
    happened_at: list[dt.datetime | None]
    expires_at: list[dt.datetime | None]

    @classmethod
    def of(
        cls, count: int, scope: Any = (), sessions: Any = None, happened_at: Any = None, expires_at: Any = None
    ) -> "About":
        """Checked; a single value stands for all texts. Raises MemoryBankError."""

        def each(value: Any, name: str) -> list[Any]:
            if not isinstance(value, list | tuple):
                return [value] * count
            if len(value) != count:
                raise MemoryBankError(f"got {count} texts but {name} for {len(value)}")
            return list(value)

        names = each(sessions, "sessions")
        for name in names:
            if name is not None and not (isinstance(name, str) and name):
                raise MemoryBankError(f"a session must be a non-empty string or None, got {name!r:.40}")
        happened = [moment(when, "happened_at") for when in each(happened_at, "happened_at")]
        expires = [moment(when, "expires_at") for when in each(expires_at, "expires_at")]
        return cls(scope_of(scope), names, happened, expires)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What an addition writes, and from which of its texts."""

    ids: list[Id]
    added: list[Memory]
    added_from: list[int]
    replaced: list[Memory]
    replaced_from: list[int]


class Entries:
    """Entries in row order with tombstones. Not thread-safe."""

    def __init__(self) -> None:
        self._entries: list[Memory | None] = []
        self._row: dict[Id, int] = {}
        self._next = 0
        self._mortal: set[Id] = set()
        self._digests: dict[bytes, dict[Id, None]] | None = None  # made when first asked for

    def __len__(self) -> int:
        return len(self._row)

    def __contains__(self, id: Id) -> bool:
        return id in self._row

    @property
    def size(self) -> int:
        """Rows in use or removed."""
        return len(self._entries)

    @property
    def wasted(self) -> int:
        """Rows whose memory was removed."""
        return len(self._entries) - len(self._row)

    @property
    def next_id(self) -> int:
        """Smallest integer never given out."""
        return self._next

    def at(self, row: int) -> Memory:
        """The memory in a live row."""
        entry = self._entries[row]
        assert entry is not None, f"row {row} was removed"
        return entry

    def live_ids(self) -> list[Id]:
        """Ids in the order of insertion."""
        return list(self._row)

    def live_rows(self) -> Int[np.ndarray, "n"]:
        """Their rows, ascending."""
        return np.fromiter(self._row.values(), np.int64, len(self._row))

    def live(self) -> list[Memory]:
        """All memories in the order of insertion."""
        return [entry for entry in self._entries if entry is not None]

    @property
    def mortal(self) -> bool:
        """Whether any memory has a moment of expiry."""
        return bool(self._mortal)

    def mask(
        self,
        capacity: int,
        test: Callable[[Memory], bool] | None = None,
        scope: Scope = (),
        at: dt.datetime | None = None,
    ) -> Bool[np.ndarray, "n"]:
        """Which rows are alive at this moment, lie in the scope, and pass the test; O(N) calls of it."""
        mask = np.zeros(capacity, bool)
        mask[self.live_rows()] = True
        if at is not None:
            for id in self._mortal:
                expires = self.at(self._row[id]).expires_at
                mask[self._row[id]] = expires is None or expires > at
        if scope or test is not None:
            for row in np.flatnonzero(mask).tolist():
                memory = self.at(row)
                inside = memory.scope[: len(scope)] == scope
                mask[row] = inside and (test is None or test(memory))
        return mask

    def check_new(
        self,
        texts: Sequence[str],
        ids: Sequence[Id] | None,
        metadata: Sequence[Mapping[str, Any] | None] | None,
        about: "About | None" = None,
        now: dt.datetime | None = None,
        *,
        known: bool = False,
    ) -> list[Memory]:
        """The memories that would be appended. Raises MemoryBankError; changes nothing. `known` ids may be there."""
        for i, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise MemoryBankError(f"text {i} must be a non-empty string, got {text!r}")
        if ids is None:
            ids = range(self._next, self._next + len(texts))
        if len(ids) != len(texts):
            raise MemoryBankError(f"got {len(texts)} texts but {len(ids)} ids")
        ids = [_plain(id) for id in ids]
        seen: set[Id] = set()
        for i, id in enumerate(ids):
            if isinstance(id, bool) or not isinstance(id, str | int):
                raise MemoryBankError(f"id {i} must be a string or an integer, got {id!r}")
            if id in self._row and not known:
                raise MemoryBankError(f"id {id!r} is already in the bank; remove it first or choose another")
            if id in seen:
                raise MemoryBankError(f"id {id!r} is given twice in this call")
            seen.add(id)
        if metadata is None:
            metadata = [None] * len(texts)
        if len(metadata) != len(texts):
            raise MemoryBankError(f"got {len(texts)} texts but metadata for {len(metadata)}")
        about = about or About.of(len(texts))
        return [
            Memory(
                id,
                text,
                own_metadata(data, f"metadata {i}"),
                about.scope,
                about.sessions[i],
                now,
                happened_at=about.happened_at[i],
                expires_at=about.expires_at[i],
            )
            for i, (id, text, data) in enumerate(zip(ids, texts, metadata, strict=True))
        ]

    def alike(self, memory: Memory) -> Id | None:
        """The first memory of the same text and scope, or None."""
        if self._digests is None:
            self._digests = {}
            for other in self.live():
                self._note_digest(other)
        return next(iter(self._digests.get(digest(memory.text, memory.scope), ())), None)

    def plan(self, new: Sequence[Memory], on_duplicate: str, now: dt.datetime) -> "Plan":
        """What an addition does: memories to append, and memories to put in the places of those they repeat."""
        if on_duplicate == "keep":
            return Plan([m.id for m in new], list(new), list(range(len(new))), [], [])
        ids: list[Id] = []
        writes: dict[Id, tuple[Memory, int]] = {}
        first: dict[bytes, Id] = {}
        old: set[Id] = set()
        for i, memory in enumerate(new):
            key = digest(memory.text, memory.scope)
            there = self.alike(memory)
            id = first.setdefault(key, memory.id if there is None else there)
            ids.append(id)
            if there is not None:
                old.add(there)
            if (id == memory.id and there is None and id not in writes) or on_duplicate == "replace":
                if there is not None:
                    memory = memory.after(self.at(self._row[there]), now)
                writes[id] = (dataclasses.replace(memory, id=id), i)
        added = [write for id, write in writes.items() if id not in old]
        replaced = [write for id, write in writes.items() if id in old]
        return Plan(
            ids, [m for m, _ in added], [i for _, i in added], [m for m, _ in replaced], [i for _, i in replaced]
        )

    def plan_upsert(self, new: Sequence[Memory], now: dt.datetime) -> "Plan":
        """What writing these under their ids does."""
        fresh = [(i, m) for i, m in enumerate(new) if m.id not in self._row]
        old = [(i, m.after(self.at(self._row[m.id]), now)) for i, m in enumerate(new) if m.id in self._row]
        places = [i for i, _ in old]
        return Plan([m.id for m in new], [m for _, m in fresh], [i for i, _ in fresh], [m for _, m in old], places)

    def _note_digest(self, memory: Memory) -> None:
        if self._digests is not None:
            self._digests.setdefault(digest(memory.text, memory.scope), {})[memory.id] = None

    def _forget_digest(self, memory: Memory) -> None:
        if self._digests is not None:
            key = digest(memory.text, memory.scope)
            del self._digests[key][memory.id]
            if not self._digests[key]:
                del self._digests[key]

    def append(self, entries: Iterable[Memory]) -> None:
        """Add checked entries behind the last row."""
        for entry in entries:
            self._row[entry.id] = len(self._entries)
            self._entries.append(entry)
            self._note_digest(entry)
            if entry.expires_at is not None:
                self._mortal.add(entry.id)
            if isinstance(entry.id, int):
                self._next = max(self._next, entry.id + 1)

    def reserve(self, next_id: int) -> None:
        """Never give out an integer below `next_id` (ids of removed memories are not used again)."""
        self._next = max(self._next, next_id)

    def places(self, ids: Iterable[Id]) -> Int[np.ndarray, "n"]:
        """Rows of ids that are in the bank, in this order."""
        return np.array([self._row[id] for id in ids], np.int64)

    def rows_of(self, ids: Iterable[Id]) -> Int[np.ndarray, "n"]:
        """Rows of these ids, each once, ascending. Raises MemoryBankError naming unknown ids."""
        wanted = list(dict.fromkeys(ids))
        unknown = [id for id in wanted if id not in self._row]
        if unknown:
            shown = ", ".join(map(repr, unknown[:5])) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else "")
            raise MemoryBankError(f"unknown ids: {shown}")
        return np.array(sorted(self._row[id] for id in wanted), np.int64)

    def drop(self, rows: Int[np.ndarray, "n"]) -> None:
        """Put a tombstone on these live rows."""
        for row in rows.tolist():
            entry = self.at(row)
            self._forget_digest(entry)
            self._mortal.discard(entry.id)
            del self._row[entry.id]
            self._entries[row] = None

    def replace(self, entries: Iterable[Memory]) -> None:
        """Put these in the places of the memories with their ids."""
        for entry in entries:
            row = self._row[entry.id]
            self._forget_digest(self.at(row))
            self._entries[row] = entry
            self._note_digest(entry)
            (self._mortal.discard if entry.expires_at is None else self._mortal.add)(entry.id)

    def compact(self) -> None:
        """Close the gaps, as `Rows.keep` did."""
        self._entries = list(self.live())
        self._row = {entry.id: row for row, entry in enumerate(self._entries) if entry is not None}

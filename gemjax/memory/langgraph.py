"""A memory bank as a LangGraph `BaseStore`: for `create_agent(..., store=)`, LangMem, and any graph.

pip install 'gemjax[langgraph]'
"""

import asyncio
import dataclasses
import datetime as dt
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        validate_op_namespace,
    )
except ImportError as exc:
    raise ImportError("BankStore needs the package langgraph-checkpoint: pip install 'gemjax[langgraph]'") from exc

from gemjax.durable import remove_left_overs, replacing
from gemjax.errors import MemoryBankError, StateError
from gemjax.memory.bank import MemoryBank
from gemjax.memory.config import MemoryConfig
from gemjax.memory.items import Index, Items, Namespace, Record, compiled_filter, renewed
from gemjax.memory.record import Id, Memory, moment, own_metadata

ITEMS, BANK = "items.jsonl", "bank"
VERSION = 1


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclasses.dataclass(frozen=True, slots=True)
class _Put:
    """A checked write: the item without its times, and the bank's memories for it."""

    namespace: Namespace
    key: str
    value: dict[str, Any] | None
    index: Index
    ttl: float | None
    texts: dict[str, str]


class BankStore(BaseStore):
    """A LangGraph store that searches with a memory bank's score. Thread-safe; a batch succeeds or changes nothing.

    Namespaces are the bank's scopes. As in LangGraph's own stores the reads of a batch see what was there before it,
    and of two writes to one key the last holds. `search` without a query gives the items in the order in which their
    namespaces, then keys, came; with one, the best items by meaning first, then those without an index. Expired items
    are gone for every reader.

    Args:
        bank: where the indexed texts go; None: one of its own with the default encoder and `MemoryConfig.hybrid()`.
            Memories that the bank holds otherwise are no items and are passed over.
        fields: the paths of a value that are indexed unless a `put` says otherwise (`"$"`: all of it as JSON; better
            are the fields that hold sentences). None: no search by meaning; `query` is then passed over.
        ttl: LangGraph's `default_ttl` (minutes) and `refresh_on_read`.
        metric: as for `MemoryBank.search`: what ranks, and what `SearchItem.score` is.
        clock: returns the present moment in UTC; None: the system's.
    """

    supports_ttl = True

    def __init__(
        self,
        bank: MemoryBank | None = None,
        *,
        fields: Sequence[str] | None = ("$",),
        ttl: TTLConfig | None = None,
        metric: str | None = None,
        clock: Callable[[], dt.datetime] | None = None,
    ) -> None:
        self.bank = MemoryBank(config=MemoryConfig.hybrid()) if bank is None else bank
        self.ttl_config = ttl
        self._fields = () if fields is None else tuple(fields)
        self._metric = metric
        self._clock = clock or _now
        self._items = Items()
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._items)} items, {self.bank!r})"

    # ---- the interface -------------------------------------------------------------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads first, then writes.

        Raises: InvalidNamespaceError (a ValueError) for a namespace with a label that is no text, is empty or has a
        period; ValueError for another operator in a filter, or a negative limit or offset; MemoryBankError for a value
        that is no JSON; EncoderError. Nothing is changed then.
        """
        ops = list(ops)
        puts: dict[tuple[Namespace, str], _Put] = {}
        queries: dict[str, None] = {}
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, PutOp):
                put = self._checked(op)
                puts[put.namespace, put.key] = put
            elif isinstance(op, SearchOp | ListNamespacesOp):
                if op.limit < 0 or op.offset < 0:
                    raise ValueError(f"limit and offset must be >= 0, got {op.limit!r} and {op.offset!r}")
                if isinstance(op, SearchOp) and self._asked(op):
                    queries[str(op.query)] = None
            elif not isinstance(op, GetOp):
                raise ValueError(f"unknown operation: {type(op).__name__}")
        texts = [text for put in puts.values() for text in put.texts.values()]
        rows = self.bank.encode([*texts, *queries]) if texts or queries else np.zeros((0, 0), np.float32)
        vectors = dict(zip(queries, rows[len(texts) :], strict=True))
        with self._lock:
            self._sweep()
            results = [self._read(op, vectors) for op in ops]
            self._write(list(puts.values()), rows[: len(texts)])
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Remove the expired items now (every batch does so first); returns how many."""
        with self._lock:
            return self._sweep()

    # ---- reading -------------------------------------------------------------------------------------------------

    def _asked(self, op: SearchOp) -> bool:
        return bool(self._fields and op.query and op.query.strip())

    def _read(self, op: Op, vectors: Mapping[str, np.ndarray]) -> Result:
        if isinstance(op, GetOp):
            record = self._items.get(tuple(op.namespace), str(op.key))
            if record is None:
                return None
            self._touch([record], op.refresh_ttl)
            return Item(
                value=record.own_value(),
                key=record.key,
                namespace=record.namespace,
                created_at=record.created_at,
                updated_at=record.updated_at,
            )
        if isinstance(op, SearchOp):
            found = self._found(op, vectors)[op.offset : op.offset + op.limit]
            self._touch([record for record, _ in found], op.refresh_ttl)
            return [
                SearchItem(r.namespace, r.key, r.own_value(), r.created_at, r.updated_at, score) for r, score in found
            ]
        if isinstance(op, ListNamespacesOp):
            conditions = [(c.match_type, tuple(c.path)) for c in op.match_conditions or ()]
            return self._items.namespaces(conditions, op.max_depth)[op.offset : op.offset + op.limit]
        return None

    def _found(self, op: SearchOp, vectors: Mapping[str, np.ndarray]) -> list[tuple[Record, float | None]]:
        prefix, test = tuple(op.namespace_prefix), compiled_filter(op.filter)
        if not self._asked(op):
            return [(record, None) for record in self._items.within(prefix, test)]
        wanted = op.offset + op.limit
        best = self._ranked(str(op.query), vectors[str(op.query)], prefix, test if op.filter else None, wanted)
        bare = (record for record in self._items.within(prefix, test) if not record.memories)
        return [*best, *((record, None) for record in bare)]

    def _ranked(
        self,
        query: str,
        vector: np.ndarray,
        prefix: Namespace,
        test: Callable[[Record], bool] | None,
        wanted: int,
    ) -> list[tuple[Record, float]]:
        """The best items, each by its best memory: at least `wanted`, or all."""

        def item_of(metadata: Mapping[str, Any] | None) -> Record | None:
            own = metadata or {}
            namespace, key = own.get("namespace"), own.get("key")
            known = isinstance(namespace, list) and isinstance(key, str)
            return self._items.get(tuple(namespace), key) if known else None  # type: ignore[arg-type]

        def passes(metadata: Mapping[str, Any]) -> bool:
            record = item_of(metadata)
            return record is not None and (test is None or test(record))

        k, where = max(2 * wanted, 16), None if test is None else passes
        while True:
            named: dict[str, Any] = {"metric": self._metric, "fold": False, "scope": prefix, "vectors": vector[None]}
            hits = self.bank.search_batch([query], k, where, **named)[0]
            best: dict[tuple[Namespace, str], tuple[Record, float]] = {}
            for hit in hits:
                record = item_of(hit.metadata)
                if record is not None and hit.id in record.memories:
                    best.setdefault((record.namespace, record.key), (record, hit.score))
            if len(best) >= wanted or len(hits) < k:
                return list(best.values())
            k *= 4

    def _touch(self, records: Iterable[Record], refresh: bool) -> None:
        if refresh:
            for record in records:
                if record.ttl is not None:
                    record.expires_at = renewed(self._clock(), record.ttl)

    # ---- writing -------------------------------------------------------------------------------------------------

    def _checked(self, op: PutOp) -> _Put:
        namespace, key = tuple(op.namespace), str(op.key)
        if op.value is None:
            return _Put(namespace, key, None, False, None, {})
        value = own_metadata(op.value, f"the value of {key!r}")
        assert value is not None
        ttl = None if op.ttl is None else float(op.ttl)
        if ttl is not None and not (math.isfinite(ttl) and ttl >= 0):
            raise ValueError(f"ttl must be a finite number of minutes >= 0, got {op.ttl!r}")
        index: Index = False if op.index is False else None if op.index is None else tuple(op.index)
        return _Put(namespace, key, value, index, ttl, self._texts(value, index))

    def _texts(self, value: dict[str, Any], index: Index) -> dict[str, str]:
        """The indexed texts of a value by their paths."""
        if not self._fields or index is False:
            return {}
        found: dict[str, str] = {}
        for path in self._fields if index is None else index:
            texts = get_text_at_path(value, path)
            for i, text in enumerate(texts):
                if text.strip():
                    found[f"{path}.{i}" if len(texts) > 1 else path] = text
        return found

    def _write(self, puts: list[_Put], rows: np.ndarray) -> None:
        now = self._clock()
        fresh: list[Record] = []
        memories: list[Memory] = []
        stale: list[Id] = []
        for put in puts:
            old = self._items.get(put.namespace, put.key)
            own: list[Memory] = []
            if put.value is not None:
                own = [self._memory(put.namespace, put.key, path, text, now) for path, text in put.texts.items()]
                ids = tuple(memory.id for memory in own)
                created = now if old is None else old.created_at
                expires = renewed(now, put.ttl)
                fresh.append(Record(put.namespace, put.key, put.value, created, now, put.ttl, expires, put.index, ids))
            memories += own
            if old is not None:
                stale += [id for id in old.memories if id not in {memory.id for memory in own}]
        if memories:
            self.bank.restore(memories, rows, encoded=True, replace=True)  # checks before it changes anything
        self._forget(stale)
        for put in puts:
            if put.value is None:
                self._items.drop(put.namespace, put.key)
        for record in fresh:
            self._items.put(record)

    @staticmethod
    def _memory(namespace: Namespace, key: str, path: str, text: str, now: dt.datetime) -> Memory:
        id = json.dumps([namespace, key, path])
        return Memory(id, text, {"namespace": list(namespace), "key": key}, namespace, created_at=now)

    def _sweep(self) -> int:
        gone = self._items.expired(self._clock())
        self._forget([id for record in gone for id in record.memories])
        return len(gone)

    def _forget(self, ids: Iterable[Id]) -> None:
        self.bank.remove([id for id in ids if id in self.bank])  # whoever has the bank may have removed some

    # ---- keeping it ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write items and bank to a directory. A crash between the two loses nothing: the items are what counts, and
        `load` puts the bank right.

        Raises: StateError when it cannot be written.
        """
        folder = Path(path)
        with self._lock:
            self._sweep()
            lines = [{"gemjax_store": VERSION}, *map(_line, self._items)]
            try:
                folder.mkdir(parents=True, exist_ok=True)
                remove_left_overs(folder)
                with replacing(folder / ITEMS) as file:
                    for line in lines:
                        file.write((json.dumps(line, allow_nan=False) + "\n").encode())
            except OSError as error:
                raise StateError(f"cannot write {folder}: {error}") from error
            self.bank.save(folder / BANK)

    @classmethod
    def load(cls, path: str | os.PathLike[str], encoder: Any = None, **settings: Any) -> Self:
        """A store as `save` wrote it. Texts that the saved bank lacks, or that other `fields` ask for, are encoded.

        Args:
            path: the directory.
            encoder: as for `MemoryBank.load`.
            settings: `fields`, `ttl`, `metric`, `clock`, as for the store.

        Raises: StateError for what `save` did not write, naming the line; EncoderError.
        """
        folder = Path(path)
        records = _read_items(folder / ITEMS)
        store = cls(MemoryBank.load(folder / BANK, encoder), **settings)
        missing: list[Memory] = []
        for record in records:
            texts = store._texts(record.value, record.index)
            own = [
                store._memory(record.namespace, record.key, path, text, record.updated_at)
                for path, text in texts.items()
            ]
            record.memories = tuple(memory.id for memory in own)
            for memory in own:
                kept = store.bank.get(memory.id)
                if kept is None or kept.text != memory.text:
                    missing.append(memory)
            store._items.put(record)
        if missing:
            rows = store.bank.encode([memory.text for memory in missing])
            store.bank.restore(missing, rows, encoded=True, replace=True)
        known = {id for record in records for id in record.memories}
        ours = [m.id for m in store.bank.contents()[0] if (m.metadata or {}).keys() == {"namespace", "key"}]
        store._forget(id for id in ours if id not in known)
        return store


def _line(record: Record) -> dict[str, Any]:
    return {
        "namespace": list(record.namespace),
        "key": record.key,
        "value": record.value,
        "created_at": record.created_at.isoformat(),
        "updated_at": record.updated_at.isoformat(),
        "ttl": record.ttl,
        "expires_at": None if record.expires_at is None else record.expires_at.isoformat(),
        "index": record.index,
    }


def _read_items(path: Path) -> list[Record]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise StateError(f"{path} cannot be read: {error}") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
            if number == 1:
                if value != {"gemjax_store": VERSION}:
                    raise StateError(f"{path} is no store of version {VERSION}")
                continue
            records.append(_record(value))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(f"{path}, line {number}: {error}") from None
    if not lines:
        raise StateError(f"{path} is empty")
    return records


def _record(value: Mapping[str, Any]) -> Record:
    namespace, key, index, ttl = tuple(value["namespace"]), value["key"], value["index"], value["ttl"]
    own = own_metadata(value["value"], "value")
    created, updated = moment(value["created_at"], "created_at"), moment(value["updated_at"], "updated_at")
    if own is None or created is None or updated is None or not isinstance(key, str):
        raise MemoryBankError("an item needs a key, a value and two times")
    validate_op_namespace(GetOp(namespace, key))
    return Record(
        namespace,
        key,
        own,
        created,
        updated,
        None if ttl is None else float(ttl),
        moment(value["expires_at"], "expires_at"),
        False if index is False else None if index is None else tuple(index),
    )

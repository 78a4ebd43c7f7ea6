"""Riemannian search on an existing vector store: the store keeps plain unit vectors, only the query changes.

`LanceStore` (LanceDB, embedded) and `PgVectorStore` (PostgreSQL with pgvector, by URL) hold a bank's ids, texts,
metadata, unit vectors and facets in a table. A search asks the bank for the transformed query
(`MemoryBank.query_vector`), lets the store do the nearest-neighbour search, and turns its number back into our score.
The bank supplies the metric and the ranges; its memories must be the ones in the store. Conditions, scopes and expiry
are part of the store's own query: what they leave out takes no place among the k.

    pip install 'gemjax[lancedb]'        pip install 'gemjax[pgvector]'
"""

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self

import numpy as np
from jaxtyping import Float

from gemjax.errors import ConfigError, MemoryBankError
from gemjax.memory.bank import MemoryBank
from gemjax.memory.facets import KINDS, Test, facets_of, microseconds, tests_of
from gemjax.memory.filters import Where
from gemjax.memory.hits import QueryVector
from gemjax.memory.record import Id, Memory, Scope, When, moment, scope_of
from gemjax.memory.sql import double, lance_condition, postgres_condition

BATCH = 2000
COLUMNS = "gemjax_columns"


@dataclasses.dataclass(frozen=True, slots=True)
class StoreHit:
    """One memory found by a store; `score` is on the bank's scale (larger is closer)."""

    id: Id
    text: str
    metadata: dict[str, Any] | None
    score: float
    scope: Scope = ()
    session: str | None = None
    happened_at: dt.datetime | None = None


class VectorStore(Protocol):
    """What a store can do here."""

    def write(self, bank: MemoryBank) -> int:
        """Replace the table's content by the bank's memories; returns how many."""
        ...

    def search(
        self,
        query: QueryVector,
        k: int = 10,
        where: Where | None = None,
        *,
        scope: str | Sequence[str] = (),
        at: When = None,
    ) -> list[StoreHit]:
        """The k memories of largest score, best first, of those that fulfil the conditions, lie in the scope, and have
        not expired at this moment (None: now).

        Raises: MemoryBankError for a condition that has no meaning, a predicate, or a table that an older gemjax wrote.
        """
        ...


def _batches(bank: MemoryBank) -> Iterator[tuple[list[Memory], Float[np.ndarray, "n d"]]]:
    entries, vectors = bank.contents()
    for start in range(0, len(entries), BATCH):
        yield entries[start : start + BATCH], vectors[start : start + BATCH]


def _check(bank: MemoryBank, table: str) -> int:
    if not len(bank):
        raise MemoryBankError("the bank is empty: there is nothing to write")
    assert bank.dim is not None
    _check_name(table)
    return bank.dim


def _check_name(table: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", table):
        raise ConfigError(f"table name must be a plain identifier of at most 63 characters, got {table!r}")


def _record(memory: Memory) -> dict[str, Any]:
    """What a row holds beside vector and facets. Ids travel as JSON, so that 1 and "1" stay two ids."""
    return {
        "id": json.dumps(memory.id),
        "text": memory.text,
        "metadata": None if memory.metadata is None else json.dumps(dict(memory.metadata)),
        "scope": json.dumps(memory.scope),
        "session": memory.session,
        "happened_at": None if memory.happened_at is None else memory.happened_at.isoformat(),
        "expires_at": None if memory.expires_at is None else microseconds(memory.expires_at),
    }


def _hit(row: Sequence[Any], score: float) -> StoreHit:
    """A hit from the columns of `SHOWN`."""
    id, text, metadata, scope, session, happened = row
    own = None if metadata is None else json.loads(metadata)
    when = None if happened is None else dt.datetime.fromisoformat(happened)
    return StoreHit(json.loads(id), text, own, score, tuple(json.loads(scope)), session, when)


SHOWN = ("id", "text", "metadata", "scope", "session", "happened_at")


def _wanted(where: Where | None, scope: Any, at: When) -> tuple[Test, int]:
    """The tests, and the moment in microseconds by which memories have expired."""
    return tests_of(where, scope_of(scope)), microseconds(moment(at, "at") or dt.datetime.now(dt.UTC))


def _outdated(table: str) -> MemoryBankError:
    return MemoryBankError(f"the table {table} has no facets, an older gemjax wrote it: call `write(bank)` again")


class LanceStore:
    """A LanceDB table. Raises: ConfigError when the package is missing or the table's name is no identifier."""

    def __init__(self, uri: str, table: str = "memories") -> None:
        try:
            import lancedb
        except ImportError as exc:
            raise ConfigError("LanceStore needs the package lancedb: pip install 'gemjax[lancedb]'") from exc
        _check_name(table)
        self._database: Any = lancedb.connect(uri)
        self._name = table

    def write(self, bank: MemoryBank) -> int:
        """Replace the table by the bank's memories; returns how many.

        Raises: MemoryBankError for an empty bank, or a text with half of a surrogate pair.
        """
        import pyarrow as pa

        dim = _check(bank, self._name)
        found: dict[tuple[str, str], None] = {}
        for memory in bank.contents()[0]:
            for kind, values in facets_of(memory).ordered.items():
                found |= dict.fromkeys((kind, key) for key in values)
        columns = {pair: f"f{number}" for number, pair in enumerate(found)}
        types = {"number": pa.float64(), "moment": pa.int64(), "dated": pa.int64()}
        schema = pa.schema(
            [
                *((name, pa.int64() if name == "expires_at" else pa.string()) for name in (*SHOWN, "expires_at")),
                ("facets", pa.list_(pa.string())),
                *((column, types.get(kind, pa.string())) for (kind, _), column in columns.items()),
                ("vector", pa.list_(pa.float32(), dim)),
            ],
            # A key of the caller's is no column's name, it is kept beside: nothing of it comes into a query.
            metadata={COLUMNS: json.dumps([[*pair, column] for pair, column in columns.items()])},
        )

        def batches() -> Iterator[Any]:
            for memories, vectors in _batches(bank):
                rows = []
                for memory in memories:
                    facets = facets_of(memory)
                    row = _record(memory) | {"facets": facets.tokens}
                    for (kind, key), column in columns.items():
                        value = facets.ordered[kind].get(key)
                        row[column] = double(value) if kind == "number" and value is not None else value
                    rows.append(row)
                flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), dim)
                arrays = [pa.array([row[f.name] for row in rows], f.type) for f in list(schema)[:-1]]
                yield pa.RecordBatch.from_arrays([*arrays, flat], schema=schema)

        try:
            table = self._database.create_table(self._name, batches(), schema=schema, mode="overwrite")
        except UnicodeError as exc:
            raise MemoryBankError(f"LanceDB cannot store a text of this bank: {exc}") from exc
        return int(table.count_rows())

    def search(
        self,
        query: QueryVector,
        k: int = 10,
        where: Where | None = None,
        *,
        scope: str | Sequence[str] = (),
        at: When = None,
    ) -> list[StoreHit]:
        """See `VectorStore`. Exact unless the table has an index. LanceDB returns 1 - inner product as its distance."""
        tests, now = _wanted(where, scope, at)
        table = self._database.open_table(self._name)
        kept = (table.schema.metadata or {}).get(COLUMNS.encode())
        if kept is None:
            raise _outdated(self._name)
        columns = {(kind, key): column for kind, key, column in json.loads(kept)}
        condition = f"(expires_at IS NULL OR expires_at > {now}) AND {lance_condition(tests, columns)}"
        found = table.search(query.vector, vector_column_name="vector").distance_type("dot")
        try:
            rows = found.where(condition, prefilter=True).limit(k).to_list()
        except (RuntimeError, ValueError) as exc:
            raise MemoryBankError(f"LanceDB cannot carry out these conditions: {str(exc)[:300]}") from exc
        return [_hit([row[name] for name in SHOWN], query.score(1.0 - row["_distance"])) for row in rows]


class PgVectorStore:
    """A PostgreSQL table with a pgvector column.

    Args:
        url: a libpq URL or connection string, e.g. `postgresql://user@host/database`.
        table: created by `write`; a plain identifier.

    Raises: ConfigError when psycopg is missing, the server cannot be reached or lacks the extension `vector`.
    """

    def __init__(self, url: str, table: str = "memories") -> None:
        try:
            import psycopg
        except ImportError as exc:
            raise ConfigError("PgVectorStore needs the package psycopg: pip install 'gemjax[pgvector]'") from exc
        _check_name(table)
        self._name = table
        try:
            self._connection = psycopg.connect(url, autocommit=True)
            self._connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            version = self._connection.execute(
                "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            ).fetchone()
            self._iterative = ITERATIVE if version and _at_least(version[0], (0, 8)) else ()
        except psycopg.Error as exc:
            raise ConfigError(f"cannot use this PostgreSQL server: {str(exc).strip()}") from exc

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, bank: MemoryBank) -> int:
        """Replace the table by the bank's memories, in one transaction; returns how many."""
        import psycopg

        dim = _check(bank, self._name)
        count = 0
        columns = (*SHOWN, "expires_at", "facets", "ordered", "vector")
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE IF EXISTS {self._name}".encode())
                cursor.execute(
                    f"CREATE TABLE {self._name} (id text PRIMARY KEY, text text NOT NULL, metadata jsonb, scope text, "
                    "session text, happened_at text, expires_at bigint, facets text[], ordered jsonb, "
                    f"vector vector({dim}) NOT NULL)".encode()
                )
                with cursor.copy(f"COPY {self._name} ({', '.join(columns)}) FROM STDIN".encode()) as copy:
                    for memories, vectors in _batches(bank):
                        for memory, vector in zip(memories, vectors, strict=True):
                            copy.write_row(_row(memory, vector))
                            count += 1
        except (psycopg.DataError, UnicodeError) as exc:
            raise MemoryBankError(f"PostgreSQL cannot store a memory of this bank: {str(exc).strip()}") from exc
        return count

    def search(
        self,
        query: QueryVector,
        k: int = 10,
        where: Where | None = None,
        *,
        scope: str | Sequence[str] = (),
        at: When = None,
    ) -> list[StoreHit]:
        """See `VectorStore`. Exact unless the table has an index; pgvector's `<#>` is minus the inner product.

        An index of pgvector is searched on until k memories that fulfil the conditions are found (pgvector 0.8 on).
        """
        import psycopg

        tests, now = _wanted(where, scope, at)
        condition, parameters = postgres_condition(tests)
        literal = _literal(query.vector)
        try:
            with self._connection.transaction():
                for setting in self._iterative:
                    self._connection.execute(setting)
                rows = self._connection.execute(
                    f"SELECT id, text, metadata::text, scope, session, happened_at, -(vector <#> %s::vector) "
                    f"FROM {self._name} WHERE (expires_at IS NULL OR expires_at > %s) AND {condition} "
                    "ORDER BY vector <#> %s::vector LIMIT %s".encode(),
                    (literal, now, *parameters, literal, k),
                ).fetchall()
        except psycopg.errors.UndefinedColumn as exc:
            raise _outdated(self._name) from exc
        return [_hit(row, query.score(float(similarity))) for *row, similarity in rows]


ITERATIVE = (b"SET LOCAL hnsw.iterative_scan = strict_order", b"SET LOCAL hnsw.max_scan_tuples = 2147483647")


def _at_least(version: str, least: tuple[int, int]) -> bool:
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and (int(found[1]), int(found[2])) >= least


def _row(memory: Memory, vector: Float[np.ndarray, "d"]) -> Sequence[Any]:
    record, facets = _record(memory), facets_of(memory)
    for name in ("text", "session"):
        if "\0" in (record[name] or ""):
            raise MemoryBankError(f"PostgreSQL cannot store the NUL character in memory {memory.id!r}")
    ordered = {kind: values for kind in KINDS if (values := facets.ordered[kind])}
    return *record.values(), facets.tokens, json.dumps(ordered), _literal(vector)


def _literal(vector: Float[np.ndarray, "d"]) -> str:
    """pgvector's text form; 9 digits carry a float32 exactly."""
    return "[" + ",".join(f"{x:.9g}" for x in vector.tolist()) + "]"

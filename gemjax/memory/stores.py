"""Riemannian search on an existing vector store: the store keeps plain unit vectors, only the query changes.

`LanceStore` (LanceDB, embedded) and `PgVectorStore` (PostgreSQL with pgvector, by URL) hold a bank's ids, texts,
metadata and unit vectors in a table. A search asks the bank for the transformed query (`MemoryBank.query_vector`), lets
the store do the nearest-neighbour search, and turns its number back into our score. The bank supplies the metric and
the ranges; its memories must be the ones in the store.

    pip install 'gemjax[lancedb]'        pip install 'gemjax[pgvector]'
"""

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any, Protocol, Self

import numpy as np
from jaxtyping import Float

from gemjax.errors import ConfigError, MemoryBankError
from gemjax.memory.bank import MemoryBank
from gemjax.memory.hits import QueryVector
from gemjax.memory.record import Id, Memory

BATCH = 2000


@dataclasses.dataclass(frozen=True, slots=True)
class StoreHit:
    """One memory found by a store; `score` is on the bank's scale (larger is closer)."""

    id: Id
    text: str
    metadata: dict[str, Any] | None
    score: float


class VectorStore(Protocol):
    """What a store can do here."""

    def write(self, bank: MemoryBank) -> int:
        """Replace the table's content by the bank's memories; returns how many."""
        ...

    def search(self, query: QueryVector, k: int = 10) -> list[StoreHit]:
        """The k memories of largest score, best first."""
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


def _hit(id: str, text: str, metadata: str | None, score: float) -> StoreHit:
    """Ids travel as JSON, so that 1 and "1" stay two ids."""
    return StoreHit(json.loads(id), text, None if metadata is None else json.loads(metadata), score)


def _record(entry: Memory) -> tuple[str, str, str | None]:
    metadata = None if entry.metadata is None else json.dumps(dict(entry.metadata))
    return json.dumps(entry.id), entry.text, metadata


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
        """Replace the table by the bank's memories; returns how many."""
        import pyarrow as pa

        dim = _check(bank, self._name)
        schema = pa.schema(
            [
                ("id", pa.string()),
                ("text", pa.string()),
                ("metadata", pa.string()),
                ("vector", pa.list_(pa.float32(), dim)),
            ]
        )

        def batches() -> Iterator[Any]:
            for entries, vectors in _batches(bank):
                ids, texts, metadata = zip(*map(_record, entries), strict=True)
                flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), dim)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(ids), pa.array(texts), pa.array(metadata, pa.string()), flat], schema=schema
                )

        table = self._database.create_table(self._name, batches(), schema=schema, mode="overwrite")
        return int(table.count_rows())

    def search(self, query: QueryVector, k: int = 10) -> list[StoreHit]:
        """Exact unless the table has an index. LanceDB returns 1 - inner product as its distance."""
        found = (
            self._database.open_table(self._name)
            .search(query.vector, vector_column_name="vector")
            .distance_type("dot")
            .limit(k)
            .to_list()
        )
        return [_hit(r["id"], r["text"], r["metadata"], query.score(1.0 - r["_distance"])) for r in found]


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
        dim = _check(bank, self._name)
        count = 0
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {self._name}".encode())
            cursor.execute(
                f"CREATE TABLE {self._name} "
                f"(id text PRIMARY KEY, text text NOT NULL, metadata jsonb, vector vector({dim}) NOT NULL)".encode()
            )
            with cursor.copy(f"COPY {self._name} (id, text, metadata, vector) FROM STDIN".encode()) as copy:
                for entries, vectors in _batches(bank):
                    for entry, vector in zip(entries, vectors, strict=True):
                        if "\0" in entry.text:
                            raise MemoryBankError(f"PostgreSQL cannot store the NUL character in memory {entry.id!r}")
                        copy.write_row((*_record(entry), _literal(vector)))
                        count += 1
        return count

    def search(self, query: QueryVector, k: int = 10) -> list[StoreHit]:
        """Exact unless the table has an index. pgvector's `<#>` is minus the inner product."""
        literal = _literal(query.vector)
        rows = self._connection.execute(
            f"SELECT id, text, metadata::text, -(vector <#> %s::vector) FROM {self._name} "
            "ORDER BY vector <#> %s::vector LIMIT %s".encode(),
            (literal, literal, k),
        ).fetchall()
        return [_hit(id, text, metadata, query.score(float(ip))) for id, text, metadata, ip in rows]


def _literal(vector: Float[np.ndarray, "d"]) -> str:
    """pgvector's text form; 9 digits carry a float32 exactly."""
    return "[" + ",".join(f"{x:.9g}" for x in vector.tolist()) + "]"

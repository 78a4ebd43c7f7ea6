"""What is in a memory bank: texts, their vectors and the metric that is fitted to them (CoreMem, paper 3.2)."""

import dataclasses
import datetime as dt
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gemjax.errors import EncoderError, MemoryBankError, StateError
from gemjax.kernels import metric as km
from gemjax.kernels import moments as kmo
from gemjax.memory.config import MemoryConfig
from gemjax.memory.entries import About, Entries, Plan, unit_vectors
from gemjax.memory.filters import Where, compiled
from gemjax.memory.fitted import FittedMetric
from gemjax.memory.lexicon import Lexicon
from gemjax.memory.persist import Header, Saved, read_bank, write_bank
from gemjax.memory.reading import Reader
from gemjax.memory.record import Id, Memory, When, copied, scope_of
from gemjax.memory.rows import Rows

ON_DUPLICATE = ("keep", "skip", "replace")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


class BankContent:
    """Adding, changing and keeping memories, and the metric that is fitted to them.

    Args:
        encoder: an `Encoder`, any callable `list[str] -> array`, or None for the default encoder, which is loaded when
            the first text must be encoded (a bank that is given vectors never loads one).
        config: see `MemoryConfig`; default the paper's.
        clock: returns the present moment (for `created_at`, `updated_at` and expiry); None: the system's, in UTC.

    A bank made from vectors alone takes its dimension from the first of them. Vectors are scaled to unit length.
    """

    def __init__(
        self,
        encoder: Any = None,
        config: MemoryConfig | None = None,
        clock: Callable[[], dt.datetime] | None = None,
    ) -> None:
        self.config = config or MemoryConfig()
        self._lock = threading.RLock()
        self._clock = clock or _now
        self._reader = Reader(encoder)
        self.encoder_name: str | None = None
        """Name of the encoder that made the vectors; None while all were given as vectors."""
        self._entries = Entries()
        self._rows: Rows | None = None
        self._fitted = FittedMetric(self.config)
        self._alive: Bool[Array, "n"] | None = None
        self._lexicon: Lexicon | None = None

    # ---- what is in it -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: Id) -> bool:
        return id in self._entries

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} memories, dim={self.dim}, encoder={self.encoder_name!r})"

    @property
    def dim(self) -> int | None:
        """Length of the vectors; None while the bank is empty and nothing was encoded."""
        return None if self._rows is None else self._rows.dim

    @property
    def ids(self) -> list[Id]:
        """Ids in the order of insertion."""
        with self._lock:
            return self._entries.live_ids()

    def vectors(self) -> Float[np.ndarray, "n d"]:
        """A copy of the unit vectors, in the order of `ids`: what an exporter writes to another store."""
        with self._lock:
            if self._rows is None:
                return np.zeros((0, 0), np.float32)
            return self._rows.take(self._entries.live_rows())

    def contents(self) -> tuple[list[Memory], Float[np.ndarray, "n d"]]:
        """All memories with their unit vectors, taken at one moment."""
        with self._lock:
            return [dataclasses.replace(m, metadata=copied(m.metadata)) for m in self._entries.live()], self.vectors()

    def get(self, id: Id) -> Memory | None:
        """One memory, or None."""
        with self._lock:
            if id not in self._entries:
                return None
            memory = self._entries.at(int(self._entries.places([id])[0]))
            return dataclasses.replace(memory, metadata=copied(memory.metadata))

    def page(
        self, where: Where | None = None, *, scope: str | Sequence[str] = (), offset: int = 0, limit: int = 100
    ) -> list[Memory]:
        """Memories in the order of insertion, a page at a time, expired ones too.

        Raises: MemoryBankError for a negative offset, a limit below 1, or a bad condition or scope.
        """
        if offset < 0 or limit < 1:
            raise MemoryBankError(f"offset must be >= 0 and limit >= 1, got {offset!r} and {limit!r}")
        test = None if where is None else compiled(where)
        with self._lock:
            rows = np.flatnonzero(self._entries.mask(self._entries.size, test, scope_of(scope)))
            memories = [self._entries.at(int(row)) for row in rows[offset : offset + limit]]
            return [dataclasses.replace(memory, metadata=copied(memory.metadata)) for memory in memories]

    # ---- changing it ---------------------------------------------------------------------------------------------

    def add(
        self,
        texts: Sequence[str],
        ids: Sequence[Id] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: Any = None,
        *,
        on_duplicate: str = "keep",
        scope: str | Sequence[str] = (),
        sessions: str | Sequence[str | None] | None = None,
        happened_at: When | Sequence[When] = None,
        expires_at: When | Sequence[When] = None,
    ) -> list[Id]:
        """Add memories; returns the id of each text (given, or new integers that are never used twice).

        Args:
            texts: non-empty strings.
            ids: unique strings or integers that are not in the bank.
            metadata: one JSON-serialisable mapping (or None) a text; copied.
            vectors: `[n, dim]`, to skip the encoder.
            on_duplicate: what to do with a text that the bank (or this call) holds already, but for blanks: `"keep"`
                both; `"skip"` the new one; `"replace"` the old one's text, metadata and vector in its place. The last
                two return the id of the memory that was there.
            scope: whose memories these are, widest name first, e.g. `("ann", "planner")`.
            sessions: the dialogue that the texts are turns of, one for all or one a text. Turns of one session that are
                added one after the other are neighbours.
            happened_at: when what they say was said, one moment for all or one a text; UTC unless it says otherwise.
            expires_at: from when on no search returns them.

        Raises: MemoryBankError for anything above that does not hold; EncoderError when the encoder returns something
        else than finite, non-zero vectors of the bank's dimension. The bank is then unchanged.
        """
        if isinstance(texts, str):
            raise MemoryBankError("texts must be a list of strings; got one string, wrap it in a list")
        if on_duplicate not in ON_DUPLICATE:
            raise MemoryBankError(f"on_duplicate must be one of {', '.join(ON_DUPLICATE)}; got {on_duplicate!r:.40}")
        texts = list(texts)
        about = About.of(len(texts), scope, sessions, happened_at, expires_at)
        with self._lock:
            self._entries.check_new(texts, ids, metadata, about)
        if not texts:
            return []
        encoded = vectors is None
        rows = (
            self._encode(texts, notice=True)
            if vectors is None
            else unit_vectors(vectors, len(texts), None, MemoryBankError)
        )
        with self._lock:
            now = self._clock()
            # Again: another thread may have added meanwhile.
            new = self._entries.check_new(texts, ids, metadata, about, now)
            self._check_dim(rows.shape[1], EncoderError if encoded else MemoryBankError)
            if self._rows is None:
                self._rows = Rows(rows.shape[1], self.config.dtype)
            plan = self._entries.plan(new, on_duplicate, now)
            self._write(plan, rows)
            if encoded:
                self.encoder_name = self._reader.name
            return plan.ids

    def upsert(
        self,
        ids: Sequence[Id],
        texts: Sequence[str],
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        vectors: Any = None,
        *,
        scope: str | Sequence[str] = (),
        sessions: str | Sequence[str | None] | None = None,
        happened_at: When | Sequence[When] = None,
        expires_at: When | Sequence[When] = None,
    ) -> list[Id]:
        """Write memories under these ids: those that are in the bank are replaced in their place, others are added.

        What a replaced memory said before stays in its `history`; its `created_at` stays, `updated_at` is now.

        Args:
            ids: unique strings or integers, in the bank or not.
            texts, metadata, vectors, scope, sessions, happened_at, expires_at: as for `add`; they replace all that
                the memory had.

        Returns: the ids.

        Raises: as `add`. The bank is then unchanged.
        """
        if isinstance(texts, str) or isinstance(ids, str):
            raise MemoryBankError("ids and texts must be lists; got one string, wrap it in a list")
        texts, ids = list(texts), list(ids)
        about = About.of(len(texts), scope, sessions, happened_at, expires_at)
        with self._lock:
            self._entries.check_new(texts, ids, metadata, about, known=True)
        if not texts:
            return []
        encoded = vectors is None
        rows = self._encode(texts, notice=True) if encoded else unit_vectors(vectors, len(texts), None, MemoryBankError)
        with self._lock:
            now = self._clock()
            new = self._entries.check_new(texts, ids, metadata, about, now, known=True)
            self._check_dim(rows.shape[1], EncoderError if encoded else MemoryBankError)
            if self._rows is None:
                self._rows = Rows(rows.shape[1], self.config.dtype)
            plan = self._entries.plan_upsert(new, now)
            self._write(plan, rows)
            if encoded:
                self.encoder_name = self._reader.name
            return plan.ids

    def restore(
        self, memories: Sequence[Memory], vectors: Any, *, encoded: bool = False, replace: bool = False
    ) -> list[Id]:
        """Take in memories as they are, moments and histories too: what `import_jsonl` and migrations need.

        Args:
            memories: an id of None asks for a new integer.
            vectors: theirs, `[n, dim]`.
            encoded: whether this bank's encoder made some of them.
            replace: ids may be in the bank; otherwise they are refused.

        Returns: the ids.

        Raises: MemoryBankError. The bank is then unchanged.
        """
        if not len(memories):
            return []
        rows = unit_vectors(vectors, len(memories), None, MemoryBankError)
        with self._lock:
            now = self._clock()
            free = self._entries.next_id
            ids = [m.id if m.id is not None else (free := free + 1) - 1 for m in memories]
            self._entries.check_new([m.text for m in memories], ids, [m.metadata for m in memories], known=replace)
            self._check_dim(rows.shape[1], MemoryBankError)
            new = [
                dataclasses.replace(m, id=id, metadata=copied(m.metadata), created_at=m.created_at or now)
                for m, id in zip(memories, ids, strict=True)
            ]
            if self._rows is None:
                self._rows = Rows(rows.shape[1], self.config.dtype)
            plan = self._entries.plan_upsert(new, now)
            self._write(plan, rows)
            if encoded:
                self.encoder_name = self._reader.name
            return plan.ids

    def _write(self, plan: Plan, rows: Float[np.ndarray, "n d"]) -> None:
        """Carry out a checked plan; `rows` are the unit vectors of the texts that it was made for."""
        assert self._rows is not None
        if plan.replaced:
            places = self._entries.places([memory.id for memory in plan.replaced])
            with_old = self._fitted.removing(self._rows.take(places), len(self._entries) - len(places))
            self._fitted.replace(with_old)
            changed = rows[plan.replaced_from]
            moments = self._fitted.adding(changed, first=len(places) == len(self._entries))
            self._rows.put(places, changed)
            if self._lexicon is not None:
                self._lexicon.drop([(int(row), self._entries.at(int(row))) for row in places])
                for row, memory in zip(places.tolist(), plan.replaced, strict=True):
                    self._lexicon.put(row, memory)
            self._entries.replace(plan.replaced)
            self._fitted.replace(moments)
        if plan.added:
            fresh = rows[plan.added_from]
            moments = self._fitted.adding(fresh, first=not len(self._entries))
            if self._lexicon is not None:
                for row, memory in enumerate(plan.added, len(self._rows)):
                    self._lexicon.put(row, memory)
            self._rows.append(fresh)
            self._entries.append(plan.added)
            self._fitted.replace(moments)
        self._alive = None

    def remove(self, ids: Iterable[Id]) -> None:
        """Remove memories. Raises MemoryBankError naming the unknown ids; nothing is removed then."""
        if isinstance(ids, str | int):
            ids = [ids]
        with self._lock:
            gone = self._entries.rows_of(ids)
            if not len(gone):
                return
            assert self._rows is not None
            moments = self._fitted.removing(self._rows.take(gone), len(self._entries) - len(gone))
            if self._lexicon is not None:
                self._lexicon.drop([(row, self._entries.at(row)) for row in gone.tolist()])
            self._entries.drop(gone)
            if self._entries.wasted > max(len(self._entries), 64):
                live = self._entries.live_rows()
                self._rows.keep(live)
                if self._lexicon is not None:
                    self._lexicon.compact(live)
                self._entries.compact()
            self._fitted.replace(moments)
            self._alive = None

    # ---- the metric ----------------------------------------------------------------------------------------------

    @property
    def moments(self) -> kmo.Moments:
        """Count, mean and centred second moment of the memories."""
        with self._lock:
            if self._rows is None:
                raise MemoryBankError("the bank is empty: it has no moments")
            return self._fitted.moments(self._rows, self._live_mask())

    @property
    def metric(self) -> km.LowRankMetric:
        """The fitted metric, refitted first when memories changed (unless `auto_refit` is off)."""
        with self._lock:
            if self._rows is None:
                raise MemoryBankError("the bank is empty: it has no metric")
            return self._fitted.metric(self._rows, self._live_mask())

    def refit(self) -> None:
        """Fit the metric to the present memories. `O(d^3)`, however many there are."""
        with self._lock:
            if self._rows is None:
                raise MemoryBankError("the bank is empty: it has no metric")
            self._fitted.refit(self._rows, self._live_mask())

    def _live_mask(self) -> Bool[Array, "n"]:
        assert self._rows is not None
        if self._alive is None or self._alive.shape[0] != self._rows.capacity:
            self._alive = jnp.asarray(self._entries.mask(self._rows.capacity))
        return self._alive

    @property
    def unread(self) -> int:
        """Texts added here of which the encoder's vocabulary knows no part: none can be told from another."""
        return self._reader.unread

    # ---- small parts ---------------------------------------------------------------------------------------------

    def _check_dim(self, dim: int, error: type[Exception]) -> None:
        if self._rows is not None and dim != self._rows.dim:
            raise error(f"vectors have {dim} dimensions, the bank's have {self._rows.dim}")

    def _query_vectors(self, queries: Sequence[str] | Float[np.ndarray, "q d"]) -> Float[np.ndarray, "q d"]:
        if hasattr(queries, "ndim"):  # an array of vectors, NumPy's or JAX's
            return unit_vectors(queries, len(queries), "query", MemoryBankError)
        texts = list(queries)
        for i, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise MemoryBankError(f"query {i} must be a non-empty string, got {text!r}")
        return self._encode(texts) if texts else np.zeros((0, self.dim or 0), np.float32)

    def _encode(self, texts: list[str], notice: bool = False) -> Float[np.ndarray, "n d"]:
        with self._lock:
            encoder, made_by = self._reader.encoder(), self.encoder_name
        if made_by is not None and made_by != encoder.name:
            raise EncoderError(f"the bank's vectors were made by {made_by!r}; this encoder is {encoder.name!r}")
        if notice:
            self._reader.notice(texts)
        return unit_vectors(encoder.encode(texts), len(texts), "text", EncoderError)

    # ---- keeping it ----------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank to a directory, atomically: a crash leaves the old bank or the new one. See `persist`.

        Raises: StateError when it cannot be written; what was there is unchanged.
        """
        with self._lock:
            tensors: dict[str, np.ndarray] = {}
            if self._rows is not None and len(self):
                moments = self.moments
                tensors = {
                    "vectors": self._rows.stored(self._entries.live_rows()),
                    "moments.count": np.asarray(moments.count).reshape(1),
                    "moments.mean": np.asarray(moments.mean),
                    "moments.scatter": np.asarray(moments.scatter),
                }
            header = Header(
                len(self), self.dim, self.config.dtype, self.encoder_name, self._entries.next_id, self.config
            )
            saved = Saved(header, tensors, self._entries.live())
        write_bank(path, saved)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        encoder: Any = None,
        config: MemoryConfig | Callable[[MemoryConfig], MemoryConfig] | None = None,
    ) -> Self:
        """Read a saved bank. `config` replaces the saved settings, or makes others of them (dtype must stay).

        Raises: StateError for a missing, damaged or newer file, or another encoder's vectors.
        """
        saved = read_bank(path)
        header = saved.header
        config = config(header.config) if callable(config) else config or header.config
        if config.dtype != header.dtype:
            raise StateError(f"{path}: vectors are stored as {header.dtype}, the given config wants {config.dtype}")
        if encoder is not None and header.encoder is not None:
            from gemjax.encoders import as_encoder

            encoder = as_encoder(encoder)
            if encoder.name != header.encoder:
                raise StateError(f"{path}: the vectors were made by {header.encoder!r}, not by {encoder.name!r}")
        bank = cls(encoder, config)
        bank.encoder_name = header.encoder
        bank._entries.append(saved.memories)
        bank._entries.reserve(header.next_id)
        if header.dim is not None:
            bank._rows = Rows(header.dim, config.dtype)
        if saved.memories:
            assert bank._rows is not None
            bank._rows.append(bank._rows.as_stored(saved.tensors["vectors"]))
            count, mean, scatter = (jnp.asarray(saved.tensors[f"moments.{x}"]) for x in ("count", "mean", "scatter"))
            bank._fitted.replace(kmo.Moments(count[0], mean, scatter))
        return bank

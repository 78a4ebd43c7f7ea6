"""Searching a memory bank with CoreMem's fused score (paper 3.2), and taking it to other stores."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gemjax.errors import MemoryBankError
from gemjax.kernels import metric as km
from gemjax.kernels import moments as kmo
from gemjax.kernels import search as ks
from gemjax.kernels.host import power_of_two
from gemjax.memory.config import check_alpha
from gemjax.memory.content import BankContent
from gemjax.memory.entries import unit_vectors
from gemjax.memory.explain import explain_hit
from gemjax.memory.export import query_vector
from gemjax.memory.filters import Where, compiled
from gemjax.memory.hits import Hit, QueryVector
from gemjax.memory.lexicon import Lexicon
from gemjax.memory.record import When, moment, scope_of
from gemjax.memory.searching import BankView, Wanted, find, prepare

METRICS = ("fused", "cosine", "riemannian", "hybrid")
SCORE_BYTES = 256 * 2**20
"""Bound on the score columns of one batch of queries: two floats a memory and query."""

_whitening = jax.jit(km.whitening_matrix)


class BankCore(BankContent):
    """A bank that can be searched. `MemoryBank` is what users have."""

    def search(
        self,
        query: str | Float[np.ndarray, "d"],
        k: int = 10,
        where: Where | None = None,
        min_score: float | None = None,
        alpha: float | None = None,
        metric: str | None = None,
        fold: bool | None = None,
        *,
        scope: str | Sequence[str] = (),
        at: When = None,
    ) -> list[Hit]:
        """The k best memories, best first; ties in the order of insertion. Fewer when fewer are eligible.

        Args:
            query: a text, or a vector of the bank's dimension.
            k: at least 1; more than there are memories returns all.
            where: conditions on the metadata (`{"user": "ann", "year": {"gte": 2020}}`, see `gemjax.memory.filters`) or
                a predicate on it (an empty mapping where there is none). Applied before ranking: the result is that of
                a bank holding only what passes.
            min_score: drop hits whose `score` is smaller.
            alpha: weight of the cosine for this search instead of the configured one.
            metric: `"fused"`, `"cosine"`, `"riemannian"` or `"hybrid"` (meaning, words, neighbours and session, by the
                config's weights): what `score` is and what ranks. None: `config.ranking`.
            fold: show memories that say the same but for case, blanks and closing marks once, the best of them;
                `Hit.duplicates` has the ids of the others. They must share scope, metadata and (nearly) the vector.
                None: for a query that is a text; a vector asks for rows, as of an index.
            scope: only memories of this scope or of one within it.
            at: the moment of the search, by which memories have expired and from which "last week" in a text is
                counted; None: now.

        Raises: MemoryBankError for a bad query, k or metric; EncoderError from the encoder. An empty bank, or a filter
        that nothing passes, gives an empty list.
        """
        single = [query] if isinstance(query, str) else np.asarray(query)[None]
        return self.search_batch(single, k, where, min_score, alpha, metric, fold, scope=scope, at=at)[0]

    def search_batch(
        self,
        queries: Sequence[str] | Float[np.ndarray, "q d"],
        k: int = 10,
        where: Where | None = None,
        min_score: float | None = None,
        alpha: float | None = None,
        metric: str | None = None,
        fold: bool | None = None,
        *,
        scope: str | Sequence[str] = (),
        at: When = None,
        vectors: Any = None,
    ) -> list[list[Hit]]:
        """`search` for many queries: they share the passes over the memories, so this is much cheaper than a loop.

        `vectors [q, d]`: those of the texts in `queries`, to skip the encoder.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise MemoryBankError(f"k must be an integer >= 1, got {k!r}")
        metric = self.config.ranking if metric is None else metric
        alpha = self._alpha(alpha, metric)
        if isinstance(queries, str):
            raise MemoryBankError("queries must be a list of strings; got one string, use `search`")
        if vectors is None:
            unit = self._query_vectors(queries)
        else:
            unit = unit_vectors(vectors, len(queries), "query", MemoryBankError)
        worded = not hasattr(queries, "ndim")
        texts = [str(query) for query in queries] if worded else [None] * len(unit)
        with self._lock:
            if not len(self._entries) or not len(unit):
                return [[] for _ in unit]
            assert self._rows is not None
            self._check_dim(unit.shape[1], MemoryBankError)
            eligible, candidates = self._eligible(where, scope, at)
            if not candidates:
                return [[] for _ in unit]
            note = self._note()
            fitted = self._searchable_metric(note)
            norms = None if note else self._fitted.norms(fitted, self._rows)
            now = moment(at, "at") or self._clock()
            view = BankView(self._entries, self._rows, eligible, candidates, fitted, norms, note, self.config, now)
            lexicon = self._words() if metric == "hybrid" else None
            wanted = Wanted(
                min(int(k), candidates), metric, 1.0 if note else alpha, min_score, worded if fold is None else fold
            )
            step = self._batch_size(len(unit), 8 if lexicon else 2)
            return [
                hits
                for start in range(0, len(unit), step)
                for hits in find(view, unit[start : start + step], texts[start : start + step], lexicon, wanted)
            ]

    def _words(self) -> Lexicon:
        """Made by the first search that needs it; additions then keep it in step."""
        if self._lexicon is None:
            rows = self._entries.live_rows().tolist()
            self._lexicon = Lexicon((row, self._entries.at(row)) for row in rows)
        return self._lexicon

    def explain(self, hit: Hit) -> str:
        """Where this hit's score comes from, in words and numbers, against the bank as it is now."""
        if hit.query is None:
            raise MemoryBankError("this hit carries no query; explain needs a hit that `search` returned")
        with self._lock:
            if hit.id not in self:
                raise MemoryBankError(f"id {hit.id!r} is no longer in the bank")
            scores, _ = self._columns(hit.query)
            row = int(self._entries.rows_of([hit.id])[0])
            note = self._note()
            metric = None if note else self.metric
            return explain_hit(hit, row, self._entries.live_rows(), scores, metric, self.config, note)

    def query_vector(
        self,
        query: str | Float[np.ndarray, "d"],
        metric: str = "fused",
        alpha: float | None = None,
        *,
        where: Where | None = None,
        scope: str | Sequence[str] = (),
        at: When = None,
    ) -> QueryVector:
        """The query as one vector for a cosine or inner-product index over this bank's unit vectors.

        Our score is `scale * (vector . memory) + offset`: the index ranks as the bank does, without re-indexing. The
        fused score needs the ranges of both scores, which costs one pass over the bank's memories; `where`, `scope` and
        `at` take them over what the same search in the bank could return.

        Raises: MemoryBankError when the bank is empty, or `form` is not `"similarity"` (then the score is no inner
        product; use `whitened_vectors` and `whitened_query` with an L2 index).
        """
        weight = self._alpha(alpha, metric)
        if self.config.form != "similarity" and weight < 1:
            raise MemoryBankError(
                f"form={self.config.form!r} is not an inner product of a unit memory; export whitened vectors instead"
            )
        with self._lock:
            scores, prepared = self._columns(query, self._eligible(where, scope, at)[0] if len(self) else None)
            return query_vector(scores, prepared, metric, weight, bool(self._note()))

    def whitened_vectors(self) -> Float[np.ndarray, "n d"]:
        """Memories in coordinates where squared L2 distance is the squared Mahalanobis distance: for L2 indexes."""
        with self._lock:
            return np.asarray(self.vectors() @ np.asarray(_whitening(self.metric)).T)

    def whitened_query(self, query: str | Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """A query in the coordinates of `whitened_vectors` (valid until the metric is refitted)."""
        unit = self._query_vectors([query] if isinstance(query, str) else np.asarray(query)[None])[0]
        with self._lock:
            return np.asarray(np.asarray(_whitening(self.metric)) @ unit)

    def _columns(
        self, query: str | Float[np.ndarray, "d"], eligible: Bool[Array, "n"] | None = None
    ) -> tuple[ks.Scores, ks.Queries]:
        unit = self._query_vectors([query] if isinstance(query, str) else np.asarray(query)[None])
        with self._lock:
            if self._rows is None or not len(self._entries):
                raise MemoryBankError("the bank is empty")
            self._check_dim(unit.shape[1], MemoryBankError)
            note = self._note()
            fitted = self._searchable_metric(note)
            prepared = prepare(fitted, unit)
            scores = ks.score_columns(
                self._rows.buffer,
                self._live_mask() if eligible is None else eligible,
                jnp.int32(len(self._rows)),
                prepared,
                None if note else self._fitted.norms(fitted, self._rows),
                form="similarity" if note else self.config.form,
            )
            return jax.tree.map(np.asarray, scores), prepared

    def encode(self, queries: Sequence[str]) -> Float[np.ndarray, "q d"]:
        """Unit vectors of queries by the bank's encoder: `search_batch(queries, vectors=...)` takes them.

        Raises: MemoryBankError for an empty text; EncoderError.
        """
        return self._query_vectors(list(queries))

    def _note(self) -> str:
        n, least = len(self._entries), self.config.min_memories
        return "" if n >= least else f"cosine only: {n} memories are too few to fit a metric (min_memories={least})"

    def _searchable_metric(self, note: str) -> km.LowRankMetric:
        if not note:
            return self.metric
        assert self._rows is not None
        identity: km.LowRankMetric = km.fit_metric_jit(kmo.empty_moments(self._rows.dim))
        return identity  # its score is not reported

    def _eligible(self, where: Where | None, scope: Any, at: When) -> tuple[Bool[Array, "n"], int]:
        assert self._rows is not None
        names = scope_of(scope)
        moment_at = moment(at, "at")
        if where is None and not names and not self._entries.mortal:
            return self._live_mask(), len(self._entries)
        test = None if where is None else compiled(where)
        mask = self._entries.mask(self._rows.capacity, test, names, moment_at or self._clock())
        return jnp.asarray(mask), int(mask.sum())

    def _batch_size(self, wanted: int, floats: int) -> int:
        assert self._rows is not None
        most = max(1, SCORE_BYTES // (4 * floats * self._rows.capacity))
        return min(1 << (most.bit_length() - 1), power_of_two(wanted))

    def _alpha(self, alpha: float | None, metric: str) -> float:
        if metric not in METRICS:
            raise MemoryBankError(f"metric must be one of {', '.join(METRICS)}; got {metric!r}")
        alpha = self.config.alpha if alpha is None else alpha
        check_alpha(alpha)
        return {"cosine": 1.0, "riemannian": 0.0}.get(metric, alpha)

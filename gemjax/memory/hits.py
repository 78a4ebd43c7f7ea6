"""What a search returns."""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from gemjax.memory.record import Id, Scope, copied


@dataclasses.dataclass(frozen=True, slots=True)
class Hit:
    """One memory found. All scores: larger is closer."""

    id: Id
    text: str
    metadata: Mapping[str, Any] | None
    score: float
    """The score that ranked, by the search's `metric`. `hybrid` is in deviations from the mean, without bounds."""
    cosine: float
    """Cosine with the query, -1 to 1."""
    riemannian: float | None
    """The metric's score, unbounded; None when there are too few memories for a metric."""
    fused: float
    """Eq. 2: 0 to 1, relative to all memories this query could have found; no absolute meaning across queries."""
    rank: int
    """Place in this result, from 1."""
    alpha: float
    """Weight of the cosine that this search used."""
    note: str = ""
    """Why this is not what the settings ask for; empty otherwise."""
    duplicates: tuple[Id, ...] = ()
    """Ids of memories that say the same and ranked below this one: folded into it (`search(fold=True)`)."""
    scope: Scope = ()
    """Whose memory it is."""
    session: str | None = None
    """The dialogue it is a turn of."""
    happened_at: dt.datetime | None = None
    """When what it says was said or took place (UTC)."""
    lexical: float | None = None
    """BM25 of the query's words in it; None where words had no part in the search."""
    query: Float[np.ndarray, "d"] | None = dataclasses.field(default=None, repr=False, compare=False)
    """The query's unit vector, for `MemoryBank.explain`."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: everything but the query vector."""
        return {
            "rank": self.rank,
            "id": self.id,
            "text": self.text,
            "metadata": copied(self.metadata),
            "score": self.score,
            "cosine": self.cosine,
            "riemannian": self.riemannian,
            "fused": self.fused,
            "alpha": self.alpha,
            "note": self.note,
            "duplicates": list(self.duplicates),
            "scope": list(self.scope),
            "session": self.session,
            "happened_at": None if self.happened_at is None else self.happened_at.isoformat(),
            "lexical": self.lexical,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class QueryVector:
    """A query for somebody else's index: our score is `scale * (vector . memory) + offset` for unit memories.

    `vector` has length 1, so an inner-product and a cosine index rank alike.
    """

    vector: Float[np.ndarray, "d"]
    scale: float
    offset: float
    metric: str

    def score(self, similarity: float) -> float:
        """Our score from the store's inner product (or cosine) with `vector`."""
        return self.scale * similarity + self.offset


@dataclasses.dataclass(frozen=True, slots=True)
class SessionHit:
    """One session found: the score of its best turn, and its best turns."""

    session: str
    scope: Scope
    score: float
    rank: int
    turns: tuple[Hit, ...]

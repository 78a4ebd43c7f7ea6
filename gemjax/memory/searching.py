"""One search over a bank's rows: scores, ranking, folding, hits."""

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gemjax.kernels import fusion as kf
from gemjax.kernels import metric as km
from gemjax.kernels import search as ks
from gemjax.kernels.host import power_of_two
from gemjax.memory.config import MemoryConfig
from gemjax.memory.entries import Entries
from gemjax.memory.folding import Folding
from gemjax.memory.hits import Hit
from gemjax.memory.lexicon import Lexicon
from gemjax.memory.record import copied
from gemjax.memory.rows import Rows

prepare = jax.jit(ks.prepare_queries)


@dataclasses.dataclass(frozen=True, slots=True)
class BankView:
    """The bank at the moment of a search."""

    entries: Entries
    rows: Rows
    eligible: Bool[Array, "n"]
    candidates: int
    metric: km.LowRankMetric
    norms: Float[Array, "n"] | None
    note: str
    """Why there is no metric (too few memories); empty otherwise."""
    config: MemoryConfig
    now: dt.datetime
    """The moment of the search: a query's "last week" is before it, and memories have faded until it."""

    @property
    def form(self) -> str:
        """What the Riemannian score is here."""
        return "similarity" if self.note else self.config.form


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """What a search asks for."""

    k: int
    metric: str
    alpha: float
    min_score: float | None
    fold: bool


def find(
    view: BankView, unit: Float[np.ndarray, "q d"], texts: Sequence[str | None], lexicon: Lexicon | None, wanted: Wanted
) -> list[list[Hit]]:
    """The hits of a few queries at once. `lexicon` is given when the ranking is the hybrid one."""
    size = power_of_two(len(unit))
    padded = np.zeros((size, unit.shape[1]), np.float32)
    padded[: len(unit)] = unit
    queries = prepare(view.metric, padded)
    channels = None if lexicon is None else channels_of(view, lexicon, [*texts, *[None] * (size - len(unit))])
    folding = Folding(view.entries, view.rows) if wanted.fold else None
    looked_at = wanted.k
    while True:
        bucket = min(view.rows.capacity, power_of_two(looked_at, 16))
        common = (view.rows.buffer, view.eligible, jnp.int32(len(view.rows)), queries, jnp.float32(wanted.alpha))
        top: Any
        if channels is None:
            top = ks.fused_search(*common, view.norms, k=bucket, form=view.form)
        else:
            top = kf.joined_search(*common, channels, weights_of(view.config), view.norms, k=bucket, form=view.form)
        top = type(top)(*(np.asarray(x)[: len(unit)] for x in top))
        found = [row[ok] for row, ok in zip(top.indices, top.valid, strict=True)]
        groups = [folding.groups(row, wanted.k) if folding else _alone(row, wanted.k) for row in found]
        if min(map(len, groups)) >= wanted.k or bucket >= view.candidates:
            return [_hits(view, top, i, group, unit[i], wanted) for i, group in enumerate(groups)]
        looked_at = 2 * bucket


def channels_of(view: BankView, lexicon: Lexicon, texts: Sequence[str | None]) -> kf.Channels:
    """Words, speaker, time and session of every row, for these queries (None: a query without words)."""
    capacity = view.rows.capacity
    lexical = lexicon.scores(texts, capacity)
    bonus: Float[np.ndarray, "n q"] = lexicon.spoken_by(texts, capacity) * np.float32(view.config.speaker)
    if view.config.when and (happened := lexicon.happened(texts, capacity, view.now.date())) is not None:
        bonus = bonus + np.float32(view.config.when) * happened
    if view.config.forgetting:
        bonus = bonus + lexicon.retention(capacity, view.now, view.config.forgetting)[:, None]
    return kf.Channels(jnp.asarray(lexical), jnp.asarray(bonus), jnp.asarray(lexicon.sessions(capacity)))


def weights_of(config: MemoryConfig) -> kf.ChannelWeights:
    """The configured weights as the kernel takes them."""
    return kf.ChannelWeights(*(jnp.float32(x) for x in (config.lexical, config.neighbours, config.session)))


def _alone(rows: np.ndarray, k: int) -> list[list[int]]:
    """Every memory in a group of its own."""
    return [[rank] for rank in range(min(k, len(rows)))]


def _hits(
    view: BankView, top: Any, i: int, groups: list[list[int]], query: Float[np.ndarray, "d"], wanted: Wanted
) -> list[Hit]:
    hits: list[Hit] = []
    for place, *folded in groups:
        memory = view.entries.at(int(top.indices[i, place]))
        cosine, fused = float(top.cosine[i, place]), float(top.fused[i, place])
        riemannian = None if view.note else float(top.riemannian[i, place])
        if isinstance(top, kf.FusedTopK):
            score, lexical = float(top.score[i, place]), float(top.lexical[i, place])
        else:
            by_metric = {"fused": fused, "cosine": cosine, "riemannian": riemannian}[wanted.metric]
            score, lexical = cosine if by_metric is None else by_metric, None
        if wanted.min_score is not None and score < wanted.min_score:
            continue
        hits.append(
            Hit(
                memory.id,
                memory.text,
                copied(memory.metadata),
                score,
                cosine,
                riemannian,
                fused,
                rank=len(hits) + 1,
                alpha=wanted.alpha,
                note=view.note,
                duplicates=tuple(view.entries.at(int(top.indices[i, p])).id for p in folded),
                scope=memory.scope,
                session=memory.session,
                happened_at=memory.happened_at,
                lexical=lexical,
                query=query,
            )
        )
    return hits

r"""Ranking by several channels at once: meaning (the two scores of `search`), words, whose turn it is, and what stands
beside it in a dialogue. One pass over the memories, exact top-k.

The channels have different units. Meaning and words are standardised over the memories that the query may find (mean
0, deviation 1) and summed: $s = z(m) + w\,z(l)$. Standardising is what makes the sum depend on the query: common words
give a lexical column that is nearly even and adds little, a rare name gives a few memories ten deviations and decides.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels import search as ks
from gemjax.kernels._checks import require

Range = tuple[Float[Array, "q"], Float[Array, "q"]]


class ChannelWeights(NamedTuple):
    """Weights beside the standardised meaning, which has 1."""

    lexical: Float[Array, ""]
    """Of the standardised lexical score."""
    neighbours: Float[Array, ""]
    """Of the better neighbour's positive score: in a dialogue, what answers stands beside what asks."""
    session: Float[Array, ""]
    """Of the positive score of the best turn in the same session."""


class Channels(NamedTuple):
    """What a search knows of every row beside its vector."""

    lexical: Float[Array, "n q"]
    """A lexical score, at least 0 (BM25)."""
    bonus: Float[Array, "n q"]
    """Added as it is, after the neighbours."""
    session: Int[Array, "n"]
    """Number of the row's session, below n; -1: none. Rows of a session that follow each other are neighbours."""


class FusedTopK(NamedTuple):
    """The k best of each query, best first; ties to the lower row. Arrays `[q, k]`; 0 where not `valid`."""

    indices: Int[Array, "q k"]
    valid: Bool[Array, "q k"]
    score: Float[Array, "q k"]
    cosine: Float[Array, "q k"]
    riemannian: Float[Array, "q k"]
    fused: Float[Array, "q k"]
    lexical: Float[Array, "q k"]


def standardise(x: Float[Array, "n q"], eligible: Bool[Array, "n"]) -> Float[Array, "n q"]:
    """Mean 0 and deviation 1 over the eligible rows of each column; a column without deviation becomes 0."""
    mask = eligible[:, None]
    count = jnp.maximum(jnp.sum(eligible), 1).astype(x.dtype)
    centred = x - jnp.sum(jnp.where(mask, x, 0), axis=0) / count
    deviation = jnp.sqrt(jnp.sum(jnp.where(mask, centred**2, 0), axis=0) / count)
    # Rounding leaves equal scores a deviation of some ulps: that is none.
    least = 1e-6 * jnp.max(jnp.where(mask, jnp.abs(x), 0), axis=0)
    return jnp.where(deviation > least, centred / jnp.where(deviation > least, deviation, 1), 0)


def join(
    meaning: Float[Array, "n q"], channels: Channels, eligible: Bool[Array, "n"], weights: ChannelWeights
) -> Float[Array, "n q"]:
    """The joined score of every row: standardised channels summed, then neighbours, bonus, and the session's best turn.

    Rows that are not eligible have no score and give their neighbours and their session nothing.
    """
    n = meaning.shape[0]
    score = standardise(meaning, eligible) + weights.lexical * standardise(channels.lexical, eligible)
    positive = jnp.where(eligible[:, None], jnp.maximum(score, 0), 0)
    session = channels.session
    together = ((session[1:] == session[:-1]) & (session[1:] >= 0)).astype(score.dtype)[:, None]
    edge = jnp.zeros_like(score[:1])
    before = jnp.concatenate([edge, positive[:-1] * together])
    after = jnp.concatenate([positive[1:] * together, edge])
    score = score + weights.neighbours * jnp.maximum(before, after) + channels.bonus

    def with_session(score: Float[Array, "n q"]) -> Float[Array, "n q"]:
        kept = jnp.where(eligible[:, None] & (session >= 0)[:, None], jnp.maximum(score, 0), 0)
        best = jax.ops.segment_max(kept, jnp.where(session >= 0, session, n), num_segments=n + 1)
        return score + weights.session * jnp.where((session >= 0)[:, None], best[session], 0)

    joined: Float[Array, "n q"] = jax.lax.cond(weights.session > 0, with_session, lambda score: score, score)
    return joined


def _block(queries: ks.Queries) -> int | None:
    """Few queries are bound by memory traffic: as `search`, take blocks that stay in the cache."""
    return ks.BLOCK_FEW if queries.unit.shape[0] <= ks.FEW_QUERIES else None


def _meaning(
    scores: ks.Scores, alpha: Float[Array, ""]
) -> tuple[
    Float[Array, "n q"], tuple[Float[Array, "q"], Float[Array, "q"]], tuple[Float[Array, "q"], Float[Array, "q"]]
]:
    cosine_range, riemannian_range = (scores.low[0], scores.high[0]), (scores.low[1], scores.high[1])
    return (
        ks.fuse(scores.cosine, scores.riemannian, cosine_range, riemannian_range, alpha),
        cosine_range,
        riemannian_range,
    )


@functools.partial(jax.jit, static_argnames=("form",))
def joined_scores(
    vectors: Float[Array, "n d"],
    eligible: Bool[Array, "n"],
    count: Int[Array, ""],
    queries: ks.Queries,
    alpha: Float[Array, ""],
    channels: Channels,
    weights: ChannelWeights,
    norms: Float[Array, "n"] | None = None,
    *,
    form: str = "similarity",
) -> Float[Array, "n q"]:
    """The joined score of every row, minus infinity where a row is not eligible. Arguments as `joined_search`."""
    scores = ks.score_columns(vectors, eligible, count, queries, norms, form=form, block=_block(queries))
    return jnp.where(eligible[:, None], join(_meaning(scores, alpha)[0], channels, eligible, weights), -jnp.inf)


@functools.partial(jax.jit, static_argnames=("k", "form"))
def joined_search(
    vectors: Float[Array, "n d"],
    eligible: Bool[Array, "n"],
    count: Int[Array, ""],
    queries: ks.Queries,
    alpha: Float[Array, ""],
    channels: Channels,
    weights: ChannelWeights,
    norms: Float[Array, "n"] | None = None,
    *,
    k: int,
    form: str = "similarity",
) -> FusedTopK:
    """The k best of the eligible rows for every query by the joined score.

    Args:
        vectors, eligible, count, queries, norms, form: as `search.fused_search`.
        alpha: weight of the cosine in the meaning (Eq. 2), 0 to 1.
        channels: what is known beside the vectors.
        weights: of those channels.
        k: static, 1 <= k <= n.

    Working memory: about eight floats a row and query.

    Raises: ValueError for wrong shapes, k or form.
    """
    n = vectors.shape[0]
    q = queries.unit.shape[0]
    require("channels.lexical", channels.lexical, (n, q))
    require("channels.bonus", channels.bonus, (n, q))
    require("channels.session", channels.session, (n,), "int")
    if not 1 <= k <= n:
        raise ValueError(f"`k` is {k}; expected 1 to {n}, the number of rows")
    scores = ks.score_columns(vectors, eligible, count, queries, norms, form=form, block=_block(queries))
    meaning, cosine_range, riemannian_range = _meaning(scores, alpha)
    joined = jnp.where(eligible[:, None], join(meaning, channels, eligible, weights), -jnp.inf)
    rows = ks.best_rows(joined, k)
    column = jnp.arange(q)[:, None]
    valid = eligible[rows]
    columns = (joined, scores.cosine, scores.riemannian, channels.lexical)
    score, cosine, riemannian, lexical = (jnp.where(valid, x[rows, column], 0) for x in columns)
    fused = ks.fuse(cosine.T, riemannian.T, cosine_range, riemannian_range, alpha).T
    return FusedTopK(jnp.where(valid, rows, 0), valid, score, cosine, riemannian, jnp.where(valid, fused, 0), lexical)


__all__ = ["ChannelWeights", "Channels", "FusedTopK", "join", "joined_scores", "joined_search", "standardise"]

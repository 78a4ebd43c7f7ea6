r"""Exact top-k search with the fused score of CoreMem (paper 3.2, Eq. 2), in one pass over the memories.

A query q is turned once into $w = \Sigma^{-1}(q - \mu)$ (`metric.query_transform`). Then cosine and Riemannian score of
every unit row h are $h \cdot q$ and $h \cdot w + b$: a product with two columns, so the memories are read once, and a
fused query costs the memory traffic of a plain cosine query. Min-max fusion and top-k work on the two score columns.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels import metric as riemannian_metric
from gemjax.kernels._checks import require, require_one_of
from gemjax.kernels.linalg import forward_only
from gemjax.kernels.metric import LowRankMetric

FORMS = ("similarity", "distance", "cosine")
GROUP = 64
# Rows a step. Few queries are bound by memory traffic: 1024 rows of 384 floats stay in the cache while both columns are
# computed. Many queries are bound by arithmetic, where a larger matrix product is more efficient.
FEW_QUERIES = 8
BLOCK_FEW = 1024
BLOCK_MANY = 16384


class TopK(NamedTuple):
    """The k best memories of each query, best first; ties go to the lower row. Arrays `[q, k]`.

    Where `valid` is false there was no further eligible memory; the other fields hold 0 there, not a sentinel.
    """

    indices: Int[Array, "q k"]
    valid: Bool[Array, "q k"]
    cosine: Float[Array, "q k"]
    riemannian: Float[Array, "q k"]
    fused: Float[Array, "q k"]


class Queries(NamedTuple):
    """Queries in the form that the search reads. Build with `prepare_queries`."""

    unit: Float[Array, "q d"]
    transformed: Float[Array, "q d"]
    """Sigma^-1 (q - mu)."""
    offset: Float[Array, "q"]
    """-mu . transformed"""
    norm: Float[Array, "q"]
    """Quadratic form of q - mu: the query's own part of the two distance forms."""


def prepare_queries(metric: LowRankMetric, queries: Float[Array, "q d"]) -> Queries:
    """Transform queries once, `O(d r)` each.

    Args:
        metric: the fitted metric.
        queries: unit rows `[q, d]`.

    Returns: the `Queries`.

    Raises: ValueError for a wrong shape.
    """
    queries = require("queries", queries, (None, metric.mean.shape[0]))
    queries = queries.astype(metric.mean.dtype)
    transformed, offset = riemannian_metric.query_transform(metric, queries)
    return Queries(queries, transformed, offset, riemannian_metric.quadratic_form(metric, queries - metric.mean))


def memory_norms(
    metric: LowRankMetric, vectors: Float[Array, "n d"], count: Int[Array, ""], *, block: int = BLOCK_MANY
) -> Float[Array, "n"]:
    """Quadratic form of every centred row (the rows' own part of a distance), `O(N d r)` once per fitted metric.

    Args:
        metric: the fitted metric.
        vectors: rows `[n, d]`, float32 or bfloat16; rows from `count` on are padding.
        count: rows in use.
        block: rows a step, static.

    Returns: `[n]`; 0 for blocks of padding.

    Raises: ValueError for a wrong shape.
    """
    vectors = require("vectors", vectors, (None, metric.mean.shape[0]))
    loop = functools.partial(_blocked_norms, block=min(block, vectors.shape[0]))
    norms: Float[Array, "n"] = forward_only("memory_norms", loop, metric, vectors, jnp.asarray(count))
    return norms


def _blocked_norms(
    metric: LowRankMetric, vectors: Float[Array, "n d"], count: Int[Array, ""], block: int
) -> Float[Array, "n"]:
    n = vectors.shape[0]

    def step(i: Int[Array, ""], out: Float[Array, "n"]) -> Float[Array, "n"]:
        start = jnp.minimum(i * block, n - block)
        rows = lax.dynamic_slice_in_dim(vectors, start, block).astype(out.dtype)
        return lax.dynamic_update_slice_in_dim(
            out, riemannian_metric.quadratic_form(metric, rows - metric.mean), start, 0
        )

    steps = (jnp.minimum(count, n) + block - 1) // block
    norms: Float[Array, "n"] = lax.fori_loop(0, steps, step, jnp.zeros(n, metric.mean.dtype))
    return norms


class Scores(NamedTuple):
    """Score columns `[n, q]` and their ranges over the eligible rows; row 0 of a range is cosine, row 1 Riemannian."""

    cosine: Float[Array, "n q"]
    riemannian: Float[Array, "n q"]
    low: Float[Array, "2 q"]
    high: Float[Array, "2 q"]


def _blocked_scores(
    vectors: Float[Array, "n d"],
    penalty: Float[Array, "n"],
    count: Int[Array, ""],
    queries: Queries,
    norms: Float[Array, "n"] | None,
    form: str,
    block: int,
) -> Scores:
    """Both score columns of the first `count` rows, zero behind them; rows past the last used block are not read."""
    n, _ = vectors.shape
    q = queries.unit.shape[0]
    columns = jnp.concatenate([queries.unit, queries.transformed]).T
    dtype = columns.dtype
    block = min(block, n)

    def step(i: Int[Array, ""], out: Scores) -> Scores:
        # The last block may start early and compute some rows again: shapes stay fixed for any n.
        start = jnp.minimum(i * block, n - block)
        rows = lax.dynamic_slice_in_dim(vectors, start, block).astype(dtype)
        both = jnp.matmul(rows, columns, precision=lax.Precision.HIGHEST)
        part = None if norms is None else lax.dynamic_slice_in_dim(norms, start, block)
        cos, rie = both[:, :q], _metric_form(both[:, q:] + queries.offset, form, part, queries.norm)
        # Adding 0 or inf, not `where` with a broadcast mask: XLA's CPU backend vectorises only the former (6 times).
        away = lax.dynamic_slice_in_dim(penalty, start, block)[:, None]
        low = jnp.stack([jnp.min(cos + away, axis=0), jnp.min(rie + away, axis=0)])
        high = jnp.stack([jnp.max(cos - away, axis=0), jnp.max(rie - away, axis=0)])
        return Scores(
            lax.dynamic_update_slice_in_dim(out.cosine, cos, start, 0),
            lax.dynamic_update_slice_in_dim(out.riemannian, rie, start, 0),
            jnp.minimum(out.low, low),
            jnp.maximum(out.high, high),
        )

    zero = jnp.zeros((n, q), dtype)
    edge = jnp.full((2, q), jnp.inf, dtype)
    steps = (jnp.minimum(count, n) + block - 1) // block
    scores: Scores = lax.fori_loop(0, steps, step, Scores(zero, zero, edge, -edge))
    return scores


def _metric_form(
    rie: Float[Array, "n q"], form: str, norms: Float[Array, "n"] | None, query_norms: Float[Array, "q"]
) -> Float[Array, "n q"]:
    if form == "similarity":
        return rie
    if norms is None:
        raise ValueError(
            f"`norms` is None; form={form!r} needs the quadratic form of every centred row, see `memory_norms`"
        )
    if form == "distance":
        return 2 * rie - norms[:, None] - query_norms
    square = norms[:, None] * query_norms
    return jnp.where(square > 0, rie / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def fuse(
    cosine: Float[Array, "*b"],
    riemannian: Float[Array, "*b"],
    cosine_range: tuple[Float[Array, "*b"], Float[Array, "*b"]],
    riemannian_range: tuple[Float[Array, "*b"], Float[Array, "*b"]],
    alpha: Float[Array, ""] | float,
) -> Float[Array, "*b"]:
    """Eq. 2: `alpha * norm(cosine) + (1 - alpha) * norm(riemannian)`, min-max over the given ranges.

    Args:
        cosine: any shape.
        riemannian: of the same shape.
        cosine_range: least and largest cosine, each of a shape that broadcasts.
        riemannian_range: the same of the Riemannian scores.
        alpha: weight of the cosine, 0 to 1.

    Returns: of the scores' shape, in [0, 1] when they lie within their ranges. A range without extent (all scores
        equal) contributes 0.
    """

    def norm(x: Float[Array, "*b"], low: Float[Array, "*b"], high: Float[Array, "*b"]) -> Float[Array, "*b"]:
        extent = high - low
        safe = jnp.where(extent > 0, extent, 1)
        return jnp.where(extent > 0, (x - jnp.where(extent > 0, low, 0)) / safe, 0)

    return alpha * norm(cosine, *cosine_range) + (1 - alpha) * norm(riemannian, *riemannian_range)


def best_rows(key: Float[Array, "n q"], k: int) -> Int[Array, "q k"]:
    """Rows of the k largest keys of every column, best first, ties to the lower row; k <= n.

    In two levels. Take the k groups of 64 consecutive rows with the largest maxima (ties to the lower group): a row
    outside them is beaten by k rows, one in each of those groups, so the second, exact pass over 64 k rows suffices.
    """
    n, q = key.shape
    groups = n // GROUP
    if groups * GROUP != n or groups <= k:
        return lax.top_k(key.T, k)[1]
    best = jnp.max(key.reshape(groups, GROUP, q), axis=1)
    chosen = jnp.sort(lax.top_k(best.T, k)[1], axis=1)
    rows = (chosen[:, :, None] * GROUP + jnp.arange(GROUP)).reshape(q, k * GROUP)
    candidates = key[rows, jnp.arange(q)[:, None]]
    return jnp.take_along_axis(rows, lax.top_k(candidates, k)[1], axis=1)


def _local_top_k(
    vectors: Float[Array, "n d"],
    eligible: Bool[Array, "n"],
    count: Int[Array, ""],
    queries: Queries,
    alpha: Float[Array, ""],
    norms: Float[Array, "n"] | None,
    k: int,
    form: str,
    block: int | None,
    axis_name: str | None,
) -> tuple[TopK, Float[Array, "q k"]]:
    few = queries.unit.shape[0] <= FEW_QUERIES
    block = block or (BLOCK_FEW if few else BLOCK_MANY)
    penalty = jnp.where(eligible, 0, jnp.inf).astype(queries.unit.dtype)
    loop = functools.partial(_blocked_scores, form=form, block=block)
    scores = forward_only("fused_search", loop, vectors, penalty, count, queries, norms)
    cos, rie, low, high = scores
    if axis_name is not None:
        low, high = lax.pmin(low, axis_name), lax.pmax(high, axis_name)
    cos_range, rie_range = (low[0], high[0]), (low[1], high[1])

    def ranking(c: Float[Array, "*b"], r: Float[Array, "*b"]) -> Float[Array, "*b"]:
        # At the ends of alpha rank by the score itself: normalising rounds, and could merge two unequal scores.
        return jnp.where(alpha >= 1, c, jnp.where(alpha <= 0, r, fuse(c, r, cos_range, rie_range, alpha)))

    key = ranking(cos, rie) - penalty[:, None]
    rows = best_rows(key, k)
    column = jnp.arange(rows.shape[0])[:, None]
    valid = eligible[rows]
    picked = [jnp.where(valid, x[rows, column], 0) for x in (cos, rie)]
    fused = fuse(picked[0].T, picked[1].T, cos_range, rie_range, alpha).T
    top = TopK(jnp.where(valid, rows, 0), valid, picked[0], picked[1], jnp.where(valid, fused, 0))
    return top, key[rows, column]


def _check(vectors: Float[Array, "n d"], eligible: Bool[Array, "n"], queries: Queries, k: int, form: str) -> None:
    n, d = require("vectors", vectors, (None, None)).shape
    require("eligible", eligible, (n,), "bool")
    require("queries.unit", queries.unit, (None, d))
    if not 1 <= k <= n:
        raise ValueError(f"`k` is {k}; expected 1 to {n}, the number of rows")
    require_one_of("form", form, FORMS)


@functools.partial(jax.jit, static_argnames=("k", "form", "block"))
def fused_search(
    vectors: Float[Array, "n d"],
    eligible: Bool[Array, "n"],
    count: Int[Array, ""],
    queries: Queries,
    alpha: Float[Array, ""],
    norms: Float[Array, "n"] | None = None,
    *,
    k: int,
    form: str = "similarity",
    block: int | None = None,
) -> TopK:
    """The k best of the eligible rows for every query by the fused score.

    Args:
        vectors: unit rows, float32 or bfloat16 (products accumulate in float32); rows from `count` on are padding.
        eligible: rows that exist and pass the caller's filter. Scores are normalised over these rows only: a filtered
            search equals a search among the rows that pass.
        count: rows in use; blocks behind it are not read.
        queries: from `prepare_queries`.
        alpha: weight of the cosine, 0 (purely Riemannian) to 1 (purely cosine).
        norms: from `memory_norms`, for the two distance forms only.
        k: static, 1 <= k <= n.
        form: static, what "Riemannian" means: `"similarity"` $q_c^T Sigma^-1 h_c$ (the paper), `"distance"` minus the
            squared Mahalanobis distance, `"cosine"` the cosine in the metric.
        block: rows a step; chosen from the number of queries when None.

    Returns: the `TopK`. Compiled already: `jax.jit` around it changes nothing.

    Working memory: two floats a row and query. Split the queries to bound it.

    Raises: ValueError for wrong shapes, k or form.
    """
    _check(vectors, eligible, queries, k, form)
    return _local_top_k(vectors, eligible, count, queries, alpha, norms, k, form, block, None)[0]


@functools.partial(jax.jit, static_argnames=("form", "block"))
def score_columns(
    vectors: Float[Array, "n d"],
    eligible: Bool[Array, "n"],
    count: Int[Array, ""],
    queries: Queries,
    norms: Float[Array, "n"] | None = None,
    *,
    form: str = "similarity",
    block: int | None = None,
) -> Scores:
    """Both raw scores of every row and their ranges over the eligible rows: what `fused_search` ranks by.

    Args:
        vectors: as for `fused_search`.
        eligible: as for `fused_search`.
        count: as for `fused_search`.
        queries: as for `fused_search`.
        norms: as for `fused_search`.
        form: as for `fused_search`, static.
        block: as for `fused_search`, static.

    Returns: the `Scores`. Where no row is eligible a range is (inf, -inf). Compiled already.

    Raises: ValueError for wrong shapes or form.
    """
    _check(vectors, eligible, queries, 1, form)
    penalty = jnp.where(eligible, 0, jnp.inf).astype(queries.unit.dtype)
    loop = functools.partial(_blocked_scores, form=form, block=block or BLOCK_MANY)
    scores: Scores = forward_only("score_columns", loop, vectors, penalty, count, queries, norms)
    return scores


def sharded_search(
    mesh: Mesh,
    axis_name: str,
    vectors: Float[Array, "n d"],
    eligible: Bool[Array, "n"],
    count: Int[Array, ""],
    queries: Queries,
    alpha: Float[Array, ""],
    norms: Float[Array, "n"] | None = None,
    *,
    k: int,
    form: str = "similarity",
    block: int | None = None,
) -> TopK:
    """`fused_search` with the rows spread over one axis of a mesh; the same result, replicated on every device.

    Each device searches its rows; what travels is the four range limits a query and k candidates a device. Works across
    processes (`jax.distributed`). Compiled already, once for each mesh.

    Args:
        mesh: the devices.
        axis_name: the axis that the rows are spread over.
        vectors: as for `fused_search`; n must be a multiple of the axis size, and each device needs at least k rows.
        eligible: as for `fused_search`.
        count: as for `fused_search`.
        queries: as for `fused_search`.
        alpha: as for `fused_search`.
        norms: as for `fused_search`.
        k: as for `fused_search`, static.
        form: as for `fused_search`, static.
        block: as for `fused_search`, static.

    Returns: the `TopK`.

    Raises: ValueError as `fused_search`, or if the rows cannot be spread.
    """
    _check(vectors, eligible, queries, k, form)
    shards = mesh.shape[axis_name]
    n = vectors.shape[0]
    if n % shards or n // shards < k:
        raise ValueError(
            f"`vectors` has {n} rows; expected a multiple of {shards} devices with at least k={k} rows each"
        )
    top: TopK = _sharded(mesh, axis_name, norms is not None, k, form, block)(
        vectors, eligible, count, queries, alpha, *(() if norms is None else (norms,))
    )
    return top


@functools.lru_cache(maxsize=64)
def _sharded(mesh: Mesh, axis_name: str, with_norms: bool, k: int, form: str, block: int | None):  # type: ignore[no-untyped-def]
    rows, whole = PartitionSpec(axis_name), PartitionSpec()

    def local(
        vectors: Float[Array, "m d"],
        eligible: Bool[Array, "m"],
        count: Int[Array, ""],
        queries: Queries,
        alpha: Float[Array, ""],
        norms: Float[Array, "m"] | None = None,
    ) -> TopK:
        first = lax.axis_index(axis_name) * vectors.shape[0]
        here = jnp.clip(count - first, 0, vectors.shape[0])
        top, key = _local_top_k(vectors, eligible, here, queries, alpha, norms, k, form, block, axis_name)
        top = top._replace(indices=jnp.where(top.valid, top.indices + first, 0))
        # Device order is row order, so the stable top_k over the concatenation keeps ties at the lower row.
        gathered = jax.tree.map(lambda x: lax.all_gather(x, axis_name, axis=1, tiled=True), top)
        keys = lax.all_gather(key, axis_name, axis=1, tiled=True)
        best = lax.top_k(keys, k)[1]
        return TopK(*(jnp.take_along_axis(x, best, axis=1) for x in gathered))

    specs = (rows, rows, whole, whole, whole, *((rows,) if with_norms else ()))
    # check_vma=False: the gathered result is the same everywhere, which the checker cannot see.
    return jax.jit(jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=whole, check_vma=False))

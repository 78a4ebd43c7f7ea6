r"""What a span holds, from inner products alone: for thousands of retained subsets of a few shared histories (GEM 3.2).

`retention` measures one subset on its vectors. Here the inner products of a history are computed once, and every
subset of it costs `O(r^2 n)` whatever the dimension is, so a table of many checkpoints and selectors is one `vmap`.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels.linalg import (
    EXACT,
    independence_tolerance,
    new_direction,
    require,
    require_positive,
    require_rows,
    working_dtype,
)


class SpanEnergies(NamedTuple):
    r"""$\|Q_S^\top v\|^2$ of the rows, `[n]`, and of the targets, `[t]`; `rank` counts the directions of $Q_S$."""

    rows: Float[Array, "n"]
    targets: Float[Array, "t"]
    rank: Int[Array, ""]


def span_energies(
    gram: Float[Array, "n n"],
    inner: Float[Array, "t n"],
    selected: Bool[Array, "n"],
    tol: Float[Array, ""] | float,
    *,
    max_rank: int,
) -> SpanEnergies:
    r"""The energy that the span of the selected rows holds of every row and of some targets (Eq. 3, Eq. 4).

    Args:
        gram: $X X^\top$, `[n, n]`.
        inner: inner products of the targets with the rows, `[t, n]`.
        selected: the retained rows; padding is simply not selected.
        tol: a row whose residual (squared length) is at most `tol` adds no direction, usually
            `linalg.independence_tolerance(dtype, d)`.
        max_rank: directions, static; the number of selected rows is always enough.

    Pivoted Cholesky, largest residual first, so that a nearly dependent row comes last, when its error can no longer
    spread. Made for `vmap`: `max_rank` steps whatever the data.

    Raises: ValueError for a wrong shape or `max_rank < 1`.
    """
    gram, selected = require_rows(gram, selected=selected)
    n = gram.shape[0]
    require("gram", gram, (n, n), "float")
    inner = require("inner", inner, (None, n), "float")
    require_positive("max_rank", max_rank)
    if n == 0:
        return SpanEnergies(jnp.zeros(0, gram.dtype), jnp.zeros(inner.shape[0], gram.dtype), jnp.int32(0))
    columns = jnp.concatenate([gram, inner.T.astype(gram.dtype)], axis=1)
    index = jnp.arange(n)

    def step(k: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        coordinates, residual, open_, rank = state
        score = jnp.where(open_, residual, -1)
        row = jnp.argmax(score)
        best = score[row]
        takes = best > tol
        scale = jnp.where(takes, lax.rsqrt(jnp.where(takes, best, 1)), 0)
        earlier = jnp.matmul(coordinates[:, row], coordinates, precision=EXACT)
        along = (columns[row] - earlier) * scale
        coordinates = lax.dynamic_update_slice(coordinates, along[None], (k, jnp.zeros_like(k)))
        residual = jnp.maximum(residual - along[:n] ** 2, 0)
        return coordinates, residual, open_ & (index != row), rank + takes.astype(jnp.int32)

    start = (jnp.zeros((max_rank, columns.shape[1]), gram.dtype), jnp.diagonal(gram), selected, jnp.int32(0))
    coordinates, _, _, rank = lax.fori_loop(0, max_rank, step, start)
    held = jnp.sum(coordinates**2, axis=0)
    # A span holds no more of a row than there is of it; rounding may say so.
    return SpanEnergies(jnp.minimum(held[:n], jnp.diagonal(gram)), held[n:], rank)


def growing_basis(x: Float[Array, "n d"], tol: Float[Array, ""] | float | None = None) -> Float[Array, "n d"]:
    r"""Orthonormal directions of a history that grows: row `k` is what block `k` adds to the blocks before it.

    A block that adds nothing (residual up to `tol`, None: `independence_tolerance`) has a zero row, so the first `m`
    rows span the first `m` blocks for every `m`: $\|Q_{[m]}^\top a\|^2$ is a cumulative sum of squares (Eq. 4).

    Cost: O(n^2 d).

    Raises: ValueError for a wrong shape.
    """
    (x,) = require_rows(x)
    rows = x.astype(working_dtype(x.dtype))
    limit = jnp.asarray(independence_tolerance(x.dtype, rows.shape[1]) if tol is None else tol, rows.dtype)

    def add(vectors: Array, item: tuple[Array, Array]) -> tuple[Array, None]:
        k, row = item
        return vectors.at[k].set(new_direction(vectors, row, limit)[0]), None

    start: Any = jnp.zeros_like(rows)
    vectors: Array = lax.scan(add, start, (jnp.arange(rows.shape[0]), rows))[0]
    return vectors

r"""The measures of `retention` from inner products alone: for thousands of subsets of a few histories (GEM 3.2).

`retention` measures one subset on its vectors. Here the inner products of a history are computed once, and every
subset of it costs `O(r^2 n)` whatever the dimension is, so a table of many checkpoints and selectors is one `vmap`.
Both forms end in the same functions (`mean_cosine`, `projection_ratio`, `nearest_retained`, `linalg.coverage_of`); that
the ways there agree is one property of the tests.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels._checks import require, require_positive, require_rows, working_dtype
from gemjax.kernels.linalg import EXACT, cholesky_step, coverage_of
from gemjax.kernels.retention import Ratio, mean_cosine


class SpanEnergies(NamedTuple):
    r"""What the span of a retained subset holds.

    Attributes:
        rows: $\|Q_S^\top x_i\|^2$ of the rows, `[n]`.
        targets: $\|Q_S^\top v\|^2$ of the targets, `[t]`.
        rank: directions of $Q_S$.
    """

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
        selected: the retained rows `[n]`; padding is simply not selected.
        tol: a row whose residual (squared length) is at most `tol` adds no direction, usually
            `linalg.independence_tolerance(dtype, d)`.
        max_rank: directions, static; the number of selected rows is always enough.

    Returns: the `SpanEnergies`.

    Pivoted Cholesky, largest residual first, so that a nearly dependent row comes last, when its error can no longer
    spread. Made for `vmap`: `max_rank` steps whatever the data.

    Raises: ValueError for a wrong shape or `max_rank < 1`.
    """
    gram, selected = require_rows(gram, selected=selected)
    n = gram.shape[0]
    require("gram", gram, (n, n))
    inner = require("inner", inner, (None, n))
    require_positive("max_rank", max_rank)
    if n == 0:
        return SpanEnergies(jnp.zeros(0, gram.dtype), jnp.zeros(inner.shape[0], gram.dtype), jnp.int32(0))
    dtype = working_dtype(gram, inner)
    gram, inner = gram.astype(dtype), inner.astype(dtype)
    columns = jnp.concatenate([gram, inner.T], axis=1)
    index = jnp.arange(n)

    def step(k: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        coordinates, residual, open_, rank = state
        score = jnp.where(open_, residual, -1)
        row = jnp.argmax(score)
        best = score[row]
        takes = best > tol
        coordinates, residual = cholesky_step(columns, coordinates, residual, k, row, takes)
        return coordinates, residual, open_ & (index != row), rank + takes.astype(jnp.int32)

    start = (jnp.zeros((max_rank, columns.shape[1]), gram.dtype), jnp.diagonal(gram), selected, jnp.int32(0))
    coordinates, _, _, rank = lax.fori_loop(0, max_rank, step, start)
    held = jnp.sum(coordinates**2, axis=0)
    # A span holds no more of a row than there is of it; rounding may say so.
    return SpanEnergies(jnp.minimum(held[:n], jnp.diagonal(gram)), held[n:], rank)


def gram_captured_energy(
    gram: Float[Array, "n n"], spans: SpanEnergies, valid: Bool[Array, "n"] | None = None
) -> Float[Array, ""]:
    r"""$E(S)$ (Eq. 3): what `retention.captured_energy` computes on vectors.

    Args:
        gram: $X X^\top$, `[n, n]`.
        spans: of the retained rows, from `span_energies`.
        valid: real rows `[n]`; None: all.

    Returns: a scalar in [0, 1].

    Raises: ValueError for a wrong shape.
    """
    gram, valid = require_rows(gram, valid=valid)
    gram = gram.astype(working_dtype(gram))
    energy = jnp.diagonal(gram) if valid is None else jnp.where(valid, jnp.diagonal(gram), 0)
    held = require("spans.rows", spans.rows, energy.shape)
    return coverage_of(jnp.where(energy > 0, jnp.clip(energy - held, 0, energy), 0), energy)


def gram_centroid_similarity(
    gram: Float[Array, "n n"], selected: Bool[Array, "n"], valid: Bool[Array, "n"] | None = None, *, dim: int
) -> Ratio:
    r"""$C(S)$ (Eq. 3): what `retention.centroid_similarity` computes on vectors.

    Args:
        gram: $X X^\top$, `[n, n]`; the inner products of padding may be anything finite.
        selected: the retained rows `[n]`; padding among them is ignored.
        valid: real rows `[n]`; None: all.
        dim: $d$ of the vectors, static: it decides what is rounding.

    Returns: the `Ratio`.

    Raises: ValueError for a wrong shape or `dim < 1`.
    """
    gram, selected, valid = require_rows(gram, selected=selected, valid=valid)
    require_positive("dim", dim)
    gram = gram.astype(working_dtype(gram))
    real = jnp.ones(gram.shape[0], bool) if valid is None else valid
    masks = jnp.stack([selected & real, real]).astype(gram.dtype)
    weights = masks / jnp.maximum(jnp.sum(masks, axis=1, keepdims=True), 1)
    inner = jnp.matmul(jnp.matmul(weights, gram, precision=EXACT), weights.T, precision=EXACT)
    # Squares of lengths: rounding may put a mean of no length just below zero.
    return mean_cosine(inner[0, 1], jnp.maximum(inner[0, 0], 0), jnp.maximum(inner[1, 1], 0), dim)

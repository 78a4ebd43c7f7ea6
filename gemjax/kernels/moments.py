r"""Mergeable second moments of memory vectors: the state a metric is fitted from.

`Moments` is $(n, \mu, S)$ with $S = \sum_i (h_i-\mu)(h_i-\mu)^\top$. Such states form a commutative monoid under
`merge` (the pairwise update of Chan, Golub and LeVeque; Welford's update is the case of one row), so rows may arrive in
any order, on any machine, and leave again, and the metric is the one that all rows at once would give, up to rounding.

Rounding. With unit roundoff `u = eps / 2`, rows of norm at most 1, `m` chunks of at most `c` rows, every entry of `S`
from `from_rows` is off by at most `(c + 3 m + 8) u A_jk + n u (|mu_j| + |mu_k| + u)` to first order, where
`A_jk = sum_i |a_ij| |a_ik|` over the centred rows: the first part is the summation inside and over chunks, the second
the rounding of the centring itself. It never grows with the squared mean, which is what the textbook
`sum h h^T - n mu mu^T` does. Observed errors are some hundred times smaller.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels._checks import require, require_positive, working_dtype

CHUNK = 4096


class Moments(NamedTuple):
    """Count, mean and centred second moment (not divided by the count) of a multiset of rows. A pytree."""

    count: Int[Array, ""]  # type: ignore[assignment]  # shadows tuple.count, which nobody wants here
    mean: Float[Array, "d"]
    scatter: Float[Array, "d d"]


def empty_moments(dim: int, dtype: jnp.dtype | type = jnp.float32) -> Moments:
    """The moments of no rows: the neutral element of `merge_moments`.

    Args:
        dim: $d$.
        dtype: of mean and scatter.

    Returns: the `Moments`.
    """
    return Moments(jnp.zeros((), jnp.int32), jnp.zeros(dim, dtype), jnp.zeros((dim, dim), dtype))


def merge_moments(a: Moments, b: Moments) -> Moments:
    """The moments of both multisets together. Exact in real arithmetic; associative and commutative to rounding.

    Args:
        a: moments of `d`-dimensional rows.
        b: moments of other rows of the same dimension.

    Returns: the `Moments`.
    """
    count = a.count + b.count
    dtype = a.mean.dtype
    n, na, nb = count.astype(dtype), a.count.astype(dtype), b.count.astype(dtype)
    share = nb / jnp.where(count > 0, n, 1)
    delta = b.mean - a.mean
    # An empty side carries a zero mean, which is no estimate of anything: its share is 0 or 1, so it drops out exactly.
    mean = jnp.where(a.count == 0, b.mean, a.mean + share * delta)
    scatter = a.scatter + b.scatter + (na * share) * jnp.outer(delta, delta)
    return Moments(count, mean, scatter)


def unmerge_moments(total: Moments, part: Moments) -> Moments:
    """The moments of `total` without the rows of `part`: the inverse of `merge_moments` in its second argument.

    Args:
        total: moments of all rows.
        part: moments of some of them; they must really be contained in `total`.

    Returns: the `Moments` of the rest.

    Removing cancels, so its absolute error is that of `total`: after most
    rows are gone, build the moments again from the rows that stay. Removing everything gives `empty_moments` exactly.
    """
    count = total.count - part.count
    dtype = total.mean.dtype
    n, nt, npart = count.astype(dtype), total.count.astype(dtype), part.count.astype(dtype)
    left = count > 0
    delta = total.mean - part.mean
    mean = total.mean + (npart / jnp.where(left, n, 1)) * delta
    gap = part.mean - mean
    scatter = total.scatter - part.scatter - (n * npart / jnp.where(nt > 0, nt, 1)) * jnp.outer(gap, gap)
    return Moments(count, jnp.where(left, mean, 0), jnp.where(left, scatter, 0))


def _chunk_moments(rows: Float[Array, "n d"], keep: Bool[Array, "n"]) -> Moments:
    rows = rows.astype(working_dtype(rows))
    count = jnp.sum(keep, dtype=jnp.int32)
    n = jnp.maximum(count, 1).astype(rows.dtype)
    rows = jnp.where(keep[:, None], rows, 0)
    mean = jnp.sum(rows, axis=0) / n
    centred = jnp.where(keep[:, None], rows - mean, 0)
    # A second pass over the residuals takes out the rounding of the mean (Welford's correction).
    slip = jnp.sum(centred, axis=0) / n
    centred = jnp.where(keep[:, None], centred - slip, 0)
    scatter = jnp.matmul(centred.T, centred, precision=lax.Precision.HIGHEST)
    return Moments(count, mean + slip, scatter)


def moments_from_rows(
    rows: Float[Array, "n d"], keep: Bool[Array, "n"] | None = None, *, chunk: int = CHUNK
) -> Moments:
    """The moments of the rows where `keep` is true (default: all), in chunks: no second copy of `rows` is made.

    Args:
        rows: `[n, d]`; bfloat16 rows are accumulated in float32.
        keep: `[n]`, rows that count. The others may hold anything, NaN included.
        chunk: rows per step, static; the working memory is a few `[chunk, d]`.

    Returns: the `Moments`.

    Raises: ValueError for a wrong shape, a mask of another length or `chunk < 1`.
    """
    rows = require("rows", rows, (None, None))
    n, dim = rows.shape
    keep = jnp.ones(n, bool) if keep is None else require("keep", keep, (n,), "bool")
    require_positive("chunk", chunk)
    state = empty_moments(dim, working_dtype(rows))
    whole = n // chunk

    def step(i: Int[Array, ""], state: Moments) -> Moments:
        part = lax.dynamic_slice_in_dim(rows, i * chunk, chunk)
        return merge_moments(state, _chunk_moments(part, lax.dynamic_slice_in_dim(keep, i * chunk, chunk)))

    if whole:
        state = lax.fori_loop(0, whole, step, state)
    if n - whole * chunk:
        state = merge_moments(state, _chunk_moments(rows[whole * chunk :], keep[whole * chunk :]))
    return state


def add_rows(state: Moments, rows: Float[Array, "n d"], keep: Bool[Array, "n"] | None = None) -> Moments:
    """`state` with more rows. `O(n d^2)`, independent of how many rows `state` already stands for.

    Args:
        state: moments of the earlier rows.
        rows: `[n, d]`.
        keep: rows that count, `[n]`; None: all.

    Returns: the `Moments`.
    """
    return merge_moments(state, moments_from_rows(rows, keep))


def remove_rows(state: Moments, rows: Float[Array, "n d"], keep: Bool[Array, "n"] | None = None) -> Moments:
    """`state` without these rows, which must have been added before. See `unmerge_moments` for its rounding.

    Args:
        state: moments of all rows.
        rows: the rows to take out, `[n, d]`.
        keep: rows that count, `[n]`; None: all.

    Returns: the `Moments` of the rest.
    """
    return unmerge_moments(state, moments_from_rows(rows, keep))


def psum_moments(state: Moments, axis_name: str) -> Moments:
    """Merge one state a device over a mesh axis, inside `jax.shard_map`; every device gets the merged state.

    Two all-reduces (`d + 1` numbers, then `d^2`), however many rows there are.

    Args:
        state: this device's moments.
        axis_name: the mesh axis.

    Returns: the `Moments` of all devices' rows.
    """
    count = lax.psum(state.count, axis_name)
    n = jnp.maximum(count, 1).astype(state.mean.dtype)
    here = state.count.astype(state.mean.dtype)
    mean = lax.psum(state.mean * (here / n), axis_name)
    gap = state.mean - mean
    scatter = lax.psum(state.scatter + here * jnp.outer(gap, gap), axis_name)
    return Moments(count, mean, scatter)


def covariance(state: Moments) -> Float[Array, "d d"]:
    """Population covariance `scatter / count` (divided by N, as in the paper).

    Args:
        state: the moments.

    Returns: `[d, d]`; zero when there are no rows.
    """
    n = jnp.maximum(state.count, 1).astype(state.scatter.dtype)
    return state.scatter / n

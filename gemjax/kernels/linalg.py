r"""Unit rows, orthonormal bases and projections (GEM 3.1, 5.3, A.1, A.2).

A basis is stored with its directions as **rows**, `[r, d]`: row `k` is column `k` of the paper's $Q$. Rows that are not
in use are zero, and a zero row changes no projection, so every function here takes a partly filled basis as it is.

Dtypes: float32 and float64 are computed in as they come. bfloat16 and float16 are storage types: `unit_rows` returns
them, but everything derived (bases, residuals, coverage) is float32, because a residual that is rounded to eight bits
has lost the order that it is for.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# Accelerators multiply float32 matrices at a lower precision by default; residuals are differences of such products.
EXACT = lax.Precision.HIGHEST


def require(name: str, array: Any, shape: tuple[int | None, ...], kind: str) -> None:
    """Refuse an argument of a wrong shape or kind while tracing; costs nothing in the compiled program.

    Args:
        name: the argument's name, as the caller wrote it.
        array: anything with `shape` and `dtype`.
        shape: expected sizes; `None` accepts any size in that place.
        kind: `"float"` or `"bool"`.

    Raises: ValueError naming the argument, what came and what was expected.
    """
    got = tuple(np.shape(array))
    if len(got) != len(shape) or any(want is not None and want != have for want, have in zip(shape, got, strict=True)):
        expected = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"`{name}` has shape {got}; expected ({expected}{',' if len(shape) == 1 else ''})")
    dtype = jnp.result_type(array)
    if not jnp.issubdtype(dtype, jnp.floating if kind == "float" else jnp.bool_):
        raise ValueError(f"`{name}` has dtype {dtype}; expected {'floating point' if kind == 'float' else 'bool'}")


def require_positive(name: str, value: int) -> None:
    """Refuse a static size below 1 (ValueError)."""
    if value < 1:
        raise ValueError(f"`{name}` is {value}; expected a positive integer")


def require_rows(x: Any, **masks: Any) -> None:
    """Refuse `x` that is no `[n, d]` array of floats, or a row mask that is not `bool[n]`; a mask may be None."""
    require("x", x, (None, None), "float")
    for name, mask in masks.items():
        if mask is not None:
            require(name, mask, (np.shape(x)[0],), "bool")


def working_dtype(dtype: Any) -> Any:
    """The dtype that sums are taken in: float32 for 16-bit floats, else the dtype itself."""
    return jnp.promote_types(dtype, jnp.float32)


def masked_rows(x: Float[Array, "n d"], valid: Bool[Array, "n"] | None) -> Float[Array, "n d"]:
    """`x` in its working dtype with padding rows set to zero. `valid=None`: every row is real."""
    rows = jnp.asarray(x).astype(working_dtype(x.dtype))
    return rows if valid is None else jnp.where(valid[:, None], rows, 0)


def independence_tolerance(dtype: Any, dim: int) -> float:
    r"""The residual (a squared length) of a unit row below which it counts as dependent on a span.

    `max(4 sqrt(d) eps_w, eps_s^2)`, where `eps_w` is the working dtype's and `eps_s` the storage dtype's `finfo.eps`.

    * An inner product of two unit vectors is wrong by at most about `sqrt(d) eps / 2` (independent roundings), so a
      residual $1 - \sum_k (q_k^\top x)^2$ over `b` directions is wrong by at most `sqrt(b d) eps`, since the squares
      sum to at most 1 (Cauchy-Schwarz). 4 is the root of the default capacity, b = 16; measured errors are more than
      ten times smaller, so larger bases have room. Residuals below this cannot be told from zero, nor from each other.
    * Two roundings of one unit vector to the storage dtype differ by at most `eps_s` in length: without the second term
      copies of a vector that went through bfloat16 by different ways would look independent.

    1.5e-5 for float32 and 2.8e-14 for float64 at d = 1024; 6.1e-5 for bfloat16.
    """
    working = 4.0 * float(np.sqrt(dim)) * float(jnp.finfo(working_dtype(dtype)).eps)
    return max(working, float(jnp.finfo(dtype).eps) ** 2)


def unit_rows(x: Float[Array, "n d"], valid: Bool[Array, "n"] | None = None) -> Float[Array, "n d"]:
    """Rows scaled to Euclidean length 1 (3.1), in the caller's dtype.

    A zero row has no direction and stays zero; so do padding rows. Subnormal rows may count as zero (XLA flushes them).
    Non-finite rows are not repaired: the façade refuses them.

    Raises: ValueError for a wrong shape.
    """
    require_rows(x, valid=valid)
    rows = masked_rows(x, valid)
    # Scale by the largest entry first: squares of entries below 1e-19 (float32) vanish and above 1e19 overflow.
    largest = jnp.max(jnp.abs(rows), axis=1, keepdims=True, initial=0)
    scaled = rows / jnp.where(largest > 0, largest, 1)
    length = jnp.sqrt(jnp.sum(scaled * scaled, axis=1, keepdims=True))
    return jnp.where(largest > 0, scaled / jnp.where(length > 0, length, 1), 0).astype(x.dtype)


class Basis(NamedTuple):
    """An orthonormal basis of a span.

    Attributes:
        vectors: orthonormal rows `[max_rank, d]`; rows from `rank` on are zero.
        rank: how many rows are in use.
        complete: False if `max_rank` was too small, so that `vectors` spans less than what was asked for.
    """

    vectors: Float[Array, "r d"]
    rank: Int[Array, ""]
    complete: Bool[Array, ""]


def new_direction(
    vectors: Float[Array, "r d"], row: Float[Array, "d"], tol: Float[Array, ""]
) -> tuple[Float[Array, "d"], Float[Array, ""]]:
    r"""One Gram-Schmidt step (A.4): the unit direction that `row` adds to a basis, and its residual.

    Args:
        vectors: orthonormal rows, unused ones zero.
        row: the vector to add, `[d]`.
        tol: residuals up to this count as zero.

    Returns: `(q, residual)`; `q` is zero if `residual <= tol`.

    The projections on all basis rows are subtracted together, twice. One sweep loses orthogonality by
    `eps / sqrt(residual)`; the second restores it to a few `eps` ("twice is enough"), which one sweep of the modified
    form, one dependent step a basis row, does not reach. The residual is the squared length of what is left, not
    `1 - sum`: that difference has lost its digits when the row is nearly dependent.
    """
    left = row
    for _ in range(2):
        left = left - jnp.matmul(jnp.matmul(vectors, left, precision=EXACT), vectors, precision=EXACT)
    residual = jnp.sum(left * left)
    independent = residual > tol
    scale = jnp.where(independent, lax.rsqrt(jnp.where(independent, residual, 1)), 0)
    return left * scale, residual


def orthonormal_basis(
    x: Float[Array, "n d"],
    selected: Bool[Array, "n"],
    tol: Float[Array, ""] | float | None = None,
    *,
    max_rank: int,
) -> Basis:
    """Orthonormal basis of the span of the selected rows, rank-revealing, rows taken in index order (A.1, A.4).

    Args:
        x: rows `[n, d]`, unit or zero.
        selected: which rows span; padding is simply not selected.
        tol: a row whose residual (squared length) is at most `tol` adds no direction. None: `independence_tolerance`.
        max_rank: rows of the returned basis (static). `min(d, number selected)` is always enough.

    Cost: O(s d max_rank) for `s` selected rows, one row at a time.

    Raises: ValueError for a wrong shape or `max_rank < 1`.
    """
    require_rows(x, selected=selected)
    require_positive("max_rank", max_rank)
    rows = x.astype(working_dtype(x.dtype))
    n, d = rows.shape
    limit = jnp.asarray(independence_tolerance(x.dtype, d) if tol is None else tol, rows.dtype)
    index = jnp.arange(n)
    start = Basis(jnp.zeros((max_rank, d), rows.dtype), jnp.int32(0), jnp.bool_(True))

    def pending(state: tuple[Basis, Bool[Array, "n"]]) -> Bool[Array, ""]:
        return state[1].any()

    def add(state: tuple[Basis, Bool[Array, "n"]]) -> tuple[Basis, Bool[Array, "n"]]:
        basis, left = state
        row = jnp.argmax(left)
        q, residual = new_direction(basis.vectors, rows[row], limit)
        independent, room = residual > limit, basis.rank < max_rank
        # Without room the index is out of bounds and the write is dropped.
        vectors = basis.vectors.at[basis.rank].set(q, mode="drop")
        rank = basis.rank + (independent & room).astype(jnp.int32)
        return Basis(vectors, rank, basis.complete & (room | ~independent)), left & (index != row)

    if n == 0:
        return start
    return lax.while_loop(pending, add, (start, selected))[0]


def project(x: Float[Array, "n d"], vectors: Float[Array, "r d"]) -> Float[Array, "n d"]:
    r"""$P_B x_i = Q Q^\top x_i$ for every row (A.1)."""
    require("x", x, (None, None), "float")
    require("vectors", vectors, (None, x.shape[1]), "float")
    return jnp.matmul(jnp.matmul(x, vectors.T, precision=EXACT), vectors, precision=EXACT)


def reject(x: Float[Array, "n d"], vectors: Float[Array, "r d"]) -> Float[Array, "n d"]:
    r"""$e_i = (I - P_B) x_i$ for every row (A.1), projected out twice so that it is orthogonal to the basis."""
    once = x - project(x, vectors)
    return once - project(once, vectors)


def captured(x: Float[Array, "n d"], vectors: Float[Array, "r d"]) -> Float[Array, "n"]:
    r"""$\|Q^\top x_i\|^2$ for every row: the energy that a span holds of it. Never negative."""
    require("x", x, (None, None), "float")
    require("vectors", vectors, (None, x.shape[1]), "float")
    coordinates = jnp.matmul(x.astype(working_dtype(x.dtype)), vectors.T, precision=EXACT)
    return jnp.sum(coordinates * coordinates, axis=1)


def energies(x: Float[Array, "n d"], valid: Bool[Array, "n"] | None = None) -> Float[Array, "n"]:
    r"""$\|x_i\|^2$: 1 for a unit row up to rounding, 0 for a zero row and for padding."""
    require_rows(x, valid=valid)
    rows = x.astype(working_dtype(x.dtype))
    # Masked after the sum: a mask on the matrix would write a copy of it.
    total = jnp.sum(rows * rows, axis=1)
    return total if valid is None else jnp.where(valid, total, 0)


def residuals(
    x: Float[Array, "n d"], vectors: Float[Array, "r d"], valid: Bool[Array, "n"] | None = None
) -> Float[Array, "n"]:
    r"""$r_i = \|x_i\|^2 - \|Q^\top x_i\|^2$, which is Eq. 7 and A.2 for unit rows; clipped into $[0, \|x_i\|^2]$.

    Zero rows and padding have residual 0. The absolute error is about `independence_tolerance / 4`.

    Raises: ValueError for a wrong shape.
    """
    energy = energies(x, valid)
    residual = jnp.clip(energy - captured(x, vectors), 0, energy)
    return residual if valid is None else jnp.where(valid, residual, 0)


def coverage(
    x: Float[Array, "n d"], vectors: Float[Array, "r d"], valid: Bool[Array, "n"] | None = None
) -> Float[Array, ""]:
    r"""Geometric coverage $E = \|XQ\|_F^2 / \|X\|_F^2$ in [0, 1] (Eq. 3, A.3).

    For unit rows $\|X\|_F^2 = n$ and this is the paper's $\|XQ\|_F^2 / n$. **A zero row counts as nothing**, as
    padding does: it has no direction that could be kept or lost, is in neither sum, and both identities of A.3 hold.
    Without any row that has a direction nothing is left to cover, and the coverage is 1.

    Raises: ValueError for a wrong shape.
    """
    return coverage_of(residuals(x, vectors, valid), energies(x, valid))


def coverage_of(residual: Float[Array, "n"], energy: Float[Array, "n"]) -> Float[Array, ""]:
    r"""$1 - \sum r_i / \sum \|x_i\|^2$ (A.3) from residuals and energies; 1 where there is no energy."""
    total = jnp.sum(energy)
    return jnp.where(total > 0, 1 - jnp.sum(residual) / jnp.where(total > 0, total, 1), 1)

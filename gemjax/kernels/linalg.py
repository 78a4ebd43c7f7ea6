r"""Unit rows, orthonormal bases and projections (GEM 3.1, 5.3, A.1, A.2).

A basis is stored with its directions as **rows**, `[r, d]`: row `k` is column `k` of the paper's $Q$. Rows that are not
in use are zero, and a zero row changes no projection, so every function here takes a partly filled basis as it is.

Gram-Schmidt (`new_direction`, on vectors) and its twin on inner products (`cholesky_step`) stand here once; the
selections, the bases and the measures of the other modules are loops over these two.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import linear_call
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels._checks import require, require_positive, require_rows, working_dtype

# Accelerators multiply float32 matrices at a lower precision by default; residuals are differences of such products.
EXACT = lax.Precision.HIGHEST


def masked_rows(x: Float[Array, "n d"], valid: Bool[Array, "n"] | None) -> Float[Array, "n d"]:
    """`x` in its working dtype with padding rows set to zero. `valid=None`: every row is real."""
    rows = x.astype(working_dtype(x))
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

    Args:
        dtype: of the rows as they are stored.
        dim: their length $d$.

    Returns: a Python float.
    """
    working = 4.0 * float(np.sqrt(dim)) * float(jnp.finfo(jnp.promote_types(dtype, jnp.float32)).eps)
    return max(working, float(jnp.finfo(dtype).eps) ** 2)


def unit_rows(x: Float[Array, "n d"], valid: Bool[Array, "n"] | None = None) -> Float[Array, "n d"]:
    """Rows scaled to Euclidean length 1 (3.1), in the caller's dtype.

    A zero row has no direction and stays zero; so do padding rows. Subnormal rows may count as zero (XLA flushes them).
    Non-finite rows are not repaired: the façade refuses them. The gradient at a zero row is zero.

    Args:
        x: rows `[n, d]`.
        valid: real rows `[n]`; None: all.

    Returns: `[n, d]`.

    Raises: ValueError for a wrong shape.
    """
    x, valid = require_rows(x, valid=valid)
    scaled, _, square = scaled_rows(masked_rows(x, valid))
    directed = square > 0
    length = jnp.sqrt(jnp.where(directed, square, 1))
    return jnp.where(directed[:, None], scaled / length[:, None], 0).astype(x.dtype)


def scaled_rows(rows: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], Float[Array, "n"], Float[Array, "n"]]:
    """Rows over their largest entry, those entries, and the squared lengths of the scaled rows (0 for a zero row).

    Squares of entries below 1e-19 (float32) vanish and above 1e19 overflow; those of the scaled rows do neither. The
    scale counts as a constant for gradients: lengths and directions do not depend on it, and a maximum's would.
    """
    largest = lax.stop_gradient(jnp.max(jnp.abs(rows), axis=1, initial=0))
    scale = jnp.where(largest > 0, largest, 1)
    scaled = rows / scale[:, None]
    return scaled, scale, jnp.sum(scaled * scaled, axis=1)


def forward_only(name: str, call: Callable[..., Any], *args: Any) -> Any:
    """`call(*args)`; asking for its reverse-mode gradient raises a ValueError that says why and what to do instead.

    JAX's own refusal names no function of the caller's, and comes while linearising or while transposing. Here primal
    and tangent are computed apart, so that it always comes from the transposition, which is ours.

    Args:
        name: the kernel, for the message.
        call: a loop of data-dependent length.
        args: its arguments, pytrees of arrays; it must not close over others.

    Returns: what `call` returns.
    """
    leaves, structure = jax.tree.flatten(args)
    floating = [jnp.issubdtype(jnp.result_type(leaf), jnp.floating) for leaf in leaves]

    def fixed(leaf: Any) -> Any:
        return np.zeros(jnp.shape(leaf), jax.dtypes.float0)  # the tangent of what cannot move

    def flat(*leaves: Any) -> Any:
        return call(*jax.tree.unflatten(structure, leaves))

    def push(primals: Any, tangents: Any) -> Any:
        moving = iter(tangents)
        every = tuple(next(moving) if f else fixed(p) for p, f in zip(primals, floating, strict=True))
        return [t for t in jax.tree.leaves(jax.jvp(flat, primals, every)[1]) if t.dtype != jax.dtypes.float0]

    def refuse(_: Any, cotangents: Any) -> Any:
        raise ValueError(
            f"`{name}` has no reverse-mode gradient: it loops until the data say stop (`lax.while_loop`), and the "
            "steps are not kept. Use forward mode (`jax.jvp`, `jax.jacfwd`), or hold its result fixed "
            "(`lax.stop_gradient`)"
        )

    run = jax.custom_jvp(flat)

    @run.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
        out, form = jax.tree.flatten(run(*primals))
        linear = [t for t, f in zip(tangents, floating, strict=True) if f]
        pushed = iter(linear_call(push, refuse, primals, linear))
        moved = [next(pushed) if jnp.issubdtype(leaf.dtype, jnp.floating) else fixed(leaf) for leaf in out]
        return jax.tree.unflatten(form, out), jax.tree.unflatten(form, moved)

    return run(*leaves)


class Basis(NamedTuple):
    """An orthonormal basis of a span.

    Attributes:
        vectors: orthonormal rows `[max_rank, d]`; rows from `rank` on are zero.
        rank: how many rows are in use.
        complete: False if `max_rank` was too small, so that `vectors` spans less than what was asked for.
        source: which row of `x` each direction came from, `[max_rank]`; -1 where unused.
    """

    vectors: Float[Array, "r d"]
    rank: Int[Array, ""]
    complete: Bool[Array, ""]
    source: Int[Array, "r"]


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

    Returns: the `Basis`. It has no reverse-mode gradient (see `forward_only`).

    Cost: O(s d max_rank) for `s` selected rows, one row at a time.

    Raises: ValueError for a wrong shape or `max_rank < 1`.
    """
    x, selected = require_rows(x, selected=selected)
    require_positive("max_rank", max_rank)
    rows = x.astype(working_dtype(x))
    limit = jnp.asarray(independence_tolerance(x.dtype, x.shape[1]) if tol is None else tol, rows.dtype)
    basis: Basis = forward_only("orthonormal_basis", partial(_gram_schmidt, max_rank=max_rank), rows, selected, limit)
    return basis


def _gram_schmidt(
    rows: Float[Array, "n d"], selected: Bool[Array, "n"], limit: Float[Array, ""], max_rank: int
) -> Basis:
    """The loop of `orthonormal_basis`, one selected row at a time."""
    n, d = rows.shape
    index = jnp.arange(n)
    unused = jnp.full(max_rank, -1, jnp.int32)
    start = Basis(jnp.zeros((max_rank, d), rows.dtype), jnp.int32(0), jnp.bool_(True), unused)
    if n == 0:
        return start

    def pending(state: tuple[Basis, Bool[Array, "n"]]) -> Bool[Array, ""]:
        return state[1].any()

    def add(state: tuple[Basis, Bool[Array, "n"]]) -> tuple[Basis, Bool[Array, "n"]]:
        basis, left = state
        row = jnp.argmax(left)
        q, residual = new_direction(basis.vectors, rows[row], limit)
        independent, room = residual > limit, basis.rank < max_rank
        # Without room or for a dependent row the index is out of bounds and the write is dropped.
        place = jnp.where(independent, basis.rank, max_rank)
        grown = Basis(
            basis.vectors.at[place].set(q, mode="drop"),
            basis.rank + (independent & room).astype(jnp.int32),
            basis.complete & (room | ~independent),
            basis.source.at[place].set(row.astype(jnp.int32), mode="drop"),
        )
        return grown, left & (index != row)

    return lax.while_loop(pending, add, (start, selected))[0]


def growing_basis(x: Float[Array, "n d"], tol: Float[Array, ""] | float | None = None) -> Float[Array, "n d"]:
    r"""Orthonormal directions of a history that grows: row `k` is what block `k` adds to the blocks before it.

    A block that adds nothing has a zero row, so the first `m` rows span the first `m` blocks for every `m`:
    $\|Q_{[m]}^\top a\|^2$ is a cumulative sum of squares (Eq. 4).

    Args:
        x: rows `[n, d]`, unit or zero; zero rows may stand for padding.
        tol: as for `orthonormal_basis`.

    Returns: `[n, d]`, the rows of `orthonormal_basis`, each in the place of the block that it came from.

    Cost: O(n d min(n, d)).

    Raises: ValueError for a wrong shape.
    """
    (x,) = require_rows(x)
    n, d = x.shape
    basis = orthonormal_basis(x, jnp.any(x != 0, axis=1), tol, max_rank=max(min(n, d), 1))
    place = jnp.where(basis.source < 0, n, basis.source)
    return jnp.zeros((n, d), basis.vectors.dtype).at[place].set(basis.vectors, mode="drop")


def cholesky_step(
    columns: Float[Array, "n m"],
    coordinates: Float[Array, "r m"],
    residual: Float[Array, "n"],
    k: Int[Array, ""],
    row: Int[Array, ""],
    takes: Bool[Array, ""],
) -> tuple[Float[Array, "r m"], Float[Array, "n"]]:
    r"""One step of pivoted Cholesky, the Gram-Schmidt step on inner products:
    $q_k^\top v_i = (x_j^\top v_i - \sum_{l<k} (q_l^\top x_j)(q_l^\top v_i)) / \sqrt{r_j}$ for all vectors at once.

    Args:
        columns: inner products of the rows with all vectors, the first `n` of which are the rows, `[n, m]`.
        coordinates: of all vectors in the directions so far; unused rows are zero, `[max_rank, m]`.
        residual: squared lengths of what the directions leave of the rows, `[n]`.
        k: where to write the new direction's coordinates.
        row: the row that adds it, the paper's $j$.
        takes: False writes a zero row and changes no residual: made for loops of fixed length under `vmap`.

    Returns: both, one direction later. Residuals do not go below 0.
    """
    scale = jnp.where(takes, lax.rsqrt(jnp.where(takes, residual[row], 1)), 0)
    earlier = jnp.matmul(coordinates[:, row], coordinates, precision=EXACT)
    along = (columns[row] - earlier) * scale
    coordinates = lax.dynamic_update_slice(coordinates, along[None], (k, jnp.zeros_like(k)))
    return coordinates, jnp.maximum(residual - along[: residual.shape[0]] ** 2, 0)


def project(x: Float[Array, "n d"], vectors: Float[Array, "r d"]) -> Float[Array, "n d"]:
    r"""$P_B x_i = Q Q^\top x_i$ for every row (A.1).

    Args:
        x: rows `[n, d]`.
        vectors: orthonormal rows `[r, d]`, unused ones zero.

    Returns: `[n, d]`.

    Raises: ValueError for a wrong shape.
    """
    x = require("x", x, (None, None))
    vectors = require("vectors", vectors, (None, x.shape[1]))
    x = x.astype(working_dtype(x))
    return jnp.matmul(jnp.matmul(x, vectors.T, precision=EXACT), vectors, precision=EXACT)


def reject(x: Float[Array, "n d"], vectors: Float[Array, "r d"]) -> Float[Array, "n d"]:
    r"""$e_i = (I - P_B) x_i$ for every row (A.1), projected out twice so that it is orthogonal to the basis.

    Args:
        x: rows `[n, d]`.
        vectors: orthonormal rows `[r, d]`, unused ones zero.

    Returns: `[n, d]`.

    Raises: ValueError for a wrong shape.
    """
    once = x - project(x, vectors)
    return once - project(once, vectors)


def captured(x: Float[Array, "n d"], vectors: Float[Array, "r d"]) -> Float[Array, "n"]:
    r"""$\|Q^\top x_i\|^2$ for every row: the energy that a span holds of it.

    Args:
        x: rows `[n, d]`.
        vectors: orthonormal rows `[r, d]`, unused ones zero.

    Returns: `[n]`, never negative.

    Raises: ValueError for a wrong shape.
    """
    x = require("x", x, (None, None))
    vectors = require("vectors", vectors, (None, x.shape[1]))
    coordinates = jnp.matmul(x.astype(working_dtype(x)), vectors.T, precision=EXACT)
    return jnp.sum(coordinates * coordinates, axis=1)


def energies(x: Float[Array, "n d"], valid: Bool[Array, "n"] | None = None) -> Float[Array, "n"]:
    r"""$\|x_i\|^2$: 1 for a unit row up to rounding, 0 for a zero row and for padding.

    Args:
        x: rows `[n, d]`.
        valid: real rows `[n]`; None: all.

    Returns: `[n]`.

    Raises: ValueError for a wrong shape.
    """
    x, valid = require_rows(x, valid=valid)
    rows = x.astype(working_dtype(x))
    # Masked after the sum: a mask on the matrix would write a copy of it.
    total = jnp.sum(rows * rows, axis=1)
    return total if valid is None else jnp.where(valid, total, 0)


def residuals(
    x: Float[Array, "n d"], vectors: Float[Array, "r d"], valid: Bool[Array, "n"] | None = None
) -> Float[Array, "n"]:
    r"""$r_i = \|x_i\|^2 - \|Q^\top x_i\|^2$, which is Eq. 7 and A.2 for unit rows; clipped into $[0, \|x_i\|^2]$.

    Zero rows and padding have residual 0. The absolute error is about `independence_tolerance / 4`.

    Args:
        x: rows `[n, d]`.
        vectors: orthonormal rows `[r, d]`, unused ones zero.
        valid: real rows `[n]`; None: all.

    Returns: `[n]`.

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

    Args:
        x: rows `[n, d]`.
        vectors: orthonormal rows `[r, d]`, unused ones zero.
        valid: real rows `[n]`; None: all.

    Returns: a scalar.

    Raises: ValueError for a wrong shape.
    """
    return coverage_of(residuals(x, vectors, valid), energies(x, valid))


def coverage_of(residual: Float[Array, "n"], energy: Float[Array, "n"]) -> Float[Array, ""]:
    r"""$1 - \sum r_i / \sum \|x_i\|^2$ (A.3): what `coverage`, the completion and the measures on inner products share.

    Args:
        residual: $r_i$ `[n]`, 0 for padding.
        energy: $\|x_i\|^2$ `[n]`, 0 for padding.

    Returns: a scalar; 1 where there is no energy.
    """
    total = jnp.sum(energy)
    return jnp.where(total > 0, 1 - jnp.sum(residual) / jnp.where(total > 0, total, 1), 1)

r"""What a retained subset keeps: coverage, the next action, and what lies outside the dominant directions
(GEM 3.2, 3.3, C.2, C.3).

The paper evaluates ratios "only when their denominators are defined". Here every ratio is a `Ratio`, whose `value` is 0
where `defined` is False, so that a mean over checkpoints can leave those out and NaN never appears.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gemjax.kernels._checks import require, require_positive, require_rows, working_dtype
from gemjax.kernels.linalg import EXACT, captured, coverage, independence_tolerance, masked_rows, orthonormal_basis
from gemjax.kernels.spectrum import Spectrum, rank_at_energy


class Ratio(NamedTuple):
    """A ratio and whether its denominator is defined.

    Attributes:
        value: 0 where not defined.
        defined: False where the denominator is zero or indistinguishable from rounding.
    """

    value: Float[Array, "..."]
    defined: Bool[Array, "..."]


def _ratio(numerator: Array, denominator: Array, defined: Array) -> Ratio:
    return Ratio(jnp.where(defined, numerator / jnp.where(defined, denominator, 1), 0), defined)


def _cosine(inner: Array, square: Array, other: Array, defined: Array) -> Ratio:
    """The cosine from inner product and squared lengths; its gradient is 0 and not NaN where it is not defined."""
    # The mask comes before the root, whose slope at 0 is infinite.
    lengths = jnp.sqrt(jnp.where(defined, square, 1)) * jnp.sqrt(jnp.where(defined, other, 1))
    return Ratio(jnp.where(defined, jnp.clip(inner / lengths, -1, 1), 0), defined)


def _has_length(square: Array, dim: int) -> Array:
    """Whether a squared length is more than the rounding of projections of unit vectors of dimension `dim`."""
    return square > independence_tolerance(square.dtype, dim) ** 2


def centroid_similarity(
    x: Float[Array, "n d"], selected: Bool[Array, "n"], valid: Bool[Array, "n"] | None = None
) -> Ratio:
    r"""$C(S) = \bar{x}_S^\top \bar{x} / (\|\bar{x}_S\| \|\bar{x}\|)$ in [-1, 1] (Eq. 3).

    Args:
        x: unit rows `[n, d]`.
        selected: the retained rows; padding among them is ignored.
        valid: real rows; None: all.

    Returns: the `Ratio`, a scalar. Not defined if nothing is retained or one of the two means is zero.

    Raises: ValueError for a wrong shape.
    """
    x, selected, valid = require_rows(x, selected=selected, valid=valid)
    rows = masked_rows(x, valid)
    real = jnp.ones(rows.shape[0], bool) if valid is None else valid
    kept = selected & real

    def mean(mask: Array) -> Array:
        # A product with the mask: it reads the matrix once and writes no masked copy of it.
        return jnp.matmul(mask.astype(rows.dtype), rows, precision=EXACT) / jnp.maximum(jnp.sum(mask), 1)

    of_kept, of_all = mean(kept), mean(real)
    return mean_cosine(jnp.sum(of_kept * of_all), jnp.sum(of_kept**2), jnp.sum(of_all**2), rows.shape[1])


def mean_cosine(
    inner: Float[Array, ""], square_kept: Float[Array, ""], square_all: Float[Array, ""], dim: int
) -> Ratio:
    """`centroid_similarity` from the inner product of the two means and their squared lengths.

    Args:
        inner: of the retained rows' mean and the mean of all, a scalar.
        square_kept: squared length of the first, not negative.
        square_all: squared length of the second, not negative.
        dim: $d$, static.

    Returns: the `Ratio`, in [-1, 1].
    """
    return _cosine(inner, square_kept, square_all, _has_length(square_kept, dim) & _has_length(square_all, dim))


def captured_energy(
    x: Float[Array, "n d"],
    selected: Bool[Array, "n"],
    valid: Bool[Array, "n"] | None = None,
    tol: Float[Array, ""] | float | None = None,
    *,
    max_rank: int,
) -> Float[Array, ""]:
    r"""$E(S) = \frac{1}{n} \sum_i \|Q_S^\top x_i\|^2$ in [0, 1] of a retained subset (Eq. 3); see `linalg.coverage`.

    Args:
        x: unit rows `[n, d]`.
        selected: the retained rows `[n]`; padding among them is ignored.
        valid: real rows `[n]`; None: all.
        tol: as for `linalg.orthonormal_basis`.
        max_rank: as for `linalg.orthonormal_basis`, static.

    Returns: a scalar.

    Raises: ValueError for a wrong shape or `max_rank < 1`.
    """
    x, selected, valid = require_rows(x, selected=selected, valid=valid)
    kept = selected if valid is None else selected & valid
    return coverage(x, orthonormal_basis(x, kept, tol, max_rank=max_rank).vectors, valid)


def action_projection(action: Float[Array, "d"], vectors: Float[Array, "r d"]) -> Float[Array, ""]:
    r"""$P_a(S) = \|Q_S^\top a\|^2$ in [0, 1] (Eq. 4).

    Args:
        action: unit vector of the recorded next action, `[d]`.
        vectors: orthonormal rows that span the retained blocks (`linalg.orthonormal_basis`), `[r, d]`.

    Returns: a scalar.

    Raises: ValueError for a wrong shape.
    """
    action = require("action", action, (None,))
    return captured(action[None], vectors)[0]


def action_ratio(action: Float[Array, "d"], vectors: Float[Array, "r d"], all_vectors: Float[Array, "s d"]) -> Ratio:
    r"""$R_a(S) = P_a(S) / P_a([n])$ in [0, 1] (Eq. 4).

    Args:
        action: unit vector of the recorded next action, `[d]`.
        vectors: basis of the retained blocks, `[r, d]`.
        all_vectors: basis of all blocks, whose span holds that of `vectors`, `[s, d]`.

    Returns: the `Ratio`, a scalar. Not defined if the history does not touch the action at all.

    Raises: ValueError for a wrong shape.
    """
    part, whole = action_projection(action, vectors), action_projection(action, all_vectors)
    return projection_ratio(part, whole, action.shape[0])


def projection_ratio(part: Float[Array, "*b"], whole: Float[Array, "*b"], dim: int) -> Ratio:
    r"""`action_ratio` from the two projections.

    Args:
        part: $P_a(S)$, any shape.
        whole: $P_a([n])$, of the same shape.
        dim: $d$, static.

    Returns: the `Ratio`, of the shape of the arguments.
    """
    ratio = _ratio(part, whole, _has_length(whole, dim))
    return Ratio(jnp.clip(ratio.value, 0, 1), ratio.defined)


def topk_retention(
    x: Float[Array, "n d"],
    action: Float[Array, "d"],
    selected: Bool[Array, "n"],
    valid: Bool[Array, "n"] | None = None,
    *,
    k: int = 3,
) -> Ratio:
    r"""$T_k(S; a) = |S \cap \mathcal{N}_k(a)| / k$: the share of the `k` blocks most similar to the action (Eq. 4).

    Args:
        x: unit rows `[n, d]`; a zero row has similarity 0.
        action: unit vector `[d]`.
        selected: rows that are kept.
        valid: real rows; None: all.
        k: neighbours, static.

    Returns: the `Ratio`, a scalar. Ties go to the lower index. With fewer than `k` blocks the neighbours are all of
        them, and their number is the denominator. Not defined without blocks or without an action (zero vector).

    Raises: ValueError for a wrong shape or `k < 1`.
    """
    x, selected, valid = require_rows(x, selected=selected, valid=valid)
    action = require("action", action, (x.shape[1],))
    require_positive("k", k)
    real = jnp.ones(x.shape[0], bool) if valid is None else valid
    dtype = working_dtype(x, action)
    direction = action.astype(dtype)
    similarity = jnp.matmul(x.astype(dtype), direction, precision=EXACT)
    return nearest_retained(similarity, selected, real, _has_length(jnp.sum(direction**2), x.shape[1]), k=k)


def nearest_retained(
    similarity: Float[Array, "n"],
    selected: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    has_action: Bool[Array, ""],
    *,
    k: int = 3,
) -> Ratio:
    """`topk_retention` from the similarities of the blocks to the action.

    Args:
        similarity: of each block to the action, `[n]`; anything for padding.
        selected: rows that are kept, `[n]`.
        valid: real rows, `[n]`.
        has_action: whether there is an action at all.
        k: neighbours, static.

    Returns: the `Ratio`, a scalar.
    """
    n = similarity.shape[0]
    if n == 0:
        return Ratio(jnp.zeros((), similarity.dtype), jnp.bool_(False))
    _, nearest = lax.top_k(jnp.where(valid, similarity, -jnp.inf), min(k, n))  # of equal ones the lower index first
    hits = jnp.sum((selected & valid)[nearest]).astype(similarity.dtype)
    neighbours = jnp.minimum(k, jnp.sum(valid))
    return _ratio(hits, neighbours.astype(similarity.dtype), (neighbours > 0) & has_action)


def _coordinates(vectors: Array, spectrum: Spectrum) -> Array:
    r"""$V^\top x$ for each row, `[n, m]`; 0 for directions that are rounding."""
    return jnp.matmul(vectors.astype(spectrum.directions.dtype), spectrum.directions.T, precision=EXACT)


def _low(spectrum: Spectrum, rho: Float[Array, ""] | float) -> Array:
    r"""Which directions are in $V_\mathrm{low}$: those after the first $r_\rho$."""
    return jnp.arange(spectrum.values.shape[0]) >= rank_at_energy(spectrum.values, rho)


def low_energy_share(action: Float[Array, "d"], spectrum: Spectrum, rho: Float[Array, ""] | float = 0.90) -> Ratio:
    r"""$m_\mathrm{low}(a) = \|V_\mathrm{low}^\top a\|^2 / \|V^\top a\|^2$ in [0, 1] (Eq. 5).

    Args:
        action: unit vector `[d]`, not centred.
        spectrum: of the centred history (`spectrum.centered_spectrum`).
        rho: share of the energy that the dominant directions hold.

    Returns: the `Ratio`, a scalar. Not defined if the action has no part in the centred history's span.

    Raises: ValueError for a wrong shape.
    """
    action = require("action", action, (spectrum.directions.shape[1],))
    squares = _coordinates(action[None], spectrum)[0] ** 2
    whole = jnp.sum(squares)
    return _ratio(jnp.sum(jnp.where(_low(spectrum, rho), squares, 0)), whole, _has_length(whole, action.shape[0]))


def block_low_energy(
    x: Float[Array, "n d"],
    spectrum: Spectrum,
    rho: Float[Array, ""] | float = 0.90,
    valid: Bool[Array, "n"] | None = None,
) -> Ratio:
    r"""$L_i = \|V_\mathrm{low}^\top \tilde{x}_i\|^2 / \|V^\top \tilde{x}_i\|^2$ for every block (C.3).

    Args:
        x: blocks `[n, d]`, not centred.
        spectrum: of the centred history.
        rho: share of the energy that the dominant directions hold.
        valid: real rows `[n]`; None: all.

    Returns: the `Ratio`, `[n]`. Not defined for a block that equals the mean, and for padding.

    Raises: ValueError for a wrong shape.
    """
    squares = _centred_coordinates(x, spectrum, valid) ** 2
    whole = jnp.sum(squares, axis=1)
    part = jnp.sum(jnp.where(_low(spectrum, rho), squares, 0), axis=1)
    return _ratio(part, whole, _has_length(whole, x.shape[1]))


def action_alignment(
    x: Float[Array, "n d"],
    action: Float[Array, "d"],
    spectrum: Spectrum,
    rho: Float[Array, ""] | float = 0.90,
    valid: Bool[Array, "n"] | None = None,
) -> Ratio:
    r"""$A_i = \cos(V_\mathrm{low} V_\mathrm{low}^\top \tilde{x}_i, V_\mathrm{low} V_\mathrm{low}^\top a)$ in [-1, 1]
    (C.4).

    The cosine is taken between coordinates, which is the same since the rows of `directions` are orthonormal.

    Args:
        x: blocks `[n, d]`, not centred.
        action: unit vector `[d]`, not centred.
        spectrum: of the centred history.
        rho: share of the energy that the dominant directions hold.
        valid: real rows `[n]`; None: all.

    Returns: the `Ratio`, `[n]`. Not defined where the block or the action has no part in the low-energy directions, and
        for padding.

    Raises: ValueError for a wrong shape.
    """
    action = require("action", action, (spectrum.directions.shape[1],))
    low = _low(spectrum, rho)
    blocks = jnp.where(low, _centred_coordinates(x, spectrum, valid), 0)
    wanted = jnp.where(low, _coordinates(action[None], spectrum)[0], 0)
    square_blocks, square_action = jnp.sum(blocks**2, axis=1), jnp.sum(wanted**2)
    defined = _has_length(square_blocks, x.shape[1]) & _has_length(square_action, x.shape[1])
    inner = jnp.matmul(blocks, wanted, precision=EXACT)
    return _cosine(inner, square_blocks, square_action, defined)


def _centred_coordinates(x: Array, spectrum: Spectrum, valid: Array | None) -> Array:
    """Coordinates of the centred blocks, `[n, m]`; 0 for padding."""
    require("x", x, (None, spectrum.directions.shape[1]))
    x, valid = require_rows(x, valid=valid)
    coordinates = _coordinates(x.astype(spectrum.mean.dtype) - spectrum.mean, spectrum)
    return coordinates if valid is None else jnp.where(valid[:, None], coordinates, 0)


def band_energies(action: Float[Array, "d"], spectrum: Spectrum, *, bands: int = 10) -> Ratio:
    r"""Share of the action's projection in each of `bands` rank bands, leading directions first (Fig. 3).

    Bands are ranges of rank, not of energy: with `r` directions in all, direction `j` (from 0) is in band
    `floor(j * bands / r)`. With `r < bands` some bands are empty and have share 0.

    Args:
        action: unit vector `[d]`.
        spectrum: of the centred history.
        bands: number of bands, static.

    Returns: `value` `[bands]`, of sum 1 where `defined` (a scalar); not defined as in `low_energy_share`.

    Raises: ValueError for a wrong shape or `bands < 1`.
    """
    action = require("action", action, (spectrum.directions.shape[1],))
    require_positive("bands", bands)
    squares = _coordinates(action[None], spectrum)[0] ** 2
    band = jnp.arange(squares.shape[0]) * bands // jnp.maximum(spectrum.rank, 1)
    sums = jnp.zeros(bands, squares.dtype).at[band].add(squares, mode="drop")  # beyond the rank there is nothing to add
    whole = jnp.sum(squares)
    return _ratio(sums, whole, _has_length(whole, action.shape[0]))

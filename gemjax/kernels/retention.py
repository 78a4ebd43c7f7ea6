r"""What a retained subset keeps: coverage, the next action, and what lies outside the dominant directions
(GEM 3.2, 3.3, C.2, C.3).

The paper evaluates ratios "only when their denominators are defined". Here every ratio is a `Ratio`, whose `value` is 0
where `defined` is False, so that a mean over checkpoints can leave those out and NaN never appears.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from gemjax.kernels.linalg import (
    EXACT,
    captured,
    coverage,
    independence_tolerance,
    masked_rows,
    orthonormal_basis,
    require,
    require_positive,
    require_rows,
    working_dtype,
)
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

    Not defined if nothing is retained or one of the two means is zero.

    Raises: ValueError for a wrong shape.
    """
    require_rows(x, selected=selected, valid=valid)
    rows = masked_rows(x, valid)
    real = jnp.ones(rows.shape[0], bool) if valid is None else valid
    kept = selected & real

    def mean(mask: Array) -> Array:
        # A product with the mask: it reads the matrix once and writes no masked copy of it.
        return jnp.matmul(mask.astype(rows.dtype), rows, precision=EXACT) / jnp.maximum(jnp.sum(mask), 1)

    of_kept, of_all = mean(kept), mean(real)
    square_kept, square_all = jnp.sum(of_kept**2), jnp.sum(of_all**2)
    defined = _has_length(square_kept, rows.shape[1]) & _has_length(square_all, rows.shape[1])
    similarity = _ratio(jnp.sum(of_kept * of_all), jnp.sqrt(square_kept) * jnp.sqrt(square_all), defined)
    return Ratio(jnp.clip(similarity.value, -1, 1), defined)


def captured_energy(
    x: Float[Array, "n d"],
    selected: Bool[Array, "n"],
    valid: Bool[Array, "n"] | None = None,
    tol: Float[Array, ""] | float | None = None,
    *,
    max_rank: int,
) -> Float[Array, ""]:
    r"""$E(S) = \frac{1}{n} \sum_i \|Q_S^\top x_i\|^2$ in [0, 1] of a retained subset (Eq. 3); see `linalg.coverage`.

    `selected`, `valid` as in `centroid_similarity`; `tol`, `max_rank` as in `linalg.orthonormal_basis`.

    Raises: ValueError for a wrong shape or `max_rank < 1`.
    """
    require_rows(x, selected=selected, valid=valid)
    kept = selected if valid is None else selected & valid
    return coverage(x, orthonormal_basis(x, kept, tol, max_rank=max_rank).vectors, valid)


def action_projection(action: Float[Array, "d"], vectors: Float[Array, "r d"]) -> Float[Array, ""]:
    r"""$P_a(S) = \|Q_S^\top a\|^2$ in [0, 1] (Eq. 4).

    Args:
        action: unit vector of the recorded next action, `[d]`.
        vectors: orthonormal rows that span the retained blocks (`linalg.orthonormal_basis`).

    Raises: ValueError for a wrong shape.
    """
    require("action", action, (None,), "float")
    return captured(action[None], vectors)[0]


def action_ratio(action: Float[Array, "d"], vectors: Float[Array, "r d"], all_vectors: Float[Array, "s d"]) -> Ratio:
    r"""$R_a(S) = P_a(S) / P_a([n])$ in [0, 1] (Eq. 4); not defined if the history does not touch the action at all.

    Args:
        action: as in `action_projection`.
        vectors: basis of the retained blocks.
        all_vectors: basis of all blocks, whose span holds that of `vectors`.

    Raises: ValueError for a wrong shape.
    """
    part, whole = action_projection(action, vectors), action_projection(action, all_vectors)
    ratio = _ratio(part, whole, _has_length(whole, action.shape[0]))
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
        selected, valid: as in `centroid_similarity`.
        k: neighbours, static.

    Ties go to the lower index. With fewer than `k` blocks the neighbours are all of them, and their number is the
    denominator. Not defined without blocks or without an action (zero vector).

    Raises: ValueError for a wrong shape or `k < 1`.
    """
    require_rows(x, selected=selected, valid=valid)
    require("action", action, (x.shape[1],), "float")
    require_positive("k", k)
    n, d = x.shape
    real = jnp.ones(n, bool) if valid is None else valid
    if n == 0:
        return Ratio(jnp.zeros((), working_dtype(x.dtype)), jnp.bool_(False))
    dtype = working_dtype(jnp.result_type(x, action))
    direction = action.astype(dtype)
    similarity = jnp.matmul(x.astype(dtype), direction, precision=EXACT)
    _, nearest = lax.top_k(jnp.where(real, similarity, -jnp.inf), min(k, n))  # of equal ones the lower index first
    hits = jnp.sum((selected & real)[nearest]).astype(dtype)
    neighbours = jnp.minimum(k, jnp.sum(real))
    return _ratio(hits, neighbours.astype(dtype), (neighbours > 0) & _has_length(jnp.sum(direction**2), d))


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

    Not defined if the action has no part in the centred history's span.

    Raises: ValueError for a wrong shape.
    """
    require("action", action, (spectrum.directions.shape[1],), "float")
    squares = _coordinates(action[None], spectrum)[0] ** 2
    whole = jnp.sum(squares)
    return _ratio(jnp.sum(jnp.where(_low(spectrum, rho), squares, 0)), whole, _has_length(whole, action.shape[0]))


def block_low_energy(
    x: Float[Array, "n d"],
    spectrum: Spectrum,
    rho: Float[Array, ""] | float = 0.90,
    valid: Bool[Array, "n"] | None = None,
) -> Ratio:
    r"""$L_i = \|V_\mathrm{low}^\top \tilde{x}_i\|^2 / \|V^\top \tilde{x}_i\|^2$ for every block, `[n]` (C.3).

    Not defined for a block that equals the mean, and for padding.

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
    r"""$A_i = \cos(V_\mathrm{low} V_\mathrm{low}^\top \tilde{x}_i, V_\mathrm{low} V_\mathrm{low}^\top a)$ in [-1, 1],
    `[n]` (C.4).

    The cosine is taken between coordinates, which is the same since the rows of `directions` are orthonormal. Not
    defined where the block or the action has no part in the low-energy directions, and for padding.

    Raises: ValueError for a wrong shape.
    """
    require("action", action, (spectrum.directions.shape[1],), "float")
    low = _low(spectrum, rho)
    blocks = jnp.where(low, _centred_coordinates(x, spectrum, valid), 0)
    wanted = jnp.where(low, _coordinates(action[None], spectrum)[0], 0)
    square_blocks, square_action = jnp.sum(blocks**2, axis=1), jnp.sum(wanted**2)
    defined = _has_length(square_blocks, x.shape[1]) & _has_length(square_action, x.shape[1])
    inner = jnp.matmul(blocks, wanted, precision=EXACT)
    cosine = _ratio(inner, jnp.sqrt(square_blocks) * jnp.sqrt(square_action), defined)
    return Ratio(jnp.clip(cosine.value, -1, 1), defined)


def _centred_coordinates(x: Array, spectrum: Spectrum, valid: Array | None) -> Array:
    """Coordinates of the centred blocks, `[n, m]`; 0 for padding."""
    require("x", x, (None, spectrum.directions.shape[1]), "float")
    require_rows(x, valid=valid)
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
    require("action", action, (spectrum.directions.shape[1],), "float")
    require_positive("bands", bands)
    squares = _coordinates(action[None], spectrum)[0] ** 2
    band = jnp.arange(squares.shape[0]) * bands // jnp.maximum(spectrum.rank, 1)
    sums = jnp.zeros(bands, squares.dtype).at[band].add(squares, mode="drop")  # beyond the rank there is nothing to add
    whole = jnp.sum(squares)
    return _ratio(sums, whole, _has_length(whole, action.shape[0]))

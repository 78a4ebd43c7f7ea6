r"""Spectra of centred histories and the controls they are compared with (GEM 3.1, 4.1, C.1).

Centring is for this analysis only; selection and coverage use the vectors as they are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gemjax.kernels._checks import require, require_rows, working_dtype
from gemjax.kernels.linalg import energies, independence_tolerance, masked_rows


class Spectrum(NamedTuple):
    r"""The decomposition $X_c = X - 1\bar{x}^\top = U \Sigma V^\top$ (Eq. 1), with `m = min(n, d)`.

    Attributes:
        values: singular values in descending order, `[m]`; 0 from `rank` on.
        directions: right singular vectors as rows, `[m, d]` (row `k` is the paper's $v_{k+1}$); 0 from `rank` on.
        mean: $\bar{x}$, `[d]`.
        rank: number of singular values above rounding.
    """

    values: Float[Array, "m"]
    directions: Float[Array, "m d"]
    mean: Float[Array, "d"]
    rank: Int[Array, ""]


def centered_rows(
    x: Float[Array, "n d"], valid: Bool[Array, "n"] | None = None
) -> tuple[Float[Array, "n d"], Float[Array, "d"]]:
    r"""$(\tilde{x}_i = x_i - \bar{x}, \bar{x})$ over the valid rows; padding rows are zero, and so is the mean of none.

    Args:
        x: rows `[n, d]`.
        valid: real rows `[n]`; None: all.

    Returns: the centred rows `[n, d]` and the mean `[d]`.

    Raises: ValueError for a wrong shape.
    """
    x, valid = require_rows(x, valid=valid)
    rows = masked_rows(x, valid)
    real = jnp.ones(rows.shape[0], bool) if valid is None else valid
    mean = jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(real), 1)
    return jnp.where(real[:, None], rows - mean, 0), mean


def centered_spectrum(x: Float[Array, "n d"], valid: Bool[Array, "n"] | None = None) -> Spectrum:
    r"""Singular values and right singular vectors of the centred rows (Eq. 1).

    Singular values up to `independence_tolerance(dtype, d)` times $\|X\|_F$ are rounding (centring equal rows leaves
    that much) and are set to 0, with their directions. Padding rows change nothing.

    Args:
        x: rows `[n, d]`, not centred.
        valid: real rows `[n]`; None: all.

    Returns: the `Spectrum`. Gradients exist where the singular values differ from each other.

    Cost: O(n d min(n, d)).

    Raises: ValueError for a wrong shape.
    """
    rows, mean = centered_rows(x, valid)
    _, values, directions = jnp.linalg.svd(rows, full_matrices=False)
    floor = independence_tolerance(rows.dtype, rows.shape[1]) * jnp.sqrt(jnp.sum(energies(x, valid)))
    real = values > floor
    return Spectrum(
        jnp.where(real, values, 0), jnp.where(real[:, None], directions, 0), mean, jnp.sum(real, dtype=jnp.int32)
    )


def energy_shares(values: Float[Array, "m"]) -> Float[Array, "m"]:
    r"""$p_j = \sigma_j^2 / \sum_k \sigma_k^2$.

    Args:
        values: singular values, any order, `[m]`.

    Returns: `[m]`, of sum 1; all 0 without energy.

    Raises: ValueError for a wrong shape.
    """
    values = require("values", values, (None,))
    values = values.astype(working_dtype(values))
    largest = lax.stop_gradient(jnp.max(values, initial=0))  # a scale: shares do not depend on it
    scaled = values / jnp.where(largest > 0, largest, 1)  # squares of small values would vanish
    squares = scaled * scaled
    return squares / jnp.where(largest > 0, jnp.sum(squares), 1)


def effective_rank(values: Float[Array, "m"]) -> Float[Array, ""]:
    r"""$r_\mathrm{eff} = \exp(-\sum_j p_j \log p_j)$ (Eq. 2, C.1).

    Args:
        values: singular values, any order, `[m]`; zeros add nothing.

    Returns: a scalar from 1 to the rank; 0 without energy.

    Raises: ValueError for a wrong shape.
    """
    p = energy_shares(values)
    entropy = -jnp.sum(p * jnp.log(jnp.where(p > 0, p, 1)))
    return jnp.where(jnp.any(p > 0), jnp.exp(entropy), 0)


def rank_at_energy(values: Float[Array, "m"], rho: Float[Array, ""] | float = 0.90) -> Int[Array, ""]:
    r"""$r_\rho = \min\{k : \sum_{j \le k} p_j \ge \rho\}$ (Eq. 2, C.1).

    Args:
        values: singular values in descending order, `[m]`.
        rho: share of the energy in (0, 1].

    Returns: an integer scalar; 0 without energy.

    The sum counts as reached when it falls short by less than its own rounding (`16 eps`): otherwise `rho = 1`, or a
    share that is met exactly, would depend on the last bit. Divide by the number of blocks for $\bar{r}_\rho$.

    Raises: ValueError for a wrong shape.
    """
    p = energy_shares(values)
    reached = jnp.cumsum(p) >= rho - 16 * jnp.finfo(p.dtype).eps
    last = jnp.sum(p > 0)
    first = jnp.where(jnp.any(reached), jnp.argmax(reached) + 1, last)
    return jnp.minimum(first, last).astype(jnp.int32)


def feature_shift(
    x: Float[Array, "n d"], key: PRNGKeyArray, valid: Bool[Array, "n"] | None = None
) -> Float[Array, "n d"]:
    """Each feature shifted circularly along the blocks by its own uniform offset (4.1, C.1).

    The values of a feature stay as they are (the same multiset); what aligns features across blocks is destroyed.

    Args:
        x: `[n, d]`.
        key: a `jax.random` key.
        valid: real rows; only they take part, in their order. Padding rows come back as zero.

    Returns: `[n, d]` in the caller's dtype.

    Raises: ValueError for a wrong shape.
    """
    x, valid = require_rows(x, valid=valid)
    n, d = x.shape
    real = jnp.ones(n, bool) if valid is None else valid
    count = jnp.maximum(jnp.sum(real), 1)
    offset = jax.random.randint(key, (d,), 0, count)
    rows = jnp.argsort(~real, stable=True)  # the valid rows first, in order
    position = jnp.cumsum(real) - 1
    source = rows[(position[:, None] - offset[None, :]) % count]
    return jnp.where(real[:, None], jnp.take_along_axis(x, source, axis=0), 0)


def gaussian_control(
    x: Float[Array, "n d"], key: PRNGKeyArray, valid: Bool[Array, "n"] | None = None
) -> Float[Array, "n d"]:
    """Independent standard normal rows in place of the valid ones (4.1, C.1); padding rows are zero.

    Only the shape and dtype of `x` are used. The draw of a valid row depends on the key and on its place among the
    valid rows, not on the padding. Rows are not scaled to length 1: the statistics of this module are scale-free.

    Args:
        x: `[n, d]`.
        key: a `jax.random` key.
        valid: real rows `[n]`; None: all.

    Returns: `[n, d]` in the caller's dtype.

    Raises: ValueError for a wrong shape.
    """
    x, valid = require_rows(x, valid=valid)
    n, d = x.shape
    real = jnp.ones(n, bool) if valid is None else valid
    position = jnp.cumsum(real) - 1
    draw = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), (d,), working_dtype(x)))(position)
    return jnp.where(real[:, None], draw, 0).astype(x.dtype)

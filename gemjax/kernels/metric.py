r"""The Riemannian metric of CoreMem: a low-rank-plus-diagonal covariance and its exact inverse (paper 3.2, Eq. 1).

$\Sigma = W W^\top + \mathrm{diag}(D)$. All comes from the thin QR factorisation of $[A; I]$ with $A = D^{-1/2} W$: its
orthonormal factor has an upper block $Q_1$ (`[d, r]`) and a lower block $Q_2$ (`[r, r]`), and with $y = D^{-1/2} x$,
$t = Q_1^\top y$:

* $\Sigma^{-1} x = D^{-1/2} (y - Q_1 t)$, which is Eq. 1 (Woodbury) rearranged;
* $x^\top \Sigma^{-1} x = \|y - Q_1 t\|^2 + \|Q_2 t\|^2$, a sum of squares: it cannot go negative. The textbook form
  $y^\top y - \|\cdot\|^2$ cancels in float32 when x lies near the span of W, and does go negative.

Algorithm 1 of the paper prints a shortcut, $P = D^{-1} U M^{-1}$, which is not the inverse; it is not implemented here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from gemjax.kernels._checks import require, require_one_of, working_dtype
from gemjax.kernels.moments import Moments, covariance

MODELS = ("paper", "isotropic", "diagonal")


class LowRankMetric(NamedTuple):
    """A fitted metric, a pytree of arrays. Build it with `fit_metric`, `fit_metric_from_rows` or `low_rank_metric`.

    Functions of vectors broadcast over leading axes, as NumPy's do.

    Columns of `cov_factor` past `rank` are zero, so that a metric keeps its shapes when its rank changes.
    """

    mean: Float[Array, "d"]
    cov_factor: Float[Array, "d r"]
    cov_diag: Float[Array, "d"]
    rank: Int[Array, ""]
    ridge: Float[Array, ""]
    """The lambda added to the variances, in the units of a variance (0 for a metric that was not fitted)."""
    upper: Float[Array, "d r"]
    """Q_1 of the QR factorisation."""
    lower: Float[Array, "r r"]
    """Q_2 of the QR factorisation."""
    log_det: Float[Array, ""]
    """log det Sigma."""


def _dot(a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, "..."]:
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def low_rank_metric(
    mean: Float[Array, "d"],
    cov_factor: Float[Array, "d r"],
    cov_diag: Float[Array, "d"],
    *,
    rank: Int[Array, ""] | None = None,
    ridge: Float[Array, ""] | float = 0.0,
) -> LowRankMetric:
    """The metric with covariance `cov_factor @ cov_factor.T + diag(cov_diag)`.

    Args:
        mean: `[d]`.
        cov_factor: W, `[d, r]`.
        cov_diag: D, positive, `[d]`; a non-positive one gives NaN.
        rank: how many columns of W are in use; None: all.
        ridge: what was added to the variances; kept, not used.

    Returns: the `LowRankMetric`.

    Raises: ValueError for shapes that do not fit together.
    """
    cov_factor = require("cov_factor", cov_factor, (None, None))
    d, r = cov_factor.shape
    mean, cov_diag = require("mean", mean, (d,)), require("cov_diag", cov_diag, (d,))
    dtype = working_dtype(cov_factor, mean, cov_diag)
    mean, cov_factor, cov_diag = (x.astype(dtype) for x in (mean, cov_factor, cov_diag))
    a = cov_factor / jnp.sqrt(cov_diag)[:, None]
    q, tri = jnp.linalg.qr(jnp.concatenate([a, jnp.eye(r, dtype=dtype)]))
    log_det = jnp.sum(jnp.log(cov_diag)) + 2 * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(tri))))
    count = jnp.asarray(r if rank is None else rank, jnp.int32)
    return LowRankMetric(
        mean, cov_factor, cov_diag, count, jnp.asarray(ridge, dtype), q[:d], q[d:], log_det.astype(dtype)
    )


def _centred(name: str, metric: LowRankMetric, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """`x` in the dtype of the metric."""
    x = require(name, x, (..., metric.mean.shape[0]))
    centred: Float[Array, "*b d"] = x.astype(working_dtype(x, metric.mean))
    return centred


def _assemble(
    mean: Float[Array, "d"],
    variance: Float[Array, "d"],
    eigenvalues: Float[Array, "m"],
    directions: Float[Array, "d m"],
    ridge: Float[Array, ""] | float,
    energy: Float[Array, ""] | float,
    model: str,
) -> LowRankMetric:
    """The metric from a descending spectrum: `eigenvalues` are s_i^2 / N, `directions` the right singular vectors."""
    require_one_of("model", model, MODELS)
    dtype = variance.dtype
    eps = jnp.finfo(dtype).eps
    eigenvalues = jnp.maximum(eigenvalues, 0)  # rounding makes the null space slightly negative
    spread = jnp.mean(variance)
    # Identical memories have no spread but the rounding of the mean. The metric is then the identity.
    flat = spread <= (16 * eps) ** 2 * jnp.mean(mean * mean)
    lam = jnp.asarray(ridge, dtype) * spread
    floor = 4 * eps * spread  # a dimension without variance must stay invertible when the ridge is 0
    total = jnp.sum(eigenvalues)
    share = jnp.cumsum(eigenvalues) / jnp.where(total > 0, total, 1)
    # Smallest r whose share reaches `energy`; the slack is the rounding of the cumulative sum.
    index = jnp.arange(eigenvalues.shape[0])
    wanted = jnp.sum(share < jnp.asarray(energy, dtype) - 8 * eps, dtype=jnp.int32) + 1
    used = jnp.minimum(wanted, jnp.sum(eigenvalues > 0, dtype=jnp.int32))
    used = jnp.where(flat | (model == "diagonal"), 0, used)
    kept = index < used
    if model == "paper":
        weights, diag = eigenvalues + lam, variance + lam
    elif model == "isotropic":
        weights, diag = eigenvalues, jnp.broadcast_to(lam, variance.shape)
    else:
        weights, diag = jnp.zeros_like(eigenvalues), variance + lam
    factor = directions * jnp.where(kept, jnp.sqrt(weights), 0)
    diag = jnp.where(flat, 1, jnp.maximum(diag, floor))
    return low_rank_metric(mean, factor, diag, rank=used, ridge=lam)


def fit_metric(
    moments: Moments,
    *,
    ridge: Float[Array, ""] | float = 10.0,
    energy: Float[Array, ""] | float = 0.95,
    model: str = "paper",
    max_rank: int | None = None,
) -> LowRankMetric:
    r"""The metric of the rows that `moments` stands for, by one `d x d` eigen-decomposition: its cost is free of N.

    Args:
        moments: at least one row.
        ridge: $\lambda$ as a multiple of the mean variance (paper: 10). May be traced.
        energy: share of the centred energy that the low-rank part must explain (paper: 0.95). May be traced.
        model: static. `"paper"`: $V_r(\Lambda_r + \lambda I)V_r^\top + \mathrm{diag}(\sigma^2 + \lambda)$.
            `"isotropic"`: $V_r \Lambda_r V_r^\top + \lambda I$, which at energy 1 is the ridge (shrinkage) estimate
            $S/N + \lambda I$. `"diagonal"`: $\mathrm{diag}(\sigma^2 + \lambda)$.
        max_rank: static bound on the rank; default d.

    Returns: the `LowRankMetric`. Memories without any spread (one memory, or all identical) give the identity metric of
        rank 0.

    Raises: ValueError for an unknown model or wrong shapes.
    """
    require("moments.scatter", moments.scatter, (None, None))
    cov = covariance(moments)
    values, vectors = jnp.linalg.eigh((cov + cov.T) / 2)
    size = values.shape[0] if max_rank is None else min(max_rank, values.shape[0])
    return _assemble(
        moments.mean, jnp.diagonal(cov), values[::-1][:size], vectors[:, ::-1][:, :size], ridge, energy, model
    )


def fit_metric_from_rows(
    rows: Float[Array, "n d"],
    *,
    ridge: Float[Array, ""] | float = 10.0,
    energy: Float[Array, ""] | float = 0.95,
    model: str = "paper",
) -> LowRankMetric:
    """The same metric by the SVD of the centred rows (lines 4-11 of Algorithm 1, with right singular vectors).

    `O(n d min(n, d))` and a second copy of the rows; its smallest singular values are more accurate than those of
    `fit_metric`.

    Args:
        rows: `[n, d]`, at least one.
        ridge: as for `fit_metric`.
        energy: as for `fit_metric`.
        model: as for `fit_metric`, static.

    Returns: the `LowRankMetric`.

    Raises: ValueError as `fit_metric`.
    """
    rows = require("rows", rows, (None, None))
    rows = rows.astype(working_dtype(rows))
    mean = jnp.mean(rows, axis=0)
    centred = rows - mean
    centred = centred - jnp.mean(centred, axis=0)
    _, s, vt = jnp.linalg.svd(centred, full_matrices=False)
    return _assemble(mean, jnp.mean(centred * centred, axis=0), s * s / rows.shape[0], vt.T, ridge, energy, model)


def solve_metric(metric: LowRankMetric, x: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
    """`Sigma^-1 x` for already centred x (Eq. 1), `O(d r)` a vector.

    Args:
        metric: the metric.
        x: centred vectors, `[..., d]`.

    Returns: `[..., d]`.

    Raises: ValueError for a wrong shape.
    """
    x = _centred("x", metric, x)
    root = jnp.sqrt(metric.cov_diag)
    y = x / root
    return (y - _dot(_dot(y, metric.upper), metric.upper.T)) / root


def quadratic_form(metric: LowRankMetric, x: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """`x^T Sigma^-1 x` for already centred x, as a sum of squares.

    Args:
        metric: the metric.
        x: centred vectors, `[..., d]`.

    Returns: `[...]`, never negative.

    Raises: ValueError for a wrong shape.
    """
    x = _centred("x", metric, x)
    y = x / jnp.sqrt(metric.cov_diag)
    t = _dot(y, metric.upper)
    rest = y - _dot(t, metric.upper.T)
    low = _dot(t, metric.lower.T)
    return jnp.sum(rest * rest, axis=-1) + jnp.sum(low * low, axis=-1)


def squared_distance(metric: LowRankMetric, x: Float[Array, "*b d"], y: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Squared Mahalanobis distance between x and y; the mean cancels.

    Args:
        metric: the metric.
        x: vectors, `[..., d]`.
        y: vectors, `[..., d]`.

    Returns: `[...]`, never negative.
    """
    return quadratic_form(metric, x - y)


def query_transform(
    metric: LowRankMetric, queries: Float[Array, "*b d"]
) -> tuple[Float[Array, "*b d"], Float[Array, "*b"]]:
    """What a query does to every memory: `O(d)` a memory instead of `O(d r)`.

    Args:
        metric: the metric.
        queries: `[..., d]`.

    Returns: `(w, offset)`, `[..., d]` and `[...]`, such that the Riemannian score of a memory h is `h . w + offset`.
    """
    w = solve_metric(metric, queries - metric.mean)
    return w, -_dot(w, metric.mean)


def riemannian_score(
    metric: LowRankMetric, query: Float[Array, "*b d"], memory: Float[Array, "*b d"]
) -> Float[Array, "*b"]:
    """The paper's Riemannian similarity `(q - mu)^T Sigma^-1 (h - mu)`, row by row.

    Args:
        metric: the metric.
        query: `[..., d]`.
        memory: `[..., d]`.

    Returns: `[...]`; larger is closer.
    """
    return jnp.sum(solve_metric(metric, query - metric.mean) * (memory - metric.mean), axis=-1)


def log_density(metric: LowRankMetric, x: Float[Array, "*b d"]) -> Float[Array, "*b"]:
    """Log density of the Gaussian with this mean and covariance.

    Args:
        metric: the metric.
        x: vectors, `[..., d]`.

    Returns: `[...]`, in nats.
    """
    d = metric.mean.shape[0]
    return -0.5 * (quadratic_form(metric, x - metric.mean) + metric.log_det + d * jnp.log(2 * jnp.pi))


def dense_covariance(metric: LowRankMetric) -> Float[Array, "d d"]:
    """`Sigma` as a matrix.

    Args:
        metric: the metric.

    Returns: `[d, d]`.
    """
    return _dot(metric.cov_factor, metric.cov_factor.T) + jnp.diag(metric.cov_diag)


def condition_number(metric: LowRankMetric) -> Float[Array, ""]:
    """Largest over smallest eigenvalue of `Sigma`. The paper's "about 2" is the one of `diag(cov_diag)` alone.

    Args:
        metric: the metric.

    Returns: a scalar.
    """
    values = jnp.linalg.eigvalsh(dense_covariance(metric))
    ratio: Float[Array, ""] = values[-1] / values[0]
    return ratio


def whitening_matrix(metric: LowRankMetric) -> Float[Array, "d d"]:
    r"""G with $G^\top G = \Sigma^{-1}$, so that $\|G x - G y\|$ is the Mahalanobis distance: for L2 indexes.

    With $D^{-1/2}W = U S V^\top$, $G = (I - U(I - (I + S^2)^{-1/2})U^\top) D^{-1/2}$: no difference of squares.

    Args:
        metric: the metric.

    Returns: `[d, d]`.
    """
    root = jnp.sqrt(metric.cov_diag)
    u, s, _ = jnp.linalg.svd(metric.cov_factor / root[:, None], full_matrices=False)
    inner = (u * (1 - lax.rsqrt(1 + s * s))) @ u.T
    return (jnp.eye(root.shape[0], dtype=root.dtype) - inner) / root


fit_metric_jit = jax.jit(fit_metric, static_argnames=("model", "max_rank"))
"""`fit_metric`, compiled once for all callers; it takes a second to compile."""

"""Hostile inputs for the kernels, and float64 oracles that share no code with them.

A problem has few shapes and many values: duplicates, opposite and near-parallel vectors, zero vectors, vectors that
were tiny before they were scaled to unit length, rows inside the span of others, padding, all or nothing protected.

Near-parallel means a residual well above the independence tolerance (1e-4, or 1e-2 in bfloat16) or well below (1e-12):
at the tolerance itself two correct programs may disagree about independence. `clear` says whether a set of rows is free
of such cases.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from hypothesis import strategies as st

# Its place until jax 0.8.
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
SHAPES = [(1, 8), (6, 24), (12, 5), (20, 24)]  # one block, n < d, n > d, in between
DTYPES = ["float32", "float64", "bfloat16"]


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """float64 for the block only; the global configuration stays as it is."""
    with enable_x64(dtype == "float64"):
        yield


class Problem(NamedTuple):
    x: np.ndarray  # [n, d], unit or zero rows, in its dtype
    protected: np.ndarray
    eligible: np.ndarray
    valid: np.ndarray
    capacity: int
    target: float
    dtype: str

    @property
    def x64(self) -> np.ndarray:
        return self.x.astype(np.float64)


def rows(rng: np.random.Generator, n: int, d: int, kinds: list[str], spread: float) -> np.ndarray:
    """`n` rows, each of a kind drawn from `kinds`; later rows may depend on earlier ones. float64, unit or zero."""
    shared = rng.standard_normal(d)
    out = np.zeros((n, d))
    for i in range(n):
        kind = kinds[rng.integers(len(kinds))] if i else "fresh"
        other = out[rng.integers(i)] if i else shared
        if kind == "fresh":
            out[i] = rng.standard_normal(d) + shared
        elif kind == "copy":
            out[i] = other
        elif kind == "opposite":
            out[i] = -other
        elif kind == "near":
            noise = rng.standard_normal(d)
            out[i] = other + spread * noise / np.linalg.norm(noise)
        elif kind == "inside":
            out[i] = rng.standard_normal(i) @ out[:i]
        elif kind == "tiny":
            out[i] = 1e-30 * rng.standard_normal(d)
        length = np.linalg.norm(out[i])
        if length > 0:
            out[i] /= length
    return out


@st.composite
def problems(draw: st.DrawFn, dtypes: tuple[str, ...] = tuple(DTYPES), shapes: tuple = tuple(SHAPES)) -> Problem:
    # Not the whole product: each pair of dtype and shape compiles.
    kept = {"float32": list(shapes), "float64": list(shapes)[-3:], "bfloat16": list(shapes)[1:3]}
    dtype, (n, d) = draw(st.sampled_from([(dtype, shape) for dtype in dtypes for shape in kept[dtype]]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(
        st.sampled_from(
            [["fresh"], ["fresh", "copy", "zero"], ["fresh", "near", "opposite"], ["copy", "inside", "tiny", "near"]]
        )
    )
    x = rows(rng, n, d, kinds, draw(st.sampled_from([1e-1 if dtype == "bfloat16" else 1e-2, 1e-6])))
    protected = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    eligible = rng.random(n) < draw(st.sampled_from([1.0, 0.6]))
    valid = np.arange(n) < n - draw(st.sampled_from([0, 0, n // 3]))
    capacity = draw(st.sampled_from([0, 1, 4, 16]))
    target = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0, 2.0]))
    return Problem(x.astype(jnp.dtype(dtype)), protected, eligible, valid, capacity, target, dtype)


def tolerance(dtype: str, d: int) -> float:
    """The error allowed for a residual: sqrt(b d) eps with b = 16 directions, computed here from the formula, and the
    square of the storage rounding for bfloat16 (see `independence_tolerance`)."""
    eps = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-23}[dtype]
    return max(4 * np.sqrt(d) * eps, 2.0**-14 if dtype == "bfloat16" else 0.0)


def oracle_basis(x64: np.ndarray, tol: float, condition: int = 1) -> tuple[np.ndarray, float]:
    """Orthonormal rows spanning `x64` by LAPACK's pivoted QR in float64, and the error to allow for residuals.

    With rho the smallest residual that was accepted as a direction and eta the largest that was dropped:
    * a direction is known to eps / sqrt(rho) (`condition` 2: to eps / rho, where inner products stand in for vectors);
    * which of nearly dependent rows are dropped depends on the order, and the spans then differ by sqrt(eta / rho).
    """
    if len(x64) == 0:
        return np.zeros((0, x64.shape[1])), 2 * tol
    q, r, _ = scipy.linalg.qr(x64.T, mode="economic", pivoting=True)
    pivots = np.diag(r) ** 2
    rank = int(np.sum(pivots > tol))
    rho, eta = pivots[:rank].min(initial=1.0), pivots[rank:].max(initial=0.0)
    return q.T[:rank], float(tol * (1 + rho ** (-condition / 2)) + 2 * np.sqrt(eta / rho))


def clear(x64: np.ndarray, tol: float) -> bool:
    """Whether no pivot of the rows lies near the tolerance, where independence is a matter of rounding."""
    if len(x64) == 0:
        return True
    pivots = np.diag(scipy.linalg.qr(x64.T, mode="r", pivoting=True)[0]) ** 2
    return not np.any((pivots > tol / 30) & (pivots < tol * 30))


def oracle_residuals(x64: np.ndarray, chosen: np.ndarray, tol: float, condition: int = 1) -> tuple[np.ndarray, float]:
    """Squared distances of all rows from the span of the chosen ones, and the error to allow for them."""
    q, allowed = oracle_basis(x64[chosen], tol, condition)
    return ((x64 - (x64 @ q.T) @ q) ** 2).sum(1), allowed


def oracle_coverage(x64: np.ndarray, residual: np.ndarray, valid: np.ndarray) -> float:
    total = (x64[valid] ** 2).sum()
    return 1.0 if total == 0 else 1 - residual[valid].sum() / total

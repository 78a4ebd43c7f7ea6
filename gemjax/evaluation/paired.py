"""Tests on paired differences, one a trajectory: exact sign and Wilcoxon signed-rank tests, Holm's correction."""

import math

import numpy as np
from jaxtyping import Float

from gemjax.evaluation.statistics import even_odds


def sign_test(differences: Float[np.ndarray, "n"]) -> dict[str, float | int]:
    """Exact two-sided sign test; zeros and NaN are left out. `above`, `below`, `p` (1 without any difference)."""
    above = int(np.sum(differences > 0))
    below = int(np.sum(differences < 0))
    return {"above": above, "below": below, "p": even_odds(above, below)}


def wilcoxon(differences: Float[np.ndarray, "n"]) -> dict[str, float | int]:
    """Exact two-sided Wilcoxon signed-rank test: every one of the `2^n` assignments of signs, ties included.

    SciPy's exact test knows no ties, which shares of three blocks are full of. Zeros and NaN are left out; tied sizes
    share the mean of their ranks. The distribution of twice the rank sum is
    built one rank at a time, O(n^3) numbers in all, so `n` up to some hundreds.

    Returns: `n` (differences that are not zero), `statistic` (the smaller rank sum), `p`.
    """
    d = differences[np.isfinite(differences) & (differences != 0)]
    n = len(d)
    if n == 0:
        return {"n": 0, "statistic": 0.0, "p": 1.0}
    _, inverse, counts = np.unique(np.abs(d), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    twice = (2 * ends - counts + 1)[inverse]  # twice the mean rank: whole numbers
    distribution = np.ones(1)
    for rank in twice:
        wider = np.zeros(len(distribution) + rank)
        wider[: len(distribution)] += 0.5 * distribution
        wider[rank:] += 0.5 * distribution
        distribution = wider
    total = int(twice.sum())
    up = int(twice[d > 0].sum())
    smaller = min(up, total - up)
    return {"n": n, "statistic": smaller / 2, "p": float(min(1.0, 2 * distribution[: smaller + 1].sum()))}


def holm(p: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Holm's step-down adjusted p values, in the order given. NaN stays NaN and counts for nothing."""
    p = np.asarray(p, np.float64)
    out = np.full(p.shape, math.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    out[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors)) if len(order) else 0.0
    return out

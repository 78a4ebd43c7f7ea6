"""The statistics that the tables use: bootstrap and t intervals, rank correlation, and McNemar's exact test."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int


def bootstrap_intervals(
    values: Float[np.ndarray, "n m"],
    groups: Int[np.ndarray, "n"] | None = None,
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Float[np.ndarray, "m 2"]:
    """Percentile intervals of the column means, by resampling rows, or whole groups of rows.

    Questions of one conversation are not independent, so resample conversations (`groups`) too; with five of them that
    interval is rough, and rather too narrow than too wide. One seed, one result. NaN without rows.
    """
    n, columns = values.shape
    if not n:
        return np.full((columns, 2), math.nan)
    if groups is None:
        sums, sizes = values, np.ones(n)
    else:
        _, index = np.unique(groups, return_inverse=True)
        sizes = np.bincount(index).astype(np.float64)
        sums = np.zeros((len(sizes), columns))
        np.add.at(sums, index, values)
    units = len(sizes)
    rng = np.random.default_rng(seed)
    # How often each unit is drawn: one matrix product then serves every column.
    drawn = rng.multinomial(units, np.full(units, 1 / units), size=resamples).astype(np.float64)
    means = (drawn @ sums) / (drawn @ sizes)[:, None]
    tail = (1 - level) / 2
    return np.asarray(np.quantile(means, [tail, 1 - tail], axis=0).T)


def bootstrap_statistic(
    statistic: Callable[[Int[np.ndarray, "m"]], float],
    groups: Int[np.ndarray, "n"],
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of a statistic that is no mean, by resampling whole groups of rows.

    Args:
        statistic: of the rows with these indices; a group that was drawn twice has its rows in it twice. NaN where it
            is not defined: such draws are left out.
        groups: the group of each row.

    Returns: the limits; NaN without rows, or when no draw defines the statistic.
    """
    _, index = np.unique(groups, return_inverse=True)
    members = [np.flatnonzero(index == g) for g in range(index.max(initial=-1) + 1)]
    if not members:
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    draws = rng.integers(len(members), size=(resamples, len(members)))
    values = np.array([statistic(np.concatenate([members[g] for g in draw])) for draw in draws], np.float64)
    values = values[np.isfinite(values)]
    if not len(values):
        return math.nan, math.nan
    tail = (1 - level) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def spearman(a: Float[np.ndarray, "n"], b: Float[np.ndarray, "n"]) -> float:
    """Spearman's rank correlation; ties share the mean of their ranks. NaN where one of the two does not vary."""
    a, b = np.asarray(a), np.asarray(b)
    if len(a) < 2 or not np.ptp(a) or not np.ptp(b):
        return math.nan
    from scipy import stats

    return float(stats.spearmanr(a, b).statistic)


def mcnemar(ours: Bool[np.ndarray, "n"], theirs: Bool[np.ndarray, "n"]) -> dict[str, float | int]:
    """McNemar's exact two-sided test on paired outcomes: `gained` (only ours right), `lost` (only theirs), `p`."""
    gained = int(np.sum(ours & ~theirs))
    lost = int(np.sum(theirs & ~ours))
    return {"gained": gained, "lost": lost, "p": even_odds(gained, lost)}


def even_odds(one: int, other: int) -> float:
    """Exact two-sided p of so many of two kinds that are equally likely; 1 without any."""
    if not one + other:
        return 1.0
    from scipy import stats

    return float(stats.binomtest(one, one + other).pvalue)


def student_quantile(freedom: int, level: float = 0.95) -> float:
    """The `t` with `P(|T| <= t) = level` for Student's t with these degrees of freedom, at least 1."""
    from scipy import stats

    return float(stats.t.ppf((1 + level) / 2, freedom))


def group_means(values: Float[np.ndarray, "n"], groups: Int[np.ndarray, "n"]) -> Float[np.ndarray, "g"]:
    """Mean of each group's values, NaN left out; groups without a value are left out too."""
    parts = [values[(groups == g) & ~np.isnan(values)] for g in np.unique(groups)]
    return np.array([part.mean() for part in parts if len(part)])


def paired_by_group(
    values: Float[np.ndarray, "n"], baseline: Float[np.ndarray, "n"], groups: Int[np.ndarray, "n"]
) -> dict[str, Any]:
    """The mean difference over groups (conversations), JSON-ready; pairs with a NaN are left out.

    Returns: `mean`; `t_interval`, 95 %, None for fewer than two groups; `bootstrap`, 95 % by resampling groups;
    `positive` and `negative`, how many of the `of` groups differ which way; `by_group`.
    """
    difference = values - baseline
    known = ~np.isnan(difference)
    per = group_means(difference, groups)
    n = len(per)
    if n == 0:
        return {
            "mean": None, "t_interval": None, "bootstrap": None, "positive": 0, "negative": 0, "of": 0, "by_group": [],
        }  # fmt: skip
    mean = float(per.mean())
    half = student_quantile(n - 1) * float(per.std(ddof=1)) / math.sqrt(n) if n > 1 else None
    # One group resampled is itself: no interval.
    bootstrap = bootstrap_intervals(difference[known, None], groups[known])[0].tolist() if n > 1 else None
    return {
        "mean": mean,
        "t_interval": None if half is None else [mean - half, mean + half],
        "bootstrap": bootstrap,
        "positive": int((per > 0).sum()),
        "negative": int((per < 0).sum()),
        "of": n,
        "by_group": [float(x) for x in per],
    }

"""The statistics that the tables use: bootstrap intervals and McNemar's exact test."""

import math

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
    return np.quantile(means, [tail, 1 - tail], axis=0).T


def mcnemar(ours: Bool[np.ndarray, "n"], theirs: Bool[np.ndarray, "n"]) -> dict[str, float | int]:
    """McNemar's exact two-sided test on paired outcomes: `gained` (only ours right), `lost` (only theirs), `p`."""
    gained = int(np.sum(ours & ~theirs))
    lost = int(np.sum(theirs & ~ours))
    n = gained + lost
    if n == 0:
        return {"gained": 0, "lost": 0, "p": 1.0}
    tail = sum(math.comb(n, i) for i in range(min(gained, lost) + 1))
    return {"gained": gained, "lost": lost, "p": min(1.0, 2 * tail / 2**n)}

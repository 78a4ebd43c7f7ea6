"""Whether one measure orders selections as another does: Spearman's correlation within and over checkpoints."""

import numpy as np

from gemjax.evaluation.gem.table import Cell, number
from gemjax.evaluation.statistics import bootstrap_statistic, spearman

_RESAMPLES = 2000


def within(rise: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Spearman's correlation over the selectors of each checkpoint, `[c]`; NaN where one of the two is constant."""
    return np.array([spearman(a, b) if _defined(a, b) else np.nan for a, b in zip(rise.T, lost.T, strict=True)])


def _defined(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.isfinite(a).all() and np.isfinite(b).all())


def across(rise: np.ndarray, lost: np.ndarray, groups: np.ndarray, used: np.ndarray) -> Cell:
    """Spearman's correlation over (checkpoint, selector) pairs, each value less its checkpoint's mean.

    Args:
        rise, lost: `[selectors, c]`.
        groups: trajectory of each checkpoint, `[c]`.
        used: the pairs that count, bool `[selectors, c]`. A checkpoint with fewer than two of them counts for nothing.
    """
    used = used & np.isfinite(rise) & np.isfinite(lost)
    used = used & (used.sum(axis=0) > 1)

    def centred(x: np.ndarray) -> np.ndarray:
        means = np.where(used, x, 0).sum(axis=0) / np.maximum(used.sum(axis=0), 1)
        # Differences of equal values may leave the last bit, which a rank would take for an order.
        return np.asarray(np.round(x - means, 9).T[used.T])

    a, b = centred(rise), centred(lost)
    units = np.broadcast_to(groups[:, None], used.T.shape)[used.T]
    low, high = bootstrap_statistic(lambda rows: spearman(a[rows], b[rows]), units, resamples=_RESAMPLES)
    return Cell(number(spearman(a, b)), number(low), number(high))

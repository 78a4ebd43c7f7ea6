"""A query as one vector for somebody else's index: the words of `MemoryBank.query_vector`."""

import numpy as np

from gemjax.kernels.search import Queries, Scores
from gemjax.memory.hits import QueryVector


def query_vector(scores: Scores, prepared: Queries, metric: str, alpha: float, few: bool) -> QueryVector:
    r"""The fused score of a unit memory h is an inner product plus a constant.

    With $n(c) = (c - c_0)/R_c$ and $n(r) = (r - r_0)/R_r$ over the bank's memories, and $r = h \cdot w + b$, it is
    $h \cdot (\alpha q/R_c + (1-\alpha) w/R_r)$ plus what does not depend on h.

    Args:
        scores: both columns of the one query in `prepared`, by the plain ("similarity") form.
        metric: the score to export.
        alpha: weight of the cosine.
        few: there are too few memories for a metric: cosine only.
    """
    unit, w = np.asarray(prepared.unit[0], np.float64), np.asarray(prepared.transformed[0], np.float64)
    shift = float(prepared.offset[0])
    if metric == "cosine" or (few and metric == "riemannian"):
        vector, offset = unit, 0.0
    elif metric == "riemannian":
        vector, offset = w, shift
    else:
        weight = 1.0 if few else alpha
        a, low = _slope(scores, 0)
        b, lowest = _slope(scores, 1)
        a, b = weight * a, (1 - weight) * b
        vector = a * unit + b * w
        offset = -a * low + b * (shift - lowest)
    length = float(np.linalg.norm(vector))
    direction = vector / length if length > 0 else unit
    return QueryVector(direction.astype(np.float32), length, float(offset), metric)


def _slope(scores: Scores, column: int) -> tuple[float, float]:
    """1 / range (0 for a range without extent) and the lower limit of one score."""
    low, high = float(scores.low[column, 0]), float(scores.high[column, 0])
    return (1.0 / (high - low), low) if high > low else (0.0, 0.0)

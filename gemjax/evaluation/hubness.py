"""How unevenly memories are retrieved: the hubness that the paper blames cosine for (3.2; Radovanovic et al. 2010)."""

import numpy as np
from jaxtyping import Float, Int


def occurrences(rankings: Int[np.ndarray, "q k"], memories: int) -> Int[np.ndarray, "n"]:
    """N_k: in how many of the top-k lists each memory is."""
    return np.bincount(rankings.ravel(), minlength=memories)


def hubness(counts: Int[np.ndarray, "n"] | Float[np.ndarray, "n"]) -> dict[str, float]:
    """`skewness` of N_k (0: even; hubs make it large), `never`: share of memories in no list, `robin_hood`: share of
    all list places that would have to move for every memory to have the same number (0: even, 1: one takes all)."""
    from scipy import stats

    counts = np.asarray(counts, np.float64)
    centred = counts - counts.mean()
    total = counts.sum()
    return {
        "skewness": float(stats.skew(counts)) if np.ptp(counts) else 0.0,
        "never": float(np.mean(counts == 0)),
        "robin_hood": float(np.abs(centred).sum() / (2 * total)) if total > 0 else 0.0,
    }

"""The words of `MemoryBank.explain`."""

import numpy as np
from jaxtyping import Int

from gemjax.kernels.metric import LowRankMetric, condition_number
from gemjax.kernels.search import Scores
from gemjax.memory.config import MemoryConfig
from gemjax.memory.hits import Hit


def explain_hit(
    hit: Hit,
    row: int,
    rows: Int[np.ndarray, "n"],
    scores: Scores,
    metric: LowRankMetric | None,
    config: MemoryConfig,
    note: str,
) -> str:
    """Score parts, normalised parts, and the place each score alone would have given.

    Args:
        hit: what is explained; its query made `scores`.
        row: the hit's row; `rows`: those of all memories.
        scores: both columns of one query.
        metric: None when there are too few memories for one; `note` then says so.
    """
    lines = [f"{hit.id!r}: {hit.text[:80]}"]

    def part(name: str, column: int, values: np.ndarray) -> float:
        low, high = float(scores.low[column, 0]), float(scores.high[column, 0])
        value = float(values[row, 0])
        share = (value - low) / (high - low) if high > low else 0.0
        place = 1 + int(np.sum(values[rows, 0] > value))
        lines.append(
            f"  {name:<10} {value:+.4f} of {low:+.4f} .. {high:+.4f}, normalised {share:.4f}, "
            f"alone it would be number {place} of {len(rows)}"
        )
        return share

    cosine = part("cosine", 0, np.asarray(scores.cosine))
    if metric is None:
        return "\n".join([*lines, f"  {note}"])
    riemannian = part("riemannian", 1, np.asarray(scores.riemannian))
    a = hit.alpha
    fused = a * cosine + (1 - a) * riemannian
    lines.append(f"  fused      {a:g} * {cosine:.4f} + {1 - a:g} * {riemannian:.4f} = {fused:.4f}")
    lines.append(
        f"  metric     model {config.model}, form {config.form}, rank {int(metric.rank)} of {len(metric.mean)}, "
        f"ridge {float(metric.ridge):.3g}, condition number {float(condition_number(metric)):.2f}"
    )
    return "\n".join(lines)

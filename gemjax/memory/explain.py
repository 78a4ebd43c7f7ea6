"""The words of `MemoryBank.explain`."""

from typing import TYPE_CHECKING

import numpy as np

from gemjax.errors import MemoryBankError
from gemjax.kernels.metric import condition_number
from gemjax.memory.hits import Hit

if TYPE_CHECKING:
    from gemjax.memory.bank import MemoryBank


def explain_hit(bank: "MemoryBank", hit: Hit) -> str:
    """Score parts, normalised parts, and the place each score alone would have given. One pass over the memories."""
    if hit.query is None:
        raise MemoryBankError("this hit carries no query; explain needs a hit that `search` returned")
    with bank._lock:
        if hit.id not in bank:
            raise MemoryBankError(f"id {hit.id!r} is no longer in the bank")
        scores, _ = bank._columns(hit.query)
        rows = bank._entries.live_rows()
        row = int(bank._entries.rows_of([hit.id])[0])
        note, config = bank._note(), bank.config
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

        cosine = part("cosine", 0, scores.cosine)
        if note:
            return "\n".join([*lines, f"  {note}"])
        riemannian = part("riemannian", 1, scores.riemannian)
        a = hit.alpha
        fused = a * cosine + (1 - a) * riemannian
        lines.append(f"  fused      {a:g} * {cosine:.4f} + {1 - a:g} * {riemannian:.4f} = {fused:.4f}")
        metric = bank.metric
        lines.append(
            f"  metric     model {config.model}, form {config.form}, rank {int(metric.rank)} of {bank.dim}, "
            f"ridge {float(metric.ridge):.3g}, condition number {float(condition_number(metric)):.2f}"
        )
        return "\n".join(lines)

"""One selection: protected evidence, geometric completion, and the deletion guard (5.1-5.3, Algorithm 1)."""

import dataclasses
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gemjax.history.records import Block
from gemjax.history.vectors import bucket


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """A core and what geometry says about it.

    Attributes:
        core: bool `[n]`, the selected blocks.
        residual: float `[n]`, share of each block's direction outside the core's span (Eq. 7).
        coverage: captured energy E of the core (Eq. 3).
    """

    core: np.ndarray
    residual: np.ndarray
    coverage: float


@lru_cache(maxsize=1)
def _kernel() -> Any:
    import jax

    from gemjax.kernels.selection import residual_completion

    return jax.jit(residual_completion, static_argnames="max_rank")


def complete(padded: np.ndarray, n: int, protected: Iterable[int], capacity: int, coverage: float) -> Selection:
    """Complete the protected blocks to a core.

    Args:
        padded: block vectors `[bucket(n), d]`, unit rows or zero.
        n: number of blocks.
        protected: indices that are in the core whatever geometry says.
        capacity: K.
        coverage: tau.
    """
    rows = padded.shape[0]
    seeds = np.zeros(rows, bool)
    seeds[list(protected)] = True
    valid = np.arange(rows) < n
    # One rank bound for all usual numbers of protected blocks, so that it is not one more thing to compile for.
    rank = min(bucket(max(capacity, int(seeds.sum()))), rows)
    out = _kernel()(
        padded,
        seeds,
        valid,
        valid,
        np.int32(capacity),
        np.float32(coverage),
        max_rank=rank,
    )
    return Selection(np.asarray(out.selected)[:n], np.asarray(out.residual)[:n], float(out.coverage))


def removable(
    blocks: Sequence[Block], core: np.ndarray, residual: np.ndarray, chars: int, delta: float
) -> tuple[frozenset[int], int]:
    """The blocks that the deletion guard lets go (Eq. 8, Algorithm 1 lines 14-19).

    Visits the blocks outside the core, longest first, ties by smaller residual, then older; each goes if what is left
    still holds `(1 - delta)` of the request's characters. `delta` = 0 removes nothing.

    Args:
        blocks: all complete blocks.
        core: bool `[n]`.
        residual: `[n]`.
        chars: characters of the whole request.
        delta: largest share of them that may go.

    Returns: indices of the removed blocks, and the characters they take with them.
    """
    sizes = np.array([footprint(b) for b in blocks], np.int64)
    candidates = np.flatnonzero(~core)
    order = candidates[np.lexsort((candidates, residual[candidates], -sizes[candidates]))]
    budget = delta * chars
    removed: list[int] = []
    gone = 0
    for index, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if gone + size <= budget:
            removed.append(index)
            gone += size
    return frozenset(removed), gone


def footprint(block: Block) -> int:
    """Characters by which the request shrinks without the block: its messages, and a comma for each."""
    return block.chars + len(block.messages)

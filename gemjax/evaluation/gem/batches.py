"""Checkpoints in padded batches: a few shapes, so that a few compiled programs serve every data set."""

import dataclasses
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from gemjax.evaluation.gem.checkpoints import Checkpoints
from gemjax.history.vectors import bucket

TOGETHER = 16
"""Checkpoints of one trajectory that share a matrix."""
SLAB = 8
"""Matrices of one call."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Up to `SLAB * TOGETHER` checkpoints: `B` matrices of `N` rows with `C` checkpoints each.

    Attributes:
        x: `[B, N, d]`, unit or zero rows.
        n: blocks of each checkpoint's history, `[B, C]`; 0 for padding.
        action, latest, goal, final: `[B, C, d]`.
        seed: a number of each checkpoint's own, `[B, C]`, whatever batch it is in.
        places: where the checkpoint stands in the flat order, `[B, C]`; -1 for padding.
        parts: (trajectory, first checkpoint, last + 1) of each matrix.
    """

    x: np.ndarray
    n: np.ndarray
    action: np.ndarray
    latest: np.ndarray
    goal: np.ndarray
    final: np.ndarray
    seed: np.ndarray
    places: np.ndarray
    parts: tuple[tuple[int, int, int], ...]

    def spread(self, values: Sequence[np.ndarray], fill: int | float | bool = 0) -> np.ndarray:
        """One value a checkpoint (`[c]` for each trajectory) as `[B, C]`."""
        out = np.full(self.n.shape, fill, np.asarray(values[self.parts[0][0]]).dtype)
        for row, (t, start, stop) in zip(out, self.parts, strict=False):
            row[: stop - start] = values[t][start:stop]
        return out

    def masks(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """One mask a checkpoint (bool `[c, n]` for each trajectory) as `[B, C, N]`."""
        out = np.zeros((*self.n.shape, self.x.shape[1]), bool)
        for row, (t, start, stop) in zip(out, self.parts, strict=False):
            wide = min(values[t].shape[1], out.shape[2])
            row[: stop - start, :wide] = values[t][start:stop, :wide]
        return out


def batches(trajectories: Sequence[Checkpoints]) -> Iterator[Batch]:
    """All checkpoints, those of histories of similar length together."""
    firsts = np.cumsum([0, *(len(t.counts) for t in trajectories)])
    by_rows: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for index, t in enumerate(trajectories):
        for start in range(0, len(t.counts), TOGETHER):
            stop = min(start + TOGETHER, len(t.counts))
            by_rows[bucket(int(t.counts[start:stop].max()))].append((index, start, stop))
    for rows, parts in sorted(by_rows.items()):
        for at in range(0, len(parts), SLAB):
            yield _batch(trajectories, firsts, rows, tuple(parts[at : at + SLAB]))


def _batch(
    trajectories: Sequence[Checkpoints], firsts: np.ndarray, rows: int, parts: tuple[tuple[int, int, int], ...]
) -> Batch:
    d = trajectories[0].vectors.shape[1]
    x = np.zeros((SLAB, rows, d), np.float32)
    n = np.zeros((SLAB, TOGETHER), np.int32)
    seed = np.zeros((SLAB, TOGETHER), np.uint32)
    places = np.full((SLAB, TOGETHER), -1)
    queries = {name: np.zeros((SLAB, TOGETHER, d), np.float32) for name in ("action", "latest", "goal", "final")}
    for b, (index, start, stop) in enumerate(parts):
        t = trajectories[index]
        held = min(len(t.vectors), rows)
        x[b, :held] = t.vectors[:held]
        here = slice(0, stop - start)
        n[b, here] = t.counts[start:stop]
        for name in ("action", "latest", "goal"):
            queries[name][b, here] = getattr(t, name)[start:stop]
        queries["final"][b, here] = t.final
        seed[b, here] = zlib.crc32(t.id.encode("utf-8", "surrogatepass")) + t.counts[start:stop].astype(np.uint32)
        places[b, here] = firsts[index] + np.arange(start, stop)
    return Batch(x, n, **queries, seed=seed, places=places, parts=parts)

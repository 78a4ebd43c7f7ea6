"""Search retrieval settings with cross-validation over conversations: what a tuned preset is worth on unseen ones."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemjax.errors import ConfigError
from gemjax.evaluation.locomo import MEASURES, Talk, outcomes
from gemjax.evaluation.rankings import Corpus, bank_method
from gemjax.memory import MemoryConfig

OBJECTIVE = ("hit@1", "hit@5", "hit@10", "recall@10")
"""Mean of these decides: Hit@10 alone moves by single questions, and the best of many settings is then luck."""


def default_grid() -> list[MemoryConfig]:
    """Covariance models, ridges, energies and weights around and far from the paper's."""
    grid = [MemoryConfig(alpha=1.0), MemoryConfig.paper()]
    for model, ridge, energy, alpha in itertools.product(
        ("paper", "isotropic"), (0.5, 1.0, 2.0, 5.0, 10.0), (0.8, 0.95, 1.0), (0.0, 0.3, 0.5, 0.7)
    ):
        grid.append(MemoryConfig(model=model, ridge=ridge, energy=energy, alpha=alpha))
    return grid


def cross_validate(
    conversations: Sequence[Talk],
    corpora: Sequence[Corpus],
    grid: Sequence[MemoryConfig] | None = None,
    *,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Leave one conversation out, choose the best settings on the others, score them on it.

    Returns: `best` (settings chosen on all conversations), `in_sample` (their measures there: optimistic), `held_out`
    (measures of the fold's own choices on conversations that had no part in them: what to expect), `folds`, and
    `grid` (every setting with its measures). Measures are over the questions that carry an answer, cleaned evidence.

    Raises: ConfigError with fewer than two conversations that have such questions.
    """
    grid = default_grid() if grid is None else list(grid)
    table = []
    for number, config in enumerate(grid):
        if progress:
            progress(f"setting {number + 1} of {len(grid)}")
        method = bank_method(config)
        table.append([_sums(c, method(corpus, 50)) for c, corpus in zip(conversations, corpora, strict=True)])
    sums = np.array([[s for s, _ in row] for row in table])  # [settings, conversations, measures]
    counts = np.array([n for _, n in table[0]], np.float64)
    if np.sum(counts > 0) < 2:
        raise ConfigError("cross-validation needs at least two conversations with answered questions")
    columns = [MEASURES.index(name) for name in OBJECTIVE]

    def means(chosen: np.ndarray) -> np.ndarray:
        return np.asarray(sums[:, chosen].sum(1) / counts[chosen].sum())

    folds, held_out = [], np.zeros(len(MEASURES))
    for i, conversation in enumerate(conversations):
        if not counts[i]:
            continue
        others = np.arange(len(conversations)) != i
        best = int(np.argmax(means(others)[:, columns].mean(1)))
        held_out += sums[best, i]
        folds.append({"left_out": conversation.id, "chosen": _about(grid[best]), **_named(sums[best, i] / counts[i])})
    everything = means(np.ones(len(conversations), bool))
    best = int(np.argmax(everything[:, columns].mean(1)))
    return {
        "n": int(counts.sum()),
        "best": _about(grid[best]),
        "in_sample": _named(everything[best]),
        "held_out": _named(held_out / counts.sum()),
        "folds": folds,
        "grid": [{"settings": _about(c), **_named(m)} for c, m in zip(grid, everything, strict=True)],
    }


def _sums(conversation: Talk, ranking: np.ndarray) -> tuple[np.ndarray, int]:
    rows = outcomes(conversation, ranking)
    keep = ~np.isnan(rows[:, 0]) & np.array([q.answered for q in conversation.questions], bool)
    return rows[keep].sum(0), int(keep.sum())


def _named(values: np.ndarray) -> dict[str, float]:
    return {name: float(v) for name, v in zip(MEASURES, values, strict=True) if not math.isnan(v)}


def _about(config: MemoryConfig) -> dict[str, Any]:
    full = dataclasses.asdict(config)
    return {key: full[key] for key in ("model", "ridge", "energy", "alpha", "form")}

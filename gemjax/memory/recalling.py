"""What is made of hits: those that fit a budget of tokens, and those that a reranker puts first."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from gemjax.encoders.cross import Reranker
from gemjax.errors import MemoryBankError
from gemjax.memory.hits import Hit
from gemjax.memory.record import Id


def estimated_tokens(text: str) -> int:
    """UTF-8 bytes / 4, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


def within(hits: Sequence[Hit], budget: int, count: Callable[[str], int]) -> list[Hit]:
    """The hits in order, but for those that do not fit any more."""
    kept = []
    for hit in hits:
        tokens = count(hit.text)
        if tokens <= budget:
            budget -= tokens
            kept.append(hit)
    return kept


def reranked(query: str, hits: Sequence[Hit], reranker: Reranker, k: int, least: float | None) -> list[Hit]:
    """The hits, each once, in the order of the reranker's scores; ties as they came. At most `k`."""
    once: dict[Id, Hit] = {}
    for hit in hits:
        once.setdefault(hit.id, hit)
    own = list(once.values())
    if not own:
        return []
    scores = np.asarray(reranker.scores(query, [hit.text for hit in own]), np.float64)
    if scores.shape != (len(own),) or not np.isfinite(scores).all():
        raise MemoryBankError(f"{reranker.name} gave no finite score for each of {len(own)} texts")
    order = [i for i in np.argsort(-scores, kind="stable") if least is None or scores[i] >= least][:k]
    found = []
    for rank, i in enumerate(order, 1):
        note = "; ".join(part for part in (own[i].note, f"ranked by {reranker.name}") if part)
        found.append(dataclasses.replace(own[i], score=float(scores[i]), rank=rank, note=note))
    return found

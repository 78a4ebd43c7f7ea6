"""Hits that fit a budget of tokens."""

from collections.abc import Callable, Sequence

from gemjax.memory.hits import Hit


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

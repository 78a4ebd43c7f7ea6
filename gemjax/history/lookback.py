"""How far back a provider looks for a cached prefix: from each mark, so many content blocks, and no further."""

from collections.abc import Collection, Sequence
from typing import Any

from gemjax.history.blocks import Parsed
from gemjax.history.formats.marks import count_marks
from gemjax.history.selector import footprint

LOOKBACK = 20
"""Content blocks before a `cache_control` mark, itself included, at which a cached prefix is found (Anthropic)."""


def out_of_reach(request: Any, parsed: Parsed, dropped: Collection[int], first: int) -> int:
    """Characters that stay as they were and are read anew all the same, because no mark is near the first change.

    A request that only grows has the mark of the request before within reach of its own. After a rewrite what is
    cached ends where the first change is, perhaps far from every mark; then only what an earlier mark covers is found.

    Args:
        request: what came in.
        parsed: what was read of it.
        dropped: indices of the blocks that would not go out.
        first: index of the first message that would differ from what went out before.

    Returns: 0 where nothing is marked: there the provider finds every prefix by itself.
    """
    gone = {m for i in dropped for m in parsed.blocks[i].messages}
    marked = [i for i, record in enumerate(parsed.records) if record.marks and i not in gone]
    if isinstance(request, dict) and isinstance(request.get("cache_control"), dict):
        marked.append(len(parsed.records) - 1)  # the provider marks the end by itself
    if not marked or first == 0:
        return 0
    later = [i for i in marked if i >= first]
    if later and sum(_parts(parsed.messages[i]) for i in range(first, min(later) + 1) if i not in gone) < LOOKBACK:
        return 0
    found = max((i + 1 for i in marked if i < first), default=0)
    lost = sum(parsed.records[i].chars + 1 for i in range(found, first)) - sum(
        footprint(parsed.blocks[i]) for i in dropped if found <= parsed.blocks[i].messages[0] < first
    )
    if not found and not _frame_marked(request):
        lost += parsed.chars - sum([r.chars + 1 for r in parsed.records])
    return max(lost, 0)


def _frame_marked(request: Any) -> bool:
    return isinstance(request, dict) and any(
        count_marks(list(value)) if isinstance(value := request.get(name), list | tuple) else 0
        for name in ("system", "tools")
    )


def _parts(message: Any) -> int:
    content = message.get("content") if isinstance(message, dict) else getattr(message, "content", None)
    return len(content) if isinstance(content, Sequence) and not isinstance(content, str) else 1

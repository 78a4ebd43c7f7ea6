"""The request without the dropped blocks: the caller's own messages, validated again."""

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

from gemjax.history.blocks import Parsed, may_be_on_the_server
from gemjax.history.reading import History


@dataclasses.dataclass(frozen=True, slots=True)
class Rebuilt:
    """What would go out: the request, and why it may not (`trouble`, empty if it may)."""

    request: Any
    trouble: str = ""


def rebuild(history: History, dropped: frozenset[int]) -> Rebuilt:
    """Leave `dropped` out of the request; the very request if there is nothing to leave out."""
    request, parsed = history.request, history.parsed
    if not dropped:
        return Rebuilt(request)
    kept = kept_messages(parsed, dropped)
    exchanges, problems = parsed.format.exchanges([parsed.records[i].view for i in kept])
    errors = [p for p in problems if p.severity == "error" and not may_be_on_the_server(p, request, parsed.format)]
    if errors:
        return Rebuilt(request, f"what was rebuilt is invalid: {errors[0]}")
    if sum(e.removable for e in exchanges) != len(parsed.blocks) - len(dropped):
        return Rebuilt(request, "what was rebuilt has other blocks than were kept")
    messages = [parsed.messages[i] for i in kept]
    if isinstance(request, list):
        return Rebuilt(messages)
    rebuilt = copy.copy(request)
    rebuilt[parsed.format.key] = messages
    return Rebuilt(rebuilt)


def kept_messages(parsed: Parsed, dropped: Iterable[int]) -> list[int]:
    """Indices of the messages that stay when the blocks `dropped` go."""
    out = {m for i in dropped for m in parsed.blocks[i].messages}
    return [i for i in range(len(parsed.messages)) if i not in out]

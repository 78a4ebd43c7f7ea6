"""The request without the dropped blocks: the caller's own messages, validated again.

The one exception is thinking that has to be left out: such a message goes out as a copy without it.
"""

import copy
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gemjax.history.binding import Outgoing, stripped_chars
from gemjax.history.blocks import Parsed, may_be_on_the_server
from gemjax.history.formats import Exchange
from gemjax.history.reading import History
from gemjax.history.thinking import without_thinking


@dataclasses.dataclass(frozen=True, slots=True)
class Rebuilt:
    """What would go out.

    Attributes:
        request: the request.
        trouble: why it may not go out; empty if it may.
        stripped: the messages of the original that stay without their thinking, with the characters of it.
    """

    request: Any
    trouble: str = ""
    stripped: Mapping[int, int] = dataclasses.field(default_factory=dict)


def rebuild(history: History, out: Outgoing) -> Rebuilt:
    """Leave what `out` says out of the request; the very request if there is nothing to leave out."""
    request, parsed, dropped = history.request, history.parsed, out.dropped
    stripped = stripped_chars(history, out)
    if not dropped and not stripped:
        return Rebuilt(request)
    kept = kept_messages(parsed, dropped)
    exchanges, problems = parsed.format.exchanges([parsed.records[i].view for i in kept])
    errors = [p for p in problems if p.severity == "error" and not may_be_on_the_server(p, request, parsed.format)]
    if errors:
        return Rebuilt(request, f"what was rebuilt is invalid: {errors[0]}")
    if not _whole(parsed, dropped, kept, exchanges):
        return Rebuilt(request, "what was rebuilt has other blocks than were kept")
    messages = [without_thinking(parsed.messages[i]) if i in stripped else parsed.messages[i] for i in kept]
    if isinstance(request, list):
        return Rebuilt(messages, stripped=stripped)
    rebuilt = copy.copy(request)
    rebuilt[parsed.format.key] = messages
    return Rebuilt(rebuilt, stripped=stripped)


def _whole(parsed: Parsed, dropped: frozenset[int], kept: Sequence[int], exchanges: Sequence[Exchange]) -> bool:
    """Whether every block that stays is read as part of one complete exchange.

    It may be part of a larger one: without a response in between, a run of calls that has no reasoning of its own can
    be taken to belong to the reasoning before that.
    """
    owner = {kept[i]: number for number, e in enumerate(exchanges) if e.complete for i in e.members}
    stay = [block for block in parsed.blocks if block.index not in dropped]
    return all(len({owner.get(m, -1 - m) for m in block.messages}) == 1 for block in stay)


def kept_messages(parsed: Parsed, dropped: Iterable[int]) -> list[int]:
    """Indices of the messages that stay when the blocks `dropped` go."""
    out = {m for i in dropped for m in parsed.blocks[i].messages}
    return [i for i in range(len(parsed.messages)) if i not in out]

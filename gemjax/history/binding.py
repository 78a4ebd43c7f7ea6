"""What a change of the forwarded set means for signed thinking, and what goes out instead where it may not change."""

import dataclasses
from collections.abc import Sequence
from functools import cached_property

from gemjax.history.config import GEMConfig
from gemjax.history.reading import History
from gemjax.history.thinking import Treatment, thinking_chars, treatment


@dataclasses.dataclass(frozen=True, slots=True)
class Outgoing:
    """What goes out of a history.

    Attributes:
        dropped: the blocks that do not.
        stripped: the thinking of so many messages, from the first, does not.
        held: why the set could not change, if it could not.
        lost: thinking left out now, or lost at the provider, in characters.
        first: index of the first message that changes, if one does.
    """

    dropped: frozenset[int]
    stripped: int
    held: str = ""
    lost: int = 0
    first: int | None = None


@dataclasses.dataclass(frozen=True)
class Binding:
    """The signed thinking of one history."""

    history: History
    config: GEMConfig

    @cached_property
    def signed(self) -> Sequence[int]:
        """Messages whose signed thinking has not been left out before."""
        records, start = self.history.parsed.records, self.history.previous.stripped
        return [i for i in range(start, len(records)) if records[i].signed]

    @cached_property
    def treatment(self) -> Treatment:
        """What a rewrite has to do about it."""
        parsed = self.history.parsed
        return treatment(self.config.bound_thinking, self.history.request, parsed.format, parsed.messages)

    def outgoing(self, dropped: frozenset[int]) -> Outgoing:
        """What goes out if `dropped` is to be left out: thinking behind the first change is bound to what was there."""
        history, previous = self.history, self.history.previous
        blocks = history.parsed.blocks
        changed = [i for i in dropped ^ previous.dropped if i < len(blocks)]
        starts = [blocks[min(changed)].messages[0]] if changed else []
        first = min(starts, default=None)
        gone = {m for i in dropped for m in blocks[i].messages}
        kept = [i for i in self.signed if i not in gone]
        edge = min([*starts, *([] if history.disturbed is None else [history.disturbed])], default=None)
        behind = [] if edge is None else [i for i in kept if i >= edge]
        mode = self.treatment.mode if behind else "ignore"
        if mode == "hold" and changed:
            # What was dropped before stays so; nothing else may go, and nothing may come back.
            return dataclasses.replace(self.saved(), held=self.treatment.why)
        if mode == "drop_block":
            return Outgoing(dropped, previous.stripped, lost=self._chars(behind), first=first)
        if mode == "strip":
            spare = len(history.parsed.messages) if self.treatment.spare is None else self.treatment.spare
            out = [i for i in self.signed if i < spare]
            left = [i for i in kept if i < spare]
            first = min([*starts, *left], default=None)
            return Outgoing(dropped, max(out, default=-1) + 1, lost=self._chars(left), first=first)
        return Outgoing(dropped, previous.stripped, first=first)

    def saved(self) -> Outgoing:
        """What was left out before stays out; the block that the model is about to answer never does."""
        previous = self.history.previous
        return Outgoing(previous.dropped - {self.history.parsed.last_block}, previous.stripped)

    @cached_property
    def original_may_go(self) -> bool:
        """Whether the request may go out as it came, although something had been left out of it before."""
        out = self.outgoing(frozenset())
        return not out.stripped and not out.held

    def _chars(self, indices: Sequence[int]) -> int:
        parsed = self.history.parsed
        return sum(thinking_chars(parsed.messages[i], parsed.records[i].chars) for i in indices)


def stripped_chars(history: History, out: Outgoing) -> dict[int, int]:
    """The messages that go out without their thinking, with the characters of it."""
    parsed = history.parsed
    gone = {m for i in out.dropped for m in parsed.blocks[i].messages}
    chars = {
        i: thinking_chars(parsed.messages[i], parsed.records[i].chars) for i in range(out.stripped) if i not in gone
    }
    return {i: size for i, size in chars.items() if size}

"""A recorded run of an agent, and the requests that the agent sent while it ran."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from gemjax.history.blocks import Parsed, parse
from gemjax.history.formats import Format, format_named
from gemjax.history.records import Block, BlockContent


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One conversation of one agent, in the wire format in which the agent talked to its model.

    Attributes:
        id: the file's name, made unique among what was loaded together.
        format: `chat`, `responses` or `anthropic`.
        request_template: what a request carries beside its messages (system prompt, tools, model ...), if recorded.
        messages: the whole conversation; each request is a prefix of this list, of the same objects.
        goal: the task as the recording states it, or None.
        source: the file it was read from.
        notes: what the reader had to decide, one line each.
        times: when each message was recorded, in seconds since the epoch, None where it is not known; empty for a
            recording without times. As recorded: they may stand still or go back.
        pending: the recording is a request body without its answer, so the whole list is a request as well.
    """

    id: str
    format: str
    request_template: dict[str, Any]
    messages: list[dict[str, Any]]
    goal: str | None
    source: str
    notes: tuple[str, ...] = ()
    pending: bool = False
    times: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if self.times and len(self.times) != len(self.messages):
            raise ValueError(f"times must be one a message, got {len(self.times)} for {len(self.messages)} messages")

    @property
    def wire(self) -> Format:
        """The format's rules."""
        return format_named(self.format)

    def request(self, count: int | None = None) -> dict[str, Any]:
        """The request that carries the first `count` messages (all of them without it)."""
        return {**self.request_template, self.wire.key: self.messages[:count]}

    @cached_property
    def parsed(self) -> Parsed:
        """The whole conversation read once: its blocks, and what is wrong with it as recorded."""
        return parse(self.request(), self.format)


@dataclasses.dataclass(frozen=True)
class RecordedTurn:
    """One moment at which the agent asked its model: after `count` messages, before the turn that came next.

    `blocks` are the complete removable blocks of the history that far. `next` is what the model did then (no results);
    None if it called no tool, or if the recording ends here. `time` is when the request went out, as far as that is
    known: the recorded time of its last message that has one, in seconds since the epoch.
    """

    index: int
    count: int
    request: dict[str, Any]
    messages: list[dict[str, Any]]
    blocks: list[Block]
    next: BlockContent | None
    time: float | None = None


def requests(trajectory: Trajectory) -> Iterator[RecordedTurn]:
    """The successive requests of a recorded agent, oldest first: one before each turn of the model.

    A turn is an assistant message (chat, Anthropic) or an unbroken run of items that the model wrote (Responses).
    Messages are the recording's own objects, so a request differs from the one before it by appended messages only.
    """
    wire, messages = trajectory.wire, trajectory.messages
    written = [wire.view(m).model for m in messages]
    runs = trajectory.format == "responses"
    all_blocks = trajectory.parsed.blocks
    known = 0
    index = 0
    times = _running(trajectory.times)
    for count, by_model in enumerate(written):
        if not by_model or count == 0 or (runs and written[count - 1]):
            continue
        while known < len(all_blocks) and all_blocks[known].messages[-1] < count:
            known += 1
        stop = count + 1
        while runs and stop < len(messages) and written[stop]:
            stop += 1
        request = trajectory.request(count)
        following = _action(trajectory, messages[count:stop])
        yield RecordedTurn(index, count, request, request[wire.key], all_blocks[:known], following, times.get(count))
        index += 1
    if trajectory.pending and messages and not written[-1]:
        request = trajectory.request()
        yield RecordedTurn(index, len(messages), request, request[wire.key], all_blocks, None, times.get(len(messages)))


def _running(times: Sequence[float | None]) -> dict[int, float]:
    """After how many messages it was how late: the last time known by then."""
    out: dict[int, float] = {}
    last: float | None = None
    for count, time in enumerate(times, 1):
        last = last if time is None else time
        if last is not None:
            out[count] = last
    return out


def _action(trajectory: Trajectory, turn: list[dict[str, Any]]) -> BlockContent | None:
    content = parse({trajectory.wire.key: turn}, trajectory.format).latest
    return content if content is not None and content.calls else None

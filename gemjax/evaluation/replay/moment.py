"""What a forwarding method may look at when it decides what to send."""

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from gemjax.evaluation.replay.trajectory import Trajectory, Turn
from gemjax.history.records import Block


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """What the cost-aware compressor did with the same request: the blocks it forwarded, and whether it reselected."""

    forwarded: frozenset[int]
    event: bool


@dataclasses.dataclass(frozen=True)
class Moment:
    """One request of one trajectory, before a method has cut it down.

    Attributes:
        turn: the request as the agent would have sent it, and the complete blocks in it.
        reference: for baselines that match the count or the schedule of the cost-aware compressor.
        size: characters of a request with these messages.
        vectors: unit rows of the blocks' selection texts, `[n, d]`; computed once a trajectory.
        encode: unit rows of other texts, cached.
    """

    trajectory: Trajectory
    turn: Turn
    reference: Reference
    size: Callable[[Sequence[Any]], int]
    vectors: Callable[[], np.ndarray]
    encode: Callable[[list[str]], np.ndarray]

    @property
    def blocks(self) -> list[Block]:
        return self.turn.blocks

    def without(self, dropped: Collection[int]) -> list[dict[str, Any]]:
        """The request's messages but those of these blocks (indices)."""
        gone = {m for b in dropped for m in self.blocks[b].messages}
        return [message for m, message in enumerate(self.turn.messages) if m not in gone]

    def similarity_to_latest_action(self) -> np.ndarray:
        """Cosine of each block with the ACTION of the last block, `[n]`."""
        action = self.encode([self.blocks[-1].content.action_text])[0]
        return np.asarray(self.vectors() @ action)


class Method(Protocol):
    """Something that decides what to forward. One object serves one trajectory after another."""

    name: str

    def begin(self, trajectory: Trajectory) -> None:
        """A new trajectory starts: forget the one before."""
        ...

    def forward(self, moment: Moment) -> list[dict[str, Any]]:
        """The messages to send: the request's own objects where they are unchanged, copies where they are not."""
        ...

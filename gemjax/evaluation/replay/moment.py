"""What a forwarding method may look at when it decides what to send."""

import abc
import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from gemjax.errors import ConfigError
from gemjax.evaluation.replay.trajectory import RecordedTurn, Trajectory
from gemjax.history.compressor import HistoryCompressor
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
    turn: RecordedTurn
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


class Method(abc.ABC):
    """Something that decides what to forward. One object serves one trajectory after another.

    Only `forward` has to be written. The other hooks are for methods that encode by themselves, keep state, make
    promises that can be checked, or can bring back what they dropped.
    """

    name: str
    follows_reference: bool = False
    """Whether it looks at `Moment.reference`: somebody has to run the reference for it."""
    recalls: bool = False
    """Whether what it drops can be asked back: `archive` gives the one to ask."""
    protected_kept: float = 1.0
    """Smallest share of the protected blocks that it forwarded so far; 1 where it knows no protection."""

    def prepare(self, encoder: Any, *, use_goal: bool = False) -> None:  # noqa: B027 - a hook, not a duty
        """What the next trajectory may be served with: an encoder whose use is metered, and the recording's goal."""

    def begin(self, trajectory: Trajectory) -> None:  # noqa: B027 - a hook, not a duty
        """A new trajectory starts: forget the one before."""

    @abc.abstractmethod
    def forward(self, moment: Moment) -> list[dict[str, Any]]:
        """The messages to send: the request's own objects where they are unchanged, copies where they are not."""

    def core_share(self, moment: Moment) -> float | None:
        """Share of the blocks that the latest request's core holds; None without a core."""
        return None

    def broken(self, valid: bool) -> list[str]:
        """What the method promises and did not keep at the latest request, one line each.

        Args:
            valid: whether the provider accepts the full request.
        """
        return []

    def reference(self, moment: Moment) -> Reference:
        """What it did with the latest request, for baselines that follow its count and schedule."""
        return Reference(frozenset(range(len(moment.blocks))), False)

    def archive(self) -> HistoryCompressor:
        """Who can bring back what was dropped on the present trajectory.

        Raises:
            ConfigError: nobody can (`recalls` is False).
        """
        raise ConfigError(f"{self.name!r} keeps nothing of what it drops")

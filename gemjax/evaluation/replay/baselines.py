"""What people do instead: nothing, the last N blocks, cleared tool results; and two selectors at a matched count."""

import dataclasses
from typing import Any

import numpy as np

from gemjax.errors import ConfigError
from gemjax.evaluation.replay.moment import Method, Moment
from gemjax.evaluation.replay.trajectory import Trajectory

Message = dict[str, Any]


@dataclasses.dataclass
class SendEverything(Method):
    """The bill without any of this: 1.0 in every ratio."""

    name: str = "none"

    def forward(self, moment: Moment) -> list[Message]:
        return moment.turn.messages


@dataclasses.dataclass
class KeepLast(Method):
    """A sliding window over complete blocks; everything that is no block stays, so the request stays valid."""

    blocks: int = 16

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise ConfigError(f"blocks must be positive, got {self.blocks!r}")
        self.name = f"keep-last-{self.blocks}"

    def forward(self, moment: Moment) -> list[Message]:
        return moment.without(range(len(moment.blocks) - self.blocks))


@dataclasses.dataclass
class ClearToolResults(Method):
    """Replace old tool results by a placeholder when the request gets long; the calls stay.

    Follows the tool-result clearing that providers offer: nothing below `trigger`, then every result but the latest
    `keep`, if that frees at least `clear_at_least`. What was cleared stays cleared; the next clearing happens when what
    is sent, with the placeholders, has grown beyond `trigger` again.

    Args:
        trigger: characters of the request. Providers' own default is 100,000 tokens, which few recorded runs reach.
        keep: latest results that are never cleared.
        clear_at_least: characters that a clearing has to free to be worth a cache miss. Providers' default is 0, with
            which a long run is rewritten at almost every request; this is the method as one uses it who knows that.
        placeholder: what stands in a cleared result.
    """

    trigger: int = 40_000
    keep: int = 3
    clear_at_least: int = 10_000
    placeholder: str = "[Old tool result content cleared]"
    name: str = "clear-tool-results"

    def begin(self, trajectory: Trajectory) -> None:
        self._cleared: frozenset[tuple[int, int]] = frozenset()
        self._copies: dict[int, tuple[frozenset[int], Message]] = {}

    def forward(self, moment: Moment) -> list[Message]:
        format_, messages = moment.trajectory.format, moment.turn.messages
        sent = self._render(messages, format_, self._cleared)
        size = moment.size(sent)
        if size <= self.trigger:
            return sent
        places = [(m, p) for m, message in enumerate(messages) for p in _result_places(message, format_)]
        candidates = frozenset(places[: max(len(places) - self.keep, 0)])
        if candidates == self._cleared:
            return sent
        shorter = self._render(messages, format_, candidates)
        if size - moment.size(shorter) < self.clear_at_least:
            return sent
        self._cleared = candidates
        return shorter

    def _render(self, messages: list[Message], format_: str, cleared: frozenset[tuple[int, int]]) -> list[Message]:
        parts: dict[int, set[int]] = {}
        for m, p in cleared:
            parts.setdefault(m, set()).add(p)
        return [
            self._copy(m, message, format_, parts[m]) if m in parts else message for m, message in enumerate(messages)
        ]

    def _copy(self, index: int, message: Message, format_: str, places: set[int]) -> Message:
        # The same object while the same results are cleared, so that the account measures each copy once.
        key = frozenset(places)
        known = self._copies.get(index)
        if known is None or known[0] != key:
            known = (key, _cleared_copy(message, format_, key, self.placeholder))
            self._copies[index] = known
        return known[1]


@dataclasses.dataclass
class RandomBlocks(Method):
    """As many blocks as the cost-aware compressor forwards, redrawn when it reselects: its schedule without its choice.

    The last block always stays; the model is about to answer it.
    """

    seed: int = 0
    name: str = "random"
    follows_reference = True

    def begin(self, trajectory: Trajectory) -> None:
        self._rng = np.random.default_rng([self.seed, len(trajectory.messages)])
        self._dropped: set[int] = set()

    def forward(self, moment: Moment) -> list[Message]:
        if moment.reference.event:
            older = len(moment.blocks) - 1
            gone = len(moment.blocks) - max(len(moment.reference.forwarded), 1)
            self._dropped = {int(b) for b in self._rng.permutation(older)[:gone]}
        return moment.without(self._dropped)


@dataclasses.dataclass
class LatestAction(Method):
    """The blocks most similar to the latest action, as many as the cost-aware compressor forwards.

    `hold=False` chooses anew for each request, as retrieval over a history does; `hold=True` chooses when the
    cost-aware compressor reselects, and otherwise only appends, so that the two differ in the choice alone.
    """

    hold: bool = False
    follows_reference = True

    def __post_init__(self) -> None:
        self.name = "latest-action-held" if self.hold else "latest-action"

    def begin(self, trajectory: Trajectory) -> None:
        self._dropped: set[int] = set()

    def forward(self, moment: Moment) -> list[Message]:
        count = len(moment.blocks)
        gone = count - max(len(moment.reference.forwarded), 1)
        if moment.reference.event or not self.hold:
            self._dropped = set()
            if gone > 0:
                similarity = moment.similarity_to_latest_action()[:-1]
                # Ascending and stable: of equally similar blocks the older one goes.
                self._dropped = {int(b) for b in np.argsort(similarity, kind="stable")[:gone]}
        return moment.without(self._dropped)


def _result_places(message: Message, format_: str) -> list[int]:
    """Where the tool results of a message stand: positions in its content (Anthropic), or [0] if it is one itself."""
    if format_ == "anthropic":
        content = message.get("content")
        if message.get("role") != "user" or not isinstance(content, list):
            return []
        return [p for p, part in enumerate(content) if isinstance(part, dict) and part.get("type") == "tool_result"]
    if format_ == "responses":
        return [0] if str(message.get("type")).endswith("_output") else []
    return [0] if message.get("role") in ("tool", "function") else []


def _cleared_copy(message: Message, format_: str, places: frozenset[int], placeholder: str) -> Message:
    if format_ == "anthropic":
        parts = [{**part, "content": placeholder} if p in places else part for p, part in enumerate(message["content"])]
        return {**message, "content": parts}
    return {**message, ("output" if format_ == "responses" else "content"): placeholder}

"""The compressor as a replayed method, with every promise it makes checked at each request."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemjax.errors import GemjaxError
from gemjax.evaluation.replay.moment import Method, Moment, Reference
from gemjax.evaluation.replay.tokens import TokenCounter
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.history.compressor import HistoryCompressor
from gemjax.history.config import GEMConfig
from gemjax.history.prefixes import SignedPrefixes
from gemjax.history.result import CompressionResult
from gemjax.history.thinking import without_thinking


class BrokenPromise(GemjaxError, AssertionError):
    """A forwarded request violates an invariant of GEM (A.3). Always a defect of gemjax, never of the recording."""


class MeteredEncoder:
    """Passes texts on to an encoder that several methods share, and counts what one method alone would have encoded.

    A text counts once a trajectory, since each method would have a cache of its own.
    """

    def __init__(self, encoder: Any, counter: TokenCounter, known: dict[str, int]) -> None:
        self.name: str = encoder.name
        self.texts = 0
        self.chars = 0
        self.tokens = 0
        self.seconds = 0.0
        self._encoder = encoder
        self._counter = counter
        # Shared with the other methods' meters, so that each text is tokenised once.
        self._known = known
        self._seen: set[str] = set()

    @property
    def dim(self) -> int:
        """Length of a vector; asked for only when needed, since it may cost a call."""
        return int(self._encoder.dim)

    def encode(self, texts: list[str]) -> np.ndarray:
        self.charge(texts)
        start = time.perf_counter()
        rows = np.asarray(self._encoder.encode(texts))
        self.seconds += time.perf_counter() - start
        return rows

    def charge(self, texts: list[str]) -> None:
        """Count texts whose vectors came from elsewhere."""
        mine = [t for t in dict.fromkeys(texts) if t not in self._seen]
        if not mine:
            return
        self._seen.update(mine)
        new = [t for t in mine if t not in self._known]
        if new:
            self._known.update(zip(new, self._counter.count(new), strict=True))
        self.texts += len(mine)
        self.chars += sum(map(len, mine))
        self.tokens += sum(self._known[t] for t in mine)


class Compressed(Method):
    """One policy of `HistoryCompressor`. A new compressor for each trajectory, so that none knows another's blocks."""

    recalls = True

    def __init__(self, name: str, config: GEMConfig) -> None:
        self.name = name
        self.config = dataclasses.replace(config, encoder_timeout=None, encoder_wait=None, deadline=None)
        self.result: CompressionResult | None = None
        self.protected_kept = 1.0
        self._encoder: Any = None
        self._use_goal = False
        self._broken: list[str] = []
        self._prefixes = SignedPrefixes()

    def prepare(self, encoder: Any, *, use_goal: bool = False) -> None:
        self._encoder, self._use_goal = encoder, use_goal

    def begin(self, trajectory: Trajectory) -> None:
        self._gem = HistoryCompressor(self._encoder, self.config)
        self._goal = trajectory.goal if self._use_goal else None
        self._dropped: frozenset[int] = frozenset()
        self._blocks = 0
        self._now = 0.0
        self._prefixes = SignedPrefixes()
        self.result = None
        self._broken = []
        self.protected_kept = 1.0

    def archive(self) -> HistoryCompressor:
        """The compressor of the present trajectory, whose conversation is the default session."""
        return self._gem

    def forward(self, moment: Moment) -> list[dict[str, Any]]:
        turn = moment.turn
        # Without a recorded time no time passes: the clock of the machine that replays says nothing.
        self._now = self._now if turn.time is None else turn.time
        result = self._gem.compress(turn.request, self._goal, format=moment.trajectory.format, now=self._now)
        self.result = result
        sent: list[dict[str, Any]] = result.request[moment.trajectory.wire.key]
        dropped = _dropped(moment, sent, (*result.stripped, *result.shortened))
        self._broken = _promises(moment, result, sent, dropped, self.config.effective_delta)
        if not result.event and not dropped <= self._dropped:
            self._broken.append(f"dropped between reselections: {sorted(dropped - self._dropped)} (A.10)")
        protected = {b.index for b in result.blocks if b.protected} if result.status == "compressed" else set()
        if protected:
            self.protected_kept = min(self.protected_kept, 1 - len(protected & dropped) / len(protected))
        policy: Any = self.config.policy
        if protected & dropped and (result.event or policy.appends_evidence):
            self._broken.append(f"protected and not forwarded: {sorted(protected & dropped)} (A.3)")
        if self.config.bound_thinking not in ("drop_block", "ignore"):
            wire = moment.trajectory.wire
            self._broken += [str(one) for one in self._prefixes.changed(result.request, wire, sent)]
        self._dropped = dropped
        return sent

    def core_share(self, moment: Moment) -> float | None:
        if self.result is None or self.result.status != "compressed":
            return None
        return len(self.result.core) / len(moment.blocks)

    def broken(self, valid: bool) -> list[str]:
        result = self.result
        if result is None or result.status in ("compressed", "unchanged") or not valid:
            return self._broken
        return [*self._broken, f"a valid request came back as {result.status}: {result.reason}"]

    def reference(self, moment: Moment) -> Reference:
        forwarded = frozenset(range(len(moment.blocks))) - self._dropped
        return Reference(forwarded, self.result is not None and self.result.event)


def _dropped(moment: Moment, sent: list[dict[str, Any]], copied: Sequence[int]) -> frozenset[int]:
    here = {id(m) for m in sent} | {id(moment.turn.messages[i]) for i in copied}
    return frozenset(b.index for b in moment.blocks if id(moment.turn.messages[b.messages[0]]) not in here)


def _promises(
    moment: Moment, result: CompressionResult, sent: list[dict[str, Any]], dropped: frozenset[int], delta: float
) -> list[str]:
    """The invariants of Proposition A.3 that one request can show; empty when all hold."""
    turn = moment.turn
    if result.status != "compressed":
        same = result.request is turn.request
        return [] if same else [f"status {result.status!r}, and yet another request object than came in"]
    broken = []
    rest = [(k, v) for k, v in turn.request.items() if k != moment.trajectory.wire.key]
    if any(result.request.get(k) is not v for k, v in rest) or len(result.request) != len(turn.request):
        broken.append("fields beside the messages were changed")
    expected = moment.without(dropped)
    bare = {id(turn.messages[i]) for i in result.stripped}
    short = {id(turn.messages[i]) for i in result.shortened}
    fits = [
        a is b
        or (id(b) in bare and a == without_thinking(b))
        or (id(b) in short and moment.size([a]) < moment.size([b]))
        for a, b in zip(sent, expected, strict=False)
    ]
    if len(sent) != len(expected) or not all(fits):
        broken.append("not the request's own messages in order, without whole blocks")
    # A turn of several calls may look complete before the last of them is sent; the recording knows that it is not.
    core, forwarded = set(result.core), {i for i in result.forwarded if i < len(moment.blocks)}
    if forwarded != set(range(len(moment.blocks))) - dropped:
        broken.append("`forwarded` is not what was forwarded")
    if result.event and not {b.index for b in result.blocks if b.protected} <= core <= forwarded:
        broken.append("not protected within core within forwarded")
    before, after = moment.size(turn.messages), moment.size(sent)
    if (result.chars_before, result.chars_after) != (before, after):
        broken.append(f"says {result.chars_before} -> {result.chars_after} characters, is {before} -> {after}")
    # The guard is about what a selection drops; results that came in short are no part of that. One part in 10^9 for
    # the rounding of the product.
    whole = after + sum(b.chars for b in result.blocks if not b.kept) if result.shortened else before
    if after < (1 - delta) * whole - 1e-9 * whole:
        broken.append(f"the length guard: {after} < (1 - {delta}) * {whole} (Eq. 8)")
    return broken

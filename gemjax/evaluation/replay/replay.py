"""The replay loop: every request of a recorded agent through every method, with the account of what was sent."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from gemjax.errors import ConfigError
from gemjax.evaluation.replay.accounting import Bill, Prices, Sizer, Totals
from gemjax.evaluation.replay.baselines import ClearToolResults, KeepLast, LatestAction, RandomBlocks, SendEverything
from gemjax.evaluation.replay.compressed import BrokenPromise, Compressed, MeteredEncoder
from gemjax.evaluation.replay.grounding import CallNeeds, Met, NeedIndex, met, text_of
from gemjax.evaluation.replay.moment import Method, Moment, Reference
from gemjax.evaluation.replay.refetch import Lookups, Refetch
from gemjax.evaluation.replay.tokens import TokenCounter
from gemjax.evaluation.replay.trajectory import RecordedTurn, Trajectory, requests
from gemjax.history.arrival import ArrivalConfig
from gemjax.history.blocks import Reader
from gemjax.history.config import GEMConfig
from gemjax.history.policy import CostAwarePolicy, PaperPolicy
from gemjax.history.prefixes import SignedPrefixes
from gemjax.history.vectors import bucket

ActionView = Literal["action", "turn"]

REFERENCE = "cost-aware"
MIN_BLOCKS = 16
"""Blocks from which a request is a checkpoint of the retention measure, and from which compression starts."""

_TOP = 3


@dataclasses.dataclass(frozen=True)
class MethodOutcome:
    """What one method did on one trajectory.

    Attributes:
        totals: the bill, and the number of requests and of rewrites (`events`).
        retained: next-action Top-3 retention at each checkpoint, in [0, 1].
        met: how much of the next call's values was there, at each checkpoint.
        refetch_cost, refetches: what looking up again what was gone would add to the bill, and how often it was needed.
        invalid: requests that the provider would refuse although it accepts the full one. Must be 0.
        broken: invariants of the compressor that did not hold, one line each. Must be empty.
        core_share: mean share of the blocks that is in the core, over compressed requests; None without one.
        protected_kept: smallest share of the protected blocks that was forwarded; 1 where all always were.
        encoder_texts, encoder_tokens: what the method would have to encode by itself.
        seconds: spent deciding. Encoding is left out: the first method that asks for a text would pay for all.
    """

    totals: Totals
    retained: list[float]
    met: list[Met]
    refetch_cost: float
    refetches: int
    invalid: int
    broken: list[str]
    core_share: float | None
    protected_kept: float
    encoder_texts: int
    encoder_tokens: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class TrajectoryOutcome:
    """All methods on one trajectory. `invalid_as_recorded`: full requests that the provider would refuse themselves."""

    trajectory: Trajectory
    blocks: int
    requests: int
    checkpoints: int
    invalid_as_recorded: int
    methods: dict[str, MethodOutcome]


def methods_named(names: Sequence[str] | None, prices: Prices, delta: float | None = None) -> list[Method]:
    """The methods of the comparison by name, in the order given; all of them for None.

    The cost-aware policy is told the same prices as the bill. `delta` overrides the default of both policies.

    Raises: `ConfigError` for an unknown name.
    """
    known: dict[str, Callable[[], Method]] = {
        "none": SendEverything,
        "paper": lambda: Compressed("paper", GEMConfig.paper(policy=PaperPolicy(), delta=delta)),
        REFERENCE: lambda: reference_method(prices, delta),
        "arrival": lambda: reference_method(prices, 0.0, name="arrival", arrival=ArrivalConfig()),
        "arrival+cost-aware": lambda: reference_method(
            prices, delta, name="arrival+cost-aware", arrival=ArrivalConfig()
        ),
        "keep-last-16": KeepLast,
        "clear-tool-results": ClearToolResults,
        "random": RandomBlocks,
        "latest-action": LatestAction,
        "latest-action-held": lambda: LatestAction(hold=True),
    }
    chosen = list(known) if names is None else list(dict.fromkeys(names))
    if unknown := [n for n in chosen if n not in known]:
        raise ConfigError(f"unknown method {unknown[0]!r}; known: {', '.join(known)}")
    return [known[n]() for n in chosen]


def reference_method(
    prices: Prices, delta: float | None = None, *, name: str = REFERENCE, arrival: ArrivalConfig | None = None
) -> Compressed:
    """The default compressor, told these prices: what matched baselines follow. With `arrival`, long results are short
    from the start; with a `delta` of 0 besides, nothing is dropped."""
    policy = CostAwarePolicy(read=prices.read, write=prices.write, ttl=prices.ttl)
    return Compressed(name, GEMConfig(policy=policy, delta=delta, arrival=arrival))


class Replay:
    """Replays trajectories through a set of methods.

    Args:
        methods: what to compare; see `methods_named`. The full request is always accounted for as well.
        encoder: with `name`, `dim` and `encode`; give a `CachedEncoder`, since all methods ask for the same texts.
        counter: counts tokens.
        prices: of the bill, and of the cost-aware reference that matched baselines follow.
        action_view: what stands for the next action in the retention measure: its ACTION section, or the whole `turn`
            (reasoning and text too).
        use_goal: pass the goal that the recording states; otherwise the compressor finds one in the request.
        refetch: what looking something up again takes.
        strict: raise `BrokenPromise` at the first violated invariant instead of listing it.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        encoder: Any,
        counter: TokenCounter,
        prices: Prices | None = None,
        *,
        action_view: ActionView = "action",
        use_goal: bool = False,
        refetch: Refetch | None = None,
        strict: bool = False,
    ) -> None:
        self.methods = list(methods)
        names = [m.name for m in self.methods]
        if len(set(names)) < len(names):
            raise ConfigError(f"method names must be unique, got {', '.join(names)}")
        self.encoder = encoder
        self.counter = counter
        self.prices = prices or Prices()
        self.refetch = refetch or Refetch()
        self.action_view: ActionView = action_view
        self.strict = strict
        self.use_goal = use_goal
        named = [m for m in self.methods if m.name == REFERENCE]
        self._reference = named[0] if named else reference_method(self.prices)

    def run(self, trajectory: Trajectory, tick: Callable[[], None] | None = None) -> TrajectoryOutcome:
        """Replay one trajectory; `tick` is called after each of its requests."""
        return _Run(self, trajectory, self._reference).all(tick)


class _Track:
    """One method on its way through a trajectory."""

    def __init__(
        self, method: Method, ledger: Bill, lookups: Lookups, meter: MeteredEncoder, encoder_price: float
    ) -> None:
        self.method = method
        self.ledger = ledger
        self.lookups = lookups
        self.meter = meter
        self.encoder_price = encoder_price
        self.reader = Reader()
        self.prefixes = SignedPrefixes()
        self.retained: list[float] = []
        self.met: list[Met] = []
        self.changed_texts: dict[int, tuple[Any, str]] = {}
        self.core_shares: list[float] = []
        self.invalid = 0
        self.broken: list[str] = []
        self.seconds = 0.0

    def outcome(self) -> MethodOutcome:
        totals = self.ledger.totals
        totals.cost += self.encoder_price * self.meter.chars
        totals.token_cost += self.encoder_price * self.meter.tokens
        return MethodOutcome(
            totals=totals,
            retained=self.retained,
            met=self.met,
            refetch_cost=self.lookups.cost,
            refetches=self.lookups.count,
            invalid=self.invalid,
            broken=self.broken,
            core_share=float(np.mean(self.core_shares)) if self.core_shares else None,
            protected_kept=self.method.protected_kept,
            encoder_texts=self.meter.texts,
            encoder_tokens=self.meter.tokens,
            seconds=self.seconds - self.meter.seconds,
        )


class _Run:
    """The replay of one trajectory."""

    def __init__(self, replay: Replay, trajectory: Trajectory, reference: Method) -> None:
        self.replay = replay
        self.trajectory = trajectory
        self.reference = reference
        self.sizer = Sizer(replay.counter)
        self.known: dict[str, int] = {}
        self._frame = Bill(trajectory.request_template, trajectory.wire.key, self.sizer, replay.prices)
        # The reference goes first: others follow its count and schedule.
        methods = [reference, *(m for m in replay.methods if m is not reference)]
        if not any(isinstance(m, SendEverything) for m in methods):
            methods.append(SendEverything())
        self.tracks = [self._track(m) for m in methods]

    def _track(self, method: Method) -> _Track:
        template, key = self.trajectory.request_template, self.trajectory.wire.key
        meter = MeteredEncoder(self.replay.encoder, self.replay.counter, self.known)
        method.prepare(meter, use_goal=self.replay.use_goal)
        method.begin(self.trajectory)
        prices = self.replay.prices
        lookups = Lookups(prices, self.replay.refetch, [b.chars for b in self.trajectory.parsed.blocks])
        return _Track(method, Bill(template, key, self.sizer, prices), lookups, meter, prices.encoder)

    def all(self, tick: Callable[[], None] | None) -> TrajectoryOutcome:
        turns = list(requests(self.trajectory))
        self._warm(turns)
        # Validity is read incrementally: whole requests again and again would be quadratic in the history.
        original = Reader()
        checkpoints = bad = 0
        for turn in turns:
            valid = not original.parse(turn.request, self.trajectory.format).problems
            bad += not valid
            action = self._action(turn)
            needs = self._needs.needs(turn) if action is not None else None
            checkpoints += action is not None
            reference = Reference(frozenset(range(len(turn.blocks))), False)
            for track in self.tracks:
                moment = self._moment(turn, reference, track.meter)
                self._step(track, moment, valid, action, needs)
                if track.method is self.reference:
                    reference = self.reference.reference(moment)
            if tick is not None:
                tick()
        return TrajectoryOutcome(
            self.trajectory,
            len(self.trajectory.parsed.blocks),
            len(turns),
            checkpoints,
            bad,
            {t.method.name: t.outcome() for t in self.tracks},
        )

    def _moment(self, turn: RecordedTurn, reference: Reference, meter: MeteredEncoder) -> Moment:
        def vectors() -> np.ndarray:
            meter.charge([b.content.selection_text for b in turn.blocks])
            return self._vectors[: len(turn.blocks)]

        return Moment(self.trajectory, turn, reference, self._frame.chars_of, vectors, meter.encode)

    def _step(
        self, track: _Track, moment: Moment, valid: bool, action: np.ndarray | None, needs: CallNeeds | None
    ) -> None:
        turn = moment.turn
        start = time.perf_counter()
        sent = track.method.forward(moment)
        track.seconds += time.perf_counter() - start
        account = track.ledger.send(sent, turn.time)
        changed = len(sent) != len(turn.messages) or any(a is not b for a, b in zip(sent, turn.messages, strict=True))
        request = {**turn.request, self.trajectory.wire.key: sent}
        moved = track.prefixes.changed(request, self.trajectory.wire, sent)
        if valid and changed:
            track.invalid += bool(track.reader.parse(request, self.trajectory.format).problems or moved)
        here = {id(m) for m in sent}
        if needs is not None:
            track.met.append(self._met(track, turn, sent, here, needs))
        missing = [*track.met[-1].missing, *track.met[-1].unseen] if needs else []
        track.lookups.account(turn.index, account.chars, needs, missing)
        if action is not None:
            kept = [all(id(turn.messages[m]) in here for m in block.messages) for block in turn.blocks]
            track.retained.append(_retained(self._rows, action, kept))
        core_share = track.method.core_share(moment)
        if core_share is not None:
            track.core_shares.append(core_share)
        lines = [
            f"{self.trajectory.id}, request {turn.index}, {track.method.name}: {line}"
            for line in track.method.broken(valid)
        ]
        if lines and self.replay.strict:
            raise BrokenPromise(lines[0])
        track.broken += lines

    def _met(
        self, track: _Track, turn: RecordedTurn, sent: list[dict[str, Any]], here: set[int], needs: CallNeeds
    ) -> Met:
        """What was forwarded of the needs. Copies that a method sent in place of messages are read for themselves."""
        whole = {id(m) for m in turn.messages}
        changed = []
        for message in sent:
            if id(message) not in whole:
                known = track.changed_texts.get(id(message))
                if known is None or known[0] is not message:
                    known = (message, text_of(self.trajectory.wire.view(message)))
                    track.changed_texts[id(message)] = known
                changed.append(known[1])
        return met(needs, lambda m: id(turn.messages[m]) in here, changed)

    def _warm(self, turns: list[RecordedTurn]) -> None:
        """Encode the actions that the retention measure asks for, with the blocks, in one call of the encoder."""
        actions = [self._action_text(t) for t in turns if t.next is not None and len(t.blocks) >= MIN_BLOCKS]
        if actions:
            self.replay.encoder.encode([b.content.selection_text for b in self.trajectory.parsed.blocks] + actions)

    @cached_property
    def _needs(self) -> NeedIndex:
        return NeedIndex(self.trajectory)

    @cached_property
    def _vectors(self) -> np.ndarray:
        """Every block of the trajectory, `[n, d]`."""
        blocks = self.trajectory.parsed.blocks
        return np.asarray(self.replay.encoder.encode([b.content.selection_text for b in blocks]))

    def _action_text(self, turn: RecordedTurn) -> str:
        assert turn.next is not None
        return turn.next.action_text if self.replay.action_view == "action" else turn.next.selection_text

    @cached_property
    def _rows(self) -> np.ndarray:
        """`_vectors` padded, so that few lengths are compiled."""
        blocks = self._vectors
        return np.pad(blocks, ((0, bucket(len(blocks)) - len(blocks)), (0, 0)))

    def _action(self, turn: RecordedTurn) -> np.ndarray | None:
        """The vector of the next action; None if this is no checkpoint (3.2)."""
        if turn.next is None or len(turn.blocks) < MIN_BLOCKS:
            return None
        action: np.ndarray = np.asarray(self.replay.encoder.encode([self._action_text(turn)]))[0]
        return action


def _retained(rows: np.ndarray, action: np.ndarray, kept: list[bool]) -> float:
    """T_3 (Eq. 4) of the blocks that were kept of the first `len(kept)`; 0 for an action without a direction."""
    valid = np.arange(len(rows)) < len(kept)
    return float(_topk_retention()(rows, action, np.pad(kept, (0, len(rows) - len(kept))), valid, k=_TOP).value)


@lru_cache(maxsize=1)
def _topk_retention() -> Any:
    import jax

    from gemjax.kernels.retention import topk_retention

    return jax.jit(topk_retention, static_argnames="k")

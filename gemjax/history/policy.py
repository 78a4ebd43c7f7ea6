"""When to rewrite a history that a provider has already cached: the paper's schedule, and a cost-aware rule (ours)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from gemjax.errors import ConfigError

Memory = Mapping[str, Any]
"""What a policy remembers of a session between requests. JSON values only: it is part of the saved state."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What a global reselection would do at this request. All lengths in characters of compact JSON.

    Attributes:
        droppable: forwarded now, outside the new core, and let go by the deletion guard.
        restored: dropped now, and back after the reselection.
        rewritten: what would be forwarded after the first message that differs from what is forwarded now, as far as
            the provider may have it cached. This part it has to read anew because of the reselection.
        lost: signed thinking that would be lost with the reselection, because the provider binds it to what goes.
    """

    droppable: int
    restored: int
    rewritten: int
    lost: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    """What a policy may look at.

    Attributes:
        blocks: complete blocks in the request.
        new_blocks: blocks that came since the last reselection.
        first: no reselection has happened in this session.
        cold: nothing of this history has been sent before, so the provider has nothing of it in its cache: the
            session's first request, the first after a reset, or a history that shares no block with the last one.
        rewritten: the blocks of the last request are no longer a prefix of this one's. What they still share may be
            cached.
        goal_changed: the goal text differs from the last request's.
        idle: seconds since the session's last request; None where that is not known (its first one, the first after a
            restart, a clock that went back).
        plan: computes what a reselection would do now; costs one selection, so call it only where it matters.
    """

    blocks: int
    new_blocks: int
    first: bool
    cold: bool
    rewritten: bool
    goal_changed: bool
    plan: Callable[[], Plan]
    idle: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Whether to reselect now, why (one line), and what to remember."""

    reselect: bool
    reason: str
    memory: Memory


@runtime_checkable
class Policy(Protocol):
    """Decides at each eligible request whether the forwarded set is chosen anew. Must not raise, and keeps no state."""

    @property
    def name(self) -> str:
        """Short name; a saved state says which policy wrote it."""
        ...

    @property
    def delta(self) -> float:
        """Default share of the request's characters that one selection may remove."""
        ...

    @property
    def appends_evidence(self) -> bool:
        """Whether evidence that a rule names between reselections comes back (A.10)."""
        ...

    def decide(self, situation: Situation, memory: Memory) -> Decision:
        """Reselect at this request or not."""
        ...


@dataclasses.dataclass(frozen=True)
class PaperPolicy:
    """The paper's schedule (5.3, B.3): first eligible request, rewritten history, new goal, `every` new blocks."""

    every: int = 256
    delta: float = 0.05
    name: str = "paper"
    appends_evidence: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise ConfigError(f"every must be a positive number of blocks, got {self.every!r}")
        check_delta(self.delta)

    def decide(self, situation: Situation, memory: Memory) -> Decision:
        if situation.first:
            return Decision(True, "first eligible request", memory)
        if situation.rewritten:
            return Decision(True, "the history was rewritten", memory)
        if situation.goal_changed:
            return Decision(True, "the goal changed", memory)
        if situation.new_blocks >= self.every:
            return Decision(True, f"{situation.new_blocks} new blocks since the last selection", memory)
        return Decision(False, "no reselection is due", memory)


@dataclasses.dataclass(frozen=True)
class CostAwarePolicy:
    """Rent or buy: rewrite once reading what could go has cost as much as rewriting would.

    Every request on which `droppable` characters are forwarded although they could go pays `read` for each of them:
    the rent. Rewriting pays `write - read` for each forwarded character after the first change, and `write` for each of
    thinking that is lost: the price. The history is reselected as soon as the rent since the last reselection reaches
    `beta` times the price.

    After a pause longer than `ttl` the provider's cache has expired: the whole request is written anew whatever goes
    out, so sending less is free, and the history is reselected if that lets anything go.

    Guarantee, for any history and any sequence of cores (docs/policies.md proves it): the surcharges paid for
    rewriting sum to at most `1 / beta` times the rents paid, and the rents are part of what sending everything would
    have paid as well. With `beta = 3` the bill is therefore at most 4/3 of that of never rewriting. Assumes a history
    that only grows, no pinned blocks that come and go, and a provider that caches the longest common prefix of
    successive requests and keeps it until the next one, or for `ttl` seconds.

    Args:
        read: price of a cached character, in units of the uncached input price.
        write: price of a new or rewritten character.
        beta: how many times the price the rent has to reach; larger rewrites later.
        ttl: seconds that an unused cache lives; None: for ever. Too small a value forgoes the guarantee, too large a
            one only misses free rewrites. Providers keep 300, or 3,600 where that is paid for.
    """

    read: float = 0.1
    write: float = 1.25
    beta: float = 3.0
    ttl: float | None = 300.0
    delta: float = 1.0
    name: str = "cost-aware"
    appends_evidence: bool = False

    def __post_init__(self) -> None:
        for field in ("read", "write", "beta"):
            value = getattr(self, field)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
                raise ConfigError(f"{field} must be a finite number >= 0, got {value!r}")
        if self.ttl is not None:
            check_seconds("ttl", self.ttl)
        if self.write < self.read:
            raise ConfigError(f"write must be at least read, got write={self.write!r} and read={self.read!r}")
        check_delta(self.delta)

    def decide(self, situation: Situation, memory: Memory) -> Decision:
        if situation.cold:
            return Decision(True, "new history, of which nothing has been sent before", {})
        plan = situation.plan()
        saved = memory.get("rent", 0.0)
        rent = float(saved) if isinstance(saved, int | float) and 0 <= saved < float("inf") else 0.0
        if not plan.droppable:
            return Decision(False, "nothing can go", {"rent": rent})
        if self.ttl is not None and situation.idle is not None and situation.idle > self.ttl:
            # All of it is written anew in any case; what goes is saved at once, what is lost or comes back is paid.
            saved_now = plan.droppable - plan.restored - plan.lost
            if saved_now > 0:
                reason = f"the provider's cache expired in a pause of {situation.idle:,.0f} s"
                return Decision(True, reason, {"rent": 0.0})
        rent += self.read * plan.droppable
        price = (self.write - self.read) * plan.rewritten + self.write * plan.lost
        figures = f"rent {rent:,.0f}, price {price:,.0f}"
        if rent >= self.beta * price:
            return Decision(True, f"rewriting pays for itself ({figures})", {"rent": 0.0})
        return Decision(False, f"rewriting does not pay yet ({figures})", {"rent": rent})


def check_seconds(name: str, value: float) -> None:
    """Raise `ConfigError` unless the value is a positive, finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ConfigError(f"{name} must be a positive number of seconds or None, got {value!r}")


def check_delta(delta: float) -> None:
    """Raise `ConfigError` unless `delta` is a number in [0, 1]."""
    if not isinstance(delta, int | float) or isinstance(delta, bool) or not 0 <= delta <= 1:
        raise ConfigError(f"delta must be a share between 0 (never drop) and 1 (forward the core only), got {delta!r}")


POLICIES: dict[str, type[PaperPolicy] | type[CostAwarePolicy]] = {"paper": PaperPolicy, "cost-aware": CostAwarePolicy}


def policy_named(name: str) -> Policy:
    """The policy called `name` with its defaults. Raises `ConfigError` for an unknown one."""
    try:
        return POLICIES[name]()
    except KeyError:
        raise ConfigError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}") from None

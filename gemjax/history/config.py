"""The compressor's settings and its two presets."""

import dataclasses
from typing import Any

from gemjax.errors import ConfigError
from gemjax.history.arrival.config import ArrivalConfig
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES, Rule
from gemjax.history.policy import CostAwarePolicy, PaperPolicy, Policy, check_delta, policy_named
from gemjax.history.thinking import BOUND_THINKING, BoundThinking


@dataclasses.dataclass(frozen=True)
class GEMConfig:
    """Settings of a `HistoryCompressor`.

    Args:
        rules: the evidence rules, in order; leave one out to switch it off, add any object with `name` and `__call__`.
        capacity: K, the nominal number of blocks in the core (5.1). More are kept when more are protected.
        coverage: tau, the coverage at which geometric completion stops (5.3).
        delta: share of the request's characters that one selection may remove (Eq. 8): 0 never drops anything, 1
            forwards the core only. None takes the policy's own default.
        policy: `"cost-aware"`, `"paper"`, or any `Policy`.
        min_blocks: requests with fewer complete blocks are left alone (5.3).
        max_sessions: sessions remembered; the least recently used one is forgotten first. With more conversations at
            a time than that, each looks new at every request and is rewritten each time: raise it.
        encoder_timeout: seconds after which an encoder that does not answer one call has failed; the request goes
            through unchanged. None waits for ever, whatever `encoder_wait` says. An encoder that is a `CachedEncoder`
            already has its own.
        encoder_wait: seconds that a request waits for all its vectors. The newest blocks come first; what comes later
            is kept for the next request, and until then the earlier selection stands (none: the request goes out
            unchanged). Loading the encoder is not counted. None waits for all: results then never depend on a clock.
        deadline: seconds that a whole request may take, loading included; after that it goes out unchanged, and what
            was read and encoded so far serves the next one. None: no limit, since the wait for vectors and the work on
            a block's text are bounded already.
        bound_thinking: what a rewrite does about signed thinking that the provider binds to everything before it.
            `"auto"` decides by what the request says, so that no provider refuses what goes out; `"drop_block"` leaves
            it to the provider (the request says so, or you promise it), and the lost thinking counts in the price;
            `"strip"` leaves all thinking that is older than the rewrite out of what goes out, then and ever after;
            `"hold"` does not rewrite; `"ignore"` is for models that do not check.
        archive_blocks: dropped exchanges that `recall` can find again, a session; the oldest are forgotten first. 0
            keeps none.
        arrival: shorten long tool results once, when they first come (`ArrivalConfig()`); the messages that hold them
            go out as copies, then and ever after, and `recall` finds the originals. None leaves results alone.

    Raises: `ConfigError`, naming the argument, at construction.
    """

    rules: tuple[Rule, ...] = DEFAULT_RULES
    capacity: int = 16
    coverage: float = 0.90
    delta: float | None = None
    policy: Policy | str = dataclasses.field(default_factory=CostAwarePolicy)
    min_blocks: int = 16
    max_sessions: int = 256
    encoder_timeout: float | None = 60.0
    encoder_wait: float | None = 2.0
    deadline: float | None = None
    bound_thinking: BoundThinking = "auto"
    archive_blocks: int = 20_000
    arrival: ArrivalConfig | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen; this normalises what came
        if isinstance(self.policy, str):
            set_field(self, "policy", policy_named(self.policy))
        elif not isinstance(self.policy, Policy):
            raise ConfigError(
                f"policy must be a name or an object with name, delta, appends_evidence and decide, got {self.policy!r}"
            )
        try:
            set_field(self, "rules", tuple(self.rules))
        except TypeError:
            raise ConfigError(f"rules must be a sequence of rules, got {self.rules!r}") from None
        names = []
        for rule in self.rules:
            name = getattr(rule, "name", None)
            if not (callable(rule) and isinstance(name, str) and name):
                raise ConfigError(f"a rule must be callable and have a name that is not empty, got {rule!r}")
            names.append(name)
        if repeated := sorted({n for n in names if names.count(n) > 1}):
            raise ConfigError(f"rule names must be unique, got {', '.join(repeated)} more than once")
        for field in ("capacity", "min_blocks", "max_sessions"):
            value = getattr(self, field)
            if type(value) is not int or not 1 <= value < 2**31:
                raise ConfigError(f"{field} must be a positive integer, got {value!r}")
        if type(self.archive_blocks) is not int or not 0 <= self.archive_blocks < 2**31:
            raise ConfigError(f"archive_blocks must be an integer >= 0, got {self.archive_blocks!r}")
        if not isinstance(self.coverage, int | float) or not 0 <= self.coverage <= 1:
            raise ConfigError(f"coverage must be between 0 and 1, got {self.coverage!r}")
        check_delta(self.effective_delta)
        for field in ("encoder_timeout", "encoder_wait", "deadline"):
            seconds = getattr(self, field)
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (number and 0 < seconds <= 1e6):
                raise ConfigError(f"{field} must be a positive number of seconds or None, got {seconds!r}")
        if self.arrival is not None and not isinstance(self.arrival, ArrivalConfig):
            raise ConfigError(f"arrival must be an ArrivalConfig or None, got {self.arrival!r}")
        if self.bound_thinking not in BOUND_THINKING:
            raise ConfigError(f"bound_thinking must be one of {', '.join(BOUND_THINKING)}, got {self.bound_thinking!r}")

    @property
    def chosen_policy(self) -> Policy:
        """`policy` as an object; construction has resolved names."""
        assert not isinstance(self.policy, str)
        return self.policy

    @property
    def effective_delta(self) -> float:
        """`delta`, or the policy's default."""
        return self.chosen_policy.delta if self.delta is None else self.delta

    @property
    def waits_for_vectors(self) -> float | None:
        """Seconds that a request waits for its vectors; None for ever."""
        return None if self.encoder_timeout is None else self.encoder_wait

    @classmethod
    def paper(cls, **changes: Any) -> "GEMConfig":
        """The paper's five rules, schedule and guard (Table B.1). `changes` replace single settings."""
        settings: dict[str, Any] = {"rules": PAPER_RULES, "policy": PaperPolicy(), **changes}
        return cls(**settings)

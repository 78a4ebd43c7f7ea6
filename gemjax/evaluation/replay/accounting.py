r"""What a sequence of requests costs where the provider caches prompts.

The provider keeps the prompt of the latest request. Of the next one it reads the longest common prefix of whole
messages (the system prompt and the tools stand before them) and takes the rest as new:

    cost = read * hit + write * (size - hit)

After a pause longer than `ttl` nothing is left in the cache, and all of the request is new.

A request shorter than `min_cacheable` is neither read from nor written to the cache and costs `uncached * size`; the
same goes for a common prefix shorter than that, which is then no hit. So `uncached` never enters with the default
`min_cacheable = 0`, and prices 1, 1, 1 give the size of all that was sent.
"""

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Any

from gemjax.errors import ConfigError
from gemjax.evaluation.replay.tokens import TokenCounter, count_message
from gemjax.history.formats import compact_json


@dataclasses.dataclass(frozen=True)
class Prices:
    """Multiples of the plain input price. The defaults are what the large providers with explicit caching charge.

    Attributes:
        read: a character or token that the cache had.
        write: one that it had not and now keeps. A provider without a surcharge for this has `write = uncached = 1`.
        uncached: one of a request that is too short to be cached (`min_cacheable`).
        min_cacheable: shortest cacheable prompt, in characters of the serialised request (a provider's 1,024 tokens are
            about 4,000); it decides for characters and tokens alike.
        ttl: seconds that an unused cache lives; None: for ever. What is sent after a longer pause is written anew.
        encoder: one that the encoder reads. 0 for an encoder in one's own process; with prices 1, 1, 1 and `encoder` 1
            the cost in tokens is the paper's combined tokens (Eq. E.2) without the model's output.
    """

    read: float = 0.1
    write: float = 1.25
    uncached: float = 1.0
    min_cacheable: int = 0
    encoder: float = 0.0
    ttl: float | None = 300.0

    def __post_init__(self) -> None:
        for name in ("read", "write", "uncached", "encoder"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
                raise ConfigError(f"price {name!r} must be a number >= 0, got {value!r}")
        if self.ttl is not None and not 0 < self.ttl < math.inf:
            raise ConfigError(f"ttl must be a positive number of seconds or None, got {self.ttl!r}")
        if self.min_cacheable < 0:
            raise ConfigError(f"min_cacheable must be >= 0, got {self.min_cacheable!r}")

    @classmethod
    def from_text(cls, text: str) -> "Prices":
        """`"0.1,1.25,1"`: read, write, uncached. Raises `ConfigError` for anything else."""
        parts = text.split(",")
        try:
            read, write, uncached = (float(part) for part in parts)
        except ValueError:
            raise ConfigError(f"prices must be three numbers READ,WRITE,UNCACHED, got {text!r}") from None
        return cls(read, write, uncached)


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """One message: the object itself (so that its `id` stays its own), a digest of its JSON, and its two sizes."""

    message: Any
    digest: bytes
    chars: int
    tokens: int


class Sizer:
    """Measures each message object of one trajectory once. The objects must not be changed afterwards."""

    def __init__(self, counter: TokenCounter) -> None:
        self.counter = counter
        self._known: dict[int, Measure] = {}

    def measure(self, message: Any) -> Measure:
        """Digest, characters as compact JSON, and tokens of a message."""
        known = self._known.get(id(message))
        if known is None:
            text = compact_json(message)
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            known = Measure(message, digest, len(text), count_message(self.counter, message))
            self._known[id(message)] = known
        return known


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """The account of one request. `first_changed` is None while a request only adds to the one before."""

    chars: int
    tokens: int
    hit_chars: int
    hit_tokens: int
    cost: float
    token_cost: float
    first_changed: int | None


@dataclasses.dataclass(slots=True)
class Totals:
    """Sums over the requests of one trajectory; `events` counts requests that changed what the provider already
    had, `expired` those that came after its cache had gone."""

    requests: int = 0
    chars: int = 0
    tokens: int = 0
    cost: float = 0.0
    token_cost: float = 0.0
    events: int = 0
    expired: int = 0


class Bill:
    """The bill of one method on one trajectory. Feed it every request, in order."""

    def __init__(self, template: dict[str, Any], key: str, sizer: Sizer, prices: Prices) -> None:
        self.totals = Totals()
        self._sizer = sizer
        self._prices = prices
        # The request around its messages: what comes before the first one, for the cache.
        self._frame_chars = len(compact_json({**template, key: []}))
        self._frame_tokens = count_message(sizer.counter, template)
        self._before: list[Measure] | None = None
        self._at: float | None = None

    def chars_of(self, messages: Sequence[Any]) -> int:
        """Characters of a request with these messages, as compact JSON: `L(S)` of Eq. 8."""
        return self._frame_chars + sum([self._sizer.measure(m).chars for m in messages]) + max(len(messages) - 1, 0)

    def send(self, messages: Sequence[Any], at: float | None = None) -> Sent:
        """Account for a request that carries these messages.

        Args:
            messages: what is sent.
            at: when, in seconds; None if that is not known. Times that stand still or go back are no pause.
        """
        expired = self._expired(at)
        now = [self._sizer.measure(m) for m in messages]
        before = self._before
        common = _common(before, now) if before is not None else 0
        chars = self._frame_chars + sum([m.chars for m in now]) + max(len(now) - 1, 0)
        tokens = self._frame_tokens + sum([m.tokens for m in now])
        hit_chars = hit_tokens = 0
        if before is not None and not expired:
            hit_chars = self._frame_chars + sum([m.chars for m in now[:common]]) + max(common - 1, 0)
            hit_tokens = self._frame_tokens + sum([m.tokens for m in now[:common]])
        prices = self._prices
        cached = chars >= prices.min_cacheable
        # This covers a request before it that was too short to be written: no prefix of it is any longer.
        if hit_chars < prices.min_cacheable or not cached:
            hit_chars = hit_tokens = 0
        fresh = prices.write if cached else prices.uncached
        first_changed = common if before is not None and common < len(before) else None
        self._before = now
        sent = Sent(
            chars,
            tokens,
            hit_chars,
            hit_tokens,
            prices.read * hit_chars + fresh * (chars - hit_chars),
            prices.read * hit_tokens + fresh * (tokens - hit_tokens),
            first_changed,
        )
        t = self.totals
        t.requests += 1
        t.chars += chars
        t.tokens += tokens
        t.cost += sent.cost
        t.token_cost += sent.token_cost
        t.events += first_changed is not None
        t.expired += expired
        return sent

    def _expired(self, at: float | None) -> bool:
        """Whether the cache has gone since the last request. A request without a time may have come at any."""
        before, self._at = self._at, at
        ttl = self._prices.ttl
        return ttl is not None and at is not None and before is not None and at - before > ttl


def _common(before: Sequence[Measure], now: Sequence[Measure]) -> int:
    """How many leading messages are the same."""
    common = 0
    for a, b in zip(before, now, strict=False):
        if a is not b and a.digest != b.digest:
            break
        common += 1
    return common

r"""What forgetting costs: a call that copies a value which is gone has to look it up again first, and so has an edit of
lines that are gone.

At each checkpoint whose needs are not all met (`gemjax.evaluation.replay.grounding`, leniently) the agent makes one
more request. It reads what was forwarded, which the provider has just cached, writes the blocks that it looks up (the
newest that holds each missing value or line) and a short call of its own:

    extra = read * forwarded + write * (looked up + call) + output * call

What was looked up then stands at the end of the history, so it is there for the next `stays` requests, each of which
reads it from the cache; nobody keeps it longer here, as nothing says that the agent's own memory would.
"""

import dataclasses
import math

from gemjax.errors import ConfigError
from gemjax.evaluation.replay.accounting import Prices
from gemjax.evaluation.replay.grounding import CallNeeds, Need


@dataclasses.dataclass(frozen=True)
class Refetch:
    """What looking something up again takes, beside the prices of the bill.

    Attributes:
        output: price of a character that the model writes, in units of the plain input price. Five, as the large
            providers charge.
        call_chars: characters that it writes to look something up: a sentence and a call. An assumption, not a
            measurement.
        stays: requests for which what was looked up stays in the history.
    """

    output: float = 5.0
    call_chars: int = 300
    stays: int = 16

    def __post_init__(self) -> None:
        if not (math.isfinite(self.output) and self.output >= 0):
            raise ConfigError(f"output must be a price >= 0, got {self.output!r}")
        for name in ("call_chars", "stays"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ConfigError(f"{name} must be an integer >= 0, got {value!r}")


class Lookups:
    """The bill of one method's look-ups on one trajectory. Feed it every request in order.

    Attributes:
        cost: what they cost, in the unit of the bill in characters.
        count: how many requests they took.
    """

    def __init__(self, prices: Prices, refetch: Refetch, sizes: list[int]) -> None:
        """`sizes` are the characters of each block."""
        self.cost = 0.0
        self.count = 0
        self._prices = prices
        self._refetch = refetch
        self._sizes = sizes
        self._until: dict[int, int] = {}

    def account(self, index: int, forwarded: int, needs: CallNeeds | None, missing: list[Need]) -> None:
        """One request.

        Args:
            index: its number in the trajectory.
            forwarded: its characters.
            needs: what the call after it copies; None where that is not measured.
            missing: the needs that nothing forwarded meets, values and lines of edits.
        """
        self._until = {block: last for block, last in self._until.items() if last >= index}
        self.cost += self._prices.read * sum(self._sizes[b] for b in self._until)
        if needs is None:
            return
        wanted = {need.blocks[-1] for need in missing if not any(b in self._until for b in need.blocks)}
        if not wanted:
            return
        call = self._refetch.call_chars
        new = sum(self._sizes[b] for b in wanted) + call
        self.cost += self._prices.read * forwarded + self._prices.write * new + self._refetch.output * call
        self.count += 1
        self._until |= dict.fromkeys(wanted, index + self._refetch.stays)

"""What shortening saved, by conversation: characters, and input cost with a provider's prefix cache."""

import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from gemjax.integrations.shortener import Outcome

CACHE_SECONDS = 300.0
_DROPPED_SHOWN = 60


@dataclasses.dataclass
class Account:
    """One conversation's sums. Costs are in characters at the plain input price.

    `left_out` names the blocks that are left out: label, characters, reason. It is content, and leaves this process on
    the page only.
    """

    name: str
    api: str
    requests: int = 0
    chars_before: int = 0
    chars_after: int = 0
    cost_before: float = 0.0
    cost_after: float = 0.0
    rewrites: int = 0
    status: str = ""
    reason: str = ""
    warnings: dict[str, int] = dataclasses.field(default_factory=dict)
    left_out: list[tuple[str, int, str]] = dataclasses.field(default_factory=list)
    seen: float = 0.0
    sources: tuple[int, ...] = ()
    messages: int = 0


class Ledger:
    """Accounts of the latest conversations, and the sums of all.

    Args:
        limit: accounts kept.
        read, write: price of a cached and of a newly cached character, in input prices.
        clock: seconds.
    """

    def __init__(
        self, limit: int, read: float = 0.1, write: float = 1.25, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit, self.read, self.write, self.clock = limit, read, write, clock
        self.total = Account("all", "")
        self.accounts: OrderedDict[str, Account] = OrderedDict()
        self._lock = threading.Lock()

    def enter(self, outcome: Outcome, api: str, lengths: Sequence[int], frame: int) -> None:
        """One request.

        Args:
            outcome: of the shortener.
            api: name of the endpoint.
            lengths: characters of each message that came.
            frame: characters around them.
        """
        with self._lock:
            account = self._account(outcome.session or "none", api)
            now = self.clock()
            warm = account.requests > 0 and now - account.seen <= CACHE_SECONDS
            before = frame + sum(lengths)
            cached_before = frame + sum(lengths[: outcome.common]) if warm else 0
            forwarded = [lengths[source] for source in outcome.sources]
            after = frame + sum(forwarded)
            shared = _shared(account.sources, outcome.sources, outcome.common) if warm else 0
            cached_after = frame + sum(forwarded[:shared]) if warm else 0
            changed = int(warm and shared < len(account.sources) and outcome.common == account.messages)
            for sums in (account, self.total):
                sums.requests += 1
                sums.chars_before += before
                sums.chars_after += after
                sums.cost_before += self._cost(before, cached_before)
                sums.cost_after += self._cost(after, cached_after)
                sums.rewrites += changed
                if outcome.status in ("failed", "reverted"):
                    sums.warnings[outcome.reason] = sums.warnings.get(outcome.reason, 0) + 1
                    while len(sums.warnings) > 20:
                        sums.warnings.pop(next(iter(sums.warnings)))
            account.status, account.reason, account.seen = outcome.status, outcome.reason, now
            account.sources, account.messages = outcome.sources, len(lengths)
            if outcome.result is not None and (outcome.result.event or not account.left_out):
                gone = [b for b in outcome.result.blocks if not b.kept] if outcome.status == "compressed" else []
                account.left_out = [(b.label, b.chars, b.why) for b in gone[:_DROPPED_SHOWN]]

    def snapshot(self) -> tuple[Account, list[Account]]:
        """Copies: the sum, and the accounts, the latest first."""
        with self._lock:
            latest = sorted(self.accounts.values(), key=lambda a: -a.seen)
            return dataclasses.replace(self.total), [dataclasses.replace(a) for a in latest]

    def _cost(self, chars: int, cached: int) -> float:
        return self.read * cached + self.write * (chars - cached)

    def _account(self, name: str, api: str) -> Account:
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, api)
            while len(self.accounts) > self.limit:
                self.accounts.popitem(last=False)
        else:
            self.accounts.move_to_end(name)
        return account


def _shared(last: Sequence[int], now: Sequence[int], common: int) -> int:
    """Messages of the last request that stand at the front of this one."""
    count = 0
    for a, b in zip(last, now, strict=False):
        if a != b or a >= common:
            break
        count += 1
    return count

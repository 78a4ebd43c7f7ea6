"""How much work a block's analysis may do, whatever its text says.

Time is counted in units that no machine changes: one unit is about what a regular expression spends on one character
(some 50 ns). Every reader draws from the same account before it works, so that scripts inside scripts, words that
stand for many words and lines that nearly match are all paid for, and what is paid never depends on a clock.
"""

from collections.abc import Callable
from typing import Final

BASE: Final = 60_000
"""Units that any block may spend, however short."""
PER_CHAR: Final = 16
"""Further units for each character of a block's arguments and results."""
MOST: Final = 10_000_000
"""Most units of one block."""
REQUEST: Final = 40_000_000
"""Units of all blocks that are read for one request."""
_LOOK: Final = 500_000
"""Units after which a request with a deadline looks at its clock: about 25 ms."""


class WorkSpent(Exception):
    """A block asks for more work than it may cost. Never leaves `signals`."""


class RequestWork:
    """What is left of one request's units.

    Args:
        units: at the start.
        clock: called every now and then; raises when the request has to go out. None without a deadline.
    """

    __slots__ = ("clock", "left")

    def __init__(self, units: int = REQUEST, clock: Callable[[], None] | None = None) -> None:
        self.left = units
        self.clock = clock


class Work:
    """One block's account.

    Args:
        chars: characters of the block's arguments and results.
        request: the account of the request, which bounds this one and pays for it; None for a block by itself.
    """

    __slots__ = ("_clock", "_look", "left", "limit")

    def __init__(self, chars: int, request: RequestWork | None = None) -> None:
        self.limit = min(BASE + PER_CHAR * chars, MOST)
        if request is not None:
            self.limit = max(min(self.limit, request.left), 0)
        self.left = self.limit
        self._clock = None if request is None else request.clock
        self._look = -1 if self._clock is None else self.left

    @property
    def spent(self) -> int:
        """Units that were used; never more than the limit."""
        return self.limit - max(self.left, 0)

    def spend(self, units: int) -> None:
        """Pay before working. Raises `WorkSpent` when there is not enough left, and what the clock raises."""
        self.left -= units
        if self.left < 0:
            raise WorkSpent
        if self.left < self._look and self._clock is not None:
            self._look = self.left - _LOOK
            self._clock()

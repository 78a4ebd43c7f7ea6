"""Until when a request has to go out, and what says that it does now."""

import time


class OutOfTime(Exception):
    """The request goes out as far as it is settled; the message says why."""


class DeadlinePassed(OutOfTime):
    """`GEMConfig.deadline` is over."""


class Deadline:
    """The clock of one request.

    Args:
        seconds: from now; None for no deadline.
    """

    __slots__ = ("_end", "_seconds")

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds until it passes, not negative; None without one."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def check(self, step: str) -> None:
        """Raise `DeadlinePassed`, which says during what, once it has passed."""
        if self._end is not None and time.monotonic() >= self._end:
            raise DeadlinePassed(f"the deadline of {self._seconds:g} s passed while {step}")

"""What the compressor holds of one conversation."""

import threading

from gemjax.history.arrival.arrivals import Arrivals
from gemjax.history.artifacts import Artifacts
from gemjax.history.blocks import Parsed, Reader
from gemjax.history.signals import BlockSignals
from gemjax.history.state import SessionState
from gemjax.history.vectors import BlockVectors


class Session:
    """One conversation between its requests.

    Attributes:
        lock: held while a request of the session is worked on.
        state: all that has to survive a restart.
        reader, vectors, signals, artifacts: what was read, encoded and recognised of the blocks; made again after a
            restart.
        arrivals: which long results were shortened when they came.
        sent: identities of the messages that went out last; None if that is not known.
        clock: when the last request came, on the caller's clock; None if that is not known.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state = SessionState()
        self.reader = Reader()
        self.vectors = BlockVectors()
        self.signals: dict[str, BlockSignals] = {}
        self.artifacts = Artifacts()
        self.arrivals = Arrivals()
        self.sent: list[bytes] | None = None
        self.clock: float | None = None

    def pause(self, now: float) -> float | None:
        """Seconds since the last request, which is this one from now on; None if unknown, or if the clock went back."""
        before, self.clock = self.clock, now
        return None if before is None or now < before else now - before

    def restart(self, state: SessionState, arrivals: Arrivals | None = None) -> None:
        """Go on from `state`, whatever went out last."""
        self.state = state
        self.arrivals = arrivals or Arrivals()
        self.sent = None
        self.clock = None

    def passed_through(self, parsed: Parsed | None) -> None:
        """The original goes out; the saved set stays for the next request. `parsed` is None if it was not read."""
        self.sent = None if parsed is None else [record.identity for record in parsed.records]

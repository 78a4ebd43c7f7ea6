"""Encoding beside the one who asked, so that nobody is held up by all of it."""

import collections
import threading
import time
from collections.abc import Sequence

import numpy as np

from gemjax.encoders.cached import CachedEncoder
from gemjax.encoders.ending import is_ending, start

_FIRST_CHARS, _LEAST_CHARS, _MOST_CHARS, _MOST_TEXTS = 32_000, 8_000, 2_000_000, 256
_SLICE_SECONDS = 1.0
"""About as long as one slice takes: so long other requests and the end of the process wait for it."""


class LateVectors(Exception):
    """Not all vectors came in time; the rest is being made.

    Attributes:
        job: to be handed in again by the next request of the same asker.
        missing: how many texts have no vector yet.
    """

    def __init__(self, job: "Job", missing: int) -> None:
        super().__init__(f"{missing} texts have no vector yet")
        self.job = job
        self.missing = missing


class Job:
    """The texts that one asker still needs, the most urgent first. Private to `BackgroundEncoder`."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.left = collections.deque(texts)
        self.rows: dict[str, np.ndarray] = {}
        self.missing = len(texts)
        self.error: BaseException | None = None
        self.awaited = True

    def take(self, chars: int) -> list[str]:
        """The next texts of together about so many characters; at least one."""
        part = [self.left.popleft()]
        total = len(part[0])
        while self.left and len(part) < _MOST_TEXTS and total + len(self.left[0]) <= chars:
            part.append(self.left.popleft())
            total += len(part[-1])
        return part


class BackgroundEncoder:
    """Encodes in a thread of its own, slice by slice; askers take turns, and each waits as long as it likes.

    A slice is about a second of work. What comes late is in the cache for the next request. The thread ends when
    nothing is left to do, and after its present slice when the process ends.

    Args:
        cached: encodes, and remembers.
    """

    def __init__(self, cached: CachedEncoder) -> None:
        self._cached = cached
        self._changed = threading.Condition()
        self._jobs: collections.deque[Job] = collections.deque()
        self._thread: threading.Thread | None = None
        self._chars = _FIRST_CHARS

    def encode(self, texts: Sequence[str], seconds: float, earlier: Job | None = None) -> np.ndarray:
        """Unit rows `[len(texts), dim]`.

        Args:
            texts: distinct or not, the most urgent first.
            seconds: how long to wait at most.
            earlier: the asker's job that was late: what is no longer asked for is not encoded any more.

        Raises:
            LateVectors: the time is up; the rest is made in the background.
            GemjaxError: what the encoder raised, now or in the earlier job after its asker had gone.
        """
        if earlier is not None:
            with self._changed:
                earlier.left.clear()
            if earlier.error is not None:
                raise earlier.error
        known = self._cached.known(list(dict.fromkeys(texts)))
        wanted = [text for text, row in known.items() if row is None]
        if not wanted:
            return self._stacked(texts, known, {})
        job = Job(wanted)
        with self._changed:
            self._jobs.append(job)
            if self._thread is None or not self._thread.is_alive():
                self._thread = start(self._work, "gemjax-vectors")
            try:
                self._changed.wait_for(lambda: job.error is not None or not job.missing, seconds)
            finally:
                job.awaited = False
            if job.error is not None:
                raise job.error
            if job.missing:
                job.rows.clear()
                raise LateVectors(job, job.missing)
        return self._stacked(texts, known, job.rows)

    def _stacked(
        self, texts: Sequence[str], known: dict[str, np.ndarray | None], new: dict[str, np.ndarray]
    ) -> np.ndarray:
        rows = [new[text] if (row := known[text]) is None else row for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self._cached.dim), np.float32)

    def _work(self) -> None:
        while True:
            with self._changed:
                while self._jobs and not self._jobs[0].left:
                    self._jobs.popleft()
                if not self._jobs or is_ending():
                    self._thread = None
                    return
                job = self._jobs.popleft()
                part = job.take(self._chars)
            started = time.perf_counter()
            error: BaseException | None = None
            rows: Sequence[np.ndarray] = ()
            try:
                rows = list(self._cached.encode(part))
                self._pace(time.perf_counter() - started)
            except BaseException as raised:
                error = raised
            with self._changed:
                if error is not None:
                    job.error = error
                    job.left.clear()
                if job.awaited:
                    job.rows.update(zip(part, rows, strict=False))
                job.missing -= len(rows)
                self._jobs.append(job)  # behind those that came meanwhile
                self._changed.notify_all()

    def _pace(self, seconds: float) -> None:
        """Longer slices for a fast encoder, shorter ones for a slow one."""
        if seconds < _SLICE_SECONDS / 2:
            self._chars = min(self._chars * 2, _MOST_CHARS)
        elif seconds > _SLICE_SECONDS:
            self._chars = max(self._chars // 2, _LEAST_CHARS)

"""Threads that the end of the process waits for.

At its end Python stops a daemon thread wherever it is; in the middle of native code that aborts the process. A thread
that is no daemon would keep the process for as long as an encoder hangs.
"""

import threading
import time
from collections.abc import Callable

PATIENCE = 10.0
"""Seconds that the end of the process waits for what still runs."""

_lock = threading.Lock()
_running: set[threading.Thread] = set()
_watch: threading.Thread | None = None


def start(work: Callable[[], None], name: str) -> threading.Thread:
    """Run `work` in a daemon thread; the process ends after it, or `PATIENCE` seconds later than it would without.

    Args:
        work: handles its own exceptions. What is long asks `is_ending` between its steps.
        name: the thread's name.
    """
    global _watch

    def run() -> None:
        try:
            work()
        finally:
            with _lock:
                _running.discard(thread)

    thread = threading.Thread(target=run, name=name, daemon=True)
    with _lock:
        _running.add(thread)
        # A process that was forked has no thread of its parent's.
        if _watch is None or not _watch.is_alive():
            # Not `atexit`: what native libraries have registered there would run before, and take away what is in use.
            _watch = threading.Thread(target=_await_all, name="end-of-gemjax", daemon=False)
            _watch.start()
    thread.start()
    return thread


def is_ending() -> bool:
    """Whether nothing keeps the process any more: the main thread is over, and so is each that is no daemon."""
    return not threading.main_thread().is_alive() and not _keeping()


def _keeping() -> list[threading.Thread]:
    """The threads besides the main one that the process waits for, ours left out."""
    main = threading.main_thread()
    return [t for t in threading.enumerate() if not t.daemon and t is not main and t is not _watch]


def _await_all() -> None:
    threading.main_thread().join()
    while threads := _keeping():
        for thread in threads:
            thread.join()
    end = time.monotonic() + PATIENCE
    with _lock:
        threads = list(_running)
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.0))

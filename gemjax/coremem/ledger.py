"""What an answer cost: memories, tokens, milliseconds a stage, and memory of the process."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

STAGES = ("encode", "search", "distil", "prompt", "generate")


@dataclasses.dataclass(frozen=True, slots=True)
class AskLedger:
    """The bill of one recall or answer.

    Args:
        memories_in_bank: memories there were, in all scopes.
        memories_retrieved: memories that the search returned.
        memories_kept: memories of which something is in the prompt.
        memories_cut: memories that the budget let in and the generator's context did not: the least relevant ones.
        tokens_retrieved: of the retrieved memories, whole.
        tokens_kept: of the evidence in the prompt, lines as the template has them.
        tokens_prompted: that the generator read, by its own count; 0 where it was not asked.
        tokens_answered: that it wrote.
        milliseconds: by stage, see `STAGES`; a stage that did not run is not there.
        peak_memory_bytes: the most that this process has held at any time so far; None where the system does not say.
    """

    memories_in_bank: int = 0
    memories_retrieved: int = 0
    memories_kept: int = 0
    memories_cut: int = 0
    tokens_retrieved: int = 0
    tokens_kept: int = 0
    tokens_prompted: int = 0
    tokens_answered: int = 0
    milliseconds: dict[str, float] = dataclasses.field(default_factory=dict)
    peak_memory_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return dataclasses.asdict(self)


class Stopwatch:
    """Milliseconds by stage; a stage that runs twice has the sum.

    Args:
        now: seconds on a clock that only goes forward.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.milliseconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what runs within, also when it raises."""
        start = self._now()
        try:
            yield
        finally:
            self.milliseconds[name] = self.milliseconds.get(name, 0.0) + 1000 * (self._now() - start)


def peak_memory() -> int | None:
    """The most bytes that this process has had in memory at any time; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most

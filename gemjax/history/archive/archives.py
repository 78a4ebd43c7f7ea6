"""The archives of all sessions of one compressor, and what is asked of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gemjax.errors import ConfigError, GemjaxError
from gemjax.history.archive.archive import Archive, By, Shorten, said
from gemjax.history.archive.excerpt import Counter, estimated_tokens
from gemjax.history.archive.recall import Recall
from gemjax.history.archive.tool import TOOL_NAME, answer, definition, read_call
from gemjax.history.records import Block
from gemjax.history.result import CompressionResult

Encode = Callable[[list[str]], np.ndarray]

_WAYS = ("both", "letters", "meaning")


class Archives:
    """One archive a session. Thread-safe.

    Args:
        most: exchanges kept of one session; 0 keeps none.
        sessions: archives kept; the least recently used one is forgotten first.
    """

    def __init__(self, most: int, sessions: int) -> None:
        self._most = most
        self._sessions = sessions
        self._archives: OrderedDict[str, tuple[threading.RLock, Archive]] = OrderedDict()
        self._lock = threading.Lock()
        self._names = {TOOL_NAME}

    @property
    def names(self) -> frozenset[str]:
        """What the recall tool is called."""
        return frozenset(self._names)

    def keep(
        self,
        session: str,
        blocks: Sequence[Block],
        result: CompressionResult,
        vectors: np.ndarray,
        originals: Mapping[int, Block],
    ) -> None:
        """Remember what a request left out. Never raises. See `Archive.keep`."""
        lock, archive = self._of(session)
        forwarded = result.forwarded if result.status == "compressed" else range(len(blocks))
        with lock:
            archive.keep(blocks, forwarded, vectors, self._names, originals)

    def recall(
        self,
        encode: Encode,
        query: Any,
        session: str,
        k: Any,
        budget: Any,
        count: Counter | None,
        shorten: Shorten | None,
        by: By,
    ) -> Recall:
        """See `HistoryCompressor.recall`."""
        if type(k) is not int or k < 1:
            raise ConfigError(f"k must be a positive integer, got {k!r}")
        if type(budget) is not int:
            raise ConfigError(f"budget must be a number of tokens, got {budget!r}")
        if by not in _WAYS:
            raise ConfigError(f"by must be one of {', '.join(_WAYS)}, got {by!r}")
        if not isinstance(query, str):
            raise ConfigError(f"query must be a string, got {type(query).__name__}")
        count = count or estimated_tokens
        with self._lock:
            known = self._archives.get(session)
        if known is None:
            text = "Nothing has been left out of this conversation."
            return said("nothing", text, count, f"no request of a session {session!r} was seen")
        if not self._most:
            return said("nothing", "Nothing is kept of what was left out.", count, "archive_blocks is 0")
        lock, archive = known
        vector, note = None, ""
        if by != "letters" and query.strip() and len(archive):
            try:
                vector = np.asarray(encode([query])[0])  # outside the lock: a request of this session need not wait
            except GemjaxError as error:
                note = f"found by letters only: {error}"
        with lock:
            return archive.find(query, vector, k, budget, count, by, shorten, note)

    def tool(self, format: str, name: str, tools: Any) -> dict[str, Any]:
        """See `HistoryCompressor.recall_tool`."""
        made = definition(format, name, tools)
        with self._lock:
            self._names = self._names | {name}
        return made

    def answer(self, call: Any, recall: Callable[[str], Recall]) -> dict[str, Any] | None:
        """See `HistoryCompressor.answer`."""
        read = read_call(call)
        if read is None or read.name not in self._names:
            return None
        return answer(read, recall(read.query).text)

    def forget(self, session: str) -> None:
        """Drop the session's archive."""
        with self._lock:
            self._archives.pop(session, None)

    def saved(self, session: str) -> list[dict[str, Any]]:
        """What the session's archive needs to survive a restart, as JSON values."""
        with self._lock:
            known = self._archives.get(session)
        if known is None:
            return []
        with known[0]:
            return known[1].to_json()

    def read(self, saved: Any) -> Archive:
        """An archive as `saved` wrote it. Raises `StateError`, naming the field."""
        archive = Archive(self._most)
        archive.load(saved)
        return archive

    def replace(self, session: str, archive: Archive) -> None:
        """Go on with this archive."""
        with self._lock:
            self._archives[session] = (threading.RLock(), archive)
            self._archives.move_to_end(session)
            while len(self._archives) > self._sessions:
                self._archives.popitem(last=False)

    def _of(self, session: str) -> tuple[threading.RLock, Archive]:
        with self._lock:
            known = self._archives.get(session)
            if known is None:
                known = self._archives[session] = (threading.RLock(), Archive(self._most))
                while len(self._archives) > self._sessions:
                    self._archives.popitem(last=False)
            else:
                self._archives.move_to_end(session)
            return known

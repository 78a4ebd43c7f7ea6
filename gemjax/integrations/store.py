"""Conversations on disk, so that a restarted process forwards the same: digests and indices, never content."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemjax.durable import remove_left_overs, replacing
from gemjax.errors import StateError
from gemjax.integrations.lineage import Conversation

VERSION = 1
_DAYS_KEPT = 30
_TIMES_KEPT = 4
_LOOKED_AT_EVERY = 64
_OURS = re.compile(r"[0-9a-f]{16}(?:-[0-9]{1,9})?\.json")
"""Names that conversations get; nothing else in the folder is ever read or removed."""
_CONTENT = frozenset({"archive"})
"""Fields of a compressor's state that hold what was said."""


class ConversationStore:
    """One small JSON file a conversation, in a folder that only its owner may read.

    Args:
        directory: made if it is not there.
        most_bytes: of all files; beyond that the oldest are removed, and a conversation that would be larger than that
            by itself is not kept.

    Raises: `OSError` if the folder cannot be made.
    """

    def __init__(self, directory: str | os.PathLike[str], most_bytes: int = 256 * 1024 * 1024) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._written = 0
        self._saves = 0
        remove_left_overs(self.directory)

    def save(self, conversation: Conversation, state: dict[str, Any]) -> None:
        """Write it whole or not at all: a file that is replaced is never seen half written."""
        record = {
            "version": VERSION,
            "name": conversation.name,
            "scope": conversation.scope,
            "chain": [link.hex() for link in conversation.chain],
            "dropped": sorted(conversation.dropped),
            "stripped": sorted(conversation.stripped),
            "state": {name: value for name, value in state.items() if name not in _CONTENT},
        }
        target = self.directory / f"{conversation.name}.json"
        data = json.dumps(record, separators=(",", ":")).encode()
        with self._lock:
            if len(data) > self._most_bytes:
                target.unlink(missing_ok=True)
                return
            # Not flushed: after a power cut a conversation that is gone costs one rewrite, waiting costs every request.
            with replacing(target, mode=0o600, flush=False) as file:
                file.write(data)
            # Looked at now and then only: a folder of thousands of files takes longer to list than a file to write.
            self._written += len(data)
            self._saves += 1
            if self._saves >= _LOOKED_AT_EVERY or 8 * self._written > self._most_bytes:
                self._written = self._saves = 0
                self._bound(self._files())

    def load(self, limit: int) -> Iterator[tuple[Conversation, dict[str, Any]]]:
        """The latest `limit` conversations, oldest first. Damaged files are passed over; those that are very old, or
        far more than are ever loaded, are removed."""
        with self._lock:
            files = self._bound(self._files(), _TIMES_KEPT * limit)
        for _, _, path in files[-limit:]:
            try:
                yield _read(path)
            except (OSError, ValueError):
                continue

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each conversation's file was written, its bytes, and where it is; oldest first."""
        files = []
        for path in self.directory.iterdir():
            if _OURS.fullmatch(path.name) is None:
                continue
            try:
                found = path.stat()
            except OSError:
                continue
            files.append((found.st_mtime, found.st_size, path))
        return sorted(files)

    def _bound(self, files: list[tuple[float, int, Path]], most: int | None = None) -> list[tuple[float, int, Path]]:
        """Remove what is very old, over `most` in number, or over the bytes; the rest. Keeps an eighth free."""
        oldest = time.time() - _DAYS_KEPT * 86_400
        room = self._most_bytes - self._most_bytes // 8
        kept: list[tuple[float, int, Path]] = []
        for modified, size, path in reversed(files):
            room -= size
            # The newest one always fits: it was not written otherwise.
            full = bool(kept) and (room < 0 or (most is not None and len(kept) >= most))
            if full or modified < oldest:
                path.unlink(missing_ok=True)
            else:
                kept.append((modified, size, path))
        return kept[::-1]


def _read(path: Path) -> tuple[Conversation, dict[str, Any]]:
    record = json.loads(path.read_text("utf-8"))
    if not isinstance(record, dict) or record.get("version") != VERSION or record.get("name") != path.stem:
        raise StateError(f"{path.name} holds no conversation of this version")
    chain, state, scope = (record.get(k) for k in ("chain", "state", "scope"))
    if not (isinstance(chain, list) and isinstance(state, dict) and isinstance(scope, str)):
        raise StateError(f"{path.name} is damaged")
    dropped, stripped = (_indices(path, record.get(name), len(chain)) for name in ("dropped", "stripped"))
    links = tuple(bytes.fromhex(link) for link in chain)
    return Conversation(path.stem, scope, links, dropped, stripped), state


def _indices(path: Path, value: Any, stop: int) -> frozenset[int]:
    if not isinstance(value, list) or any(type(i) is not int or not 0 <= i < stop for i in value):
        raise StateError(f"{path.name} is damaged")
    return frozenset(value)

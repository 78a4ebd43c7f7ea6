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
_OURS = re.compile(r"[0-9a-f]{16}(?:-[0-9]{1,9})?\.json")
"""Names that conversations get; nothing else in the folder is ever read or removed."""
_CONTENT = frozenset({"archive"})
"""Fields of a compressor's state that hold what was said."""


class ConversationStore:
    """One small JSON file a conversation, in a folder that only its owner may read.

    Args:
        directory: made if it is not there.

    Raises: `OSError` if the folder cannot be made.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = threading.Lock()
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
        # Not flushed: after a power cut a conversation that is gone costs one rewrite, waiting costs every request.
        with self._lock, replacing(target, mode=0o600, flush=False) as file:
            file.write(json.dumps(record, separators=(",", ":")).encode())

    def load(self, limit: int) -> Iterator[tuple[Conversation, dict[str, Any]]]:
        """The latest `limit` conversations, oldest first. Damaged files are passed over; those that are very old, or
        far more than are ever loaded, are removed."""
        files = []
        for path in self.directory.iterdir():
            if _OURS.fullmatch(path.name) is None:
                continue
            try:
                files.append((path.stat().st_mtime, path))
            except OSError:
                continue
        files.sort()
        oldest = time.time() - _DAYS_KEPT * 86_400
        for place, (modified, path) in enumerate(files):
            if modified < oldest or place < len(files) - _TIMES_KEPT * limit:
                path.unlink(missing_ok=True)
        for _, path in files[-limit:]:
            try:
                yield _read(path)
            except (OSError, ValueError):
                continue


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

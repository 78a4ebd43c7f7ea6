"""Which conversation a request continues: the longest known prefix of message digests within one scope."""

import dataclasses
import hashlib
import marshal
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

Chain = tuple[bytes, ...]
"""One digest a message, each over all messages up to it, so that equal entries mean equal prefixes."""

_DIGEST_BYTES = 12
_LONG = 8


def chain_of(messages: Sequence[Any]) -> Chain:
    """The chain of a list of wire messages. Cache marks, which move with every request, are not part of it.

    Raises: `ValueError` for a message that is not made of JSON values.
    """
    running = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    chain = []
    for message in messages:
        # Version 2: later versions write references, so that equal values may differ in bytes.
        running.update(marshal.dumps(_said(message), 2))
        chain.append(running.copy().digest())
    return tuple(chain)


def scope_digest(*parts: Any) -> str:
    """A short name for what has to be equal in two requests of one conversation."""
    try:
        data = marshal.dumps(parts, 2)
    except ValueError:
        data = repr(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def common_prefix(a: Chain, b: Chain) -> int:
    """How many leading messages two chains share."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[middle - 1] == b[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclasses.dataclass
class Conversation:
    """One agent's growing history, as far as it has to be known again.

    Attributes:
        name: the compressor's session.
        scope: what else its requests have in common.
        chain: of the last request.
        dropped: indices of the messages that were left out of the last request.
        stripped: indices of those that went out as copies, without their thinking or with shorter results.
        parent: the conversation that it branched off, until its state was taken over.
    """

    name: str
    scope: str
    chain: Chain = ()
    dropped: frozenset[int] = frozenset()
    stripped: frozenset[int] = frozenset()
    parent: str | None = None
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False, compare=False)


class Lineages:
    """Conversations by scope and history, the least recently used one forgotten first."""

    def __init__(self, limit: int = 256) -> None:
        self.limit = limit
        self._known: OrderedDict[str, Conversation] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def find(self, scope: str, chain: Chain) -> Conversation:
        """The conversation that `chain` continues or repeats, but for an edited last message; else a new one.

        A history that left a known one earlier, such as a sub-agent's beside its sibling's, becomes a branch of it.
        """
        with self._lock:
            best, common = None, 0
            for candidate in self._known.values():
                if candidate.scope == scope:
                    shared = common_prefix(candidate.chain, chain)
                    # Of equally good ones the latest: later ones come later in the order of use.
                    if shared and shared >= common:
                        best, common = candidate, shared
            if best is None or not _continues(best.chain, common):
                parent = best.name if best is not None else None
                best = Conversation(self._free_name(scope, chain), scope, parent=parent)
                self._known[best.name] = best
                while len(self._known) > self.limit:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(best.name)
            return best

    def peek(self, scope: str | None, chain: Chain) -> Conversation | None:
        """The conversation whose history is the longest beginning of `chain`, if there is one. Changes nothing.

        None looks in all scopes: what is found has seen nothing that is not in this history.
        """
        with self._lock:
            fitting = [
                c
                for c in self._known.values()
                if (scope is None or c.scope == scope) and 0 < len(c.chain) == common_prefix(c.chain, chain)
            ]
        return max(fitting, key=lambda c: len(c.chain), default=None)

    def add(self, conversation: Conversation) -> None:
        """Take over a conversation that was stored."""
        with self._lock:
            self._known[conversation.name] = conversation

    def remove(self, name: str) -> bool:
        """Forget a conversation; whether it was known."""
        with self._lock:
            return self._known.pop(name, None) is not None

    def _free_name(self, scope: str, chain: Chain) -> str:
        base = scope_digest(scope, chain[0] if chain else b"")[:16]
        name, number = base, 1
        while name in self._known:
            number += 1
            name = f"{base}-{number}"
        return name


def _continues(chain: Chain, common: int) -> bool:
    """Whether a history with so much in common is the next request of a conversation, or leaves it for another.

    The last message may have been edited (a reminder taken out of it again); in a short history it is what tells
    sub-agents apart.
    """
    return common == len(chain) or (common == len(chain) - 1 and common >= _LONG)


def _said(message: Any) -> Any:
    """A message without its cache marks; one text part is the text it holds (clients write one for the other)."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if "cache_control" in message:
        message = {k: v for k, v in message.items() if k != "cache_control"}
    if not isinstance(content, list):
        return message
    parts = [_unmarked(part) for part in content]
    if len(parts) == 1 and isinstance(parts[0], dict) and parts[0].keys() == {"type", "text"}:
        return {**message, "content": parts[0]["text"]}
    return {**message, "content": parts}


def _unmarked(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if "cache_control" in part:
        part = {k: v for k, v in part.items() if k != "cache_control"}
    inner = part.get("content")
    if isinstance(inner, list) and any(isinstance(p, dict) and "cache_control" in p for p in inner):
        part = {**part, "content": [_unmarked(p) for p in inner]}
    return part

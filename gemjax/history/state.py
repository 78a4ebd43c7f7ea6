"""What a session remembers between requests, and its JSON form, so that a restarted process forwards the same set."""

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

from gemjax.errors import StateError
from gemjax.history.records import Block

VERSION = 1


@dataclasses.dataclass(frozen=True, slots=True)
class SessionState:
    """The forwarded set and its bookkeeping after one request.

    Attributes:
        requests: valid requests seen so far.
        blocks: complete blocks of the last one.
        prefix: digest over the keys of these blocks, in order.
        dropped: indices of the blocks that are not forwarded.
        core: indices of the core at the last reselection.
        at: number of blocks at the last reselection.
        events: reselections so far.
        goal: digest of the last goal text.
        keys: a short digest of each block's key, so that a shorter or edited history is compared block by block.
        policy: name of the policy that `memory` belongs to.
        memory: what the policy remembers (JSON values).
        stripped: the thinking of so many messages, from the first, stays out of what is forwarded.
    """

    requests: int = 0
    blocks: int = 0
    prefix: str = ""
    dropped: frozenset[int] = frozenset()
    core: tuple[int, ...] = ()
    at: int = 0
    events: int = 0
    goal: str = ""
    keys: tuple[str, ...] = ()
    policy: str = ""
    memory: dict[str, Any] = dataclasses.field(default_factory=dict)
    stripped: int = 0

    def continues(self, blocks: Sequence[Block]) -> bool:
        """Whether the remembered blocks are a prefix of `blocks` (same content, same order)."""
        if not self.blocks:
            return True
        return self.blocks <= len(blocks) and prefix_digest(blocks[: self.blocks]) == self.prefix

    def to_json(self) -> dict[str, Any]:
        """JSON values only."""
        return {
            "version": VERSION,
            "requests": self.requests,
            "blocks": self.blocks,
            "prefix": self.prefix,
            "dropped": sorted(self.dropped),
            "core": list(self.core),
            "at": self.at,
            "events": self.events,
            "goal": self.goal,
            "keys": list(self.keys),
            "policy": self.policy,
            "memory": dict(self.memory),
            "stripped": self.stripped,
        }

    @classmethod
    def from_json(cls, data: Any) -> "SessionState":
        """Read what `to_json` wrote. Raises `StateError`, naming the field, for anything else."""
        if not isinstance(data, dict):
            raise StateError(f"a state must be an object, got {type(data).__name__}")
        if data.get("version") != VERSION or data.get("version") is True:
            raise StateError(f"state version must be {VERSION}, got {data.get('version')!r}; start the session anew")
        blocks = _count(data, "blocks")
        state = cls(
            requests=_count(data, "requests"),
            blocks=blocks,
            prefix=_text(data, "prefix"),
            dropped=frozenset(_indices(data, "dropped", blocks)),
            core=tuple(_indices(data, "core", blocks)),
            at=_count(data, "at"),
            events=_count(data, "events"),
            goal=_text(data, "goal"),
            keys=_keys(data, blocks),
            policy=_text(data, "policy"),
            memory=_memory(data),
            stripped=_count(data, "stripped") if "stripped" in data else 0,
        )
        if state.dropped.intersection(state.core):
            raise StateError("state fields 'core' and 'dropped' overlap")
        if blocks and len(state.dropped) == blocks:
            raise StateError("state field 'dropped' holds every block")
        if state.at > state.blocks:
            raise StateError(f"state field 'at' is {state.at}, more than its {state.blocks} blocks")
        return state


def prefix_digest(blocks: Iterable[Block]) -> str:
    """One digest over the keys of `blocks`, in order."""
    joined = "\n".join([b.key for b in blocks])
    return hashlib.blake2b(joined.encode(), digest_size=16).hexdigest()


def short_key(block: Block) -> str:
    """Eight bytes that stand for a block's key in a saved state."""
    return hashlib.blake2b(block.key.encode(), digest_size=8).hexdigest()


def text_digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _count(data: dict[str, Any], field: str) -> int:
    value = data.get(field)
    if type(value) is not int or value < 0:
        raise StateError(f"state field {field!r} must be a count, got {value!r}")
    check_numbers(value, field)
    return value


def _text(data: dict[str, Any], field: str) -> str:
    value = data.get(field)
    if not isinstance(value, str):
        raise StateError(f"state field {field!r} must be a string, got {value!r}")
    return value


def _indices(data: dict[str, Any], field: str, blocks: int) -> list[int]:
    value = data.get(field)
    if not isinstance(value, list) or any(type(i) is not int or not 0 <= i < blocks for i in value):
        raise StateError(f"state field {field!r} must be an array of block indices below {blocks}")
    return value


def _keys(data: dict[str, Any], blocks: int) -> tuple[str, ...]:
    value = data.get("keys")
    if not isinstance(value, list) or len(value) != blocks or any(not isinstance(k, str) for k in value):
        raise StateError(f"state field 'keys' must be an array of {blocks} strings")
    return tuple(value)


def _memory(data: dict[str, Any]) -> dict[str, Any]:
    value = data.get("memory")
    if not isinstance(value, dict):
        raise StateError(f"state field 'memory' must be an object, got {value!r}")
    check_numbers(value)
    return dict(value)


def check_numbers(value: Any, field: str = "memory") -> None:
    """Refuse what strict JSON cannot carry to another program: NaN, infinities, integers beyond 64 bits.

    Raises: `StateError`, naming the field.
    """
    waiting = [(field, value)]
    while waiting:
        name, one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend((f"{name}.{key}", item) for key, item in one.items())
        elif isinstance(one, list | tuple):
            waiting.extend((f"{name}[{i}]", item) for i, item in enumerate(one))
        elif isinstance(one, float) and not math.isfinite(one):
            raise StateError(f"state field {name!r} must be a finite number, got {one!r}")
        elif isinstance(one, int) and abs(one) >= 2**63:
            raise StateError(f"state field {name!r} must be an integer below 2**63, got one of {one.bit_length()} bits")

"""A request beside what its session remembers: how much of the history is known, and what the task is."""

import dataclasses
from typing import Any

from gemjax.errors import ConfigError, RequestError
from gemjax.history.blocks import Parsed
from gemjax.history.records import BlockContent
from gemjax.history.state import SessionState, short_key, text_digest


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """A valid request, and the saved state as far as it speaks of it.

    Attributes:
        request: what came in.
        parsed: what was read of it.
        goal: the goal text.
        previous: the saved state, cut to the blocks that are still there.
        shared: how many blocks, from the oldest, are those of the last request.
        rewritten: the blocks of the last request are no longer a prefix of this one's.
        disturbed: index of the message from which what is shared ends, if the caller rewrote a history of which
            something had been left out before; None otherwise.
        idle: seconds since the session's last request; None if unknown.
    """

    request: Any
    parsed: Parsed
    goal: str
    previous: SessionState
    shared: int
    rewritten: bool
    disturbed: int | None = None
    idle: float | None = None

    @property
    def latest(self) -> BlockContent:
        """What the last exchange says; empty without one."""
        return self.parsed.latest or NO_CONTENT

    @property
    def cold(self) -> bool:
        """Nothing of it has been sent before."""
        return self.previous.requests == 0 or (self.rewritten and not self.shared)

    @property
    def goal_changed(self) -> bool:
        """The goal is another than the last request's."""
        return bool(self.previous.goal) and self.previous.goal != text_digest(self.goal)


NO_CONTENT = BlockContent("", "", (), ())


def read_history(request: Any, parsed: Parsed, goal: Any, state: SessionState) -> History:
    """Compare a request with the saved state.

    Raises: `RequestError` for a request that breaks its provider's rules, `ConfigError` for a goal that is no text.
    """
    if parsed.problems:
        more = f" (and {len(parsed.problems) - 1} more)" if len(parsed.problems) > 1 else ""
        raise RequestError(f"invalid request: {parsed.problems[0]}{more}")
    if goal is not None and not isinstance(goal, str):
        raise ConfigError(f"goal must be a string or None, got {type(goal).__name__}")
    rewritten = not state.continues(parsed.blocks)
    goal = goal_of(parsed) if goal is None else goal
    if not rewritten:
        return History(request, parsed, goal, state, state.blocks, False)
    shared = _shared(parsed, state)
    end = parsed.blocks[shared - 1].messages[-1] + 1 if shared else 0
    disturbed = end if shared and (state.dropped or state.stripped) else None
    return History(request, parsed, goal, _cut(state, shared, end), shared, True, disturbed)


def goal_of(parsed: Parsed) -> str:
    """What stands for the goal when the caller states none: the first user message, and the latest one if another."""
    texts = [r.view.text for r in parsed.records if r.view.role == "user" and r.view.text.strip()]
    return "\n\n".join(dict.fromkeys(texts[:1] + texts[-1:]))


def _shared(parsed: Parsed, state: SessionState) -> int:
    pairs = zip(state.keys, parsed.blocks, strict=False)
    fits = min(len(state.keys), len(parsed.blocks))
    return next((i for i, (key, block) in enumerate(pairs) if key != short_key(block)), fits)


def _cut(state: SessionState, n: int, messages: int) -> SessionState:
    return dataclasses.replace(
        state,
        blocks=n,
        dropped=frozenset(i for i in state.dropped if i < n),
        core=tuple(i for i in state.core if i < n),
        keys=state.keys[:n],
        at=min(state.at, n),
        memory=state.memory if n else {},
        stripped=min(state.stripped, messages),
    )

"""What the session remembers once a request goes out."""

from collections.abc import Mapping
from typing import Any

from gemjax.history.config import GEMConfig
from gemjax.history.deciding import Verdict
from gemjax.history.reading import History
from gemjax.history.rebuilding import kept_messages
from gemjax.history.session import Session
from gemjax.history.state import SessionState, prefix_digest, short_key, text_digest


def commit(session: Session, history: History, verdict: Verdict, config: GEMConfig) -> int | None:
    """Save what was decided; returns the position from which what goes out differs from what went out last."""
    plan, previous = verdict.plan, history.previous
    if verdict.decision.reselect and plan is not None:
        core = tuple(int(i) for i in plan.selection.core.nonzero()[0])
        state = _state(history, verdict.dropped, core, len(history.parsed.blocks), 1, verdict.decision.memory, config)
    else:
        state = _state(history, verdict.dropped, previous.core, previous.at, 0, verdict.decision.memory, config)
    return _went_out(session, history, verdict.dropped, state)


def commit_whole(session: Session, history: History, config: GEMConfig) -> int | None:
    """Save that all of a history that is too short to choose from goes out."""
    previous = history.previous
    state = _state(history, frozenset(), previous.core, previous.at, 0, previous.memory, config)
    return _went_out(session, history, frozenset(), state)


def _state(
    history: History,
    dropped: frozenset[int],
    core: tuple[int, ...],
    at: int,
    event: int,
    memory: Mapping[str, Any],
    config: GEMConfig,
) -> SessionState:
    blocks, previous = history.parsed.blocks, history.previous
    # Digests of the blocks of the last request are not computed again.
    keys = [*previous.keys, *(short_key(b) for b in blocks[len(previous.keys) :])]
    return SessionState(
        requests=previous.requests + 1,
        blocks=len(blocks),
        prefix=prefix_digest(blocks),
        dropped=dropped,
        core=core,
        at=at,
        events=previous.events + event,
        goal=text_digest(history.goal),
        keys=tuple(keys),
        policy=config.chosen_policy.name,
        memory=dict(memory),
    )


def _went_out(session: Session, history: History, dropped: frozenset[int], state: SessionState) -> int | None:
    parsed, previous, before = history.parsed, history.previous, session.sent
    identities = [record.identity for record in parsed.records]
    if before is None and 0 < previous.blocks <= len(parsed.blocks):
        # A restarted process: the saved set, applied to what this request still holds of it.
        stop = parsed.blocks[previous.blocks - 1].messages[-1] + 1
        before = [identities[i] for i in kept_messages(parsed, previous.dropped) if i < stop]
    now = [identities[i] for i in kept_messages(parsed, dropped)]
    session.sent, session.state = now, state
    if not before or now[: len(before)] == before:
        return None
    pairs = enumerate(zip(before, now, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(before), len(now)))

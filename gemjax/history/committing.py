"""What the session remembers once a request goes out."""

from collections.abc import Iterable

from gemjax.history.binding import Outgoing, stripped_chars
from gemjax.history.config import GEMConfig
from gemjax.history.deciding import Ruling
from gemjax.history.reading import History
from gemjax.history.rebuilding import kept_messages
from gemjax.history.session import Session
from gemjax.history.state import SessionState, prefix_digest, short_key, text_digest


def commit(
    session: Session, history: History, verdict: Ruling, stripped: Iterable[int], config: GEMConfig
) -> int | None:
    """Save what was decided; returns the position from which what goes out differs from what went out last.

    Args:
        session: gets the new state.
        history, verdict, config: as decided.
        stripped: the messages that go out without their thinking.
    """
    plan, previous, core, at = verdict.plan, history.previous, history.previous.core, history.previous.at
    event = verdict.decision.reselect and plan is not None
    if event and plan is not None:
        core = tuple(int(i) for i in plan.selection.core.nonzero()[0])
        at = len(history.parsed.blocks)
    blocks = history.parsed.blocks
    # Digests of the blocks of the last request are not computed again.
    keys = [*previous.keys, *(short_key(b) for b in blocks[len(previous.keys) :])]
    state = SessionState(
        requests=previous.requests + 1,
        blocks=len(blocks),
        prefix=prefix_digest(blocks),
        dropped=verdict.dropped,
        core=core,
        at=at,
        events=previous.events + event,
        goal=text_digest(history.goal),
        keys=tuple(keys),
        policy=config.chosen_policy.name,
        memory=dict(verdict.decision.memory),
        stripped=verdict.outgoing.stripped,
    )
    before = session.sent
    if before is None and 0 < previous.blocks <= len(blocks):
        # A restarted process: the saved set, applied to what this request still holds of it.
        stop = blocks[previous.blocks - 1].messages[-1] + 1
        saved = Outgoing(previous.dropped, previous.stripped)
        before = _identities(history, saved, stripped_chars(history, saved), stop)
    now = _identities(history, verdict.outgoing, stripped, len(history.parsed.records))
    session.sent, session.state = now, state
    return _first_difference(before, now)


def _identities(history: History, out: Outgoing, stripped: Iterable[int], stop: int) -> list[bytes]:
    """Identities of the messages before `stop` that go out."""
    bare, records = set(stripped), history.parsed.records
    kept = [i for i in kept_messages(history.parsed, out.dropped) if i < stop]
    return [b"bare" + records[i].identity if i in bare else records[i].identity for i in kept]


def _first_difference(before: list[bytes] | None, now: list[bytes]) -> int | None:
    if not before or now[: len(before)] == before:
        return None
    pairs = enumerate(zip(before, now, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(before), len(now)))

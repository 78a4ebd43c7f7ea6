"""One request on its way through a session (Algorithm 1): read, embed, protect, plan, decide, rebuild, commit."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gemjax.errors import CallbackError
from gemjax.history.binding import Binding
from gemjax.history.blocks import Parsed
from gemjax.history.committing import commit
from gemjax.history.config import GEMConfig
from gemjax.history.deadline import Deadline, DeadlinePassed, OutOfTime
from gemjax.history.deciding import Ruling, decide, gone
from gemjax.history.embedding import embed
from gemjax.history.planning import Protected, SelectionInput, plan_selection, protect
from gemjax.history.policy import Decision
from gemjax.history.reading import History, read_history
from gemjax.history.reasons import Fates
from gemjax.history.rebuilding import Rebuilt, rebuild
from gemjax.history.records import Block
from gemjax.history.result import CompressionResult, EncoderUsage, Status
from gemjax.history.session import Session
from gemjax.history.signals import BlockSignals, RequestWork, signals
from gemjax.history.vectors import SharedEncoder

Keep = Callable[[Block], bool]


def forward(
    request: Any,
    parsed: Parsed,
    goal: Any,
    keep: Keep | None,
    session: Session,
    config: GEMConfig,
    encoder: SharedEncoder,
    deadline: Deadline,
    idle: float | None = None,
) -> CompressionResult:
    """Choose what goes out of one request, and remember it in the session.

    Args:
        request: what came in; never changed.
        parsed: what the session's reader read of it.
        goal: the goal text, or None to find it in the request.
        keep: predicate over blocks that stay whatever the rules say.
        session: its state, vectors and signals are brought up to date. An error leaves the state as it was.
        config: settings.
        encoder: makes the vectors.
        deadline: until when.
        idle: seconds since the session's last request; None if unknown.

    Raises: the `GemjaxError`s `RequestError`, `ConfigError`, `CallbackError`, `EncoderError`; `DeadlinePassed`.
    """
    history = dataclasses.replace(read_history(request, parsed, goal, session.state), idle=idle)
    if len(parsed.blocks) < config.min_blocks:
        return _left_alone(history, session, config)
    deadline.check("the request was read")
    pinned = _pinned(parsed, keep)
    try:
        embedded = embed(history, config, session.vectors, encoder, deadline)
    except DeadlinePassed:
        raise
    except OutOfTime as late:
        return _meanwhile(session, history, str(late), pinned, config)
    given = SelectionInput(
        blocks=parsed.blocks,
        vectors=embedded.vectors,
        queries=embedded.queries,
        goal=history.goal,
        latest=history.latest,
        signals=_signals(session, parsed, deadline),
        chars=parsed.chars,
        last_block=parsed.last_block,
        pinned=pinned,
        artifacts=session.artifacts,
    )
    deadline.check("what the blocks did was read")
    protected = protect(given, config.rules)
    deadline.check("the rules ran")
    verdict = decide(history, protected, given.pinned, lambda: plan_selection(given, config, protected), config)
    return _sent(session, history, verdict, config, protected, embedded.usage)


def keep_on(request: Any, parsed: Parsed, reason: str, session: Session, config: GEMConfig) -> CompressionResult | None:
    """What goes out where nothing could be chosen and the provider would refuse the original; None if it may go.

    Thinking that was made after a rewrite is bound to what went out then: the saved set has to go on.

    Args:
        request, parsed, session, config: as in `forward`.
        reason: why nothing could be chosen.
    """
    history = read_history(request, parsed, None, session.state)
    binding = Binding(history, config)
    if binding.original_may_go:
        return None
    verdict = Ruling(Decision(False, reason, history.previous.memory), binding.saved())
    return _sent(session, history, verdict, config, {}, EncoderUsage())


def _sent(
    session: Session,
    history: History,
    verdict: Ruling,
    config: GEMConfig,
    protected: Protected,
    usage: EncoderUsage,
) -> CompressionResult:
    """Rebuild what was decided, and remember it."""
    parsed, known = history.parsed, session.signals
    unread = frozenset(b.index for b in parsed.blocks if (found := known.get(b.key)) is not None and found.unknown)
    rebuilt = rebuild(history, verdict.outgoing)
    if rebuilt.trouble:
        session.passed_through(parsed)
        account = Fates(parsed, config, frozenset(), session.state.core, False, protected, verdict.selection, unread)
        return _result("reverted", rebuilt.trouble, history.request, account, usage)
    changed = commit(session, history, verdict, rebuilt.stripped, config)
    event = verdict.decision.reselect
    account = Fates(parsed, config, verdict.dropped, session.state.core, event, protected, verdict.selection, unread)
    status, reason = _said(verdict, rebuilt)
    return _result(status, reason, rebuilt.request, account, usage, changed, rebuilt.stripped)


def _meanwhile(
    session: Session, history: History, reason: str, pinned: frozenset[int], config: GEMConfig
) -> CompressionResult:
    """While vectors are made the earlier selection stands: the original would cost the provider's cache, twice."""
    parsed, binding = history.parsed, Binding(history, config)
    if history.previous.requests == 0:
        # The first selection is made as soon as it can be, as after any request that went through unchanged.
        session.passed_through(parsed)
        return _result("unchanged", reason, history.request, Fates(parsed, config, frozenset(), ()), EncoderUsage())
    saved = history.previous.dropped - pinned - {parsed.last_block}
    if history.rewritten or gone(parsed.blocks, saved) > config.effective_delta * parsed.chars:
        saved = frozenset()  # it was chosen for another history
    decision = Decision(False, reason, history.previous.memory)
    return _sent(session, history, Ruling(decision, binding.outgoing(saved)), config, {}, EncoderUsage())


def _left_alone(history: History, session: Session, config: GEMConfig) -> CompressionResult:
    """A short history goes out whole, as far as thinking allows it."""
    n = len(history.parsed.blocks)
    count = f"{n} complete removable block{'s' * (n != 1)}"
    reason = f"{count}, fewer than the {config.min_blocks} from which compression starts"
    decision = Decision(False, reason, history.previous.memory)
    verdict = Ruling(decision, Binding(history, config).outgoing(frozenset()))
    return _sent(session, history, verdict, config, {}, EncoderUsage())


def _signals(session: Session, parsed: Parsed, deadline: Deadline) -> list[BlockSignals]:
    """What each block wrote, touched, read and reported; blocks that are gone are forgotten."""
    known = session.signals
    if known.keys() != {b.key for b in parsed.blocks}:
        timed = deadline.left() is not None
        request = RequestWork(clock=partial(deadline.check, "what the blocks did was read") if timed else None)
        session.signals = {b.key: known[b.key] for b in parsed.blocks if b.key in known}
        known = session.signals
        # The newest first: what they did matters most, should the account run out. What was read before the deadline
        # stays for the next request.
        for block in reversed(parsed.blocks):
            if block.key not in known:
                known[block.key] = signals(block.content, request)
    return [known[b.key] for b in parsed.blocks]


def _pinned(parsed: Parsed, keep: Keep | None) -> frozenset[int]:
    if keep is None:
        return frozenset()
    try:
        return frozenset(b.index for b in parsed.blocks if keep(b))
    except Exception as error:
        raise CallbackError(f"keep raised {type(error).__name__}: {error}") from error


def _said(verdict: Ruling, rebuilt: Rebuilt) -> tuple[Status, str]:
    reason, event = verdict.decision.reason, verdict.decision.reselect
    if rebuilt.stripped:
        n = len(rebuilt.stripped)
        reason += f"; signed thinking of {n} earlier message{'s' * (n != 1)} left out"
    if not verdict.dropped and not rebuilt.stripped:
        return "unchanged", f"nothing can go ({reason})" if event else reason
    return "compressed", reason if event else f"kept the earlier selection: {reason}"


def _result(
    status: Status,
    reason: str,
    request: Any,
    account: Fates,
    usage: EncoderUsage,
    changed: int | None = None,
    stripped: Mapping[int, int] | None = None,
) -> CompressionResult:
    stripped = stripped or {}
    parsed, selection = account.parsed, account.selection
    return CompressionResult(
        request=request,
        status=status,
        reason=reason,
        event=account.event,
        coverage=selection.coverage if selection is not None and account.event else None,
        core=account.core,
        forwarded=tuple(b.index for b in parsed.blocks if b.index not in account.dropped),
        chars_before=parsed.chars,
        chars_after=parsed.chars - gone(parsed.blocks, account.dropped) - sum(stripped.values()),
        first_changed_message=changed,
        encoder=usage,
        stripped=tuple(sorted(stripped)),
        unknown=tuple(sorted(account.unread)),
        _records=account.records,
    )

"""What every integration does with a request: find its conversation, compress once, and say which messages stay."""

import asyncio
import contextvars
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gemjax.errors import GemjaxError
from gemjax.history import CompressionResult, GEMConfig, HistoryCompressor
from gemjax.history.archive import Recall
from gemjax.history.thinking import is_signed, without_thinking
from gemjax.integrations.lineage import Conversation, Lineages, chain_of, common_prefix, scope_digest
from gemjax.integrations.store import ConversationStore

KEYS = {"chat": "messages", "responses": "input", "anthropic": "messages"}
"""The field that holds the messages, by format."""

_NOBODY = "gemjax: no conversation"
_WORTH_KEEPING = 16
_REASONED = frozenset(("thinking", "redacted_thinking", "reasoning", "reasoning_content"))
_ALWAYS_SIGNED = frozenset(("redacted_thinking", "reasoning_content"))
_ON_THE_SERVER = ("previous_response_id", "conversation", "thread")
T = TypeVar("T")
_log = logging.getLogger("gemjax.integrations")
_at_work: contextvars.ContextVar[tuple["Shortener", str] | None] = contextvars.ContextVar("gemjax", default=None)
"""Whose request went out last in this thread or task: the tools that its answer calls run there too."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What to do with one request.

    Attributes:
        request: what to send: the very object that came in unless something is left out.
        sources: for each message of `request`, its index in what came in.
        status: as in `CompressionResult`, or `repeated` (a retry: what went out last goes out again), `as-before` (what
            was left out last stays out, nothing new was chosen), `skipped` (not looked at).
        reason: one line.
        session: name of the conversation, empty if there is none.
        common: how many messages are those of the conversation's last request.
        result: of the compressor, if it ran.
        changed: those of `sources` whose message is not the object that came in.
    """

    request: Any
    sources: tuple[int, ...]
    status: str
    reason: str
    session: str = ""
    common: int = 0
    result: CompressionResult | None = None
    changed: frozenset[int] = frozenset()


class Shortener:
    """A `HistoryCompressor` for requests that do not say which conversation they belong to.

    Knows a conversation again by its history, so that sub-agents, parallel agents and taken-back messages keep apart;
    answers a retry with what went out before; and leaves alone what cannot be shortened safely. Never raises because of
    a request.

    Args:
        compressor: shared with other integrations if you like; None makes one with the default encoder.
        max_sessions: conversations remembered.
        store: keeps conversations over restarts.
        patience: seconds that a request waits for another one of its own conversation.
    """

    def __init__(
        self,
        compressor: HistoryCompressor | None = None,
        *,
        max_sessions: int = 256,
        store: ConversationStore | None = None,
        patience: float = 30.0,
    ) -> None:
        self.compressor = compressor or HistoryCompressor(config=GEMConfig(max_sessions=max_sessions))
        self.lineages = Lineages(max_sessions)
        self.store = store
        self.patience = patience
        self._said: set[str] = set()
        for conversation, state in store.load(max_sessions) if store else ():
            try:
                self.compressor.load_state_dict(conversation.name, state)
            except GemjaxError:
                continue  # written under another policy: the conversation starts anew
            self.lineages.add(conversation)

    def shorten(
        self,
        request: Any,
        *,
        format: str,
        scope: str | None = None,
        goal: str | None = None,
        keep: Any = None,
        hold: bool = False,
    ) -> Outcome:
        """What to send of `request`, and the conversation moved on by one request.

        Args:
            request: a dict in the wire format, or a bare list of messages. Never changed.
            format: `chat`, `responses` or `anthropic`.
            scope: name of the session; None takes the model, system and tools. Within it histories tell agents apart.
            goal, keep: as in `HistoryCompressor.compress`.
            hold: for callers that cannot send changed messages: choose nothing new where thinking is signed, and
                leave long results as they are.
        """
        try:
            messages = _messages(request, format)
            if not messages:
                raise ValueError("the history is empty")
            chain = chain_of(messages)
        except (ValueError, RecursionError) as error:
            return _skipped(request, format, str(error))
        conversation = self.lineages.find(f"{format}/{scope or _frame(request)}", chain)
        common = common_prefix(conversation.chain, chain)
        if not conversation.lock.acquire(timeout=self.patience):
            reason = "an earlier request is still at work"
            return self._as_before(request, format, conversation, common, reason, copies=not hold)
        try:
            # Looked at again: while this one waited, another may have moved the conversation on.
            common = common_prefix(conversation.chain, chain)
            if chain == conversation.chain:
                reason = "the same messages again"
                return self._as_before(request, format, conversation, common, reason, "repeated", not hold)
            outcome = self._compressed(request, format, conversation, common, goal, keep, hold)
            conversation.dropped = frozenset(range(len(messages))) - set(outcome.sources)
            conversation.stripped = outcome.changed
            conversation.chain = chain
            self._save(conversation)
            return outcome
        finally:
            conversation.lock.release()

    def kept(
        self, objects: Sequence[T], wire: Callable[[], Sequence[Any]], *, format: str, scope: str | None = None
    ) -> Sequence[T]:
        """Those of a framework's own message objects that stay: the very `objects` if all do. Never raises.

        Args:
            objects: one for each wire message, in order.
            wire: makes the same history in the wire format; what it raises leaves the history whole.
            format, scope: as in `shorten`.
        """
        kept, session = self._kept(objects, wire, format, scope)
        self.sent(session)
        return kept

    async def akept(
        self, objects: Sequence[T], wire: Callable[[], Sequence[Any]], *, format: str, scope: str | None = None
    ) -> Sequence[T]:
        """`kept` for asyncio callers: runs in a worker thread, so that the event loop goes on."""
        kept, session = await asyncio.to_thread(self._kept, objects, wire, format, scope)
        self.sent(session)
        return kept

    def _kept(
        self, objects: Sequence[T], wire: Callable[[], Sequence[Any]], format: str, scope: str | None
    ) -> tuple[Sequence[T], str]:
        """What stays, and the name of the conversation."""
        try:
            messages = list(wire())
        except Exception as error:
            self._warn_once(f"a history could not be read: {type(error).__name__}")
            return objects, ""
        if len(messages) != len(objects):
            self._warn_once(f"{len(objects)} messages became {len(messages)}, so none can be left out")
            return objects, ""
        outcome = self.shorten(messages, format=format, scope=scope, hold=True)
        # A message that was changed has no object here that says the same.
        if outcome.request is messages or outcome.changed:
            return objects, outcome.session
        return [objects[place] for place in outcome.sources], outcome.session

    def preview(self, request: Any, *, format: str, scope: str | None = None) -> Outcome:
        """What `shorten` would send, without moving the conversation on: for counting tokens."""
        try:
            messages = _messages(request, format)
            chain = chain_of(messages)
        except (ValueError, RecursionError) as error:
            return _skipped(request, format, str(error))
        conversation = self.lineages.peek(f"{format}/{scope or _frame(request)}", chain)
        if conversation is None:
            return _whole(request, len(messages), "skipped", "no conversation is known that it continues")
        return self._as_before(request, format, conversation, len(conversation.chain), "counted as sent last")

    def recall(
        self,
        query: str,
        messages: Callable[[], Sequence[Any]] | None = None,
        *,
        k: int = 5,
        budget: int = 2000,
    ) -> Recall:
        """What was left out of one conversation and fits a query. Never of another one, and never raises.

        Args:
            query: see `HistoryCompressor.recall`.
            messages: makes the conversation's history in the wire format, as `shorten` or `kept` got it, perhaps
                longer. None takes the conversation whose request went out last in this thread or task.
            k, budget: see `HistoryCompressor.recall`.
        """
        session = self._session_of(messages)
        if session is None:
            text = "Nothing can be recalled: it is not known which conversation asks."
            return Recall(text, "failed", "no known conversation has this history")
        try:
            return self.compressor.recall(query, session, k, budget)
        except Exception as error:
            return Recall("What was left out cannot be read.", "failed", f"{type(error).__name__}: {error}")

    def answer(
        self, call: Any, messages: Callable[[], Sequence[Any]] | None = None, *, k: int = 5, budget: int = 2000
    ) -> dict[str, Any] | None:
        """The answer to a call of the recall tool in its wire format, for loops of your own; None for other tools.

        Args:
            call: see `HistoryCompressor.answer`.
            messages, k, budget: see `recall`.
        """
        session = self._session_of(messages)
        return self.compressor.answer(call, _NOBODY if session is None else session, k=k, budget=budget)

    def sent(self, session: str) -> None:
        """Say that the tools which run next in this thread or task belong to a conversation; empty: to none."""
        _at_work.set((self, session) if session else None)

    def _session_of(self, messages: Callable[[], Sequence[Any]] | None) -> str | None:
        if messages is None:
            known = _at_work.get()
            return known[1] if known is not None and known[0] is self else None
        try:
            conversation = self.lineages.peek(None, chain_of(messages()))
        except Exception as error:
            self._warn_once(f"a history could not be read: {type(error).__name__}")
            return None
        return None if conversation is None else conversation.name

    def forget(self, session: str) -> None:
        """Start a conversation anew: what was chosen for it was not sent."""
        if self.lineages.remove(session):
            self.compressor.reset(session)

    def _compressed(
        self,
        request: Any,
        format: str,
        conversation: Conversation,
        common: int,
        goal: str | None,
        keep: Any,
        hold: bool,
    ) -> Outcome:
        messages = _messages(request, format)
        if conversation.parent is not None:
            # A branch shares its parent's beginning, which is cached as the parent sent it. It shares nothing else:
            # what its history no longer has must not be recalled there.
            state = self.compressor.state_dict(conversation.parent)
            self.compressor.load_state_dict(conversation.name, {k: v for k, v in state.items() if k != "archive"})
            conversation.parent = None
        if hold and _has_bound_thinking(messages):
            reason = "its signed thinking is bound to the messages before it"
            return self._as_before(request, format, conversation, common, reason, copies=False)
        result = self.compressor.compress(request, goal, conversation.name, keep, format=format, copies=not hold)
        if result.status == "failed" and not result.reason.startswith("invalid request"):
            return self._as_before(request, format, conversation, common, result.reason, "failed", not hold)
        if result.request is request:
            sources, changed = tuple(range(len(messages))), frozenset[int]()
        else:
            copies = sorted({*result.stripped, *result.shortened})
            sources, changed = _origins(messages, _messages(result.request, format), copies)
        return Outcome(
            result.request, sources, result.status, result.reason, conversation.name, common, result, changed
        )

    def _as_before(
        self,
        request: Any,
        format: str,
        conversation: Conversation,
        common: int,
        reason: str,
        status: str = "as-before",
        copies: bool = True,
    ) -> Outcome:
        """Leave out what was left out last, which keeps what is cached; all of it goes out if the history changed."""
        messages = _messages(request, format)
        given = self.compressor.arrived(request, conversation.name, format=format) if copies else request
        dropped, changed = conversation.dropped, conversation.stripped
        # Whole blocks lie before what is common, the last message of the request before never among them.
        if common <= max(dropped | changed, default=-1):
            dropped, changed = frozenset(), frozenset()
        sources = tuple([i for i in range(len(messages)) if i not in dropped])
        arrived = _messages(given, format)
        kept = [without_thinking(arrived[i]) if i in changed else arrived[i] for i in sources]
        copied = frozenset(i for i, message in zip(sources, kept, strict=True) if message is not messages[i])
        if not dropped and not copied:
            return _whole(request, len(messages), status, reason, conversation.name, common)
        shorter = kept if isinstance(request, list) else {**request, KEYS[format]: kept}
        return Outcome(shorter, sources, status, reason, conversation.name, common, None, copied)

    def _warn_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _log.warning("%s", text)

    def _save(self, conversation: Conversation) -> None:
        # A short conversation has nothing that a restart could lose.
        if self.store is None or not (conversation.dropped or len(conversation.chain) >= _WORTH_KEEPING):
            return
        try:
            self.store.save(conversation, self.compressor.state_dict(conversation.name))
        except OSError as error:
            _log.warning("conversations are not kept over a restart: %s", error.strerror)
            self.store = None


def shortener_of(compressor: HistoryCompressor | Shortener | None) -> Shortener:
    """The shortener itself, or a new one around a compressor; None makes one with the default encoder."""
    return compressor if isinstance(compressor, Shortener) else Shortener(compressor)


def on_the_server(request: Any) -> bool:
    """Whether the provider holds the history and the request brings only what is new."""
    return isinstance(request, dict) and any(request.get(field) for field in _ON_THE_SERVER)


def _messages(request: Any, format: str) -> list[Any]:
    """Raises `ValueError`, saying why a request has nothing to shorten."""
    if on_the_server(request):
        raise ValueError("the server holds the history")
    messages = request.get(KEYS[format]) if isinstance(request, dict) else request
    if not isinstance(messages, list):
        raise ValueError(f"there is no list of {KEYS[format]}")
    return messages


def _origins(
    messages: Sequence[Any], forwarded: Sequence[Any], stripped: Sequence[int]
) -> tuple[tuple[int, ...], frozenset[int]]:
    """Where each forwarded message stood, and which of them are changed copies (`stripped` names those, ascending).

    In order, since a client may send one object twice.
    """
    copies = iter(stripped)
    sources: list[int] = []
    changed = set()
    at = 0
    for message in forwarded:
        place = next((i for i in range(at, len(messages)) if messages[i] is message), None)
        if place is None:
            place = next(i for i in copies if i >= at)
            changed.add(place)
        sources.append(place)
        at = place + 1
    return tuple(sources), frozenset(changed)


def _frame(request: Any) -> str:
    if not isinstance(request, dict):
        return scope_digest(None)
    return scope_digest(*(request.get(field) for field in ("model", "system", "instructions", "tools")))


def _has_bound_thinking(messages: Sequence[Any]) -> bool:
    """Whether a message holds thinking that its provider may have signed together with what stands before it."""
    return any(is_signed(m) or any(_may_be_signed(part) for part in _content(m)) for m in messages)


def _may_be_signed(part: Any) -> bool:
    """Frameworks write signed thinking in shapes of their own, with the signature somewhere inside."""
    if not isinstance(part, dict) or part.get("type") not in _REASONED:
        return False
    inner = [part, *(value for value in part.values() if isinstance(value, dict))]
    return part["type"] in _ALWAYS_SIGNED or any(value.get("signature") for value in inner)


def _content(message: Any) -> Sequence[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else ()


def _whole(request: Any, count: int, status: str, reason: str, session: str = "", common: int = 0) -> Outcome:
    return Outcome(request, tuple(range(count)), status, reason, session, common)


def _skipped(request: Any, format: str, reason: str) -> Outcome:
    messages = request.get(KEYS[format]) if isinstance(request, dict) else request
    return _whole(request, len(messages) if isinstance(messages, list) else 0, "skipped", reason)


__all__ = ["KEYS", "Outcome", "Shortener", "on_the_server", "shortener_of"]

"""The GEM façade: Algorithm 1 at an intercepted agent request, one session at a time."""

import asyncio
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from gemjax.errors import ConfigError, GemjaxError, StateError
from gemjax.history.archive import Archives, Recall
from gemjax.history.archive.archive import By, Shorten
from gemjax.history.archive.tool import TOOL_NAME
from gemjax.history.arrival.arrivals import Arrivals, Arrived
from gemjax.history.blocks import Parsed
from gemjax.history.config import GEMConfig
from gemjax.history.deadline import Deadline, DeadlinePassed
from gemjax.history.formats import format_named
from gemjax.history.result import CompressionResult
from gemjax.history.session import Session
from gemjax.history.snapshot import returned, snapshot
from gemjax.history.state import SessionState
from gemjax.history.step import Keep, forward, keep_on
from gemjax.history.vectors import SharedEncoder

_log = logging.getLogger("gemjax.history")


class HistoryCompressor:
    """Shortens the message history an agent sends, by whole tool-call blocks; what it returns is always valid.

    One object serves many conversations (`session`) and threads. It never changes the request it is given, and never
    raises because of it: what cannot be compressed goes through as it came, with the reason.

    Args:
        encoder: an `Encoder`, any callable `list[str] -> array [n, d]`, or None for the default encoder.
        config: settings; `GEMConfig.paper()` is the paper's preset.
        strict: raise `RequestError` or `EncoderError` where the default returns the original request.
        vectors: folder to keep vectors in, so that a restarted process encodes nothing again; needs an encoder with a
            name (or the default one).

    >>> gem = HistoryCompressor(encoder=lambda texts: [[1.0, 0.0]] * len(texts))
    >>> result = gem.compress({"messages": [{"role": "user", "content": "hello"}]})
    >>> result.status, result.reason
    ('unchanged', '0 complete removable blocks, fewer than the 16 from which compression starts')
    """

    def __init__(
        self,
        encoder: Any = None,
        config: GEMConfig | None = None,
        *,
        strict: bool = False,
        vectors: str | os.PathLike[str] | None = None,
    ) -> None:
        if config is not None and not isinstance(config, GEMConfig):
            raise ConfigError(f"config must be a GEMConfig, got {type(config).__name__}")
        complete = all(hasattr(encoder, field) for field in ("encode", "name", "dim"))
        if encoder is not None and (isinstance(encoder, type) or not (callable(encoder) or complete)):
            raise ConfigError(
                f"encoder must have encode, name and dim, be callable, or be None for the default, got {encoder!r}"
            )
        if vectors is not None and encoder is not None and not isinstance(getattr(encoder, "name", None), str):
            raise ConfigError("vectors can be kept for an encoder with a name only; give it one, see CallableEncoder")
        if vectors is not None:
            try:
                os.makedirs(os.fspath(vectors), exist_ok=True)
            except (OSError, TypeError) as error:
                raise ConfigError(f"vectors must be a folder that can be made, got {vectors!r}: {error}") from None
        self.config = config or GEMConfig()
        self.strict = strict
        self._encoder = SharedEncoder(encoder, self.config.encoder_timeout, vectors)
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._archives = Archives(self.config.archive_blocks, self.config.max_sessions)
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def compress(
        self,
        request: Any,
        goal: str | None = None,
        session: str = "default",
        keep: Keep | None = None,
        *,
        format: str = "auto",
        now: float | None = None,
        copies: bool = True,
    ) -> CompressionResult:
        """Choose what to forward of one request (Algorithm 1).

        Args:
            request: a dict in one of the wire formats, or a bare list of messages. Never changed.
            goal: the current task; None takes the first user message, and the latest one if it is another.
            session: name of the conversation. Requests of one session must be the growing history of one agent.
            keep: predicate over blocks; those it names are forwarded whatever the rules say.
            format: `auto`, `chat`, `responses` or `anthropic`.
            now: when the request goes out, in seconds on any clock that all requests of the session share; None reads
                a monotonic clock. After a pause in which the provider's cache expires (`CostAwarePolicy(ttl=)`) a
                rewrite is free. A clock that goes back, and the first request after a restart, count as no pause.
            copies: long results may go out as shorter copies, if `GEMConfig(arrival=)` says so. False for a caller who
                can send nothing but the messages that came in; in all requests of a session or in none.

        Raises: `ConfigError` for an unknown `format`, a session name that is no string, or a `now` that is no finite
            number. With `strict`, also
            `RequestError` and `EncoderError`. Otherwise nothing: see `CompressionResult.status`.
        """
        if format != "auto":
            format_named(format)
        moment = _moment(now)
        state = self._session(_named(session))
        deadline = Deadline(self.config.deadline)
        with state.lock:
            idle = state.pause(moment)
            parsed, late, arrived = None, False, Arrived(request)
            try:
                taken = snapshot(request)
                arrived = self._arrived(taken, state, format) if copies else Arrived(taken)
                given = arrived.request
                parsed = state.reader.parse(given, format)
                result = forward(given, parsed, goal, keep, state, self.config, self._encoder, deadline, idle)
                self._archives.keep(session, parsed.blocks, result, state.vectors.matrix, arrived.originals)
                return returned(arrived.told(result), request, taken)
            except DeadlinePassed as passed:
                reason, late = str(passed), True
            except GemjaxError as error:
                if self.strict:
                    raise
                reason = str(error)
            except (Exception, SystemExit) as error:
                # Whatever goes wrong in here, the agent's request must go out.
                if self.strict:
                    raise
                reason = f"internal error: {type(error).__name__}: {error}"
            kept = None if parsed is None else self._kept_on(given, parsed, reason, state)
            if kept is not None:
                return arrived.told(kept)
            state.passed_through(parsed)
            # What went out short before goes out short now too: it is what the provider has seen.
            outgoing = arrived.request if arrived.copies else request
            if late:
                return arrived.told(CompressionResult(outgoing, "unchanged", reason))
            return arrived.told(self._failed(outgoing, reason))

    async def acompress(
        self,
        request: Any,
        goal: str | None = None,
        session: str = "default",
        keep: Keep | None = None,
        *,
        format: str = "auto",
        now: float | None = None,
        copies: bool = True,
    ) -> CompressionResult:
        """`compress` for asyncio callers: runs in a worker thread, so that the event loop goes on."""
        return await asyncio.to_thread(
            self.compress, request, goal, session, keep, format=format, now=now, copies=copies
        )

    def arrived(self, request: Any, session: str = "default", *, format: str = "auto") -> Any:
        """The request with its long results as this session sends them, and nothing dropped; the request itself where
        none is shortened (`GEMConfig(arrival=)`). For a caller who has to send an earlier choice once more.

        Args:
            request, session, format: as in `compress`.

        Raises: `ConfigError` as `compress` does; nothing because of the request.
        """
        if format != "auto":
            format_named(format)
        if self.config.arrival is None:
            return request
        state = self._session(_named(session))
        with state.lock:
            try:
                made = self._arrived(snapshot(request), state, format)
                return made.request if made.copies else request
            except (Exception, SystemExit) as error:
                self._warn("request passed through", f"internal error: {type(error).__name__}: {error}")
                return request

    def reset(self, session: str = "default") -> None:
        """Forget the session's forwarded set and its archive; its next eligible request is its first."""
        self._archives.forget(_named(session))
        known = self._sessions.get(_named(session))
        if known is not None:
            with known.lock:
                known.restart(SessionState())

    def state_dict(self, session: str = "default") -> dict[str, Any]:
        """The session's state as JSON values; an unknown session has the state of a new one."""
        known = self._sessions.get(_named(session))
        if known is None:
            return SessionState().to_json()
        with known.lock:
            beside = {"archive": self._archives.saved(session), "arrivals": known.arrivals.to_json()}
            return known.state.to_json() | {name: value for name, value in beside.items() if value}

    def load_state_dict(self, session: str, state: Any) -> None:
        """Continue a session from `state_dict`, here or in another process.

        Raises:
            StateError: naming the field, for anything `state_dict` did not write or that another policy wrote; the
                session is then as before.
        """
        _named(session)
        loaded = SessionState.from_json(state)
        policy = self.config.chosen_policy
        if loaded.policy not in ("", policy.name):
            raise StateError(
                f"the state was written under policy {loaded.policy!r}, this compressor uses {policy.name!r}"
            )
        archive = self._archives.read(state.get("archive", []))
        arrivals = Arrivals.from_json(state.get("arrivals", []))
        known = self._session(session)
        with known.lock:
            known.restart(loaded, arrivals)
            self._archives.replace(session, archive)

    def recall(
        self,
        query: str,
        session: str = "default",
        k: int = 5,
        budget: int = 2000,
        *,
        count: Callable[[str], int] | None = None,
        shorten: Shorten | None = None,
        by: By = "both",
    ) -> Recall:
        """Find exchanges that were dropped from this session's requests and are not forwarded now.

        Args:
            query: exact names, paths, ids or numbers, and what it was about.
            session: name of the conversation, as given to `compress`.
            k: the most exchanges.
            budget: the most tokens of the answer. An exchange that is too long is cut to the lines that fit the query.
            count: counts the tokens of a text; None estimates them as UTF-8 bytes / 4.
            shorten: `(text, query, tokens) -> text`, to cut with instead, such as a distiller.
            by: rank by `letters` (BM25 over values and their parts), by `meaning` (cosine of the blocks' vectors), or
                by both, fused.

        Returns: the exchanges and the text for the model; `status` and `reason` say so when there are none, whatever
            the cause. A question that cannot be encoded is answered by letters alone.

        Raises: `ConfigError` for arguments of a wrong type, or a `k` below 1.
        """
        return self._archives.recall(
            lambda texts: self._encoder.encode(texts)[0], query, _named(session), k, budget, count, shorten, by
        )

    def recall_tool(self, format: str, *, name: str = TOOL_NAME, tools: Any = None) -> dict[str, Any]:
        """The definition of a tool with which the model asks for what was dropped, to be sent from the first request.

        It never changes, so it never breaks the provider's prompt cache.

        Args:
            format: `chat`, `responses` or `anthropic`.
            name: what the model calls it.
            tools: the agent's own tools, to make sure that none has this name.

        Raises: `ConfigError` for an unknown format, a name that is not valid, or one that `tools` uses already.
        """
        return self._archives.tool(format, name, tools)

    def answer(self, call: Any, session: str = "default", *, k: int = 5, budget: int = 2000) -> dict[str, Any] | None:
        """Answer a call of the recall tool; None if the call is of another tool.

        Args:
            call: as the model wrote it: an element of `tool_calls` (chat), a `function_call` item (Responses), or a
                `tool_use` block (Anthropic); a dict, or the object of a provider's SDK.
            session, k, budget: see `recall`.

        Returns: a `tool` message, a `function_call_output` item, or a `tool_result` block for the next user message.
        """
        return self._archives.answer(call, lambda query: self.recall(query, session, k, budget))

    def _arrived(self, taken: Any, state: Session, format: str) -> Arrived:
        return state.arrivals.shorten(taken, format, self.config.arrival, self._archives.names)

    def _kept_on(self, request: Any, parsed: Parsed, reason: str, session: Session) -> CompressionResult | None:
        """The saved set, where the original would be refused because of signed thinking. Never raises."""
        try:
            kept = keep_on(request, parsed, reason, session, self.config)
        except (Exception, SystemExit):
            return None
        if kept is not None:
            self._warn("the earlier selection was kept", reason)
        return kept

    def _failed(self, request: Any, reason: str) -> CompressionResult:
        """The original goes through."""
        self._warn("request passed through uncompressed", reason)
        return CompressionResult(request, "failed", reason)

    def _warn(self, what: str, reason: str) -> None:
        """Said once a kind in the log, since an agent's loop may not look at results."""
        kind = reason.partition(":")[0]
        if kind not in self._said:
            self._said.add(kind)
            _log.warning("%s: %s", what, reason)

    def _session(self, name: str) -> Session:
        with self._lock:
            known = self._sessions.get(name)
            if known is None:
                known = self._sessions[name] = Session()
                while len(self._sessions) > self.config.max_sessions:
                    self._sessions.popitem(last=False)
            else:
                self._sessions.move_to_end(name)
            return known


def _moment(now: object) -> float:
    if now is None:
        return time.monotonic()
    if isinstance(now, bool) or not isinstance(now, int | float) or not math.isfinite(now):
        raise ConfigError(f"now must be a finite number of seconds or None, got {now!r}")
    return float(now)


def _named(session: Any) -> str:
    if not isinstance(session, str):
        raise ConfigError(f"session must be a string, got {type(session).__name__}")
    return session

"""One request on its way through a session (Algorithm 1)."""

import copy
import dataclasses
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gemjax.errors import CallbackError, ConfigError, RequestError
from gemjax.history.blocks import Parsed, Reader, may_be_on_the_server
from gemjax.history.config import GEMConfig
from gemjax.history.evidence import EvidenceView, apply_rules
from gemjax.history.policy import Decision, Plan, Policy, Situation
from gemjax.history.queries import QUERIES, queries_of
from gemjax.history.records import Block, BlockContent
from gemjax.history.result import BlockRecord, CompressionResult, EncoderUsage, Status
from gemjax.history.selector import Selection, complete, footprint, removable
from gemjax.history.signals import BlockSignals, signals
from gemjax.history.state import SessionState, prefix_digest, short_key, text_digest
from gemjax.history.vectors import BlockVectors, SharedEncoder

Keep = Callable[[Block], bool]


class Session:
    """What the compressor holds of one conversation. `state` is all that has to survive a restart."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state = SessionState()
        self.reader = Reader()
        self.vectors = BlockVectors()
        self.signals: dict[str, BlockSignals] = {}
        self.sent: list[bytes] | None = None


@dataclasses.dataclass
class Step:
    """One request on its way through a session."""

    config: GEMConfig
    encoder: SharedEncoder
    session: Session
    request: Any
    goal: Any
    keep: Keep | None
    format: str
    usage: EncoderUsage = dataclasses.field(default_factory=EncoderUsage)

    def run(self) -> CompressionResult:
        parsed = self.parsed
        if parsed.problems:
            more = f" (and {len(parsed.problems) - 1} more)" if len(parsed.problems) > 1 else ""
            raise RequestError(f"invalid request: {parsed.problems[0]}{more}")
        n = len(parsed.blocks)
        if n < self.config.min_blocks:
            state = self._state(frozenset(), self.previous.core, self.previous.at, 0, self.previous.memory)
            changed = self._sent(frozenset())
            self.session.state = state
            count = f"{n} complete removable block{'s' * (n != 1)}"
            reason = f"{count}, fewer than the {self.config.min_blocks} from which compression starts"
            return self._result("unchanged", reason, frozenset(), None, changed=changed)
        self._encode()
        decision, dropped = self._decide()
        selection = self._plan[0] if decision.reselect or "_plan" in self.__dict__ else None
        request, reverted = self._rebuild(dropped)
        if reverted:
            self.passed_through()
            return self._result("reverted", reverted, frozenset(), selection)
        event = decision.reselect
        core = tuple(np.flatnonzero(self._plan[0].core).tolist()) if event else self.previous.core
        at = n if event else self.previous.at
        state = self._state(dropped, core, at, event, decision.memory)
        changed = self._sent(dropped)
        self.session.state = state
        status: Status = "compressed" if dropped else "unchanged"
        reason = decision.reason
        if dropped and not event:
            reason = f"kept the earlier selection: {reason}"
        elif event and not dropped:
            reason = f"nothing can go ({reason})"
        return self._result(status, reason, dropped, selection, request, event, changed)

    def _keys(self) -> list[str]:
        """Digests of the blocks' keys; those of the last request are not computed again."""
        known = list(self.previous.keys)
        return known + [short_key(b) for b in self.parsed.blocks[len(known) :]]

    def passed_through(self) -> None:
        """The original goes out; the saved set stays for the next request. Never raises, whatever `run` met."""
        parsed = self.__dict__.get("parsed")
        self.session.sent = None if parsed is None else [record.identity for record in parsed.records]

    def _state(
        self, dropped: frozenset[int], core: tuple[int, ...], at: int, event: int, memory: Mapping[str, Any]
    ) -> SessionState:
        blocks = self.parsed.blocks
        return SessionState(
            requests=self.previous.requests + 1,
            blocks=len(blocks),
            prefix=prefix_digest(blocks),
            dropped=dropped,
            core=core,
            at=at,
            events=self.previous.events + event,
            goal=text_digest(self.goal_text),
            keys=tuple(self._keys()),
            policy=policy_of(self.config).name,
            memory=dict(memory),
        )

    @cached_property
    def parsed(self) -> Parsed:
        return self.session.reader.parse(self.request, self.format)

    @cached_property
    def rewritten(self) -> bool:
        return not self.session.state.continues(self.parsed.blocks)

    @cached_property
    def shared(self) -> int:
        """How many blocks, from the oldest, are those of the last request."""
        state, blocks = self.session.state, self.parsed.blocks
        if not self.rewritten:
            return state.blocks
        pairs = zip(state.keys, blocks, strict=False)
        fits = min(len(state.keys), len(blocks))
        return next((i for i, (key, block) in enumerate(pairs) if key != short_key(block)), fits)

    @cached_property
    def previous(self) -> SessionState:
        """The saved state as far as it speaks of this history: that of the blocks that are still there."""
        state, n = self.session.state, self.shared
        if not self.rewritten:
            return state
        return dataclasses.replace(
            state,
            blocks=n,
            dropped=frozenset(i for i in state.dropped if i < n),
            core=tuple(i for i in state.core if i < n),
            keys=state.keys[:n],
            at=min(state.at, n),
            memory=state.memory if n else {},
        )

    @cached_property
    def goal_text(self) -> str:
        if self.goal is not None:
            if not isinstance(self.goal, str):
                raise ConfigError(f"goal must be a string or None, got {type(self.goal).__name__}")
            return self.goal
        texts = [r.view.text for r in self.parsed.records if r.view.role == "user" and r.view.text.strip()]
        return "\n\n".join(dict.fromkeys(texts[:1] + texts[-1:]))

    def _encode(self) -> None:
        """Vectors of new blocks and of what they are compared with, in one call of the encoder."""
        blocks, vectors = self.parsed.blocks, self.session.vectors
        new = vectors.missing(blocks)
        parts = {name: QUERIES[name](self.goal_text, self._latest, blocks) for name in queries_of(self.config.rules)}
        texts = list(dict.fromkeys(text for query in parts.values() for text in query))
        wanted = [b.content.selection_text for b in new] + texts
        if wanted:
            rows, self.usage = self.encoder.encode(wanted)
            vectors.extend(new, rows[: len(new)])
            self._text_vectors = dict(zip(texts, rows[len(new) :], strict=True))
        self._query_texts = parts

    def _similarity(self, query: str) -> np.ndarray:
        """Cosine of every block with a query, `[n]`; 0 where either has no direction."""
        try:
            direction = np.sum([self._text_vectors[text] for text in self._query_texts[query]], axis=0)
        except KeyError:
            known = ", ".join(self._query_texts) or "none"
            raise ConfigError(f"a rule asked for the query {query!r}; the rules announced: {known}") from None
        norm = float(np.linalg.norm(direction))
        similarity: np.ndarray = self.session.vectors.padded()[: len(self.parsed.blocks)] @ direction
        return similarity / norm if norm > 0 else similarity

    @cached_property
    def _latest(self) -> BlockContent:
        return self.parsed.latest or BlockContent("", "", (), ())

    @cached_property
    def _signals(self) -> list[BlockSignals]:
        known = self.session.signals
        if known.keys() != {b.key for b in self.parsed.blocks}:
            known = {b.key: known.get(b.key) or signals(b.content) for b in self.parsed.blocks}
            self.session.signals = known
        return [known[b.key] for b in self.parsed.blocks]

    @cached_property
    def protected(self) -> dict[str, dict[int, str]]:
        """Rule name -> block index -> reason: P of Eq. B.1, what is pinned, and what the model is about to answer."""
        blocks = self.parsed.blocks
        view = EvidenceView(
            blocks=tuple(blocks),
            signals=tuple(self._signals),
            goal=self.goal_text,
            latest=self._latest,
            similarity=self._similarity,
            vectors=lambda: self.session.vectors.padded()[: len(blocks)],
        )
        found = apply_rules(self.config.rules, view)
        if self.parsed.last_block is not None:
            found["latest"] = {self.parsed.last_block: "the model is about to answer it"}
        if self.pinned:
            found["pinned"] = {i: "the caller keeps it" for i in sorted(self.pinned)}
        return found

    @cached_property
    def pinned(self) -> frozenset[int]:
        if self.keep is None:
            return frozenset()
        try:
            return frozenset(b.index for b in self.parsed.blocks if self.keep(b))
        except Exception as error:
            raise CallbackError(f"keep raised {type(error).__name__}: {error}") from error

    @cached_property
    def _plan(self) -> tuple[Selection, frozenset[int]]:
        """The core for the current history, and what a reselection would drop."""
        parsed = self.parsed
        protected = {i for named in self.protected.values() for i in named}
        selection = complete(
            self.session.vectors.padded(), len(parsed.blocks), protected, self.config.capacity, self.config.coverage
        )
        dropped, _ = removable(
            parsed.blocks, selection.core, selection.residual, parsed.chars, self.config.effective_delta
        )
        return selection, dropped

    def _decide(self) -> tuple[Decision, frozenset[int]]:
        parsed, previous, policy = self.parsed, self.previous, policy_of(self.config)
        must_stay = set(self.pinned)
        if parsed.last_block is not None:
            must_stay.add(parsed.last_block)
        # A history that was taken back uncovers blocks that were dropped when newer ones stood for them.
        if policy.appends_evidence or self.rewritten:
            must_stay.update(i for named in self.protected.values() for i in named)
        appended = previous.dropped - must_stay
        situation = Situation(
            blocks=len(parsed.blocks),
            new_blocks=len(parsed.blocks) - previous.at,
            first=previous.events == 0,
            cold=previous.requests == 0 or (self.rewritten and not self.shared),
            rewritten=self.rewritten,
            goal_changed=bool(previous.goal) and previous.goal != text_digest(self.goal_text),
            plan=lambda: self._prices(appended),
        )
        memory: Mapping[str, Any] = previous.memory
        decision = _decided(policy, situation, memory)
        if not decision.reselect and self._gone(appended) > self.config.effective_delta * parsed.chars:
            # The rest of the conversation shrank under a set that was chosen for a longer one.
            decision = dataclasses.replace(
                decision, reselect=True, reason="the saved set would break the deletion guard"
            )
        return decision, self._plan[1] if decision.reselect else appended

    def _gone(self, dropped: frozenset[int]) -> int:
        return sum(footprint(self.parsed.blocks[i]) for i in dropped)

    def _prices(self, dropped: frozenset[int]) -> Plan:
        planned = self._plan[1]
        changed = planned ^ dropped
        if not changed:
            return Plan(0, 0, 0)
        blocks, records = self.parsed.blocks, self.parsed.records
        first = blocks[min(changed)].messages[0]
        # Where the caller rewrote the history the cache ends, whatever is decided here.
        stop = blocks[self.shared].messages[0] if self.rewritten and self.shared < len(blocks) else len(records)
        after = sum([r.chars + 1 for r in records[first:stop]])
        rewritten = after - sum(footprint(blocks[i]) for i in planned if first <= blocks[i].messages[0] < stop)
        return Plan(self._gone(planned - dropped), self._gone(dropped - planned), rewritten)

    def _kept_messages(self, dropped: frozenset[int]) -> list[int]:
        gone = {m for i in dropped for m in self.parsed.blocks[i].messages}
        return [i for i in range(len(self.parsed.messages)) if i not in gone]

    def _rebuild(self, dropped: frozenset[int]) -> tuple[Any, str]:
        """The request without the dropped blocks, and why it may not be used (empty if it may)."""
        if not dropped:
            return self.request, ""
        parsed = self.parsed
        kept = self._kept_messages(dropped)
        exchanges, problems = parsed.format.exchanges([parsed.records[i].view for i in kept])
        errors = [
            p for p in problems if p.severity == "error" and not may_be_on_the_server(p, self.request, parsed.format)
        ]
        if errors:
            return self.request, f"what was rebuilt is invalid: {errors[0]}"
        if sum(e.removable for e in exchanges) != len(parsed.blocks) - len(dropped):
            return self.request, "what was rebuilt has other blocks than were kept"
        messages = [parsed.messages[i] for i in kept]
        if isinstance(self.request, list):
            return messages, ""
        request = copy.copy(self.request)
        request[parsed.format.key] = messages
        return request, ""

    def _sent(self, dropped: frozenset[int]) -> int | None:
        """Remember what goes out; returns the position from which it differs from what went out last."""
        before = self.session.sent
        if before is None and 0 < self.previous.blocks <= len(self.parsed.blocks):
            # A restarted process: the saved set, applied to what this request still holds of it.
            stop = self.parsed.blocks[self.previous.blocks - 1].messages[-1] + 1
            before = self._digests([i for i in self._kept_messages(self.previous.dropped) if i < stop])
        now = self._digests(self._kept_messages(dropped))
        self.session.sent = now
        if not before or now[: len(before)] == before:
            return None
        return next(
            (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )

    def _digests(self, indices: Sequence[int]) -> list[bytes]:
        return [self.parsed.records[i].identity for i in indices]

    def _result(
        self,
        status: Status,
        reason: str,
        dropped: frozenset[int],
        selection: Selection | None,
        request: Any = None,
        event: bool = False,
        changed: int | None = None,
    ) -> CompressionResult:
        parsed = self.parsed
        core = self.session.state.core
        return CompressionResult(
            request=self.request if request is None else request,
            status=status,
            reason=reason,
            event=event,
            coverage=selection.coverage if selection is not None and event else None,
            core=core,
            forwarded=tuple(b.index for b in parsed.blocks if b.index not in dropped),
            chars_before=parsed.chars,
            chars_after=parsed.chars - self._gone(dropped),
            first_changed_message=changed,
            encoder=self.usage,
            _records=lambda: self._records(dropped, selection, core, event),
        )

    def _records(
        self, dropped: frozenset[int], selection: Selection | None, core: tuple[int, ...], event: bool
    ) -> list[BlockRecord]:
        protected = self.__dict__.get("protected", {})
        in_core = set(core)
        records = []
        for block in self.parsed.blocks:
            i = block.index
            rules = {name: named[i] for name, named in protected.items() if i in named}
            records.append(
                BlockRecord(
                    index=i,
                    label=block.content.label,
                    messages=block.messages,
                    chars=block.chars,
                    protected=rules,
                    residual=None if selection is None else float(selection.residual[i]),
                    in_core=i in in_core,
                    kept=i not in dropped,
                    why=self._why(i, dropped, selection, rules, in_core, event),
                )
            )
        return records

    def _why(
        self,
        i: int,
        dropped: frozenset[int],
        selection: Selection | None,
        rules: dict[str, str],
        core: set[int],
        event: bool,
    ) -> str:
        if i in dropped:
            if rules:
                return "dropped at the last selection; comes back at the next: " + _listed(rules)
            covered = (
                "" if selection is None else f", and the core covers {1 - selection.residual[i]:.0%} of its direction"
            )
            return f"no rule names it{covered}"
        if rules:
            return _listed(rules)
        if selection.core[i] if selection is not None else i in core:
            return "adds a direction that the core lacks"
        if selection is None:
            return "kept" if len(self.parsed.blocks) < self.config.min_blocks else "kept since the last selection"
        if event:
            return f"the guard removes at most {self.config.effective_delta:.0%} at a time"
        return "could go; not worth rewriting yet"


def _decided(policy: Policy, situation: Situation, memory: Mapping[str, Any]) -> Decision:
    try:
        made = policy.decide(situation, memory)
        decision = Decision(bool(made.reselect), str(made.reason), json.loads(json.dumps(dict(made.memory))))
    except Exception as error:
        what = "returned no usable Decision" if isinstance(error, AttributeError | TypeError) else "raised"
        raise CallbackError(f"policy {policy.name!r} {what}: {type(error).__name__}: {error}") from error
    return decision


def _listed(rules: dict[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in rules.items())


def policy_of(config: GEMConfig) -> Policy:
    assert not isinstance(config.policy, str)  # GEMConfig has resolved names
    return config.policy

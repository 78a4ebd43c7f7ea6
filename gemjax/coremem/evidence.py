"""From hits to the lines of a prompt: distilled to a budget, in the order of the dialogue, with where they are from."""

import dataclasses
import datetime as dt
from collections.abc import Sequence
from typing import Any

from gemjax.coremem.ledger import AskLedger
from gemjax.coremem.prompts import PromptTemplate, folded
from gemjax.distill import Compressor, KeptSpan, Turn
from gemjax.distill.render import render
from gemjax.memory import Hit, Memory
from gemjax.memory.record import Id, Scope
from gemjax.memory.words import speaker_of

_BEFORE_ALL = dt.datetime(1, 1, 1, tzinfo=dt.UTC)


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """A memory that was retrieved for a question, and what of it is in the prompt.

    Args:
        id, text, scope, session, speaker, happened_at, metadata: the memory's.
        rank: its place in the search's result, from 1.
        score, cosine, riemannian, lexical: as in `gemjax.memory.Hit`.
        spans: the characters of `text` that are kept, `(start, stop)` in order; empty: nothing is.
        kept: those characters as the prompt has them.
    """

    id: Id
    text: str
    scope: Scope
    session: str | None
    speaker: str | None
    happened_at: dt.datetime | None
    rank: int
    score: float
    cosine: float
    riemannian: float | None
    lexical: float | None
    spans: tuple[tuple[int, int], ...] = ()
    kept: str = ""
    metadata: dict[str, Any] | None = None

    @property
    def whole(self) -> bool:
        """Whether all of the memory is in the prompt."""
        return self.kept == self.text.strip()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        out = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        when = self.happened_at
        return out | {
            "scope": list(self.scope),
            "happened_at": None if when is None else when.isoformat(),
            "spans": [list(span) for span in self.spans],
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Recollection:
    """What a question brought back.

    Args:
        question: as it was asked.
        text: the evidence as the prompt has it: the kept memories in the order of the dialogue, a line each.
        evidence: the memories of which something is kept, in that order.
        left_out: retrieved memories that the budget, or the generator's context, had no room for; best first.
        support: how well the evidence supports an answer, see `gemjax.coremem.support`; 0 without any.
        supported: whether that is enough (`CoreMemConfig.support`).
        note: why there is no evidence, or why the scores are not what the settings ask for; empty otherwise.
        ledger: what it cost.
        asked_at: the reference date: "today" in the prompt.
    """

    question: str
    text: str
    evidence: tuple[Evidence, ...]
    left_out: tuple[Evidence, ...]
    support: float
    supported: bool
    note: str
    ledger: AskLedger
    asked_at: dt.datetime

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "question": self.question,
            "text": self.text,
            "evidence": [part.to_dict() for part in self.evidence],
            "left_out": [part.to_dict() for part in self.left_out],
            "support": self.support,
            "supported": self.supported,
            "note": self.note,
            "asked_at": self.asked_at.isoformat(),
            "ledger": self.ledger.to_dict(),
        }


def in_order(hits: Sequence[Hit], memories: Sequence[Memory | None]) -> list[Hit]:
    """Hits as the dialogue went: by when it was said, when it was remembered, and the place in its call.

    Args:
        hits: of a search.
        memories: the memory of each; None for one that was removed meanwhile.
    """

    def key(i: int) -> tuple[dt.datetime, dt.datetime, int, int]:
        memory, data = memories[i], hits[i].metadata or {}
        created = memory.created_at if memory else None
        place = data.get("place")
        known = place if isinstance(place, int) else 0
        return hits[i].happened_at or _BEFORE_ALL, created or _BEFORE_ALL, known, hits[i].rank

    return [hits[i] for i in sorted(range(len(hits)), key=key)]


def distilled(
    hits: Sequence[Hit], template: PromptTemplate, distiller: Compressor, count: Any, budget: int, question: str
) -> tuple[list[Evidence], int]:
    """The hits with what of each fits the budget, and the tokens of them all.

    Args:
        hits: in the order of the dialogue.
        template: gives the lines.
        distiller: chooses.
        count: tokens of a text, by the distiller's tokenizer.
        budget: the most tokens of the lines together; never exceeded.
        question: what they are asked.
    """
    whole = [as_evidence(hit) for hit in hits]
    lines = [template.line(i, e.happened_at, e.session, e.speaker) for i, e in enumerate(whole, 1)]
    turns = [
        Turn(line.before + e.text, len(line.before) + _header(e.text), e.score)
        for line, e in zip(lines, whole, strict=True)
    ]
    everything = [dataclasses.replace(e, kept=e.text.strip(), spans=_all(e.text)) for e in whole]
    retrieved = int(count(block(everything, template)))
    if retrieved <= budget:
        return everything, retrieved
    room = budget
    while room >= 1 and turns:
        out = distiller.distill(turns, room, question)
        by_turn: dict[int, list[KeptSpan]] = {}
        for span in out.spans:
            by_turn.setdefault(span.turn, []).append(span)
        parts = [
            _kept(e, len(line.before), by_turn.get(i, ())) for i, (e, line) in enumerate(zip(whole, lines, strict=True))
        ]
        # The distiller knows nothing of what stands behind a text, nor of the marks of further lines.
        over = count(block(parts, template)) - budget
        if over <= 0:
            return parts, retrieved
        room -= over
    return whole, retrieved


def block(parts: Sequence[Evidence], template: PromptTemplate) -> str:
    """The lines of a prompt: parts of which something is kept, numbered from 1."""
    lines: list[str] = []
    for part in parts:
        if part.kept:
            line = template.line(len(lines) + 1, part.happened_at, part.session, part.speaker)
            lines.append(line.before + folded(part.kept) + line.after)
    return "\n".join(lines)


def as_evidence(hit: Hit) -> Evidence:
    """A hit of which nothing is kept yet."""
    data = dict(hit.metadata) if hit.metadata is not None else None
    named = (data or {}).get("speaker")
    return Evidence(
        hit.id,
        hit.text,
        hit.scope,
        hit.session,
        named if isinstance(named, str) else speaker_of(hit.text),
        hit.happened_at,
        hit.rank,
        hit.score,
        hit.cosine,
        hit.riemannian,
        hit.lexical,
        metadata=data,
    )


def _header(text: str) -> int:
    """Characters of `Speaker: ` in front."""
    return text.index(":") + 1 if speaker_of(text) else 0


def _all(text: str) -> tuple[tuple[int, int], ...]:
    start = len(text) - len(text.lstrip())
    return ((start, len(text.rstrip())),) if text.strip() else ()


def _kept(part: Evidence, before: int, spans: Sequence[KeptSpan]) -> Evidence:
    own = [KeptSpan(0, max(span.start - before, 0), span.stop - before) for span in spans if span.stop > before]
    if all(span.stop <= _header(part.text) for span in own):
        return part  # a speaker's name alone says nothing
    text = render(own, [Turn(part.text)])
    return dataclasses.replace(part, kept=text, spans=tuple((span.start, span.stop) for span in own))

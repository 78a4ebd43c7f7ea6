"""Memories that a generator writes of a dialogue: a summary of each session, or the facts in it, line by line.

In the spirit of MemoryOS (summaries) and Mem0 (extracted facts): what they do with one prompt, without their
hierarchies, updates and tools, so that a row says what writing is worth with this generator, not what those products
score.
"""

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, Protocol

from gemjax.coremem.evidence import Evidence, block
from gemjax.coremem.generation import ChatMessage, Generator, Sampling
from gemjax.coremem.prompts import PromptTemplate

SUMMARY_PROMPT = (
    "Summarise this part of a conversation in at most four sentences. Keep who did what, and every name, date, place "
    "and number. Write nothing else.\n\n{turns}"
)
FACTS_PROMPT = (
    "List what this part of a conversation tells about the people in it: one short sentence a line, each with the "
    "person's name, and the date, place or number where one is said. Write nothing else.\n\n{turns}"
)
WRITING = Sampling(max_tokens=200)
_MARK = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s*")


class Notebook(Protocol):
    """Where what was written is kept, so that no run writes it twice (`gemjax.evaluation.answers.run.Kept`)."""

    records: dict[str, dict[str, Any]]

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record, which has a `key`."""
        ...


def written_memories(
    turns: Sequence[Evidence],
    prompt: str,
    by_line: bool,
    generator: Generator,
    template: PromptTemplate,
    notebook: Notebook | None = None,
) -> list[Evidence]:
    """What the generator writes of each session, in order, with the session's time.

    A session that does not fit the generator's context with room for an answer is written in parts.

    Args:
        turns: of a dialogue, in order.
        prompt: with the place `{turns}`.
        by_line: every line is a memory; otherwise all of it is one.
        generator: writes, greedily.
        template: gives the lines of the turns.
        notebook: what was written before, and where it goes.

    Raises: GenerationError.
    """
    out: list[Evidence] = []
    for _, session in itertools.groupby(turns, key=lambda turn: turn.session):
        for part in _parts(list(session), prompt, generator, template):
            said = _said(_messages(prompt, block(part, template)), generator, notebook)
            lines = said.splitlines() if by_line else [" ".join(said.split())]
            for line in lines:
                if text := _MARK.sub("", line).strip():
                    first = part[0]
                    made = dataclasses.replace(first, id=len(out), text=text, kept=text, speaker=None, rank=len(out))
                    out.append(made)
    return out


def _messages(prompt: str, turns: str) -> list[ChatMessage]:
    before, after = prompt.split("{turns}")
    return [{"role": "user", "content": before + turns + after}]


def _parts(
    session: list[Evidence], prompt: str, generator: Generator, template: PromptTemplate
) -> list[list[Evidence]]:
    """The session, halved until every part fits; a single turn that does not is cut."""
    room = None if generator.context_window is None else generator.context_window - WRITING.max_tokens
    if room is None or generator.count_tokens(_messages(prompt, block(session, template))) <= room:
        return [session]
    if len(session) > 1:
        half = len(session) // 2
        return [part for side in (session[:half], session[half:]) for part in _parts(side, prompt, generator, template)]
    short = session[0].kept[: len(session[0].kept) // 2]
    return _parts([dataclasses.replace(session[0], kept=short)], prompt, generator, template) if short.strip() else []


def _said(messages: list[ChatMessage], generator: Generator, notebook: Notebook | None) -> str:
    parts = ["written", generator.model, dataclasses.astuple(WRITING), messages]
    key = hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()
    known = None if notebook is None else notebook.records.get(key)
    if known is not None:
        return str(known["written"])
    made = generator.generate(messages, WRITING)
    if notebook is not None:
        notebook.add({"key": key, "messages": messages, "written": made.text, "model": made.model})
    return made.text

"""Prompts as data: templates with named places, which nothing that a user wrote can add to or close."""

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from gemjax.coremem.dates import spelled
from gemjax.coremem.generation import ChatMessage
from gemjax.errors import ConfigError
from gemjax.memory.timing import WEEKDAYS

PLACES = {
    "system": ("today",),
    "user": ("memories", "question", "today"),
    "memory": ("number", "date", "weekday", "time", "session", "speaker", "text"),
    "undated": ("number", "session", "speaker", "text"),
}
"""The places that each part of a template may name."""
NEEDED = {"user": ("memories", "question"), "memory": ("text",), "undated": ("text",)}
CONTINUED = "  "
"""What every further line of a memory or question begins with: no line of theirs begins where the template's do."""
_PIECE = re.compile(r"\{\{|\}\}|\{([a-z]+)\}|([{}])")
# Everything that str.splitlines, a terminal or a tokenizer may take for the end of a line.
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")


def folded(text: str) -> str:
    """A text whose further lines are indented: it stays one item of the prompt, whatever is written in it."""
    return _LINE_END.sub("\n" + CONTINUED, text)


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One memory as a prompt shows it: what stands before its text, and after."""

    before: str
    after: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """How memories and a question become messages. `{place}` is filled in, `{{` and `}}` are braces.

    Args:
        system: the system message; empty: none. May name `{today}`.
        user: the user's message: names `{memories}` and `{question}`, each once, and at most `{today}`.
        memory: one line of `{memories}` for a memory whose time is known: names `{text}` once, which has its speaker in
            front already, and at most `{number}` (from 1), `{date}` ("8 May 2023"), `{weekday}`, `{time}` ("13:56"),
            `{session}` and `{speaker}`.
        undated: the same for a memory without a time.
        unknown: what the model is told to say when the memories hold no answer. An answer that begins with it counts as
            an abstention; empty: none does.

    What fills a place is never read as a template, and its further lines are indented (`folded`), so a memory cannot
    look like another memory, a heading or the question.

    Raises: ConfigError naming the part: an unknown place, a missing or repeated one, a single brace.
    """

    system: str = (
        "You answer a question from memories of earlier conversations. Use only what the memories say. "
        "Answer in a few words. If the memories do not hold the answer, say: I don't know"
    )
    user: str = "Memories, oldest first:\n{memories}\n\nToday is {today}.\nQuestion: {question}"
    memory: str = "[{date}] {text}"
    undated: str = "{text}"
    unknown: str = "I don't know"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not isinstance(getattr(self, field.name), str):
                raise ConfigError(f"prompt: {field.name} must be a string, got {getattr(self, field.name)!r:.40}")
        for name, allowed in PLACES.items():
            named = [place for _, place in _pieces(name, getattr(self, name)) if place]
            if unknown := [place for place in named if place not in allowed]:
                raise ConfigError(
                    f"prompt: {name} names {{{unknown[0]}}}; its places are {', '.join(f'{{{p}}}' for p in allowed)}"
                )
            for place in NEEDED.get(name, ()):
                if named.count(place) != 1:
                    raise ConfigError(f"prompt: {name} must name {{{place}}} once, it does {named.count(place)} times")
        for name in ("memory", "undated"):
            if _LINE_END.search(getattr(self, name)):
                raise ConfigError(f"prompt: {name} must be a single line")

    @classmethod
    def paper(cls) -> "PromptTemplate":
        """The paper's prompt (Appendix E, figure 4): the context as it is, no instruction for what is not in it."""
        return cls(
            system="",
            user="Based on the following conversation context, answer the question concisely.\n"
            "Context: {memories}\nQuestion: {question}\nAnswer:",
            memory="{text}",
            undated="{text}",
            unknown="",
        )

    @classmethod
    def from_dict(cls, data: Any) -> "PromptTemplate":
        """A template from a mapping of the arguments above; what is not given keeps its default.

        Raises: ConfigError for anything else.
        """
        if not isinstance(data, Mapping):
            raise ConfigError(f"prompt must be an object, got {type(data).__name__}")
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := [key for key in data if key not in names]:
            raise ConfigError(f"prompt has no part {unknown[0]!r:.40}; it has {', '.join(names)}")
        return cls(**data)

    def line(self, number: int, when: dt.datetime | None, session: str | None, speaker: str | None) -> Line:
        """What stands around the text of one memory."""
        values = {"number": str(number), "session": session or "", "speaker": speaker or "", "text": "\0"}
        if when is not None:
            values |= {
                "date": spelled(when.date()),
                "weekday": WEEKDAYS[when.weekday()],
                "time": f"{when.hour:02}:{when.minute:02}",
            }
        name = "undated" if when is None else "memory"
        pieces = _pieces(name, getattr(self, name))
        at = next(i for i, (_, place) in enumerate(pieces) if place == "text")

        def filled(part: list[tuple[str, str]]) -> str:
            return "".join(folded(values[place]) if place else literal for literal, place in part)

        return Line(filled(pieces[:at]), filled(pieces[at + 1 :]))

    def messages(self, memories: str, question: str, today: dt.date) -> list[ChatMessage]:
        """The prompt. `memories` are whole lines, folded already; the question is folded here."""
        values = {"memories": memories, "question": folded(question.strip()), "today": spelled(today)}

        def filled(name: str, template: str) -> str:
            return "".join(values[place] if place else literal for literal, place in _pieces(name, template))

        out: list[ChatMessage] = []
        if self.system:
            out.append({"role": "system", "content": filled("system", self.system)})
        out.append({"role": "user", "content": filled("user", self.user)})
        return out

    def says_unknown(self, answer: str) -> bool:
        """Whether an answer begins with the words for "the memories do not hold it"."""
        return bool(self.unknown) and _plain(answer).startswith(_plain(self.unknown))


def _plain(text: str) -> str:
    letters = text.casefold().replace("\u2019", "'")
    return " ".join(re.sub(r"[^\w']+", " ", letters).split())


def _pieces(name: str, template: str) -> list[tuple[str, str]]:
    """Literal text and the place after it, in turn; the last place is empty. Raises ConfigError for a lone brace."""
    out: list[tuple[str, str]] = []
    literal, at = "", 0
    for match in _PIECE.finditer(template):
        literal += template[at : match.start()]
        at = match.end()
        if match[2]:
            raise ConfigError(
                f"prompt: {name} has a single {match[2]!r} at {match.start()}; write it twice for a brace"
            )
        if match[1]:
            out += [(literal, ""), ("", match[1])]
            literal = ""
        else:
            literal += match[0][0]
    return [*out, (literal + template[at:], "")]

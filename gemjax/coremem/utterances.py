"""What is remembered: turns of a dialogue, in the shapes that people have them in."""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from gemjax.coremem.dates import read_time
from gemjax.errors import MemoryBankError

_TEXT = ("text", "content")
_SPEAKER = ("speaker", "name", "role")
_TIME = ("time", "happened_at", "timestamp", "created_at", "date")
_UNSAID = ("system", "developer", "tool", "function")
"""Roles whose messages nobody said: instructions and results of tools are no memories."""


@dataclasses.dataclass(frozen=True, slots=True)
class Utterance:
    """One turn of a dialogue.

    Args:
        text: what was said; blank turns are not remembered.
        speaker: who said it; None where nobody knows.
        time: when, in UTC; None where nobody knows.
        session: the dialogue that it is a turn of, where that differs from turn to turn.
        id: what the turn is called where it came from; kept in the metadata.
    """

    text: str
    speaker: str | None = None
    time: dt.datetime | None = None
    session: str | None = None
    id: str | int | None = None

    @property
    def said(self) -> str:
        """`Speaker: text`, as a memory keeps it."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text


def as_utterances(turns: Any) -> list[Utterance]:
    """Turns in any of the shapes below, blank ones and messages that nobody said left out.

    Args:
        turns: a sequence of `Utterance`s; strings; pairs `(speaker, text)`; or mappings with a text (`text` or
            `content`, which may be a list of text parts), and at most a speaker (`speaker`, `name` or `role`), a time
            (`time`, `happened_at`, `timestamp`, `created_at` or `date`), a `session`, an `id` or `dia_id`, and a
            `blip_caption`: LoCoMo's turns and chat messages are such. Messages of the roles system, developer and tool
            are left out.

    Raises: MemoryBankError naming the turn.
    """
    if isinstance(turns, str | bytes | Mapping) or not isinstance(turns, Sequence):
        raise MemoryBankError(f"turns must be a sequence of turns, got {type(turns).__name__}")
    found = [_utterance(turn, f"turn {i}") for i, turn in enumerate(turns)]
    return [turn for turn in found if turn is not None and turn.text.strip()]


def _utterance(turn: Any, where: str) -> Utterance | None:
    if isinstance(turn, Utterance):
        return turn
    if isinstance(turn, str):
        return Utterance(turn)
    if isinstance(turn, Mapping):
        return _from_mapping(turn, where)
    if isinstance(turn, tuple | list) and len(turn) == 2 and all(isinstance(part, str) for part in turn):
        return Utterance(turn[1], _name(turn[0]))
    raise MemoryBankError(
        f"{where} must be a string, a pair (speaker, text) or a mapping with `text` or `content`, "
        f"got {type(turn).__name__}"
    )


def _from_mapping(turn: Mapping[str, Any], where: str) -> Utterance | None:
    if turn.get("role") in _UNSAID:
        return None
    text = _joined(_first(turn, _TEXT))
    if text is None:
        raise MemoryBankError(f"{where} has neither a string `text` nor `content`")
    if caption := turn.get("blip_caption"):
        text = f"{text} [{caption}]"
    speaker, session, id = _first(turn, _SPEAKER), turn.get("session"), turn.get("id", turn.get("dia_id"))
    if not isinstance(speaker, str | None):
        raise MemoryBankError(f"{where}: a speaker must be a string, got {speaker!r:.40}")
    if isinstance(session, bool) or not isinstance(session, str | int | None):
        raise MemoryBankError(f"{where}: a session must be a string or a number, got {session!r:.40}")
    if isinstance(id, bool) or not isinstance(id, str | int | None):
        raise MemoryBankError(f"{where}: an id must be a string or a number, got {id!r:.40}")
    time = read_time(_first(turn, _TIME), where)
    return Utterance(text, _name(speaker), time, None if session in (None, "") else str(session), id)


def _first(turn: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((turn[key] for key in keys if turn.get(key) is not None), None)


def _joined(content: Any) -> str | None:
    """A message's text, its text parts joined; a message without content said nothing."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return "\n".join(part for part in parts if isinstance(part, str))


def _name(speaker: str | None) -> str | None:
    """A speaker on one line and without the colon that ends a name."""
    return " ".join((speaker or "").replace(":", " ").split()) or None

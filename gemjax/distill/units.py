"""The least parts that can be dropped: tokens, or words, never less than a grapheme (a visible character)."""

# ruff: noqa: RUF001 - punctuation of many scripts is meant

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import regex

from gemjax.distill.turns import ReadTurn

UnitKind = Literal["token", "word"]

_GRAPHEME = regex.compile(r"\X")
# Inside a word when they stand between letters or digits: don't, well-known, 3.14, 10:30, 1,000, and/or, a_b.
_INNER = frozenset("'’-.:,/_‐·@&")
# Scripts written without spaces: every character may be a boundary.
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
_UNSPACED = regex.compile(UNSPACED)


@dataclasses.dataclass(frozen=True, slots=True)
class Units:
    """The units of all turns one after another; integer arrays `[n]`.

    Attributes:
        turn: index of the unit's turn.
        sentence: number of its sentence, over all turns.
        start, stop: its characters in the turn's text.
        first: index of its first token, counted over all turns; `first[n]` is the number of tokens.
        header: whether it holds a visible part of its turn's header.
    """

    turn: np.ndarray
    sentence: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    first: np.ndarray
    header: np.ndarray

    def __len__(self) -> int:
        return len(self.turn)

    @property
    def cost(self) -> np.ndarray:
        """Tokens of each unit."""
        return np.diff(self.first)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Mean over each unit's tokens of a value a token."""
        return np.add.reduceat(values, self.first[:-1]) / self.cost if len(self) else np.zeros(0)


def units_of(turns: Sequence[ReadTurn], kind: UnitKind) -> Units:
    """The units of the turns. A unit belongs to the sentence of its last character that is not white space."""
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("turn", "sentence", "start", "stop", "first", "header")
    }
    tokens = sentences = 0
    for index, read in enumerate(turns):
        text, stops = read.turn.text, read.tokens.stops
        ends = _ends(text, stops, kind)
        first = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        start = np.concatenate([[0], stops[ends[:-1]]]) if len(ends) else ends
        stop = stops[ends] if len(ends) else ends
        places = np.array([max(_last_visible(text, a, b), 0) for a, b in zip(start, stop, strict=True)], np.int64)
        limits = np.array([b for _, b in read.spans], np.int64)
        columns["turn"].append(np.full(len(ends), index))
        columns["sentence"].append(sentences + np.searchsorted(limits, places, side="right"))
        columns["start"].append(start)
        columns["stop"].append(stop)
        columns["first"].append(tokens + first)
        # A word's unit begins with the blank before it, which may still be the header's.
        seen = np.array([b - len(text[a:b].lstrip()) for a, b in zip(start, stop, strict=True)], np.int64)
        columns["header"].append(seen < read.turn.header)
        tokens += len(stops)
        sentences += len(read.spans)
    flat = {name: np.concatenate(parts) if parts else np.zeros(0, np.int64) for name, parts in columns.items()}
    flat["first"] = np.append(flat["first"], tokens)
    return Units(**{name: part.astype(bool if name == "header" else np.int64) for name, part in flat.items()})


def is_unspaced(text: str) -> bool:
    """Whether it holds a letter of a script that does not separate words by blanks."""
    return _UNSPACED.search(text) is not None


def _ends(text: str, stops: np.ndarray, kind: UnitKind) -> np.ndarray:
    """Indices of the tokens after which the text may be cut."""
    if not len(stops):
        return np.zeros(0, np.int64)
    # A token of an empty span holds bytes of its predecessor's character.
    free = np.append(np.diff(stops) > 0, True)
    cuts = _grapheme_cuts(text)
    if cuts is not None:
        free &= cuts[stops]
    elif "\r" in text:
        free &= np.array([not (text[s - 1 : s] == "\r" and text[s : s + 1] == "\n") for s in stops])
    if kind == "word":
        free &= np.array([not _inside_word(text, int(s)) for s in stops])
    free[-1] = True
    return np.flatnonzero(free)


def _grapheme_cuts(text: str) -> np.ndarray | None:
    """Where a text may be cut without splitting a visible character, `[len + 1]`; None: everywhere (ASCII)."""
    if text.isascii():
        return None
    cuts = np.zeros(len(text) + 1, bool)
    cuts[0] = True
    cuts[[match.end() for match in _GRAPHEME.finditer(text)]] = True
    return cuts


def _inside_word(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if before.isspace():
        return not after.isspace()  # the white space before a word goes with it
    if before in _INNER:
        before = text[at - 2] if at >= 2 and after.isalnum() else " "
    elif after in _INNER:
        after = text[at + 1] if at + 1 < len(text) and before.isalnum() else " "
    if not (_wordlike(before) and _wordlike(after)):
        return False
    return not (_UNSPACED.match(before) or _UNSPACED.match(after))


def _wordlike(character: str) -> bool:
    return character.isalnum() or character == "_"


def _last_visible(text: str, start: int, stop: int) -> int:
    place = stop - 1
    while place > start and text[place].isspace():
        place -= 1
    return place

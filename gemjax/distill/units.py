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
_RUN = regex.compile(r"\S+")
_WORDLIKE = regex.compile(r"[\p{L}\p{M}\p{N}_]")
_DASH = regex.compile(r"(?<=\p{L})(?:[—–…]|-{2,4})(?=\p{L})")
_ADDRESS = regex.compile(r"[/\\@]|::")
# Punctuation of prose that may stand around a word; what a bracket or quote opens is looked for before it goes.
_PAIRS = {")": "(", "]": "[", "}": "{", '"': '"', "'": "'"}
_OPENING = {opener: closer for closer, opener in _PAIRS.items()} | dict(zip("“‘«¿¡*", "”’»?!*", strict=True))
_CLOSING = frozenset(".,!?;:…\"'”’»)]}*؟۔।॥،؛")
# A longer run of punctuation is no prose, and must not cost the square of its length.
_EDGE = 8
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
        free &= _word_cuts(text)[stops]
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


def _word_cuts(text: str) -> np.ndarray:
    """Where a text may be cut without taking a word, a number, an address or a piece of code apart, `[len + 1]`.

    What white space leaves together stays together: addresses, paths, identifiers, numbers, and words of every script
    with their marks. Punctuation of prose at its ends is a unit of its own, a dash may join two words, and a letter of
    a script without blanks may stand alone.
    """
    cuts = np.zeros(len(text) + 1, bool)
    cuts[-1] = True
    for match in _RUN.finditer(text):
        start, stop = match.span()
        first, last = _core(text, start, stop)
        cuts[[last, stop]] = True
        # The white space before a word goes with it.
        cuts[first] |= first > start
        if _ADDRESS.search(text, first, last) is None:
            for dash in _DASH.finditer(text, first, last):
                cuts[[dash.start(), dash.end()]] = True
        for letter in _UNSPACED.finditer(text, start, stop):
            cuts[letter.end()] = True
            cuts[letter.start()] |= letter.start() > start
    return cuts


def _core(text: str, start: int, stop: int) -> tuple[int, int]:
    """A run without the punctuation at its ends; a bracket or quote that belongs to the inside stays."""
    first, last = start, stop
    while last > first and stop - last < _EDGE and text[last - 1] in _CLOSING:
        opener = _PAIRS.get(text[last - 1])
        if opener is not None and opener in text[first : last - 1]:
            break
        last -= 1
    while first < last and first - start < _EDGE and text[first] in _OPENING:
        closer = _OPENING[text[first]]
        if closer in text[first + 1 : last]:
            break
        first += 1
    return (first, last) if first < last else (start, stop)


def wordlike(character: str) -> bool:
    """Whether it is part of a word: a letter, a digit, an underscore or a mark on one of them."""
    return _WORDLIKE.match(character) is not None


def _last_visible(text: str, start: int, stop: int) -> int:
    place = stop - 1
    while place > start and text[place].isspace():
        place -= 1
    return place

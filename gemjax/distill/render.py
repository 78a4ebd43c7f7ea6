"""Kept units back to text: original characters only, with a separator where a gap would fuse two words."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import regex

from gemjax.distill.turns import Turn
from gemjax.distill.units import Units, wordlike

# White space, but not a blank that carries a combining mark: the two are one visible character.
_BLANK = regex.compile(r"(?:\s(?!\p{M}|\u200d))*")


class KeptSpan(NamedTuple):
    """Characters `start:stop` of turn number `turn` that survive."""

    turn: int
    start: int
    stop: int


def kept_spans(units: Units, kept: np.ndarray, turns: Sequence[Turn]) -> list[KeptSpan]:
    """The kept characters as maximal spans: in order, disjoint, white space at a kept turn's ends taken off.

    Args:
        units: of all turns.
        kept: bool a unit.
        turns: the turns.
    """
    spans: list[KeptSpan] = []
    for i in np.flatnonzero(kept):
        turn, start, stop = int(units.turn[i]), int(units.start[i]), int(units.stop[i])
        if start == stop:
            continue
        if spans and spans[-1].turn == turn and spans[-1].stop == start:
            spans[-1] = KeptSpan(turn, spans[-1].start, stop)
        else:
            spans.append(KeptSpan(turn, start, stop))
    return _trimmed(spans, turns)


def _trimmed(spans: list[KeptSpan], turns: Sequence[Turn]) -> list[KeptSpan]:
    out: list[KeptSpan] = []
    for number, (turn, start, stop) in enumerate(spans):
        text = turns[turn].text
        first = number == 0 or spans[number - 1].turn != turn
        last = number + 1 == len(spans) or spans[number + 1].turn != turn
        if first and start > 0:
            blank = _BLANK.match(text, start, stop)
            start = blank.end() if blank else start
        if last and stop < len(text):
            stop -= len(text[start:stop]) - len(text[start:stop].rstrip())
        if start < stop:
            out.append(KeptSpan(turn, start, stop))
    return out


def render(spans: Sequence[KeptSpan], turns: Sequence[Turn]) -> str:
    """The text of the spans: turns on lines of their own; over a gap a blank where the dropped characters held white
    space and neither side does (a line break where they held one), or where two word characters would meet.
    """
    pieces: list[str] = []
    previous: KeptSpan | None = None
    for span in spans:
        text = turns[span.turn].text
        piece = text[span.start : span.stop]
        if previous is not None:
            if previous.turn != span.turn:
                pieces.append("\n")
            elif not (pieces[-1][-1:].isspace() or piece[:1].isspace()):
                gap = text[previous.stop : span.start]
                meet = wordlike(pieces[-1][-1:]) and wordlike(piece[:1])
                pieces.append("\n" if "\n" in gap else " " if meet or any(c.isspace() for c in gap) else "")
        pieces.append(piece)
        previous = span
    return "".join(pieces)


def marked(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The whole text with what is outside the spans between ~~ and ~~."""
    out, at = [], 0
    for start, stop in [*spans, (len(text), len(text))]:
        gap = text[at:start]
        bare = gap.strip()
        # Blanks stay outside the marks: Markdown wants them so.
        out.append(gap.replace(bare, f"~~{bare}~~") if bare else gap)
        out.append(text[start:stop])
        at = stop
    return "".join(out)

"""Splits a text into sentences, as spans of the original text that follow each other without gap.

Rules, not a model: linear in the text's length, the same in every process, and exact about characters. Knows
abbreviations and initials, decimal points, quotation marks after the full stop, ellipses, CJK, Arabic and Indic full
stops, lists, blank lines and fenced code.
"""

# ruff: noqa: RUF001 - punctuation of many scripts is meant

import re

Span = tuple[int, int]

# Full stops that end a sentence wherever they stand: scripts that put no space between sentences.
_WIDE = "。！？｡\uff0e"
_STOPS = ".!?…؟۔।॥።" + _WIDE
_CLOSERS = "\"'”’»)\\]}」』）】〉》"
# Possessive, and never started inside a run: a text of a million dots or spaces must stay linear.
_END = re.compile(
    rf"(?<![{_STOPS}])(?P<stop>[{_STOPS}]++)[{_CLOSERS}]*+(?:\s++|$)|(?<![{_WIDE}])(?P<wide>[{_WIDE}]++[{_CLOSERS}]*+)"
)
_NEWLINES = re.compile(r"(?<![ \t\r\f\v])[ \t\r\f\v]*+\n\s*+")
_LIST_ITEM = re.compile(r"(?:[-*+•·‣]|\(?\d{1,3}[.)]|\(?[A-Za-z][.)])\s|#{1,6}\s|>|\||```|~~~")
_WORD_BEFORE = re.compile(r"[^\s(\[\"'“‘]*$")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_ABBREVIATED = (
    "mr mrs ms mx dr prof sr jr st rev hon gen col capt lt sgt cmdr maj gov sen rep pres supt messrs mmes "
    "vs etc al fig figs eq eqs no nos vol vols ch sec art pp ed eds approx est ca cf viz ibid op cit resp "
    "inc ltd co corp bros dept univ assn ave blvd rd mt ft "
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun "
    "e.g i.e a.k.a u.s u.k u.n e.u a.m p.m ph.d b.sc m.sc d.c n.b "
    "z.b d.h u.a bzw ca usw nr abs bspw vgl geb mme mlle sig dott"
)
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())
# These end a sentence as often as not; a capital letter after them decides.
_LAST = "etc al a.m p.m inc ltd co corp u.s u.k u.n e.u jr sr d.c ph.d usw"
_OFTEN_LAST = frozenset(_LAST.split())


def sentences(text: str) -> list[Span]:
    """Spans `(start, stop)` of the sentences: in order, without gap, each with the white space that follows it.

    An empty text has none; a text of white space only is one span.
    """
    out: list[Span] = []
    for start, stop, code in _regions(text):
        if code:
            _append_lines(out, text, start, stop)
        else:
            for first, last in _paragraphs(text, start, stop):
                _append_sentences(out, text, first, last)
    return _absorb_blank(text, out)


def code_regions(text: str) -> list[Span]:
    """The stretches of fenced code, with their fences; an unclosed fence runs to the end."""
    return [(start, stop) for start, stop, code in _regions(text) if code]


def _regions(text: str) -> list[tuple[int, int, bool]]:
    """Alternating stretches of prose and fenced code; an unclosed fence runs to the end."""
    marks = [match.start() for match in _FENCE.finditer(text)]
    out, position = [], 0
    for opening, closing in zip(marks[::2], [*marks[1::2], None][: len(marks[::2])], strict=True):
        stop = len(text) if closing is None else (text.find("\n", closing) + 1) or len(text)
        out += [(position, opening, False), (opening, stop, True)]
        position = stop
    out.append((position, len(text), False))
    return [region for region in out if region[0] < region[1]]


def _append_lines(out: list[Span], text: str, start: int, stop: int) -> None:
    while start < stop:
        end = text.find("\n", start, stop) + 1 or stop
        out.append((start, end))
        start = end


def _paragraphs(text: str, start: int, stop: int) -> list[Span]:
    """Cuts at line ends, except where a line was only wrapped: it goes on in lower case without a stop before."""
    out, position = [], start
    for match in _NEWLINES.finditer(text, start, stop):
        end = match.end()
        blank = match.group().count("\n") > 1
        wrapped = (
            not blank and end < stop and text[end].islower() and text[match.start() - 1 : match.start()] not in ".:!?"
        )
        if wrapped and not _LIST_ITEM.match(text, end, stop):
            continue
        out.append((position, end))
        position = end
    if position < stop:
        out.append((position, stop))
    return out


def _append_sentences(out: list[Span], text: str, start: int, stop: int) -> None:
    position = start
    for match in _END.finditer(text, start, stop):
        end = match.end()
        if end < stop and (match["wide"] or _ends(text, position, match, stop)):
            out.append((position, end))
            position = end
    if position < stop:
        out.append((position, stop))


def _ends(text: str, start: int, match: re.Match[str], stop: int) -> bool:
    following = text[match.end() : match.end() + 1]
    marks = match["stop"]
    if marks[-1] in _WIDE:
        return True
    if following.islower():
        # "Wait... what?" and "Is it? asked Bob" go on; so does everything after an abbreviation.
        return False
    if marks != ".":
        return True
    # Bounded look-behind: a "word" of thousands of characters is no abbreviation, and must not cost its length.
    before = _WORD_BEFORE.search(text, max(start, match.start() - 24), match.start())
    word = (before.group() if before else "").lower().strip(".")
    if word in _ABBREVIATIONS:
        return word in _OFTEN_LAST and following.isupper()
    if len(word) == 1 and word.isalpha() and word != "i":
        return False  # an initial
    # "1. Boil the water": the number of a list item is not a sentence.
    return not (word.isdigit() and len(word) <= 3 and not text[start : match.start()].strip().rstrip("0123456789"))


def _absorb_blank(text: str, spans: list[Span]) -> list[Span]:
    """A span of white space only belongs to the sentence before it, or to the first one after."""
    out: list[Span] = []
    pending: int | None = None
    for start, stop in spans:
        if not text[start:stop].strip():
            if out:
                out[-1] = (out[-1][0], stop)
            elif pending is None:
                pending = start
            continue
        out.append((start if pending is None else pending, stop))
        pending = None
    if pending is not None:
        out.append((pending, len(text)))
    return out

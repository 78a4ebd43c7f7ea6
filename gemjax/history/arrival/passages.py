"""A text cut down to its most telling passages: whole lines, in their order, every gap marked with its size."""

import math
import re
from collections import Counter
from collections.abc import Sequence

from gemjax.history.values import values_of

MOST = 60_000
"""Characters that are looked at, half of them at the beginning and half at the end; what is between is left out."""

_LINES, _WIDE = 6, 300
"""A passage has at most so many lines and about twice so many characters; a longer line is cut at blanks and commas."""

_ROOM = 80
"""Characters of room that are not worth filling."""

_REACH = 600.0
"""Characters over which the beginning and the end lose their weight."""

_WORD = re.compile(r"\w+")
_ALARM = re.compile(
    r"error|exception|traceback|fail|warn|fatal|panic|denied|not found|assert|undefined|cannot|unable", re.I
)
_OUTLINE = re.compile(
    r"^[ \t]*(?:(?:export|public|private|static|async|pub) )*(?:def|class|function|func|fn|interface|struct|enum|type"
    r"|impl|trait|module|package)\b|^#{1,6} |^diff |^@@ |^[\w./-]{1,200}:\d",
    re.M,
)
_DIGITS = re.compile(r"\d+")

Span = tuple[int, int]


def passages(text: str) -> list[Span]:
    """Where the passages of a text stand: they cover all of it, in order, and end where a line or a word does."""
    out: list[Span] = []
    start, lines = 0, 0
    for piece in _pieces(text):
        lines += 1
        full = lines == _LINES or piece[1] - start > 2 * _WIDE
        # A blank line ends a passage, and never is one by itself.
        if full or (lines > 1 and not text[piece[0] : piece[1]].strip()):
            out.append((start, piece[1]))
            start, lines = piece[1], 0
    if start < len(text):
        out.append((start, len(text)))
    return out


def telling(text: str, spans: Sequence[Span], query: str) -> list[float]:
    """How much each passage tells: near the beginning or the end, words of the call, alarms, declarations, values.

    The weights were tried on recorded runs by the bill with what has to be looked up again (docs/replay.md); halving or
    doubling any of them changes little. Passages that look like one before count less and less.
    """
    texts = [text[start:stop] for start, stop in spans]
    words = [set(_WORD.findall(t.lower())) for t in texts]
    asked = {word for word in _WORD.findall(query.lower()) if len(word) > 2}
    held = Counter(word for found in words for word in found & asked)
    alike: Counter[str] = Counter()
    scores = []
    alarms = [_ALARM.search(passage) is not None for passage in texts]
    rare = math.log1p(len(spans) / max(sum(alarms), 1))
    for (start, stop), passage, found, alarmed in zip(spans, texts, words, alarms, strict=True):
        score = 0.1 + 4.0 * math.exp(-start / _REACH) + 2.0 * math.exp(-(len(text) - stop) / _REACH)
        score += 0.7 * len(_OUTLINE.findall(passage))
        score += 0.5 * len(values_of(passage[: 4 * _WIDE]))
        form = _DIGITS.sub("0", passage.strip()[:80])
        alike[form] += 1
        # What is asked for and what went wrong is looked for however much is like it. Sorted, so that the sum is the
        # same in every process.
        wanted = sum(math.log1p(len(spans) / held[word]) for word in sorted(found & asked))
        scores.append(score / alike[form] + wanted + rare * alarmed)
    return scores


def cut_down(text: str, query: str, keep: int) -> str:
    """The most telling passages of a text, about `keep` characters of them; the text itself if that is no shorter.

    Args:
        text: what to choose from. Time is linear in it, up to `MOST` characters.
        query: what was asked for.
        keep: characters.

    >>> print(cut_down("\\n".join(f"row {i}" for i in range(4000)), "find row 2500", 140))
    row 0
    row 1
    row 2
    row 3
    row 4
    row 5
    [… 2,490 lines left out]
    row 2496
    row 2497
    row 2498
    row 2499
    row 2500
    row 2501
    [… 1,497 lines left out]
    """
    half, middle = _unseen(text)
    seen = text[:half] + text[half + middle :]
    spans = [part for span in passages(seen) for part in _split(span, half)]
    scores = telling(seen, spans, query)
    kept: set[int] = set()
    room = keep
    for i in sorted(range(len(spans)), key=lambda i: (-scores[i], i)):
        if room < _ROOM:
            break
        size = spans[i][1] - spans[i][0]
        if size <= room:
            kept.add(i)
            room -= size
    out: list[str] = []
    gap: list[str] = []
    for i, (start, stop) in enumerate(spans):
        if middle and start == half:
            gap.append(text[half : half + middle])
        if i in kept:
            out += [_mark(gap, out), seen[start:stop]]
            gap = []
        else:
            gap.append(seen[start:stop])
    out.append(_mark(gap, out).removesuffix(" "))
    short = "".join(out)
    return short if len(short) < len(text) else text


def _mark(gap: Sequence[str], before: Sequence[str]) -> str:
    """What stands for what was left out: on a line of its own where whole lines were."""
    if not gap:
        return ""
    whole = "".join(gap)
    lines = whole.count("\n")
    size = f"{lines:,} line{'s' * (lines != 1)}" if lines else f"{len(whole):,} characters"
    apart = "\n" if before and before[-1] and not before[-1].endswith("\n") and lines else ""
    return f"{apart}[… {size} left out]" + ("\n" if whole.endswith("\n") else " ")


def _unseen(text: str) -> Span:
    """Where the part begins that is not looked at, between two lines or words, and how long it is."""
    if len(text) <= MOST:
        return 0, 0
    start = _before(text, MOST // 2)
    stop = _before(text, len(text) - MOST // 2)
    return start, stop - start


def _before(text: str, at: int) -> int:
    """The end of a line or a word before a place, within reach; else the place itself."""
    first = max(at - 4 * _WIDE, 0)
    return max(text.rfind("\n", first, at), text.rfind(" ", first, at)) + 1 or at


def _split(span: Span, at: int) -> list[Span]:
    start, stop = span
    return [(start, at), (at, stop)] if start < at < stop else [span]


def _pieces(text: str) -> list[Span]:
    """Lines with their ends; a long line in pieces that end at a blank or a comma, and never inside a word."""
    out: list[Span] = []
    start = 0
    while start < len(text):
        stop = text.find("\n", start) + 1 or len(text)
        at = start
        while stop - at > 2 * _WIDE:
            cut = max(text.rfind(" ", at + _WIDE // 2, at + _WIDE), text.rfind(",", at + _WIDE // 2, at + _WIDE)) + 1
            if not cut:
                cut = _next_end(text, at + _WIDE, stop)
            out.append((at, cut))
            at = cut
        if at < stop:
            out.append((at, stop))
        start = stop
    return out


def _next_end(text: str, at: int, stop: int) -> int:
    """Where a piece may end that has no blank in reach: behind the next one, however far that is."""
    found = [i for i in (text.find(" ", at, stop), text.find(",", at, stop)) if i >= 0]
    return min(found) + 1 if found else stop

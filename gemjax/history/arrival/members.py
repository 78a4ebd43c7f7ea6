"""JSON cut down as JSON: whole members and rows, in their order and in their own letters, every gap marked.

Works on the text and not on what it means, so that numbers, escapes and spaces stay as they were written.
"""

import json
from collections.abc import Callable, Sequence

from gemjax.history.archive.excerpt import shares

_BLANK = " \t\n\r"
_DEPTH = 12
_SMALL = 120
"""Characters below which a value is not cut any further."""

Tell = Callable[[str, Sequence[tuple[int, int]]], list[float]]
Cut = Callable[[str, int], str]

_decoder = json.JSONDecoder()


def cut_json(text: str, keep: int, tell: Tell, cut: Cut) -> str | None:
    """A JSON object or array in about `keep` characters, which is JSON again; None if the text is neither.

    Args:
        text: what to cut down.
        keep: characters, about.
        tell: how much each of some spans of a text tells.
        cut: cuts down a string value.
    """
    start = _skip(text, 0)
    if text[start : start + 1] not in ("{", "["):
        return None
    try:
        stop = _end(text, start)
        if _skip(text, stop) != len(text):
            return None
        return text[:start] + _value(text, start, stop, keep, tell, cut, 0) + text[stop:]
    except (ValueError, IndexError, RecursionError):
        return None


def _value(text: str, start: int, stop: int, keep: int, tell: Tell, cut: Cut, depth: int) -> str:
    whole = text[start:stop]
    if len(whole) <= max(keep, _SMALL) or depth > _DEPTH:
        return whole
    first = whole[0]
    if first == '"':
        short = json.dumps(cut(json.loads(whole), keep), ensure_ascii=False)
        return short if len(short) < len(whole) else whole
    if first not in "{[":
        return whole
    items = _members(text, start)
    if not items:
        return whole
    short = (_array if first == "[" else _object)(text, items, keep, tell, cut, depth)
    return short if len(short) < len(whole) else whole


def _array(text: str, items: list[tuple[int, int, int]], keep: int, tell: Tell, cut: Cut, depth: int) -> str:
    """The rows that tell most, each at most a part of the room; a string says how many are missing where."""
    spans = [(start, stop) for start, _, stop in items]
    scores = tell(text, spans)
    most = max(keep // 3, _SMALL)
    kept: dict[int, str] = {}
    room = keep
    for i in sorted(range(len(items)), key=lambda i: (-scores[i], i)):
        if room < _SMALL and kept:
            break
        row = _value(text, *spans[i], min(most, room), tell, cut, depth + 1)
        if len(row) <= room or not kept:
            kept[i] = row
            room -= len(row) + 2
    out: list[str] = []
    missing = 0
    for i in range(len(items) + 1):
        if i < len(items) and i not in kept:
            missing += 1
            continue
        if missing:
            out.append(f'"… {missing:,} item{"s" * (missing != 1)} left out"')
            missing = 0
        if i in kept:
            out.append(kept[i])
    return "[" + ", ".join(out) + "]"


def _object(text: str, items: list[tuple[int, int, int]], keep: int, tell: Tell, cut: Cut, depth: int) -> str:
    """Every key; small values whole, and what they leave of the room for the large ones."""
    keys = [text[start:colon] for start, colon, _ in items]
    room = max(keep - sum(len(key) + 2 for key in keys), 0)
    sizes = [stop - colon for _, colon, stop in items]
    parts = [
        key + _value(text, colon, stop, share, tell, cut, depth + 1)
        for key, (_, colon, stop), share in zip(keys, items, shares(sizes, room), strict=True)
    ]
    return "{" + ", ".join(parts) + "}"


def _members(text: str, start: int) -> list[tuple[int, int, int]]:
    """Of each member or row: where it starts, where its value starts, where it stops."""
    named = text[start] == "{"
    out: list[tuple[int, int, int]] = []
    at = _skip(text, start + 1)
    while text[at] not in "]}":
        first = at
        if named:
            at = _skip(text, _end(text, at))
            if text[at] != ":":
                raise ValueError("no colon")
            at = _skip(text, at + 1)
        stop = _end(text, at)
        out.append((first, at, stop))
        at = _skip(text, stop)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return out


def _end(text: str, start: int) -> int:
    return _decoder.raw_decode(text, start)[1]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at

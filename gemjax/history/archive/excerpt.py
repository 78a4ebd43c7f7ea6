"""An exchange within a budget: whole where it fits, else the lines that answer the query, with the gaps marked."""

from collections.abc import Callable, Sequence

from gemjax.history.archive.letters import terms

Counter = Callable[[str], int]
Weight = Callable[[str], float]

GAP = "[...]"
"""Stands for lines that were left out."""

_LONGEST_PIECE = 300
"""Characters: longer lines are cut into pieces, so that one line of JSON is not all or nothing."""


def estimated_tokens(text: str) -> int:
    """UTF-8 bytes / 4, rounded up: about right for English and code, and 0.75 a character for Chinese or Japanese."""
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def shares(sizes: Sequence[int], budget: int) -> list[int]:
    """Divide a budget: each gets what it needs or an equal part, and what small ones leave goes to the large ones.

    >>> shares([10, 500, 500], 400)
    [10, 195, 195]
    """
    given = [0] * len(sizes)
    left = budget
    for place, index in enumerate(sorted(range(len(sizes)), key=lambda i: (sizes[i], i))):
        given[index] = min(sizes[index], left // (len(sizes) - place))
        left -= given[index]
    return given


def excerpt(text: str, query: str, budget: int, count: Counter, weight: Weight) -> str:
    """The part of `text` that says most about `query`, in its own order, at most `budget` tokens.

    Args:
        text: what to choose from.
        query: what is asked; lines that hold its rare terms come first, then their neighbours, then the beginning.
        budget: tokens.
        count: tokens of a text.
        weight: how telling a term is.

    Returns: the text itself if it fits; an empty string if not even one piece of a line does.
    """
    if count(text) <= budget:
        return text
    pieces, ends = _pieces(text)
    asked = {term: w for term in terms(query) if (w := weight(term)) > 0}
    scores = [sum(w for term, w in asked.items() if term in held) for held in map(_held, pieces)]
    near = [
        scores[i] + 0.5 * max(scores[i - 1] if i else 0.0, scores[i + 1] if i + 1 < len(scores) else 0.0)
        for i in range(len(scores))
    ]
    kept: set[int] = set()
    spent = 0
    gap = count(f"\n{GAP}\n")
    for i in sorted(range(len(pieces)), key=lambda i: (-near[i], i)):
        # At most two gaps stand around a piece that is taken alone; joining pieces only removes some.
        price = count(pieces[i] + "\n") + (2 - (i - 1 in kept) - (i + 1 in kept)) * gap
        if spent + price > budget:
            if spent > 0.8 * budget:
                break
            continue
        kept.add(i)
        spent += max(price, 0)
    chosen = _joined(pieces, ends, kept)
    while kept and count(chosen) > budget:  # a counter whose parts do not add up
        kept.discard(min(kept, key=lambda i: (near[i], -i)))
        chosen = _joined(pieces, ends, kept)
    return chosen if kept else ""


def _pieces(text: str) -> tuple[list[str], list[bool]]:
    """The lines, long ones in pieces, and whether a line ends with each piece."""
    pieces: list[str] = []
    ends: list[bool] = []
    for line in text.split("\n"):
        parts = [line[i : i + _LONGEST_PIECE] for i in range(0, len(line), _LONGEST_PIECE)] or [""]
        pieces += parts
        ends += [False] * (len(parts) - 1) + [True]
    return pieces, ends


def _held(piece: str) -> set[str]:
    return set(terms(piece))


def _joined(pieces: Sequence[str], ends: Sequence[bool], kept: set[int]) -> str:
    out: list[str] = []
    before = -1
    for i in sorted(kept):
        if i != before + 1:
            out.append(GAP + "\n" if not out or out[-1].endswith("\n") else "\n" + GAP + "\n")
        out.append(pieces[i] + ("\n" if ends[i] else ""))
        before = i
    if kept and before != len(pieces) - 1:
        out.append(GAP if out[-1].endswith("\n") else "\n" + GAP)
    return "".join(out).rstrip("\n")

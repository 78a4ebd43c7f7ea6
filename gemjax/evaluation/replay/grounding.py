"""Grounding: does the next call still see what it copies?

Of the specific values in its arguments, the share that stands in what is forwarded. A *need* is a value
(`gemjax.history.values`) in the next call's arguments that stands in an earlier block and in nothing that always stays
(system, tools, user and other text outside blocks). It is met

* **leniently** if it stands anywhere in what is forwarded;
* **strictly** if a result that holds it is forwarded (if only calls hold it, one of those).

A need is *rare* if at most two earlier blocks hold it. Its *distance* is how many blocks back its newest holder is (1
is the latest block). The text that an edit has to match in a file is counted apart: its lines must have been seen, so
they are looked for whole.

Nearest to it in the literature are measures of overlap with a source and of attribution in generation (ROUGE, Lin 2004;
attributable to identified sources, Rashkin et al. 2023), and recall of facts planted in a long context (RULER, Hsieh et
al. 2024). They judge what a model wrote; this judges whether what it did write could have been copied.
"""

import dataclasses
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence

from gemjax.evaluation.replay.trajectory import RecordedTurn, Trajectory
from gemjax.history.formats import View, compact_json
from gemjax.history.records import BlockContent
from gemjax.history.signals.arguments import fields
from gemjax.history.values import values_of_call

EDIT_FIELDS = frozenset({"old_string", "old_str", "oldString", "oldText", "old_text", "search"})
"""Arguments that hold text which the edited file must contain."""

DISTANCES = (4, 16, 64)
"""Upper ends of the classes of distance: 1-4, 5-16, 17-64, 65 and more."""

RARE = 2
"""Most blocks that hold a rare value."""

_WORD = re.compile(r"\w+")
_LINE_CHARS = 8
_MOST_LINES = 40
_ESCAPES = (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'))


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """One value that the next call copies.

    Attributes:
        value: the value, or the line of an edit.
        holders: messages that hold it, ascending.
        results: those of them that hold it in a tool's result; empty if none does.
        blocks: the blocks of the holders, ascending.
        distance: how many blocks back the newest of them is.
    """

    value: str
    holders: tuple[int, ...]
    results: tuple[int, ...]
    blocks: tuple[int, ...]
    distance: int

    @property
    def rare(self) -> bool:
        return len(self.blocks) <= RARE


@dataclasses.dataclass(frozen=True, slots=True)
class CallNeeds:
    """What the next call copies: values, and for each edit in it the lines that must match (empty: never seen)."""

    values: tuple[Need, ...]
    edits: tuple[tuple[Need, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Met:
    """How much of one call's needs was met. `None` where there is nothing to meet.

    Attributes:
        grounding: share of the values that stand anywhere in what was forwarded.
        strict: share of those with the result that holds them.
        rare: as `grounding`, over rare values.
        fully: whether all values are there.
        edits: share of the edits with every line there.
        by_distance: met and asked for, for each class of distance.
        missing: the values that are not there.
        unseen: the lines of edits that are not there.
    """

    grounding: float | None
    strict: float | None
    rare: float | None
    fully: bool | None
    edits: float | None
    by_distance: tuple[tuple[int, int], ...]
    missing: tuple[Need, ...] = ()
    unseen: tuple[Need, ...] = ()


class NeedIndex:
    """Where the values of a trajectory's calls stand. Texts are read once; a value is looked up once.

    Args:
        trajectory: the whole recording; `needs` looks only at what stands before the turn it is asked for.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        parsed = trajectory.parsed
        self._texts = [text_of(record.view) for record in parsed.records]
        self._results = [_plain("\n".join(r.text for r in record.view.results)) for record in parsed.records]
        self._block_of = {m: b.index for b in parsed.blocks for m in b.messages}
        frame = _plain(compact_json(trajectory.request_template))
        self._frame = (frame, frozenset(_WORD.findall(frame)))
        self._where: dict[str, list[int]] = {}
        for index, text in enumerate(self._texts):
            for word in set(_WORD.findall(text)):
                self._where.setdefault(word, []).append(index)
        self._found: dict[tuple[str, bool], tuple[list[int], list[int], float]] = {}

    def needs(self, turn: RecordedTurn) -> CallNeeds:
        """The needs of the call that came next; none if none came."""
        if turn.next is None:
            return CallNeeds((), ())
        wanted: set[str] = set()
        for call in turn.next.calls:
            wanted |= values_of_call(call, EDIT_FIELDS)
        values = [need for v in sorted(wanted) if (need := self._need(v, turn, whole=True)) is not None]
        edits = []
        for lines in edited_lines(turn.next):
            found = [need for line in lines if (need := self._need(line, turn, whole=False)) is not None]
            edits.append(tuple(found))
        return CallNeeds(tuple(values), tuple(edits))

    def _need(self, value: str, turn: RecordedTurn, whole: bool) -> Need | None:
        holders, results, stays = self._holders(value, whole)
        if stays < turn.count:
            return None
        before = holders[: bisect_left(holders, turn.count)]
        # The last block may still wait for results; what it holds is no complete block's.
        before = [m for m in before if self._block_of[m] < len(turn.blocks)]
        if not before:
            return None
        blocks = tuple(dict.fromkeys(self._block_of[m] for m in before))
        shown = results[: bisect_left(results, turn.count)]
        shown = [m for m in shown if self._block_of[m] < len(turn.blocks)]
        return Need(value, tuple(before), tuple(shown), blocks, len(turn.blocks) - blocks[-1])

    def _holders(self, value: str, whole: bool) -> tuple[list[int], list[int], float]:
        """Messages of blocks that hold a value, those that hold it in a result, and the first one outside blocks."""
        known = self._found.get((value, whole))
        if known is not None:
            return known
        words = _WORD.findall(value)
        lists = [self._where.get(word, []) for word in words]
        holders: list[int] = []
        results: list[int] = []
        stays = float("inf")
        if words and _stands(value, self._frame[0], whole) and set(words) <= self._frame[1]:
            stays = -1.0
        elif lists and all(lists):
            candidates = min(lists, key=len)
            for m in candidates:
                if not _stands(value, self._texts[m], whole):
                    continue
                if m not in self._block_of:
                    stays = min(stays, float(m))
                    continue
                holders.append(m)
                if self._results[m] and _stands(value, self._results[m], whole):
                    results.append(m)
        self._found[value, whole] = (holders, results, stays)
        return self._found[value, whole]


def edited_lines(content: BlockContent) -> list[list[str]]:
    """For each edit in a turn's calls the lines that its file must contain: long enough to say something, distinct."""
    found = []
    for call in content.calls:
        stack: list[object] = [fields(call.arguments)]
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack += value
            elif isinstance(value, dict):
                stack += [v for k, v in value.items() if k not in EDIT_FIELDS]
                texts = [v for k, v in value.items() if k in EDIT_FIELDS and isinstance(v, str)]
                for text in texts:
                    lines = dict.fromkeys(line.strip() for line in _plain(text).split("\n"))
                    kept = [line for line in lines if len(line) >= _LINE_CHARS and _WORD.search(line)]
                    if kept:
                        found.append(kept[:_MOST_LINES])
    return found


def text_of(view: View) -> str:
    """Everything that a message shows its reader, escapes of nested JSON undone."""
    calls = [f"{c.name} {c.arguments}" for c in view.calls]
    return _plain("\n".join([view.text, view.reasoning, *calls, *(r.text for r in view.results)]))


def met(needs: CallNeeds, here: Callable[[int], bool], changed: Sequence[str] = ()) -> Met:
    """How much of a call's needs stands in what was forwarded.

    Args:
        needs: of the call.
        here: whether a message of the full request was forwarded as it was.
        changed: texts of what was forwarded in the place of others (a shortened copy).
    """

    def visible(need: Need) -> bool:
        return any(map(here, need.holders)) or any(_stands(need.value, text, True) for text in changed)

    def shown(need: Need) -> bool:
        return any(map(here, need.results or need.holders))

    seen = [visible(need) for need in needs.values]
    rare = [s for s, need in zip(seen, needs.values, strict=True) if need.rare]
    bins = [[0, 0] for _ in range(len(DISTANCES) + 1)]
    for s, need in zip(seen, needs.values, strict=True):
        entry = bins[bisect_left(DISTANCES, need.distance)]
        entry[0] += s
        entry[1] += 1
    edits = [all(map(visible, lines)) for lines in needs.edits if lines]
    return Met(
        _share(seen),
        _share([shown(need) for need in needs.values]),
        _share(rare),
        all(seen) if seen else None,
        _share(edits),
        tuple((a, b) for a, b in bins),
        tuple(need for s, need in zip(seen, needs.values, strict=True) if not s),
        tuple(line for lines in needs.edits for line in lines if not visible(line)),
    )


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _plain(text: str) -> str:
    if "\\" in text:
        for escaped, plain in _ESCAPES:
            text = text.replace(escaped, plain)
    return text


def _stands(value: str, text: str, whole: bool) -> bool:
    """Whether a value stands in a text, with `whole` not as a part of a longer word or number."""
    start = text.find(value)
    while whole and start >= 0:
        stop = start + len(value)
        before, after = text[start - 1 : start], text[stop : stop + 1]
        inside_word = (_is_word(before) and _is_word(value[:1])) or (_is_word(after) and _is_word(value[-1:]))
        if not inside_word:
            return True
        start = text.find(value, start + 1)
    return start >= 0


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"

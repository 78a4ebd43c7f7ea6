"""Does a recall bring back what the next call copies? Measured where a value was dropped and is not visible."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from gemjax.evaluation.replay import (
    Bill,
    EstimatedTokens,
    Moment,
    Prices,
    RecordedTurn,
    Reference,
    Sizer,
    Trajectory,
    requests,
)
from gemjax.evaluation.replay.compressed import Compressed, MeteredEncoder
from gemjax.evaluation.replay.grounding import CallNeeds, Need, NeedIndex, met
from gemjax.evaluation.replay.replay import MIN_BLOCKS, reference_method
from gemjax.history.archive.archive import By
from gemjax.history.records import BlockContent
from gemjax.history.signals.arguments import fields

WAYS: tuple[By, ...] = ("both", "letters", "meaning")
QUERIES = ("call", "text")
TOP = (1, 3, 5)
BUDGET = 2000
"""Tokens of the answer in the measure of one recall: the default of `HistoryCompressor.recall`."""


@dataclasses.dataclass(frozen=True, slots=True)
class RecallOutcome:
    """One trajectory.

    Attributes:
        id: of the trajectory.
        calls: calls with at least one need, from `MIN_BLOCKS` blocks on.
        grounded: those that see all values without a recall.
        dangling: values that a call copies and that are not visible.
        asked: dangling values for which there is a query, by query.
        found: by `(query, way, k)`, how many of them stand in the k best exchanges.
        recalled: by `(query, way)`, calls that see all values after one recall of 5 exchanges within `BUDGET`.
    """

    id: str
    calls: int
    grounded: int
    dangling: int
    asked: dict[str, int]
    found: dict[tuple[str, str, int], int]
    recalled: dict[tuple[str, str], int]


def evaluate(trajectory: Trajectory, encoder: Any, ways: Sequence[By] = WAYS) -> RecallOutcome | None:
    """Replay one trajectory through the default compressor and recall at each dangling checkpoint.

    Returns: the outcome; None for a trajectory in which no call has a need.
    """
    counter = EstimatedTokens()
    method = reference_method(Prices())
    meter = MeteredEncoder(encoder, counter, {})
    method.prepare(meter)
    method.begin(trajectory)
    ledger = Bill(trajectory.request_template, trajectory.wire.key, Sizer(counter), Prices())
    index = NeedIndex(trajectory)
    asked: Counter[str] = Counter()
    found: Counter[tuple[str, str, int]] = Counter()
    recalled: Counter[tuple[str, str]] = Counter()
    calls = grounded = dangling = 0
    for turn in requests(trajectory):
        moment = _moment(trajectory, turn, ledger, meter)
        here = {id(m) for m in method.forward(moment)}
        if turn.next is None or len(turn.blocks) < MIN_BLOCKS:
            continue
        needs = index.needs(turn)
        outcome = met(needs, lambda m, here=here, turn=turn: id(turn.messages[m]) in here)  # type: ignore[misc]
        if outcome.fully is None:
            continue
        calls += 1
        grounded += outcome.fully
        missing = outcome.missing
        dangling += len(missing)
        if outcome.fully:
            recalled.update((q, w) for q in QUERIES for w in ways)
            continue
        for name, query in queries(turn.next, [need.value for need in missing]).items():
            asked[name] += len(missing)
            for way in ways:
                _ask(method, query, name, way, missing, found, recalled)
    if not calls:
        return None
    return RecallOutcome(trajectory.id, calls, grounded, dangling, dict(asked), dict(found), dict(recalled))


def _ask(
    method: Compressed,
    query: str,
    name: str,
    way: By,
    missing: Sequence[Need],
    found: "Counter[tuple[str, str, int]]",
    recalled: "Counter[tuple[str, str]]",
) -> None:
    answer = method.archive().recall(query, k=max(TOP), budget=10**9, by=way)
    positions = [e.position for e in answer.exchanges]
    for k in TOP:
        found[name, way, k] += sum(bool(set(positions[:k]) & set(need.blocks)) for need in missing)
    within = method.archive().recall(query, k=max(TOP), budget=BUDGET, by=way)
    text = "\n".join(e.text for e in within.exchanges)
    # As a model reads JSON: with its escapes undone.
    plain = text.replace("\\n", "\n").replace('\\"', '"')
    recalled[name, way] += met(CallNeeds(tuple(missing), ()), lambda m: False, [text, plain]).fully is True


def queries(call: BlockContent, missing: Sequence[str]) -> dict[str, str]:
    """What an agent could ask before a call without knowing the values that are gone.

    `call`: the tools' names and their arguments. `text`: what the model wrote before the call. Both without the missing
    values. A query that says nothing is left out.
    """
    parts: list[str] = []
    for one in call.calls:
        parts.append(one.name)
        # A shell line or a file's text is one argument with much in it: without the value it is still known.
        parts += [_without(leaf, missing) for leaf in _leaves(fields(one.arguments))]
    text = _without(call.text or call.reasoning, missing)
    made = {"call": " ".join(parts)[:4000], "text": text[:4000]}
    return {name: query for name, query in made.items() if any(c.isalnum() for c in query)}


def _without(text: str, missing: Sequence[str]) -> str:
    for value in sorted(missing, key=len, reverse=True):
        text = text.replace(value, " ")
    return text


def _leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _moment(trajectory: Trajectory, turn: RecordedTurn, ledger: Bill, meter: MeteredEncoder) -> Moment:
    def vectors() -> np.ndarray:
        return np.asarray(meter.encode([b.content.selection_text for b in turn.blocks]))

    return Moment(
        trajectory, turn, Reference(frozenset(range(len(turn.blocks))), False), ledger.chars_of, vectors, meter.encode
    )


def summary(outcomes: Sequence[RecallOutcome], ways: Sequence[By] = WAYS) -> dict[str, Any]:
    """Means over trajectories, as JSON values; values pooled are beside them, since few runs may have most."""

    def mean(shares: Iterable[float | None]) -> float | None:
        values = [share for share in shares if share is not None]
        return float(np.mean(values)) if values else None

    rows = []
    for q in QUERIES:
        asked = [o.asked.get(q, 0) for o in outcomes]
        for w in ways:
            row: dict[str, Any] = {"query": q, "by": w}
            for k in TOP:
                found = [o.found.get((q, w, k), 0) for o in outcomes]
                row[f"top{k}"] = mean(map(_share, found, asked))
                row[f"top{k}_pooled"] = _share(sum(found), sum(asked))
            row["fully_after"] = mean(_share(o.recalled.get((q, w), 0), o.calls) for o in outcomes)
            rows.append(row)
    return {
        "trajectories": len(outcomes),
        "calls": sum(o.calls for o in outcomes),
        "dangling": sum(o.dangling for o in outcomes),
        "fully_grounded": mean(o.grounded / o.calls for o in outcomes),
        "recalls": rows,
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None

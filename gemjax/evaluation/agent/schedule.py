"""In which order the tasks of a suite are worked on, so that what a call needs lies far back."""

import dataclasses
from collections.abc import Sequence

from gemjax.evaluation.agent.dojo import World

LEAST_CALLS = 120
"""Calls of a chain, reads for padding included."""

WIDTH = 20
"""Tasks that are worked on in turn, one call each."""


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One step of a chain: the next ground-truth call of a task, or a long read that only fills the history."""

    task: int
    call: int
    padding: bool = False


def interleaved(lengths: Sequence[int], reads: Sequence[tuple[int, int]], least: int, width: int) -> list[Move]:
    """The moves of a chain.

    Args:
        lengths: ground-truth calls of each task.
        reads: task and call of long reads that change nothing, longest first, to pad with.
        least: the chain is padded to this many calls.
        width: tasks that are worked on at a time; as one ends the next begins.

    Returns: every call of every task, each task's in order, with reads between them.
    """
    waiting = list(range(len(lengths)))
    active: list[list[int]] = []
    order: list[tuple[int, int]] = []
    while active or waiting:
        while waiting and len(active) < width:
            active.append([waiting.pop(0), 0])
        for entry in list(active):
            if entry[1] < lengths[entry[0]]:
                order.append((entry[0], entry[1]))
                entry[1] += 1
            if entry[1] >= lengths[entry[0]]:
                active.remove(entry)
    pads = max(0, least - len(order)) if reads else 0
    moves: list[Move] = []
    added = 0
    for i, (task, call) in enumerate(order):
        while added * len(order) < i * pads:
            moves.append(Move(*reads[added % len(reads)], padding=True))
            added += 1
        moves.append(Move(task, call))
    return moves


def long_reads(worlds: Sequence[World], most: int = 8) -> list[tuple[int, int]]:
    """Task and call of the longest reads among ground-truth calls, longest first.

    Args:
        worlds: fresh ones; their calls are run, so they are of no use afterwards.
        most: how many.
    """
    found: list[tuple[int, int, int]] = []
    for t, world in enumerate(worlds):
        for c, (name, arguments) in enumerate(world.calls):
            read = world.changes_nothing(name, arguments)
            text = world.run(name, arguments).text
            if read:
                found.append((-len(text), t, c))
    return [(t, c) for _, t, c in sorted(found)[:most]]

"""The moments at which a recorded agent acted, with all that the tables need of each: vectors and protected sets.

A checkpoint is a request of at least 16 complete blocks that the agent answered by a tool call. The recorded call is
the next action $a$: it is measured against and never shown to a selector.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from gemjax.errors import GemjaxError
from gemjax.evaluation.replay import RecordedTurn, Trajectory, requests
from gemjax.evaluation.replay.grounding import CallNeeds, NeedIndex
from gemjax.history.blocks import Parsed, Reader
from gemjax.history.config import GEMConfig
from gemjax.history.evidence import Affinity, Goal, Rule
from gemjax.history.planning import SelectionInput, SelectionPlan, plan_selection
from gemjax.history.queries import query_directions, query_texts
from gemjax.history.reading import NO_CONTENT, goal_of
from gemjax.history.signals import BlockSignals, signals
from gemjax.history.vectors import bucket
from gemjax.history.view import named_by
from gemjax.kernels.linalg import growing_basis

MIN_BLOCKS = GEMConfig.min_blocks
UNRANKED = 1 << 30
"""Place of a block that no rule protects."""


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """All checkpoints of one trajectory; `c` of them, over `n` blocks of dimension `d`.

    Attributes:
        id, source: the trajectory, and its file.
        vectors: unit rows of all blocks, `[n, d]`; checkpoint `j` sees the first `counts[j]`.
        chars: characters of each block, `[n]`.
        counts: blocks of the history at each checkpoint, `[c]`.
        action: the recorded next action, `[c, d]`.
        latest, goal: what selectors may compare with: the latest ACTION and the goal text, `[c, d]`.
        final: the last complete block of the recording, `[d]`: the final state. Not defined at a checkpoint whose
            history already holds it.
        whole: energy that the full history holds of action, goal and final state, `[c, 3]` (`P_a([n])` of Eq. 4).
        given: what the compressor would select from, `c` of them.
        needs: what the recorded next call copies from earlier blocks, `c` of them.
        refused: checkpoints whose full request a provider would refuse as recorded.
    """

    id: str
    source: str
    vectors: np.ndarray
    chars: np.ndarray
    counts: np.ndarray
    action: np.ndarray
    latest: np.ndarray
    goal: np.ndarray
    final: np.ndarray
    whole: np.ndarray
    given: tuple[SelectionInput, ...]
    needs: tuple[CallNeeds, ...]
    refused: int

    @property
    def final_defined(self) -> np.ndarray:
        """Where the final state still lies ahead, bool `[c]`."""
        return self.counts < len(self.vectors)

    def only(self, rows: Sequence[int]) -> "Checkpoints":
        """Some of the checkpoints, in the order given; what belongs to the trajectory stays."""
        at = list(rows)
        parts = {name: getattr(self, name)[at] for name in ("counts", "action", "latest", "goal", "whole")}
        given, needs = tuple(self.given[row] for row in at), tuple(self.needs[row] for row in at)
        return dataclasses.replace(self, **parts, given=given, needs=needs)

    def plan(self, row: int, config: GEMConfig) -> SelectionPlan:
        """What the compressor would select at checkpoint `row`."""
        return plan_selection(self.given[row], config)

    def protected(self, rules: Sequence[Rule]) -> np.ndarray:
        """Places of the blocks in the order in which rules name them, int `[c, n]`; `UNRANKED` if none does.

        The protected set is where the place is below `UNRANKED`; the first `m` of it where the place is below `m`.
        """
        places = np.full((len(self.given), len(self.vectors)), UNRANKED, np.int64)
        for row, given in zip(places, self.given, strict=True):
            fresh = given.view.fresh()
            place = 0
            for rule in rules:
                for index in named_by(rule, fresh):
                    if row[index] == UNRANKED:
                        row[index] = place
                        place += 1
        return places


@dataclasses.dataclass(frozen=True)
class Collected:
    """The checkpoints of all trajectories that have some, and what was left out, by file and reason."""

    trajectories: list[Checkpoints]
    left_out: list[tuple[str, str]]
    interrupted: bool = False


def collect(
    trajectories: Iterable[Trajectory],
    encoder: Any,
    rules: Sequence[Rule],
    tick: Callable[[str], None] | None = None,
    *,
    use_goal: bool = False,
) -> Collected:
    """Read and encode trajectories one after the other.

    Args:
        trajectories: what `gemjax.evaluation.replay.load` found.
        encoder: with `encode`; give a `CachedEncoder` with `disk=`, so that an interrupted run goes on where it was.
        rules: every rule that will be asked, so that all their queries are encoded.
        tick: called with the id after each trajectory.
        use_goal: the goal that the recording states, instead of what the compressor finds in the request.

    Returns: what was collected. A trajectory that cannot be used is listed with the reason, and so is one whose
        encoding failed; `KeyboardInterrupt` ends the work and keeps what is done.
    """
    found: list[Checkpoints] = []
    left_out: list[tuple[str, str]] = []
    try:
        for trajectory in trajectories:
            try:
                made = checkpoints_of(trajectory, encoder, rules, use_goal=use_goal)
            except (GemjaxError, OSError) as error:
                made = f"{type(error).__name__}: {error}"
            if isinstance(made, str):
                left_out.append((trajectory.source, made))
            else:
                found.append(made)
            if tick is not None:
                tick(trajectory.id)
    except KeyboardInterrupt:
        return Collected(found, left_out, True)
    if found and len({t.vectors.shape[1] for t in found}) > 1:
        raise GemjaxError("the encoder returned vectors of different dimensions")
    return Collected(found, left_out)


def moments(trajectory: Trajectory) -> list[tuple[RecordedTurn, Parsed]]:
    """The turns before which checkpoints lie, oldest first, each with its request as it was read."""
    reader = Reader()
    found = []
    for turn in requests(trajectory):
        parsed = reader.parse(turn.request, trajectory.format)
        if turn.next is not None and len(parsed.blocks) >= MIN_BLOCKS:
            found.append((turn, parsed))
    return found


def checkpoints_of(
    trajectory: Trajectory, encoder: Any, rules: Sequence[Rule], *, use_goal: bool = False
) -> Checkpoints | str:
    """The checkpoints of one trajectory, or the reason why it has none."""
    blocks = trajectory.parsed.blocks
    if len(blocks) < MIN_BLOCKS:
        return f"{len(blocks)} complete blocks, fewer than {MIN_BLOCKS}"
    found = moments(trajectory)
    if not found:
        return f"no tool call after the first {MIN_BLOCKS} complete blocks"
    goals = [trajectory.goal if use_goal and trajectory.goal else goal_of(parsed) for _, parsed in found]
    latest = [parsed.latest or NO_CONTENT for _, parsed in found]
    asking = (Goal(), Affinity(), *rules)  # the tables compare with the goal and the latest ACTION, whatever the rules
    asked = [
        query_texts(asking, goal, last, parsed.blocks)
        for goal, last, (_, parsed) in zip(goals, latest, found, strict=True)
    ]
    actions = [turn.next.action_text for turn, _ in found if turn.next is not None]
    texts = [text for queries in asked for parts in queries.values() for text in parts]
    wanted = list(dict.fromkeys([*(b.content.selection_text for b in blocks), *actions, *texts]))
    vector = dict(zip(wanted, np.asarray(encoder.encode(wanted), np.float32), strict=True))
    rows = np.stack([vector[b.content.selection_text] for b in blocks])
    if not rows.any():
        return "no block has a direction: the encoder returned zero vectors"
    queries = [query_directions(parts, vector) for parts in asked]
    known: dict[str, BlockSignals] = {b.key: signals(b.content) for b in blocks}
    given = tuple(
        SelectionInput(
            blocks=parsed.blocks,
            vectors=rows[: len(parsed.blocks)],
            queries=q,
            goal=goal,
            latest=last,
            signals=[known.get(b.key) or signals(b.content) for b in parsed.blocks],
            chars=parsed.chars,
            last_block=parsed.last_block,
        )
        for (_, parsed), goal, last, q in zip(found, goals, latest, queries, strict=True)
    )
    counts = np.array([len(parsed.blocks) for _, parsed in found])
    action = np.stack([vector[text] for text in actions])
    goal_rows = np.stack([q["goal"] for q in queries])
    index = NeedIndex(trajectory)
    targets = np.stack([action, goal_rows, np.broadcast_to(rows[-1], action.shape)], axis=1)
    return Checkpoints(
        id=trajectory.id,
        source=trajectory.source,
        vectors=rows,
        chars=np.array([b.chars for b in blocks]),
        counts=counts,
        action=action,
        latest=np.stack([q["action"] for q in queries]),
        goal=goal_rows,
        final=rows[-1],
        whole=whole_energies(rows, counts, targets),
        given=given,
        needs=tuple(index.needs(turn) for turn, _ in found),
        refused=sum(bool(parsed.problems) for _, parsed in found),
    )


def whole_energies(rows: np.ndarray, counts: np.ndarray, targets: np.ndarray) -> np.ndarray:
    r"""$\|Q_{[m]}^\top v\|^2$ of the first `m = counts[j]` rows for the targets `[c, t, d]`; float `[c, t]`."""
    padded = np.zeros((bucket(len(rows)), rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    basis = np.asarray(_growing()(padded))
    squares = np.cumsum(np.einsum("ctd,nd->ctn", targets, basis) ** 2, axis=2)
    return np.asarray(squares[np.arange(len(counts)), :, counts - 1])


@lru_cache(maxsize=1)
def _growing() -> Any:
    return jax.jit(growing_basis)

"""Tables G.1 and G.2: whether the next call still sees what it copies, and which measure of a selection tells."""

from collections.abc import Sequence

import numpy as np

from gemjax.evaluation.gem.checkpoints import Checkpoints
from gemjax.evaluation.gem.correlation import across, within
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.selectors import SELECTORS, Values, selections
from gemjax.evaluation.gem.table import Cell, Row, Table, by_trajectory, jsonable
from gemjax.evaluation.replay.grounding import CallNeeds, met
from gemjax.history.planning import SelectionInput

GROUNDING = ("grounding", "grounding_rare", "fully_grounded")
"""Share of the values that the next call copies, of the rare ones, and whether all of them are there."""

_CHEAP = ("T3", "C", "E", "R_a")


def grounding_of(kept: np.ndarray, given: SelectionInput, needs: CallNeeds) -> tuple[float | None, ...]:
    """How much of one next call's values stands in the selected blocks, by `GROUNDING`; None where it copies nothing.

    Args:
        kept: the blocks of the selection, bool `[>= n]`.
        given: the checkpoint's blocks.
        needs: what the call copies.
    """
    gone = {m for block in given.blocks if not kept[block.index] for m in block.messages}
    found = met(needs, lambda message: message not in gone)
    return found.grounding, found.rare, None if found.fully is None else float(found.fully)


def grounded(trajectories: Sequence[Checkpoints], masks: Sequence[np.ndarray]) -> Values:
    """The same for all checkpoints, NaN for None.

    Args:
        trajectories: the checkpoints.
        masks: for each trajectory what one selector keeps, bool `[c, n]`.
    """
    rows = [
        grounding_of(kept, given, needs)
        for trajectory, mask in zip(trajectories, masks, strict=True)
        for kept, given, needs in zip(mask, trajectory.given, trajectory.needs, strict=True)
    ]
    table = np.array(rows, np.float64).reshape(-1, len(GROUNDING))
    return {name: table[:, i] for i, name in enumerate(GROUNDING)}


def table_g(study: Study) -> list[Table]:
    """Grounding of every selector at the count of the paper's rules, and its rank correlation with the measures."""
    counts = study.split(study.own["paper"]["count"].astype(np.int32))
    chosen = selections(study.trajectories, counts, study.paper, study.default)
    values = {name: {**study.at_paper_count[name], **grounded(study.trajectories, chosen[name])} for name in SELECTORS}
    columns = (*GROUNDING, "T3", "C", "E", "count")
    rows = tuple(
        Row(
            label,
            tuple(by_trajectory(values[name][c], study.groups, digits=1 if c == "count" else 3) for c in columns),
        )
        for name, label in SELECTORS.items()
    )
    return [
        Table(
            "G.1",
            "Grounding at the count of the paper's rules",
            "Of the specific values that the recorded next call copies from an earlier block, the share that stands in "
            "a kept one; rare: in at most two blocks; fully: all of a call's values. C, E: Eq. 3; T3: Eq. 4.",
            "selector",
            columns,
            rows,
            study.n(),
            notes=("Means over trajectories of their means; calls that copy nothing do not count.",),
            raw=study.raw(values),
        ),
        _correlations(study, values),
    ]


def _correlations(study: Study, values: dict[str, Values]) -> Table:
    def of(measure: str) -> np.ndarray:
        return np.stack([values[name][measure] for name in SELECTORS])

    everywhere = np.ones((len(SELECTORS), len(study.groups)), bool)
    each = {(g, c): within(of(g), of(c)) for g in GROUNDING[:2] for c in _CHEAP}
    rows = tuple(
        Row(
            f"{g} with {c}",
            (
                by_trajectory(found, study.groups),
                across(of(g), of(c), study.groups, everywhere),
                Cell(float(np.isfinite(found).sum()), digits=0),
            ),
        )
        for (g, c), found in each.items()
    )
    return Table(
        "G.2",
        "Rank correlation of grounding with the paper's measures",
        "Spearman's correlation over the selectors of a checkpoint, mean over trajectories; and over all (checkpoint, "
        "selector) pairs after taking each checkpoint's mean from both. 1: both order the selections alike.",
        "measures",
        ("within a checkpoint", "all pairs", "checkpoints where defined"),
        rows,
        study.n(),
        notes=("A checkpoint where one of the two is the same for all selectors has no correlation.",),
        raw={"within": {f"{g} with {c}": jsonable(v) for (g, c), v in each.items()}},
    )

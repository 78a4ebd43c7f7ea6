"""Tables N.1 to N.3: what selections cost the prediction of the next action, and which cheap measure tells."""

import dataclasses
from collections.abc import Callable
from functools import cached_property

import numpy as np

from gemjax.evaluation.gem.correlation import across, within
from gemjax.evaluation.gem.selectors import SELECTORS, Values
from gemjax.evaluation.gem.table import (
    PAIRED_COLUMNS,
    Cell,
    Row,
    Table,
    by_trajectory,
    checkpoints_of,
    jsonable,
    number,
    paired_rows,
    trajectory_means,
)
from gemjax.evaluation.statistics import bootstrap_statistic
from gemjax.wording import counted

REFERENCES = ("geometry", "recency")
PREDICTORS = {
    "T3": "1 - T3",
    "C": "1 - C",
    "E": "1 - E",
    "R_a": "1 - R_a",
    "grounding": "1 - grounding",
    "latest": "latest block dropped",
}
"""The cheap measures of evidence lost. The last one is no measure of the paper's: it is what they have to beat."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measured checkpoints, `c` of them, in one flat order.

    Attributes:
        names: ids of the trajectories.
        groups: which of them each checkpoint is of, `[c]`.
        blocks, kept: blocks of the history, and how many each selector keeps, `[c]`.
        tokens: of the next action, as far as its loss is measured, `[c]`.
        full, none: the loss given the full history, and given no block of it: sums over the action's tokens, nats,
            `[c]`.
        losses: selector -> the same given its selection, `[c]`.
        latest: selector -> whether it keeps the latest block, bool `[c]`.
        cheap: selector -> the measures of Table 1 of the same selections.
        how: one line on the model, the draw and what was shortened.
    """

    names: list[str]
    groups: np.ndarray
    blocks: np.ndarray
    kept: np.ndarray
    tokens: np.ndarray
    full: np.ndarray
    none: np.ndarray
    losses: dict[str, np.ndarray]
    latest: dict[str, np.ndarray]
    cheap: dict[str, Values]
    how: str = ""

    @property
    def n(self) -> str:
        return checkpoints_of(self.groups)

    @cached_property
    def rise(self) -> np.ndarray:
        """Rise of the loss over the full history, nats a token, `[selectors, c]`."""
        return np.stack([(self.losses[name] - self.full) / self.tokens for name in SELECTORS])

    @cached_property
    def keeps_latest(self) -> np.ndarray:
        return np.stack([self.latest[name] for name in SELECTORS])

    def lost(self, predictor: str) -> np.ndarray:
        """A cheap measure of what was lost, larger for more, `[selectors, c]`."""
        if predictor == "latest":
            return np.where(self.keeps_latest, 0.0, 1.0)
        return np.stack([1 - self.cheap[name][predictor] for name in SELECTORS])


def table_n1(m: Measured) -> Table:
    """Loss and its rise for every selector, beside T3, C and E of the same selections."""
    columns = (
        "loss (nats a token)",
        "rise (nats a token)",
        "rise (nats an action)",
        "rise / all blocks' worth",
        "rise, latest block kept",
        "latest block kept",
        "T3",
        "C",
        "E",
    )

    def row(label: str, losses: np.ndarray, cheap: Values | None, latest: np.ndarray | None) -> Row:
        rise = losses - m.full
        keeps = None if latest is None else np.where(latest, rise / m.tokens, np.nan)
        empty = Cell(None)
        return Row(
            label,
            (
                by_trajectory(losses / m.tokens, m.groups),
                by_trajectory(rise / m.tokens, m.groups),
                by_trajectory(rise, m.groups, digits=1),
                _share(rise / m.tokens, (m.none - m.full) / m.tokens, m.groups),
                empty if keeps is None else by_trajectory(keeps, m.groups),
                empty if latest is None else by_trajectory(latest.astype(float), m.groups),
                *(empty if cheap is None else by_trajectory(cheap[c], m.groups) for c in ("T3", "C", "E")),
            ),
        )

    rows = [row("full history", m.full, None, None)]
    rows += [row(label, m.losses[name], m.cheap[name], m.latest[name]) for name, label in SELECTORS.items()]
    rows.append(row("no block", m.none, None, None))
    return Table(
        "N.1",
        "Loss of the recorded next action",
        "Loss of the recorded call under the language model given the history that a selector leaves; rise: over the "
        "full history. All blocks' worth: the rise when no block is left. C, E: Eq. 3; T3: Eq. 4.",
        "history",
        columns,
        tuple(rows),
        m.n,
        notes=("Means over trajectories of their means; intervals resample trajectories.", m.how),
        raw=raw(m),
    )


def _share(rise: np.ndarray, worth: np.ndarray, groups: np.ndarray) -> Cell:
    """Ratio of two means over trajectories."""
    a, b = trajectory_means(rise, groups), trajectory_means(worth, groups)

    def ratio(rows: np.ndarray) -> float:
        below = float(b[rows].mean())
        return float(a[rows].mean()) / below if below > 0 else np.nan

    everything = np.arange(len(a))
    low, high = bootstrap_statistic(ratio, everything)
    return Cell(number(ratio(everything)), number(low), number(high))


def table_n2(m: Measured) -> Table:
    """Paired differences of the rise against geometry and against recency."""
    pairs = {
        f"rise: {SELECTORS[name]} - {SELECTORS[reference]}": trajectory_means(
            (m.losses[name] - m.losses[reference]) / m.tokens, m.groups
        )
        for reference in REFERENCES
        for name in SELECTORS
        if name != reference and (reference, name) != ("recency", "geometry")
    }
    return Table(
        "N.2",
        "Paired differences of the rise",
        "Differences of trajectory means, nats a token; below 0: the first one loses less.",
        "comparison",
        PAIRED_COLUMNS,
        paired_rows(pairs),
        counted(len(np.unique(m.groups)), "trajectory", "trajectories"),
        raw={"differences": {k: jsonable(v) for k, v in pairs.items()}},
    )


def table_n3(m: Measured) -> list[Table]:
    """Which cheap measure orders selections as the rise of the loss does."""
    everywhere = np.ones(m.rise.shape, bool)
    each = {p: within(m.rise, m.lost(p)) for p in PREDICTORS}
    rows = [
        Row(
            label,
            (
                by_trajectory(each[p], m.groups),
                across(m.rise, m.lost(p), m.groups, everywhere),
                Cell(None) if p == "latest" else across(m.rise, m.lost(p), m.groups, m.keeps_latest),
                Cell(float(np.isfinite(each[p]).sum()), digits=0),
            ),
        )
        for p, label in PREDICTORS.items()
    ]
    means = {p: trajectory_means(each[p], m.groups) for p in PREDICTORS}
    pairs = {
        f"within: {PREDICTORS[a]} against {PREDICTORS[b]}": means[a] - means[b]
        for a, b in (("T3", "C"), ("T3", "E"), ("T3", "latest"), ("C", "E"), ("grounding", "T3"))
    }
    return [
        Table(
            "N.3",
            "Rank correlation of the rise with cheap measures",
            "Spearman's correlation over the selectors of a checkpoint, mean over trajectories; over all (checkpoint, "
            "selector) pairs after taking each checkpoint's mean from both; the same over the pairs that keep the "
            "latest block. 1: the measure orders selections as the loss does.",
            "measure",
            ("within a checkpoint", "all pairs", "pairs with the latest block", "checkpoints where defined"),
            tuple(rows),
            m.n,
            notes=("A checkpoint where a measure is the same for all selectors has no correlation with it.",),
            raw={"within": {p: jsonable(v) for p, v in each.items()}},
        ),
        Table(
            "N.3-tests",
            "Paired differences of the correlations within a checkpoint",
            "Differences of trajectory means; above 0: the first measure is the better one.",
            "comparison",
            PAIRED_COLUMNS,
            paired_rows(pairs),
            counted(len(np.unique(m.groups)), "trajectory", "trajectories"),
            raw={"differences": {k: jsonable(v) for k, v in pairs.items()}},
        ),
    ]


def raw(m: Measured) -> dict[str, object]:
    """Every measured checkpoint, for the JSON; losses are sums over the action's tokens, in nats."""

    def entry(at: int) -> dict[str, object]:
        chosen = {
            name: {
                "loss": m.losses[name][at],
                "rise": (m.losses[name][at] - m.full[at]) / m.tokens[at],
                "latest_kept": m.latest[name][at],
                **{c: m.cheap[name][c][at] for c in ("T3", "C", "E", "R_a")},
            }
            for name in SELECTORS
        }
        where = {"trajectory": m.names[m.groups[at]], "blocks": m.blocks[at], "kept": m.kept[at]}
        ends = {"action_tokens": m.tokens[at], "full": m.full[at], "none": m.none[at]}
        return {**where, **ends, "selectors": chosen}

    out: dict[str, object] = jsonable({"checkpoints": [entry(at) for at in range(len(m.groups))]})
    return out


TABLES: tuple[Callable[[Measured], list[Table]], ...] = (
    lambda m: [table_n1(m)],
    lambda m: [table_n2(m)],
    table_n3,
)

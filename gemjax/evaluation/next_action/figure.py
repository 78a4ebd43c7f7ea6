"""The figure of tables N.1 and N.3: what each selector loses, and which cheap measure tells. Needs matplotlib."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemjax.evaluation.gem.figures import COLOURS, SETTINGS
from gemjax.evaluation.gem.selectors import SELECTORS
from gemjax.evaluation.gem.table import Row, Table

NAME = "figure-next-action"


def draw(tables: Sequence[Table], folder: Path) -> list[Path]:
    """`figure-next-action.png` and a PDF beside it. Returns the PNG; nothing without the tables. Raises `OSError`."""
    known = {table.name: table for table in tables}
    if not {"N.1", "N.3"} <= set(known):
        return []
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(13.5, 5))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        _rises(left, known["N.1"])
        _correlations(right, known["N.3"])
        figure.tight_layout(w_pad=2)
        for suffix in (".png", ".pdf"):
            figure.savefig(folder / f"{NAME}{suffix}", bbox_inches="tight", dpi=150)
    return [folder / f"{NAME}.png"]


def _rises(axes: Axes, table: Table) -> None:
    at = table.columns.index("rise (nats a token)")
    labels = list(SELECTORS.values())
    rows = [row for row in table.rows if row.label in labels][::-1]
    for y, row in enumerate(rows):
        k = labels.index(row.label)
        _interval(axes, row, at, y, COLOURS[k], "o", filled=True)
    worth = next(row for row in table.rows if row.label == "no block").cells[at].value
    if worth is not None:
        axes.axvline(worth, color="black", linestyle="--", linewidth=1.2)
        white = {"facecolor": "white", "edgecolor": "none", "pad": 2}
        axes.text(worth, len(rows) - 0.5, "no block left", ha="center", va="bottom", fontsize=11, bbox=white)
    axes.axvline(0, color="#777777", linewidth=1)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(-0.6, len(rows) + 0.2)
    axes.grid(axis="x", color="#e5e5e5")
    axes.set_xlabel("rise of the next action's loss over the full history\n(nats a token; mean and 95 % interval)")


def _correlations(axes: Axes, table: Table) -> None:
    series = (
        ("within a checkpoint", "o", 0, True),
        ("all pairs", "s", 1, True),
        ("pairs with the latest block", "D", 2, False),
    )
    rows = table.rows[::-1]
    for column, marker, k, filled in series:
        at = table.columns.index(column)
        for y, row in enumerate(rows):
            _interval(axes, row, at, y + 0.22 * (1 - k), COLOURS[k], marker, filled)
        axes.plot([], [], marker, color=COLOURS[k], label=column, markerfacecolor=COLOURS[k] if filled else "white")
    axes.axvline(0, color="#777777", linewidth=1)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.grid(axis="x", color="#e5e5e5")
    axes.set_xlabel("Spearman's correlation with the rise\n(95 % interval)")
    axes.legend(
        frameon=False,
        fontsize=11,
        loc="lower right",
        bbox_to_anchor=(1.02, 1),
        ncols=3,
        columnspacing=0.9,
        handletextpad=0.1,
    )


def _interval(axes: Axes, row: Row, at: int, y: float, colour: str, marker: str, filled: bool) -> None:
    cell = row.cells[at]
    if cell.value is None:
        return
    if cell.low is not None and cell.high is not None:
        axes.plot([cell.low, cell.high], [y, y], color=colour, linewidth=2.5)
    face = colour if filled else "white"
    axes.plot([cell.value], [y], marker, color=colour, markerfacecolor=face, markersize=8, markeredgewidth=1.8)

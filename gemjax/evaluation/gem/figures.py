"""The paper's figures from the tables: PNG for pages, PDF for print. Needs matplotlib (extra `figures`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from gemjax.evaluation.gem.selectors import SELECTORS
from gemjax.evaluation.gem.table import Table

# Okabe and Ito's palette, which stays apart for colour-blind readers; markers tell the lines apart as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#999999", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = "osD^vPX*"
SETTINGS: Any = {
    "font.size": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
    "pdf.fonttype": 42,
}


def draw(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Every figure whose table is there. Returns the PNG files; a PDF lies beside each. Raises `OSError`."""
    known = {t.name: t for t in tables if t.rows}
    made = []
    with matplotlib.rc_context(SETTINGS):
        for table, name, plot in (
            ("C.1", "figure-1-effective-rank", _effective_rank),
            ("1", "figure-2-matched-count", _matched),
            ("Fig3", "figure-3-spectral-bands", _bands),
            ("D.3", "figure-5a-exact-count", _budgets),
            ("D.4", "figure-5b-coverage-threshold", _thresholds),
        ):
            if table in known:
                figure = plot(known[table])
                for suffix in (".png", ".pdf"):
                    figure.savefig(folder / f"{name}{suffix}", bbox_inches="tight", dpi=150)
                made.append(folder / f"{name}.png")
    return made


def _effective_rank(table: Table) -> Figure:
    ranks = np.asarray(table.raw["effective_rank"], np.float64)
    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    for row in ranks:
        axes.plot(range(3), row, color="#bbbbbb", linewidth=0.8, zorder=1)
    for k in range(3):
        axes.scatter(np.full(len(ranks), k), ranks[:, k], color=COLOURS[k], marker=MARKERS[k], s=26, zorder=2)
        axes.plot([k - 0.2, k + 0.2], [np.median(ranks[:, k])] * 2, color="black", linewidth=2.5, zorder=3)
    axes.set_yscale("log")
    axes.set_xticks(range(3), ["real history", "feature shift", "Gaussian"])
    axes.set_ylabel("effective rank (directions)")
    axes.set_title("One line a trajectory; bar: median", fontsize=12, loc="left")
    return figure


def _matched(table: Table) -> Figure:
    measured = {"T3": "Top-3 retention of the next action", "E": "captured energy E", "C": "centroid similarity C"}
    rows = list(table.rows[: len(SELECTORS)])[::-1]
    figure = Figure(figsize=(13, 4.5))
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (column, label) in zip(panels, measured.items(), strict=True):
        at = table.columns.index(column)
        for y, row in enumerate(rows):
            cell = row.cells[at]
            if cell.value is None or cell.low is None or cell.high is None:
                continue
            k = list(SELECTORS.values()).index(row.label)
            axes.plot([cell.low, cell.high], [y, y], color=COLOURS[k], linewidth=2.5)
            axes.plot([cell.value], [y], MARKERS[k], color=COLOURS[k], markersize=9)
        axes.set_xlabel(f"{label}\n(mean and 95 % interval)", fontsize=12)
        axes.grid(axis="x", color="#e5e5e5")
        axes.set_yticks(range(len(rows)), [row.label for row in rows])
    figure.tight_layout()
    return figure


def _bands(table: Table) -> Figure:
    cells = [row.cells[0] for row in table.rows[:-1]]
    values = np.array([np.nan if c.value is None else c.value for c in cells])
    low = np.array([np.nan if c.low is None else c.low for c in cells])
    high = np.array([np.nan if c.high is None else c.high for c in cells])
    figure = Figure(figsize=(9.5, 4.5))
    axes = figure.subplots()
    x = np.arange(len(cells))
    axes.bar(x, values, color=COLOURS[0])
    axes.errorbar(x, values, np.clip([values - low, high - values], 0, None), fmt="none", color="black", capsize=3)
    axes.set_xticks(x, [f"{100 * b // len(cells)}-{100 * (b + 1) // len(cells)}" for b in x])
    axes.set_xlabel("directions of the history, by rank from the leading one (%)")
    axes.set_ylabel("share of the next action's energy")
    return figure


def _lines(axes: Any, x: Sequence[float], series: dict[str, list[Any]]) -> None:
    for label, cells in series.items():
        k = list(SELECTORS.values()).index(label)
        y = [np.nan if c.value is None else c.value for c in cells]
        axes.plot(x, y, marker=MARKERS[k], color=COLOURS[k], label=label, markersize=7, linewidth=1.8)


def _budgets(table: Table) -> Figure:
    figure = Figure(figsize=(9, 5))
    axes = figure.subplots()
    counts = [int(row.label.removeprefix("K = ")) for row in table.rows]
    _lines(axes, counts, {label: [row.cells[i] for row in table.rows] for i, label in enumerate(table.columns)})
    axes.set_xlabel("blocks kept, K")
    axes.set_xticks(counts)
    axes.set_ylabel("Top-3 retention of the next action")
    axes.legend(frameon=False, fontsize=11, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _thresholds(table: Table) -> Figure:
    figure = Figure(figsize=(9, 5))
    axes = figure.subplots()
    for label in (SELECTORS["paper"], SELECTORS["default"]):
        rows = [row for row in table.rows if row.label.startswith(f"{label}, ")]
        share = [np.nan if row.cells[0].value is None else row.cells[0].value for row in rows]
        _lines(axes, share, {label: [row.cells[1] for row in rows]})
        for at in (0, -1):
            tau = rows[at].label.rpartition(" = ")[2]
            top = rows[at].cells[1].value or 0.0
            axes.annotate(
                rf"$\tau$ = {tau}",
                (share[at], top),
                (0, 9 if at else -18),
                textcoords="offset points",
                ha="center",
                fontsize=11,
            )
    axes.margins(0.12)
    axes.set_xlabel("share of the blocks kept")
    axes.set_ylabel("Top-3 retention of the next action")
    axes.legend(frameon=False, loc="lower right")
    return figure

"""The frontier: what each method costs against how many calls still see all they copy. Needs matplotlib."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemjax.evaluation.gem.figures import COLOURS, MARKERS, SETTINGS

_BILLS = (("cost_ratio", "cost, a share of sending everything"), ("refetch_ratio", "the same with look-ups"))


def draw(methods: Mapping[str, Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Two panels over one axis of fully grounded calls: the bill, and the bill with re-fetches. Means over runs.

    Args:
        methods: by name, as `Report.to_json()["methods"]` has them. One that no call was asked of is left out.
        path: the file to write; its ending says in which format (`.png`, `.pdf`, `.svg`).

    Raises: `OSError`; `ValueError` for an ending that is no picture's.
    """
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(13.5, 5.5))
        for axes, (measure, label) in zip(figure.subplots(1, 2, sharey=True), _BILLS, strict=True):
            _panel(axes, methods, measure)
            axes.set_xlabel(f"{label}\n(mean over runs, bars: standard error)")
        # Methods may lie on each other, so their names stand beside the panels.
        figure.axes[1].legend(frameon=False, fontsize=11, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.axes[0].set_ylabel("calls with all values in sight")
        figure.tight_layout(w_pad=2)
        figure.savefig(Path(path), bbox_inches="tight", dpi=150)


def _panel(axes: Axes, methods: Mapping[str, Mapping[str, Any]], measure: str) -> None:
    for k, (name, row) in enumerate(methods.items()):
        x, y = row[f"{measure}_mean"], row["fully_grounded_mean"]
        if x is None or y is None:
            continue
        across, up = row[f"{measure}_se"] or 0.0, row["fully_grounded_se"] or 0.0
        colour = COLOURS[k % len(COLOURS)]
        marker = MARKERS[k % len(MARKERS)]
        axes.errorbar(x, y, xerr=across, yerr=up, fmt=marker, color=colour, capsize=2, markersize=8, label=name)
    axes.axvline(1, color="#777777", linewidth=1)
    axes.grid(color="#e5e5e5")
    axes.margins(0.12)

"""What a table is: cells with an interval and, where the paper prints one, the paper's number."""

import dataclasses
from typing import Any

import numpy as np

from gemjax.evaluation.paired import holm, sign_test, wilcoxon
from gemjax.evaluation.statistics import bootstrap_intervals
from gemjax.wording import counted


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number with its 95 % interval over trajectories, and the paper's number for the same thing."""

    value: float | None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    digits: int = 3

    def shown(self) -> str:
        """The value as every report prints it; `-` where nothing is defined."""
        if self.value is None:
            return "-"
        small = 0 < abs(self.value) < 10.0**-self.digits
        return f"{self.value:.2g}" if small else f"{self.value:,.{self.digits}f}"

    def interval(self) -> str:
        if self.low is None or self.high is None:
            return ""
        return f"[{self.low:.{self.digits}f}, {self.high:.{self.digits}f}]"


@dataclasses.dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        name: as in the paper: `1`, `C.1`, `D.3` ...
        definition: what is measured, by equation number.
        n: how many checkpoints and trajectories stand behind it.
        paper: what the paper prints or says, with its n.
        notes: choices, and what was left out.
        raw: the values of every checkpoint or trajectory, for the JSON.
    """

    name: str
    title: str
    definition: str
    head: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    n: str
    paper: str = ""
    notes: tuple[str, ...] = ()
    raw: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        out: dict[str, Any] = jsonable(dataclasses.asdict(self))
        return out


def jsonable(value: Any) -> Any:
    """NumPy to lists; NaN (not defined) to None."""
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, np.ndarray):
        # float32 has no more digits, and a file of many checkpoints is half as large.
        return jsonable((np.round(value.astype(np.float64), 7) if value.dtype.kind == "f" else value).tolist())
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value


def number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def pooled(values: np.ndarray, groups: np.ndarray, paper: float | None = None, digits: int = 3) -> Cell:
    """Mean over all checkpoints where the value is defined (C.2), with an interval that resamples trajectories."""
    known = np.isfinite(values)
    if not known.any():
        return Cell(None, paper=paper, digits=digits)
    values, groups = values[known], groups[known]
    if len(np.unique(groups)) < 2:
        # Resampling one trajectory gives itself: an interval of no width would claim what nobody knows.
        return Cell(float(values.mean(dtype=np.float64)), None, None, paper, digits)
    low, high = bootstrap_intervals(values[:, None].astype(np.float64), groups)[0]
    return Cell(float(values.mean(dtype=np.float64)), float(low), float(high), paper, digits)


def count_trajectories(number: int) -> str:
    """`1 trajectory`, `2 trajectories`."""
    return counted(number, "trajectory", "trajectories")


def checkpoints_of(groups: np.ndarray) -> str:
    """`6 checkpoints, 3 trajectories`, for the trajectory of each checkpoint."""
    return f"{counted(len(groups), 'checkpoint')}, {count_trajectories(len(np.unique(groups)))}"


def trajectory_means(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The mean of each trajectory's defined values, in the order of `np.unique(groups)`; NaN where none is."""
    known = np.isfinite(values)
    names, index = np.unique(groups, return_inverse=True)
    sums = np.bincount(index[known], values[known], minlength=len(names))
    sizes = np.bincount(index[known], minlength=len(names))
    return np.asarray(np.where(sizes > 0, sums / np.maximum(sizes, 1), np.nan))


def by_trajectory(values: np.ndarray, groups: np.ndarray, paper: float | None = None, digits: int = 3) -> Cell:
    """Mean over trajectories of their own means: trajectories are the units."""
    means = trajectory_means(values, groups)
    return pooled(means, np.arange(len(means)), paper, digits)


def paired_rows(pairs: dict[str, np.ndarray]) -> tuple[Row, ...]:
    """One row a comparison of differences, one a trajectory: mean and interval, signs, and both tests after Holm."""
    signs = [sign_test(d) for d in pairs.values()]
    ranks = [wilcoxon(d) for d in pairs.values()]
    sign_p = holm(np.array([s["p"] for s in signs]))
    rank_p = holm(np.array([r["p"] for r in ranks]))
    rows = []
    for (label, d), s, p, q in zip(pairs.items(), signs, sign_p, rank_p, strict=True):
        mean = pooled(d, np.arange(len(d)))
        counts = (Cell(float(s["above"]), digits=0), Cell(float(s["below"]), digits=0))
        rows.append(Row(label, (mean, *counts, Cell(number(p), digits=4), Cell(number(q), digits=4))))
    return tuple(rows)


PAIRED_COLUMNS = ("mean difference", "above", "below", "sign test p (Holm)", "Wilcoxon p (Holm)")

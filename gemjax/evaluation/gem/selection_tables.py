"""Tables 1, D.1, D.2, D.3 and D.4: which blocks are kept, at equal counts and at each variant's own."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from gemjax.evaluation.gem.checkpoints import MIN_BLOCKS, UNRANKED, Checkpoints
from gemjax.evaluation.gem.selectors import CAPACITY, MEASURES, SELECTORS, TAU, Values, matched, natural, protected_sets
from gemjax.evaluation.gem.table import (
    PAIRED_COLUMNS,
    Cell,
    Row,
    Table,
    by_trajectory,
    checkpoints_of,
    jsonable,
    paired_rows,
    pooled,
    trajectory_means,
)
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES, Rule
from gemjax.wording import counted

BUDGETS = tuple(range(8, 21))
THRESHOLDS = tuple(round(0.85 + 0.01 * i, 2) for i in range(11))
COMPARED = (
    ("paper", "geometry"),
    ("default", "geometry"),
    ("default", "paper"),
    ("default", "recency"),
    ("default", "latest-action"),
    ("paper", "recency"),
)
_MEASURES = "C, E: Eq. 3; P_a, R_a, T3: Eq. 4; P_goal, P_final: projections of the goal text and of the last block."


@dataclasses.dataclass
class Study:
    """The checkpoints with everything that several tables share, computed when first asked for."""

    trajectories: list[Checkpoints]
    paper_rules: tuple[Rule, ...] = PAPER_RULES
    default_rules: tuple[Rule, ...] = DEFAULT_RULES

    @cached_property
    def groups(self) -> np.ndarray:
        """The trajectory of each checkpoint in flat order."""
        return np.repeat(np.arange(len(self.trajectories)), [len(t.counts) for t in self.trajectories])

    @cached_property
    def sizes(self) -> np.ndarray:
        """Blocks of the history at each checkpoint."""
        return np.concatenate([t.counts for t in self.trajectories])

    @cached_property
    def paper(self) -> list[np.ndarray]:
        return protected_sets(self.trajectories, self.paper_rules)

    @cached_property
    def default(self) -> list[np.ndarray]:
        return protected_sets(self.trajectories, self.default_rules)

    @cached_property
    def own(self) -> dict[str, Values]:
        """Paper and default rules as the compressor runs them: K = 16, tau = 0.90."""
        return natural(
            self.trajectories, {"paper": (self.paper, CAPACITY, TAU), "default": (self.default, CAPACITY, TAU)}
        )

    def split(self, flat: np.ndarray) -> list[np.ndarray]:
        return np.split(flat, np.cumsum([len(t.counts) for t in self.trajectories])[:-1])

    @cached_property
    def at_paper_count(self) -> dict[str, Values]:
        """All selectors with as many blocks as the paper's rules keep."""
        counts = self.split(self.own["paper"]["count"].astype(np.int32))
        return matched(self.trajectories, counts, self.paper, self.default)

    @cached_property
    def at_default_count(self) -> dict[str, Values]:
        """All selectors with as many blocks as the default rules keep."""
        counts = self.split(self.own["default"]["count"].astype(np.int32))
        return matched(self.trajectories, counts, self.paper, self.default)

    def raw(self, values: dict[str, Values], where: np.ndarray | None = None) -> dict[str, object]:
        """Per-checkpoint values for the JSON: which trajectory, how many blocks, and every measure."""
        keep = np.ones(len(self.groups), bool) if where is None else where
        return {
            "trajectories": [t.id for t in self.trajectories],
            "trajectory": self.groups[keep].tolist(),
            "blocks": self.sizes[keep].tolist(),
            "values": {name: {m: jsonable(v[keep]) for m, v in row.items()} for name, row in values.items()},
        }

    def n(self, where: np.ndarray | None = None) -> str:
        groups = self.groups if where is None else self.groups[where]
        return checkpoints_of(groups)


def _grid(
    values: dict[str, Values],
    groups: np.ndarray,
    mean: Callable[..., Cell],
    columns: Sequence[str],
    suffix: str = "",
    paper: dict[tuple[str, str], float] | None = None,
) -> list[Row]:
    known = paper or {}
    return [
        Row(
            SELECTORS.get(name, name) + suffix,
            tuple(mean(row[c], groups, known.get((name, c)), 1 if c == "count" else 3) for c in columns),
        )
        for name, row in values.items()
    ]


def _ordered(values: dict[str, Values]) -> dict[str, Values]:
    return {name: values[name] for name in SELECTORS}


_IN_PAPER = {("geometry", "T3"): 0.31, ("paper", "T3"): 0.69, ("geometry", "C"): 0.98, ("paper", "C"): 0.98}


def table_1(study: Study) -> list[Table]:
    """Matched-count retention (Table 1, Fig. 2), at the paper's count and at that of the default rules."""
    columns = (*MEASURES, "count")
    out = []
    for name, values, whose in (
        ("1", study.at_paper_count, "the paper's rules"),
        ("1b", study.at_default_count, "the default rules"),
    ):
        values = _ordered(values)
        paper = _IN_PAPER if name == "1" else None
        rows = _grid(values, study.groups, by_trajectory, columns, "", paper)
        rows += _grid(values, study.groups, pooled, columns, " (pooled)", paper)
        out.append(
            Table(
                name,
                f"Retention at the count of {whose}",
                f"Every selector keeps as many blocks as {whose} do with K = {CAPACITY}, tau = {TAU:g}. {_MEASURES}",
                "selector",
                columns,
                tuple(rows),
                study.n(),
                "650 checkpoints, 32 trajectories, pooled; the text gives T3 and C only" if paper else "",
                (
                    "Rows without a mark are means over trajectories of their means; pooled rows are means over "
                    "checkpoints, in which long trajectories weigh more. Intervals resample trajectories.",
                    "Where the default rules protect more than the count, those that they name first stay.",
                ),
                study.raw(values),
            )
        )
        pairs = {
            f"{m}: {SELECTORS[a]} - {SELECTORS[b]}": trajectory_means(values[a][m] - values[b][m], study.groups)
            for m in ("T3", "C", "E")
            for a, b in COMPARED
        }
        out.append(
            Table(
                f"{name}-tests",
                f"Paired differences at the count of {whose}",
                "Differences of trajectory means; the p values of a column are corrected together by Holm.",
                "comparison",
                PAIRED_COLUMNS,
                paired_rows(pairs),
                counted(len(study.trajectories), "trajectory", "trajectories"),
                raw={"differences": {k: jsonable(v) for k, v in pairs.items()}},
            )
        )
    return out


def table_d1(study: Study) -> list[Table]:
    """Selectors at the same count on two checkpoints a trajectory, its first and its last."""
    first = np.r_[True, np.diff(study.groups) > 0]
    last = np.r_[np.diff(study.groups) > 0, True]
    where = first | last
    values = {name: {m: v[where] for m, v in row.items()} for name, row in _ordered(study.at_paper_count).items()}
    columns = (*MEASURES, "count")
    return [
        Table(
            "D.1",
            "Selectors at the same count, two checkpoints a trajectory",
            f"As Table 1, on each trajectory's first and last checkpoint only. {_MEASURES}",
            "selector",
            columns,
            tuple(_grid(values, study.groups[where], pooled, columns)),
            study.n(where),
            "59 checkpoints, 32 trajectories; which ones is not said, and the text gives no numbers",
            raw=study.raw(_ordered(study.at_paper_count), where),
        )
    ]


def table_d2(study: Study) -> list[Table]:
    """Each rule off in turn and each rule alone, at natural counts."""
    nothing = [np.full((len(t.counts), len(t.vectors)), UNRANKED) for t in study.trajectories]
    variants = {"geometry only": nothing, "paper rules": study.paper, "default rules": study.default}
    for rule in study.default_rules:
        rest = tuple(r for r in study.default_rules if r is not rule)
        variants[f"default without {rule.name}"] = protected_sets(study.trajectories, rest)
    for rule in study.paper_rules:
        rest = tuple(r for r in study.paper_rules if r is not rule)
        variants[f"paper without {rule.name}"] = protected_sets(study.trajectories, rest)
    for rule in study.default_rules:
        variants[f"{rule.name} alone"] = protected_sets(study.trajectories, (rule,))
    values = natural(study.trajectories, {n: (p, CAPACITY, TAU) for n, p in variants.items()})
    columns = ("fraction", "T3", "P_a", "C", "E", "P_final")
    return [
        Table(
            "D.2",
            "What each rule contributes, at each variant's own count",
            f"Completion with K = {CAPACITY}, tau = {TAU:g} of the sets that the named rules protect. {_MEASURES}",
            "variant",
            columns,
            tuple(_grid(values, study.groups, by_trajectory, columns)),
            study.n(),
            "59 checkpoints, 32 trajectories; numbers in the table's body only",
            ("Counts differ between rows, so this does not compare selections at equal cost; Table 1 does.",),
            study.raw(values),
        )
    ]


def table_d3(study: Study) -> list[Table]:
    """T3 at exact counts K = 8..20, on the checkpoints that have at least 20 blocks."""
    where = study.sizes >= BUDGETS[-1]
    notes = ("Where the rules protect more than K, those that they name first stay.",)
    if not where.any():
        return [Table("D.3", "T3 at exact counts", "", "K", (), (), "no checkpoint has 20 blocks", notes=notes)]
    names = tuple(SELECTORS)
    rows, raw = [], {}
    chosen = [t for t in study.trajectories if (t.counts >= BUDGETS[-1]).any()]
    index = [i for i, t in enumerate(study.trajectories) if (t.counts >= BUDGETS[-1]).any()]
    here = np.isin(study.groups, index)
    for k in BUDGETS:
        counts = [np.full(len(t.counts), k, np.int32) for t in chosen]
        values = matched(
            chosen, counts, [study.paper[i] for i in index], [study.default[i] for i in index], spans=False
        )
        kept = {name: values[name]["T3"][where[here]] for name in names}
        groups = study.groups[where]
        rows.append(Row(f"K = {k}", tuple(by_trajectory(kept[name], groups) for name in names)))
        raw[str(k)] = {name: jsonable(v) for name, v in kept.items()}
    return [
        Table(
            "D.3",
            "T3 at exact counts",
            "Every selector keeps exactly K blocks; Eq. 4. Means over trajectories.",
            "count",
            tuple(SELECTORS.values()),
            tuple(rows),
            study.n(where),
            "525 checkpoints, 28 trajectories; the text says that evidence exceeds geometry at every K",
            notes,
            {"trajectory": study.groups[where].tolist(), "T3": raw},
        )
    ]


def table_d4(study: Study) -> list[Table]:
    """Coverage thresholds tau = 0.85..0.95."""
    paper = {(0.85, "fraction"): 0.38, (0.95, "fraction"): 0.53, (0.85, "T3"): 0.58, (0.95, "T3"): 0.65}
    columns = ("fraction", "T3", "P_a", "E")
    rows, raw = [], {}
    for key, places in (("paper", study.paper), ("default", study.default)):
        values = natural(study.trajectories, {f"{tau:.2f}": (places, CAPACITY, tau) for tau in THRESHOLDS})
        for tau in THRESHOLDS:
            row = values[f"{tau:.2f}"]
            cells = (
                by_trajectory(row[c], study.groups, paper.get((tau, c)) if key == "paper" else None) for c in columns
            )
            rows.append(Row(f"{SELECTORS[key]}, tau = {tau:.2f}", tuple(cells)))
        raw[key] = study.raw(values)
    return [
        Table(
            "D.4",
            "Coverage thresholds",
            f"Completion with K = {CAPACITY} until the coverage E (Eq. 3) reaches tau. Means over trajectories.",
            "rules",
            columns,
            tuple(rows),
            study.n(),
            "59 checkpoints, 32 trajectories; the text gives both ends",
            (f"Histories start at {MIN_BLOCKS} blocks, so the kept fraction depends on how long the recordings are.",),
            raw,
        )
    ]

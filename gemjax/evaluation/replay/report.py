"""From outcomes to one table and one JSON object: the sums are the bill, trajectories the statistical units."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from gemjax.evaluation.replay.accounting import Prices, Totals
from gemjax.evaluation.replay.grounding import Met
from gemjax.evaluation.replay.replay import MethodOutcome, TrajectoryOutcome
from gemjax.wording import counted

_MET: dict[str, Callable[[Met], float | None]] = {
    "grounding": lambda m: m.grounding,
    "grounding_strict": lambda m: m.strict,
    "grounding_rare": lambda m: m.rare,
    "fully_grounded": lambda m: None if m.fully is None else float(m.fully),
    "edits_grounded": lambda m: m.edits,
}

_RATIOS: dict[str, Callable[[Totals], float]] = {
    "chars_ratio": lambda t: t.chars,
    "cost_ratio": lambda t: t.cost,
    "token_ratio": lambda t: t.tokens,
    "token_cost_ratio": lambda t: t.token_cost,
}

_WIDE = 140

_CLASSES = ("1-4", "5-16", "17-64", "65+")
"""Names of the classes of distance, in blocks."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a replay.

    Attributes:
        names: the methods shown, in order.
        outcomes: one for each finished trajectory.
        skipped: files that were not read, each with the reason.
        interrupted: the replay was stopped; `outcomes` has what was finished by then.
    """

    names: list[str]
    outcomes: list[TrajectoryOutcome]
    skipped: list[tuple[str, str]]
    prices: Prices
    counter: str
    encoder: str
    action_view: str
    interrupted: bool = False

    @property
    def broken(self) -> list[str]:
        """Violated invariants of the compressor, over everything. Must be empty."""
        return [line for o in self.outcomes for m in o.methods.values() for line in m.broken]

    def method(self, name: str) -> dict[str, Any]:
        """One method over all trajectories.

        `X_ratio` is the ratio of the sums, X(method) / X(everything): the bill. `X_ratio_mean` is the mean of the
        trajectories' own ratios and `X_ratio_se` its standard error (None for one trajectory): what to expect of one
        trajectory, however long. `top3` likewise: the mean over all checkpoints; `top3_mean` the mean over trajectories
        of their means. `grounding`, `grounding_strict`, `grounding_rare`, `fully_grounded` and `edits_grounded`
        likewise (see `gemjax.evaluation.replay.grounding`): over the checkpoints whose call copies something.
        `refetch_ratio` is the bill with look-ups over that of sending everything; `X_without_longest` leaves out the
        run with most blocks.
        """
        pairs = [(o.methods[name], o.methods["none"]) for o in self.outcomes]
        row: dict[str, Any] = {}
        for key, of in _RATIOS.items():
            ratios = [_ratio(of(m.totals), of(full.totals)) for m, full in pairs]
            row[key] = _ratio(sum(of(m.totals) for m, _ in pairs), sum(of(f.totals) for _, f in pairs))
            row[f"{key}_mean"], row[f"{key}_se"] = _mean_and_error(ratios)
        row["top3"] = _mean([r for m, _ in pairs for r in m.retained])
        row["top3_mean"], row["top3_se"] = _mean_and_error(_mean(m.retained) for m, _ in pairs if m.retained)
        outcomes = [m for m, _ in pairs]
        row |= self._grounding(outcomes)
        with_lookups = [_ratio(m.totals.cost + m.refetch_cost, f.totals.cost) for m, f in pairs]
        whole = sum(f.totals.cost for _, f in pairs)
        row["refetch_ratio"] = _ratio(sum(m.totals.cost + m.refetch_cost for m, _ in pairs), whole)
        row["refetch_ratio_mean"], row["refetch_ratio_se"] = _mean_and_error(with_lookups)
        row["refetches"] = sum(m.refetches for m in outcomes)
        if len(self.outcomes) > 1:
            longest = max(self.outcomes, key=lambda o: o.blocks)
            rest = [(o.methods[name], o.methods["none"]) for o in self.outcomes if o is not longest]
            whole = sum(f.totals.cost for _, f in rest)
            row["cost_ratio_without_longest"] = _ratio(sum(m.totals.cost for m, _ in rest), whole)
            more = sum(m.totals.cost + m.refetch_cost for m, _ in rest)
            row["refetch_ratio_without_longest"] = _ratio(more, whole)
        row["events"] = sum(m.totals.events for m in outcomes)
        row["expired"] = sum(m.totals.expired for m in outcomes)
        row["requests"] = sum(m.totals.requests for m in outcomes)
        row["checkpoints"] = sum(len(m.retained) for m in outcomes)
        row["invalid"] = sum(m.invalid for m in outcomes)
        row["broken"] = sum(len(m.broken) for m in outcomes)
        row["core_share"] = _mean([m.core_share for m in outcomes if m.core_share is not None])
        row["protected_kept"] = min((m.protected_kept for m in outcomes), default=None)
        row["encoder_texts"] = sum(m.encoder_texts for m in outcomes)
        row["encoder_tokens"] = sum(m.encoder_tokens for m in outcomes)
        row["seconds"] = sum(m.seconds for m in outcomes)
        return row

    @staticmethod
    def _grounding(outcomes: list[MethodOutcome]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for key, of in _MET.items():
            each = [[v for m in o.met if (v := of(m)) is not None] for o in outcomes]
            row[key] = _mean([v for values in each for v in values])
            row[f"{key}_mean"], row[f"{key}_se"] = _mean_and_error(_mean(values) for values in each if values)
        row["grounding_by_distance"] = {}
        for n, name in enumerate(_CLASSES):
            seen = sum(m.by_distance[n][0] for o in outcomes for m in o.met)
            asked = sum(m.by_distance[n][1] for o in outcomes for m in o.met)
            row["grounding_by_distance"][name] = _ratio(seen, asked)
        return row

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "methods": {name: self.method(name) for name in self.names},
            "trajectories": [self._trajectory(o) for o in self.outcomes],
            "prices": dataclasses.asdict(self.prices),
            "tokens": self.counter,
            "encoder": self.encoder,
            "action_view": self.action_view,
            "skipped": [{"path": path, "reason": reason} for path, reason in self.skipped],
            "broken": self.broken,
            "interrupted": self.interrupted,
        }

    def _trajectory(self, outcome: TrajectoryOutcome) -> dict[str, Any]:
        t = outcome.trajectory
        return {
            "id": t.id,
            "format": t.format,
            "source": t.source,
            "notes": list(t.notes),
            "messages": len(t.messages),
            "blocks": outcome.blocks,
            "requests": outcome.requests,
            "checkpoints": outcome.checkpoints,
            "invalid_as_recorded": outcome.invalid_as_recorded,
            "methods": {name: _row(outcome.methods[name], outcome.methods["none"]) for name in self.names},
        }

    def print(self, console: Console | None = None) -> None:
        """A row a trajectory (cost and retention of each method), then a row a method with the totals."""
        console = console or Console()
        if not console.is_terminal:
            console = Console(file=console.file, width=_WIDE)
        if len(self.outcomes) > 1:
            console.print(self._trajectory_table(wide=console.width >= _WIDE))
        console.print(self._method_table(wide=console.width >= _WIDE))
        console.print(self._grounding_table(wide=console.width >= _WIDE))
        p = self.prices
        console.print(
            f"Ratios to sending everything over {self._count()} (mean over them in brackets); prices read {p.read:g}, "
            f"write {p.write:g}, uncached {p.uncached:g}; tokens by {self.counter}; top-3 by {self.encoder}.",
            style="dim",
        )
        if len(self.outcomes) > 1:
            console.print(self._without_longest(), style="dim", markup=False)
        for path, reason in self.skipped:
            console.print(f"not read: {path}: {reason}", style="yellow", markup=False)
        for line in self.broken:
            console.print(f"BROKEN INVARIANT: {line}", style="bold red", markup=False)
        if self.interrupted:
            console.print(f"interrupted after {self._count()}", style="yellow")

    def _without_longest(self) -> str:
        """The bill of each method without the run that weighs most in it."""
        longest = max(self.outcomes, key=lambda o: o.blocks)
        bills = [(name, self.method(name)) for name in self.names if name != "none"]
        figures = "; ".join(
            f"{name} {_number(r['cost_ratio_without_longest'])} / {_number(r['refetch_ratio_without_longest'])}"
            for name, r in bills
        )
        run = f"{longest.trajectory.id} ({counted(longest.blocks, 'block')})"
        return f"Cost / cost with re-fetches without the longest run, {run}: {figures or '-'}."

    def _count(self) -> str:
        return counted(len(self.outcomes), "trajectory", "trajectories")

    def _trajectory_table(self, wide: bool) -> Table:
        what = "cost / top-3" if wide else "cost"
        table = Table(title=f"{what} by trajectory", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        # In a narrow terminal eight methods leave little room, and the end of an id tells less than a figure.
        table.add_column("trajectory", no_wrap=True, overflow="ellipsis", max_width=34 if wide else 16)
        if wide:
            table.add_column("blocks", justify="right", no_wrap=True)
        shown = [n for n in self.names if n != "none"]
        for name in shown:
            table.add_column(name.replace("-", "-\n"), justify="right", no_wrap=True)
        for o in self.outcomes:
            rows = [_row(o.methods[n], o.methods["none"]) for n in shown]
            if wide:
                cells = [str(o.blocks), *(f"{_number(r['cost_ratio'])} / {_number(r['top3'])}" for r in rows)]
            else:
                cells = [_number(r["cost_ratio"]) for r in rows]
            table.add_row(o.trajectory.id, *cells)
        return table

    def _method_table(self, wide: bool) -> Table:
        table = Table(title="methods", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("method", no_wrap=True)
        ratios = {"chars": "chars_ratio", "tokens": "token_ratio", "cost": "cost_ratio", "top-3": "top3"}
        last = ("core", "encoder tokens", "seconds") if wide else ()
        for column in (*ratios, "rewrites", "invalid", *last):
            table.add_column(column, justify="right", no_wrap=True)
        for name in self.names:
            r = self.method(name)
            tail = (_number(r["core_share"]), f"{r['encoder_tokens']:,}", f"{r['seconds']:.1f}") if wide else ()
            figures = [_both(r, key) if wide else _number(r[key]) for key in ratios.values()]
            table.add_row(name, *figures, f"{r['events']:,}", f"{r['invalid']:,}", *tail)
        return table

    def _grounding_table(self, wide: bool) -> Table:
        """What of the next call's values is still there, and the bill if what is gone is looked up again."""
        title = f"what the next call still sees ({_grounding_note([o.methods['none'] for o in self.outcomes])})"
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("method", no_wrap=True)
        shares = {"fully": "fully_grounded", "values": "grounding", "rare": "grounding_rare"}
        more = {"strict": "grounding_strict", "edits": "edits_grounded"} if wide else {}
        for column in (*shares, *more, *(_CLASSES if wide else ()), "re-fetches", "cost with them"):
            table.add_column(column, justify="right", no_wrap=True)
        for name in self.names:
            r = self.method(name)
            cells = [_both(r, key) if wide else _number(r[key]) for key in shares.values()]
            cells += [_number(r[key]) for key in more.values()]
            cells += [_number(v) for v in r["grounding_by_distance"].values()] if wide else []
            bill = _both(r, "refetch_ratio") if wide else _number(r["refetch_ratio"])
            table.add_row(name, *cells, f"{r['refetches']:,}", bill)
        return table


def _grounding_note(rows: Sequence[MethodOutcome]) -> str:
    copying = sum(m.fully is not None for o in rows for m in o.met)
    return f"{copying:,} of {sum(len(o.met) for o in rows):,} next calls copy a value"


def _row(outcome: MethodOutcome, full: MethodOutcome) -> dict[str, Any]:
    t = outcome.totals
    row: dict[str, Any] = {key: _ratio(of(t), of(full.totals)) for key, of in _RATIOS.items()}
    copied = {key: _mean([v for m in outcome.met if (v := of(m)) is not None]) for key, of in _MET.items()}
    row["refetch_ratio"] = _ratio(t.cost + outcome.refetch_cost, full.totals.cost)
    return (
        row
        | copied
        | {
            "refetches": outcome.refetches,
            "refetch_cost": outcome.refetch_cost,
            "top3": _mean(outcome.retained),
            "events": t.events,
            "expired": t.expired,
            "chars": t.chars,
            "tokens": t.tokens,
            "cost": t.cost,
            "token_cost": t.token_cost,
            "invalid": outcome.invalid,
            "broken": len(outcome.broken),
            "core_share": outcome.core_share,
            "protected_kept": outcome.protected_kept,
            "encoder_texts": outcome.encoder_texts,
            "encoder_tokens": outcome.encoder_tokens,
            "seconds": outcome.seconds,
        }
    )


def _ratio(part: float, whole: float) -> float | None:
    """None where nothing was sent, or where everything is free."""
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _mean_and_error(values: Iterable[float | None]) -> tuple[float | None, float | None]:
    present = [v for v in values if v is not None]
    if not present:
        return None, None
    error = float(np.std(present, ddof=1) / np.sqrt(len(present))) if len(present) > 1 else None
    return float(np.mean(present)), error


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _both(row: dict[str, Any], key: str) -> str:
    return f"{_number(row[key])} ({_number(row[f'{key}_mean'])})"

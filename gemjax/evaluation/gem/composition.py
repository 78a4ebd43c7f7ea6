"""Table E.1: the tokens that a replay sends and its encoder reads, by policy."""

from typing import Any

import numpy as np

from gemjax.evaluation.gem.table import Cell, Row, Table, count_trajectories, jsonable, pooled
from gemjax.evaluation.replay import Prices, Replay, Trajectory
from gemjax.evaluation.replay.replay import TrajectoryOutcome
from gemjax.evaluation.replay.report import Report

COLUMNS = ("input, cached (K)", "input, uncached (K)", "input (K)", "encoder (K)", "input and encoder (K)", "ratio")
COUNTED = Prices(read=0.0, write=1.0)
"""With these prices the token cost of a method is its uncached input: what the provider's cache did not hold."""


def table_e1(report: Report) -> list[Table]:
    """Token composition, mean over trajectories (Table E.1, Eq. E.2 without the model's output).

    Args:
        report: of a replay with the prices `COUNTED`.
    """
    units = np.arange(len(report.outcomes))
    full = np.array([_tokens(o, "none")["combined"] for o in report.outcomes])
    rows, raw = [], {}
    for name in report.names:
        each = [_tokens(o, name) for o in report.outcomes]
        columns = {key: np.array([e[key] for e in each]) for key in each[0]}
        cells = [
            pooled(columns[key] / 1000, units, digits=1)
            for key in ("cached", "uncached", "input", "encoder", "combined")
        ]
        ratio = Cell(float(columns["combined"].sum() / full.sum()), paper=2.11 / 2.69 if name == "paper" else None)
        rows.append(Row(name, (*cells, ratio)))
        raw[name] = columns
    return [
        Table(
            "E.1",
            "Token composition of a replay, mean over trajectories",
            "Eq. E.2 without the model's output, which a replay does not change. Cached: the longest common prefix of "
            "whole messages with the request before.",
            "policy",
            COLUMNS,
            tuple(rows),
            f"{count_trajectories(len(report.outcomes))}, {report.method('none')['requests']:,} requests",
            "260 tasks: 2.69M to 2.11M combined tokens a task, model output included",
            (
                f"Tokens by {report.counter}.",
                "The ratio is that of the sums. Encoder tokens are each method's own texts, each read once.",
            ),
            jsonable({"trajectories": [o.trajectory.id for o in report.outcomes], "tokens": raw}),
        )
    ]


def replayed(trajectories: list[Trajectory], encoder: Any, counter: Any, methods: Any, tick: Any = None) -> Report:
    """Replay trajectories one by one with the prices that count uncached tokens."""
    replay = Replay(methods, encoder, counter, COUNTED)
    outcomes = []
    for trajectory in trajectories:
        outcomes.append(replay.run(trajectory))
        if tick is not None:
            tick(trajectory.id)
    return Report([m.name for m in replay.methods], outcomes, [], COUNTED, counter.name, encoder.name, "action")


def _tokens(outcome: TrajectoryOutcome, name: str) -> dict[str, float]:
    method = outcome.methods[name]
    everything, uncached = float(method.totals.tokens), float(method.totals.token_cost)
    return {
        "cached": everything - uncached,
        "uncached": uncached,
        "input": everything,
        "encoder": float(method.encoder_tokens),
        "combined": everything + float(method.encoder_tokens),
    }

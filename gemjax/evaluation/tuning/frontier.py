"""Cost against next-action retention for many settings of the compressor, over recorded trajectories.

    python -m gemjax.evaluation.tuning.frontier PATH... [--vectors DIR] [--only NAME,...] [--exclude ID,...]

Prints one row a setting: the bill and Top-3 retention over everything, their means over trajectories, and rewrites.
The shipped default was chosen from this table; docs/replay.md shows it.
"""

import argparse
import dataclasses
import sys

from rich.console import Console
from rich.table import Table

from gemjax.encoders import CachedEncoder, default_encoder
from gemjax.evaluation.replay import Prices, Replay, default_counter, load, methods_named
from gemjax.evaluation.replay.compressed import Compressed
from gemjax.evaluation.replay.report import Report
from gemjax.history import CostAwarePolicy, GEMConfig
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES, Affinity, Recent, Rule, State

RULES: dict[str, Rule] = {r.name: r for r in PAPER_RULES}


def rules(**changes: Rule | None) -> tuple[Rule, ...]:
    """The paper's rules with some replaced or, by None, left out; and `affinity`."""
    chosen: dict[str, Rule | None] = {**RULES, "affinity": Affinity(3), **changes}
    return tuple(r for r in chosen.values() if r is not None)


def settings() -> dict[str, GEMConfig]:
    """Name -> configuration of everything that was tried."""
    nine = rules(affinity=Affinity(9))
    return {
        "geometry only": GEMConfig(rules=()),
        "paper rules": GEMConfig(rules=PAPER_RULES),
        "affinity 3": GEMConfig(rules=rules(affinity=Affinity(3))),
        "affinity 6": GEMConfig(rules=rules(affinity=Affinity(6))),
        "affinity 9": GEMConfig(rules=nine),
        "affinity 12": GEMConfig(rules=rules(affinity=Affinity(12))),
        "affinity 9 (turn)": GEMConfig(rules=rules(affinity=Affinity(9, query="turn"))),
        "affinity 9 (trail)": GEMConfig(rules=rules(affinity=Affinity(9, query="trail"))),
        "affinity 9, paths 0.2": GEMConfig(rules=rules(affinity=Affinity(9, path_bonus=0.2))),
        "affinity 9, length 0.02": GEMConfig(rules=rules(affinity=Affinity(9, length_penalty=0.02))),
        "affinity 9, state outside recent": GEMConfig(
            rules=rules(state=State(3, outside_recent=True), affinity=Affinity(9))
        ),
        "default rules": GEMConfig(),
        "default rules, no balance": GEMConfig(rules=tuple(r for r in DEFAULT_RULES if r.name != "balance")),
        "default rules, no geometry": GEMConfig(coverage=0.0),
        "affinity 9, distinct": GEMConfig(rules=rules(affinity=Affinity(9, distinct=True))),
        "affinity 6, distinct": GEMConfig(rules=rules(affinity=Affinity(6, distinct=True))),
        "affinity 9, recent 6": GEMConfig(rules=rules(recent=Recent(6), affinity=Affinity(9))),
        "affinity 9, K 24": GEMConfig(rules=nine, capacity=24),
        "affinity 9, tau 0.8": GEMConfig(rules=nine, coverage=0.8),
        "affinity 9, no geometry": GEMConfig(rules=nine, coverage=0.0),
        "recent 4, affinity 12, no geometry": GEMConfig(rules=(Recent(4), Affinity(12)), coverage=0.0),
        "affinity 9, beta 0.5": GEMConfig(rules=nine, policy=CostAwarePolicy(beta=0.5)),
        "affinity 9, beta 2": GEMConfig(rules=nine, policy=CostAwarePolicy(beta=2.0)),
        "affinity 9, delta 0.5": GEMConfig(rules=nine, delta=0.5),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--vectors", metavar="DIR", help="keep vectors here, so that the next run encodes nothing")
    parser.add_argument("--only", metavar="NAME,...", help="only settings whose name contains one of these")
    parser.add_argument("--exclude", metavar="ID,...", default="", help="leave these trajectories out")
    arguments = parser.parse_args()
    tried = settings()
    if arguments.only:
        wanted = arguments.only.split(",")
        tried = {n: c for n, c in tried.items() if any(w in n for w in wanted)}
    left_out = set(filter(None, arguments.exclude.split(",")))
    trajectories = [t for t in load(arguments.paths).trajectories if t.id not in left_out]
    encoder = CachedEncoder(default_encoder(), disk=arguments.vectors)
    # The first is the reference that matched baselines follow; there are none here.
    reference = methods_named(["cost-aware"], Prices())
    methods = [*reference, *(Compressed(n, dataclasses.replace(c, encoder_timeout=None)) for n, c in tried.items())]
    replay = Replay(methods, encoder, default_counter(), Prices())
    outcomes = []
    for number, trajectory in enumerate(trajectories, 1):
        print(f"\r{number}/{len(trajectories)} {trajectory.id:50.50}", end="", file=sys.stderr, flush=True)
        outcomes.append(replay.run(trajectory))
    print(file=sys.stderr)
    report = Report(list(tried), outcomes, [], replay.prices, replay.counter.name, encoder.name, replay.action_view)
    table = Table(box=None)
    for column in ("setting", "cost", "top3", "chars", "cost mean", "top3 mean", "rewrites"):
        table.add_column(column, justify="left" if column == "setting" else "right")
    rows = [(name, report.method(name)) for name in tried]
    for name, row in sorted(rows, key=lambda r: r[1]["cost_ratio"]):
        figures = [f"{row[k]:.3f}" for k in ("cost_ratio", "top3", "chars_ratio", "cost_ratio_mean", "top3_mean")]
        table.add_row(name, *figures, str(row["events"]))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Cost against next-action retention for many settings of the compressor, over recorded trajectories.

    python bench/frontier.py PATH... [--vectors DIR] [--only NAME,...] [--exclude ID,...]

Prints one row a setting: mean over trajectories of characters, cost and Top-3 retention, the pooled bill, and rewrites.
The shipped default was chosen from this table; docs/replay.md shows it.
"""

import argparse
import dataclasses
import sys

from rich.console import Console
from rich.table import Table

from gemjax import GEMConfig
from gemjax.encoders import CachedEncoder, default_encoder
from gemjax.history import CostAwarePolicy
from gemjax.history.evidence import PAPER_RULES, Affinity, Errors, Goal, Recent, Sources, State
from gemjax.history.replay import Prices, Replay, default_counter, load, methods_named
from gemjax.history.replay.compressed import Compressed
from gemjax.history.replay.report import Report

RULES = {r.name: r for r in PAPER_RULES}


def rules(**changes):
    """The paper's rules with some replaced or, by None, left out; and `affinity`."""
    chosen = {**RULES, "affinity": Affinity(3), **changes}
    return tuple(r for r in chosen.values() if r is not None)


def settings() -> dict[str, GEMConfig]:
    """Name -> configuration of everything that was tried."""
    tried = {
        "paper rules": GEMConfig(rules=PAPER_RULES),
        "default": GEMConfig(),
        "geometry only": GEMConfig(rules=()),
    }
    for keep in (1, 2, 3, 4, 6, 8):
        tried[f"affinity {keep}"] = GEMConfig(rules=rules(affinity=Affinity(keep)))
    for keep in (3, 6):
        tried[f"affinity {keep} + paths 0.2"] = GEMConfig(rules=rules(affinity=Affinity(keep, path_bonus=0.2)))
    for keep in (6, 8):
        tried[f"recent {keep}, affinity 6"] = GEMConfig(rules=rules(recent=Recent(keep), affinity=Affinity(6)))
    for capacity in (12, 20, 24):
        tried[f"K {capacity}, affinity 6"] = GEMConfig(rules=rules(affinity=Affinity(6)), capacity=capacity)
    for tau in (0.8, 0.95):
        tried[f"tau {tau}, affinity 6"] = GEMConfig(rules=rules(affinity=Affinity(6)), coverage=tau)
    for beta in (0.25, 0.5, 2.0):
        tried[f"beta {beta}, affinity 6"] = GEMConfig(
            rules=rules(affinity=Affinity(6)), policy=CostAwarePolicy(beta=beta)
        )
    for delta in (0.3, 0.5, 0.7):
        tried[f"delta {delta}, affinity 6"] = GEMConfig(rules=rules(affinity=Affinity(6)), delta=delta)
    lean = {"state": None, "source": None, "error": None, "goal": None}
    tried["recent + affinity 6"] = GEMConfig(rules=rules(**lean, affinity=Affinity(6)))
    tried["recent + affinity 9"] = GEMConfig(rules=rules(**lean, affinity=Affinity(9)))
    tried["state 1, source 2, affinity 6"] = GEMConfig(
        rules=(Recent(4), Goal(1), State(1), Errors(1), Sources(2), Affinity(6))
    )
    return tried


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
    for column in ("setting", "chars", "cost", "top3", "cost pooled", "rewrites"):
        table.add_column(column, justify="left" if column == "setting" else "right")
    rows = [(name, report.method(name)) for name in tried]
    for name, row in sorted(rows, key=lambda r: r[1]["cost_ratio"]):
        table.add_row(
            name,
            f"{row['chars_ratio']:.3f}",
            f"{row['cost_ratio']:.3f}",
            f"{row['top3']:.3f}",
            f"{row['cost_ratio_pooled']:.3f}",
            f"{row['events']:.0f}",
        )
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

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
from gemjax.history.evidence import PAPER_RULES, Affinity, Recent, State
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
    outside = State(3, outside_recent=True)
    tried = {
        "paper rules": GEMConfig(rules=PAPER_RULES),
        "default": GEMConfig(),
        "geometry only": GEMConfig(rules=()),
    }
    for keep in (3, 6, 9, 12):
        tried[f"affinity {keep}"] = GEMConfig(rules=rules(affinity=Affinity(keep)))
    for query in ("turn", "trail"):
        tried[f"affinity 6 ({query})"] = GEMConfig(rules=rules(affinity=Affinity(6, query=query)))
        tried[f"affinity 9 ({query})"] = GEMConfig(rules=rules(affinity=Affinity(9, query=query)))
    tried["affinity 6, paths 0.2"] = GEMConfig(rules=rules(affinity=Affinity(6, path_bonus=0.2)))
    tried["affinity 6, length 0.02"] = GEMConfig(rules=rules(affinity=Affinity(6, length_penalty=0.02)))
    tried["affinity 6, state outside recent"] = GEMConfig(rules=rules(state=outside, affinity=Affinity(6)))
    tried["affinity 9, K 24"] = GEMConfig(rules=rules(affinity=Affinity(9)), capacity=24)
    tried["affinity 12, K 32"] = GEMConfig(rules=rules(affinity=Affinity(12)), capacity=32)
    for beta in (0.5, 2.0):
        tried[f"affinity 6, beta {beta}"] = GEMConfig(
            rules=rules(affinity=Affinity(6)), policy=CostAwarePolicy(beta=beta)
        )
    tried["affinity 6, delta 0.5"] = GEMConfig(rules=rules(affinity=Affinity(6)), delta=0.5)
    tried["recent 4, affinity 12, no geometry"] = GEMConfig(rules=(Recent(4), Affinity(12)), coverage=0.0)
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

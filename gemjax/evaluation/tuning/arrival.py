"""What the settings of the shortening on arrival cost and keep, by themselves and with dropping, over recorded runs.

    python -m gemjax.evaluation.tuning.arrival PATH... [--every 3] [--vectors DIR] [--only NAME,...]

Prints one row a setting, means over runs: the bill, the bill with look-ups, what the next call still sees, and how much
lower than the default's the bill with look-ups is, with a 95 % t interval over the runs. docs/arrival.md quotes it.
Without `--vectors` an encoder of hashed words stands in, which is enough where dropping is not judged by its choice.
"""

import argparse
import re
import sys
import zlib
from functools import cache

import numpy as np
from rich.console import Console
from rich.table import Table

from gemjax.encoders import CachedEncoder, CallableEncoder, default_encoder
from gemjax.evaluation.replay import Prices, Replay, default_counter, load, methods_named
from gemjax.evaluation.replay.compressed import Compressed
from gemjax.evaluation.replay.report import Report
from gemjax.evaluation.statistics import student_quantile
from gemjax.history import ArrivalConfig, CostAwarePolicy, GEMConfig, Recent, UserWords
from gemjax.history.needed import Needed

DEFAULT = "cost-aware"
_COLUMNS = ("cost_ratio", "refetch_ratio", "fully_grounded", "grounding_rare", "edits_grounded")
_DIM = 256


@cache
def _direction(text: str) -> np.ndarray:
    row = np.zeros(_DIM, np.float32)
    for word in re.findall(r"\w+", text.lower()):
        number = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        row[number % _DIM] += 1.0 if number & 0x8000_0000 else -1.0
    return row / np.float32(max(float(np.linalg.norm(row)), 1e-9))


def hashed_words(texts: list[str]) -> np.ndarray:
    """Unit rows of hashed words, `[n, 256]`: in place of an encoder."""
    return np.stack([_direction(text) for text in texts])


def settings() -> dict[str, GEMConfig]:
    """Name -> configuration of everything that was tried."""
    out: dict[str, GEMConfig] = {}
    for limit, keep, files in (
        (1_500, 750, 4),
        (2_000, 1_000, 4),
        (3_000, 1_500, 4),
        (3_000, 1_500, 1),
        (8_000, 4_000, 1),
    ):
        arrival = ArrivalConfig(limit, keep, files)
        out[f"{limit}/{keep} x{files} alone"] = GEMConfig(arrival=arrival, delta=0.0)
        out[f"{limit}/{keep} x{files}"] = GEMConfig(arrival=arrival)
    for name, rules in {
        "last 16": (UserWords(), Recent(16)),
        "last 20": (UserWords(), Recent(20)),
        "Needed(0.6)": (UserWords(), Recent(3), Needed(0.6)),
    }.items():
        policy = CostAwarePolicy(beta=3.0)
        out[f"2000/1000 x4, {name}"] = GEMConfig(rules=rules, coverage=0.0, policy=policy, arrival=ArrivalConfig())
    return out


def lower_by(report: Report, name: str) -> str:
    """How much lower than the default's a setting's bill with look-ups is, run by run: mean and interval."""
    rows = [t["methods"] for t in report.to_json()["trajectories"]]
    gain = np.array([row[DEFAULT]["refetch_ratio"] - row[name]["refetch_ratio"] for row in rows])
    if len(gain) < 2:
        return "-"
    half = student_quantile(len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
    return f"{gain.mean():+.3f} [{gain.mean() - half:+.3f}, {gain.mean() + half:+.3f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th run")
    parser.add_argument("--vectors", metavar="DIR", help="take the default encoder, and keep its vectors here")
    parser.add_argument("--only", metavar="NAME,...", help="only settings whose name contains one of these")
    arguments = parser.parse_args()
    tried = settings()
    if arguments.only:
        tried = {n: c for n, c in tried.items() if any(w in n for w in arguments.only.split(","))}
    encoder = CachedEncoder(
        default_encoder() if arguments.vectors else CallableEncoder(hashed_words, name="hashed words", dim=_DIM),
        disk=arguments.vectors,
    )
    prices = Prices()
    methods = [*methods_named(["none", DEFAULT], prices), *(Compressed(n, c) for n, c in tried.items())]
    replay = Replay(methods, encoder, default_counter(), prices)
    trajectories = load(arguments.paths).trajectories[:: arguments.every]
    outcomes = []
    for number, trajectory in enumerate(trajectories, 1):
        print(f"\r{number}/{len(trajectories)} {trajectory.id:50.50}", end="", file=sys.stderr, flush=True)
        outcomes.append(replay.run(trajectory))
    print(file=sys.stderr)
    names = ["none", DEFAULT, *tried]
    report = Report(names, outcomes, [], prices, replay.counter.name, encoder.name, replay.action_view)
    table = Table(box=None, title=f"{len(outcomes)} runs; vectors by {encoder.name}")
    for column in ("setting", "cost", "with look-ups", "fully", "rare", "edits", "rewrites", "lower by"):
        table.add_column(column, justify="left" if column == "setting" else "right", no_wrap=True)
    for name in names[1:]:
        row = report.method(name)
        figures = ["-" if (x := row[f"{c}_mean"]) is None else f"{x:.3f}" for c in _COLUMNS]
        table.add_row(name, *figures, str(row["events"]), lower_by(report, name))
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

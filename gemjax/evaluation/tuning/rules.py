"""Default rules chosen by cross-validation over trajectories, at the count of the paper's rules.

    python -m gemjax.evaluation.tuning.rules PATH... [--vectors DIR] [--repeats 20] [--folds 5]

Every setting of the grid keeps as many blocks as the paper's rules do (Table 1's protocol). In each fold the setting of
largest Top-3 retention among those that reach the asked coverage and centroid similarity on the other trajectories is
chosen and judged on the trajectories that were left out. Prints the grid and the mean of what was left out.
"""

import argparse
import itertools
import sys
from collections import Counter

import numpy as np
from rich.console import Console
from rich.table import Table

from gemjax.encoders import CachedEncoder, default_encoder
from gemjax.evaluation.gem.checkpoints import collect
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.selectors import exact, protected_sets
from gemjax.evaluation.gem.table import trajectory_means
from gemjax.evaluation.replay import load
from gemjax.history.evidence import (
    DEFAULT_RULES,
    PAPER_RULES,
    Affinity,
    Balance,
    Errors,
    Goal,
    Recent,
    Rule,
    Sources,
    State,
)

MEASURES = ("T3", "E", "C")


def grid() -> dict[str, tuple[Rule, ...]]:
    """Name -> rules. What is kept beyond the affinity blocks that are named first does not vary."""
    out: dict[str, tuple[Rule, ...]] = {
        "paper rules": PAPER_RULES,
        "paper rules, affinity 9 last": (
            Recent(),
            Goal(),
            State(outside_recent=True),
            Errors(),
            Sources(),
            Affinity(9),
        ),
        "default": DEFAULT_RULES,
    }
    for recent, near, balance, state in itertools.product((3, 4), (2, 3, 4), (0, 1, 2, 3), (2, 3)):
        rules: tuple[Rule, ...] = (
            Recent(recent),
            Affinity(near),
            *([Balance(balance)] if balance else []),
            Goal(),
            State(state, outside_recent=True),
            Errors(),
            Sources(),
            Affinity(10 - near, outside=("recent", "affinity"), name="affinity-wide"),
        )
        out[f"recent {recent}, affinity {near}, balance {balance}, state {state}"] = rules
    return out


def choose(values: np.ndarray, coverage: float, centroid: float) -> int:
    """The setting of largest T3 among those that reach both, else the one that comes closest. `values` is `[s, 3]`."""
    missing = np.maximum(coverage - values[:, 1], 0) + np.maximum(centroid - values[:, 2], 0)
    return int(np.lexsort((-values[:, 0], missing))[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--vectors", metavar="DIR", help="keep vectors here, so that the next run encodes nothing")
    parser.add_argument("--coverage", type=float, default=0.85, help="least mean E on the training trajectories")
    parser.add_argument("--centroid", type=float, default=0.972, help="least mean C on the training trajectories")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--folds", type=int, default=5)
    arguments = parser.parse_args()
    tried = grid()
    encoder = CachedEncoder(default_encoder(), disk=arguments.vectors)
    found = collect(load(arguments.paths).trajectories, encoder, (*PAPER_RULES, *DEFAULT_RULES))
    study = Study(found.trajectories)
    counts = study.split(study.own["paper"]["count"].astype(np.int32))
    values = exact(
        study.trajectories, counts, {name: protected_sets(study.trajectories, r) for name, r in tried.items()}
    )
    means = {n: np.stack([trajectory_means(v[m], study.groups) for m in MEASURES], 1) for n, v in values.items()}
    table = Table("setting", *MEASURES, box=None, title=f"Means over {len(study.trajectories)} trajectories")
    for name, rows in sorted(means.items(), key=lambda item: -np.nanmean(item[1][:, 0])):
        table.add_row(name, *(f"{x:.3f}" for x in np.nanmean(rows, 0)))
    console = Console(width=100)
    console.print(table)
    names = [name for name in means if name.startswith("recent")]
    stack = np.stack([means[name] for name in names])
    rng, held = np.random.default_rng(0), []
    chosen: Counter[str] = Counter()
    for _ in range(arguments.repeats):
        fold = rng.permutation(stack.shape[1]) % arguments.folds
        for k in range(arguments.folds):
            best = choose(np.nanmean(stack[:, fold != k], 1), arguments.coverage, arguments.centroid)
            chosen[names[best]] += 1
            held.append(np.nanmean(stack[best][fold == k], 0))
    left = "  ".join(f"{m} {x:.3f}" for m, x in zip(MEASURES, np.mean(held, 0), strict=True))
    console.print(f"on left-out trajectories: {left}")
    for name, times in chosen.most_common():
        console.print(f"  chosen {times:3d} times: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

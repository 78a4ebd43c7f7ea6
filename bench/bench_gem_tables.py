"""Table 1 on 600 checkpoints x 8 selectors at d = 384, against NumPy checkpoint by checkpoint.

python -m pytest bench/bench_gem_tables.py --benchmark-enable --benchmark-only
python bench/bench_gem_tables.py          # both in one run, and their ratio
"""

import time

import jax
import numpy as np

from gemjax.evaluation.gem.checkpoints import UNRANKED, Checkpoints, whole_energies
from gemjax.evaluation.gem.selectors import SELECTORS, matched

TRAJECTORIES, EACH, D = 20, 30, 384


def problem(seed=0):
    """20 runs of 46 blocks with a checkpoint after each from the 16th on; 8 protected blocks, 12 kept."""
    rng = np.random.default_rng(seed)
    out, protected = [], []
    for index in range(TRAJECTORIES):
        n = 16 + EACH
        x = unit(rng.standard_normal((n, 8)) @ rng.standard_normal((8, D)) + rng.standard_normal((n, D)))
        counts = np.arange(16, n)
        action, latest, goal = (unit(x[counts - 1] + 0.1 * rng.standard_normal((EACH, D))) for _ in range(3))
        targets = np.stack([action, goal, np.broadcast_to(x[-1], action.shape)], axis=1)
        whole = whole_energies(x, counts, targets)
        out.append(
            Checkpoints(str(index), str(index), x, np.ones(n, int), counts, action, latest, goal, x[-1], whole, (), 0)
        )
        places = np.full((EACH, n), UNRANKED)
        for row, m in zip(places, counts, strict=True):
            row[m - 4 : m] = range(4)
            row[rng.choice(m - 4, 4, replace=False)] = range(4, 8)
        protected.append(places)
    counts = [np.full(EACH, 12, np.int32) for _ in out]
    return out, counts, protected


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def whole_again(trajectories):
    for t in trajectories:
        targets = np.stack([t.action, t.goal, np.broadcast_to(t.final, t.action.shape)], axis=1)
        whole_energies(t.vectors, t.counts, targets)


def ours(trajectories, counts, protected):
    """Includes the full histories' projections, which the tables compute once a trajectory."""
    whole_again(trajectories)
    return matched(trajectories, counts, protected, protected)


def numpy_one_by_one(trajectories, counts, protected):
    """The same selections and measures, one checkpoint and one selector after the other."""
    rng = np.random.default_rng(0)
    out = {name: [] for name in SELECTORS}
    for t, count, places in zip(trajectories, counts, protected, strict=True):
        for j, n in enumerate(t.counts):
            x, k = t.vectors[:n], int(count[j])
            p = np.flatnonzero(places[j, :n] < UNRANKED)
            kept = {
                "geometry": grow(x, [], k),
                "paper": grow(x, p, k),
                "default": grow(x, p, k),
                "random": rng.permutation(n)[:k],
                "paper-random": np.r_[p, rng.permutation(np.setdiff1d(np.arange(n), p))[: k - len(p)]],
                "recency": np.arange(n - k, n),
                "goal": np.argsort(-(x @ t.goal[j]), kind="stable")[:k],
                "latest-action": np.argsort(-(x @ t.latest[j]), kind="stable")[:k],
            }
            every = np.linalg.qr(x.T)[0]
            nearest = np.argsort(-(x @ t.action[j]), kind="stable")[:3]
            mean = x.mean(0)
            whole = np.sum((every.T @ t.action[j]) ** 2)
            for name, s in kept.items():
                q = np.linalg.qr(x[s].T)[0]
                own = x[s].mean(0)
                action = np.sum((q.T @ t.action[j]) ** 2)
                out[name].append(
                    (
                        own @ mean / np.linalg.norm(own) / np.linalg.norm(mean),
                        np.sum((x @ q) ** 2) / n,
                        action,
                        action / whole,
                        np.isin(nearest, s).mean(),
                        np.sum((q.T @ t.goal[j]) ** 2),
                        np.sum((q.T @ t.final) ** 2),
                    )
                )
    return {name: np.array(rows) for name, rows in out.items()}


def grow(x, start, count):
    """Largest residual first, updated by A.7."""
    kept, residual, basis = list(start), np.ones(len(x), x.dtype), np.zeros((count, x.shape[1]), x.dtype)
    rank = 0
    if kept:
        q = np.linalg.qr(x[kept].T)[0].T
        rank = len(q)
        basis[:rank] = q
        residual -= np.sum((x @ q.T) ** 2, axis=1)
        residual[kept] = -1
    while len(kept) < count:
        i = int(np.argmax(residual >= residual.max() - 1e-5))  # a tie as the kernel sees it
        v = x[i]
        for _ in range(2):
            v = v - (basis[:rank] @ v) @ basis[:rank]
        v = v / np.linalg.norm(v)
        basis[rank] = v
        rank += 1
        residual -= (x @ v) ** 2
        kept.append(i)
        residual[kept] = -1
    return np.array(kept)


def agree(mine, theirs):
    for name in ("geometry", "paper", "recency", "latest-action"):
        for column, m in enumerate(("C", "E", "P_a", "R_a", "T3")):
            same = np.isclose(mine[name][m], theirs[name][:, column], atol=2e-3)
            # Rounding decides what is a tie.
            assert same.mean() > 0.97, f"{name} {m}: {np.sum(~same)} of {len(same)} differ"


def test_matched_tables(benchmark):
    given = problem()
    agree(ours(*given), numpy_one_by_one(*given))
    benchmark(lambda: ours(*given))
    benchmark.extra_info.update(
        checkpoints=600, selectors=8, d=D, jax=jax.__version__, device=jax.devices()[0].device_kind
    )


def test_numpy_one_by_one(benchmark):
    given = problem()
    benchmark.pedantic(lambda: numpy_one_by_one(*given), rounds=2)


def main():
    given = problem()
    agree(ours(*given), numpy_one_by_one(*given))
    times = {}
    for name, run in (("ours", ours), ("numpy", numpy_one_by_one)):
        best = []
        for _ in range(5):
            start = time.perf_counter()
            run(*given)
            best.append(time.perf_counter() - start)
        times[name] = best
        print(f"{name}: best {min(best):.3f} s, median {sorted(best)[2]:.3f} s")
    print(
        f"numpy / ours: best {min(times['numpy']) / min(times['ours']):.1f}, "
        f"median {sorted(times['numpy'])[2] / sorted(times['ours'])[2]:.1f}"
    )


if __name__ == "__main__":
    main()

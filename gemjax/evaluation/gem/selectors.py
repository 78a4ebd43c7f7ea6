"""Selectors at matched counts and what their selections retain, for all checkpoints in a few vmapped calls.

The matched count of a checkpoint is the number of blocks that the paper's own selection keeps there: its five rules,
K = 16, tau = 0.90, so between the protected set and `K_t`. Every selector then keeps exactly that many.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from gemjax.evaluation.gem.batches import Batch, batches
from gemjax.evaluation.gem.checkpoints import UNRANKED, Checkpoints
from gemjax.history.config import GEMConfig
from gemjax.kernels.gram import gram_captured_energy, gram_centroid_similarity, span_energies
from gemjax.kernels.linalg import EXACT, independence_tolerance
from gemjax.kernels.retention import Ratio, nearest_retained, projection_ratio
from gemjax.kernels.selection import (
    largest_residual,
    most_recent,
    most_similar,
    random_blocks,
    residual_completion,
)

SELECTORS = {
    "geometry": "geometry only",
    "paper": "paper rules",
    "default": "default rules",
    "random": "random",
    "paper-random": "paper rules, random completion",
    "recency": "recency",
    "goal": "goal similarity",
    "latest-action": "latest-action similarity",
}
"""By key, the eight selectors of the comparison, in the order of the tables."""
MEASURES = ("C", "E", "P_a", "R_a", "T3", "P_goal", "P_final")
CAPACITY = GEMConfig.capacity
TAU = GEMConfig.coverage

Values = dict[str, np.ndarray]
"""Measure -> one value a checkpoint, in flat order (trajectory by trajectory); NaN where not defined."""


def ranks_for(most: int) -> int:
    """A static bound for `most` directions: few different ones, so that few programs are compiled."""
    return max(8, -(-most // 4) * 4)


@partial(jax.jit, static_argnames="max_rank")
def completions(x: Any, n: Any, protected: Any, capacity: Any, target: Any | None, *, max_rank: int) -> Array:
    """Protected sets completed by residual, `bool[B, P, C, N]`.

    Args:
        x: `[B, N, d]`.
        n: `[B, C]` blocks of each history.
        protected: `[B, P, C, N]`.
        capacity: `[B, P, C]`, most blocks.
        target: `[P]`, the coverage at which to stop; None: never, the count is exactly `capacity`.
    """
    rows = jnp.arange(x.shape[1])

    def one(x: Array, n: Array, protected: Array, capacity: Array, target: Array | None) -> Array:
        valid = rows < n
        if target is None:
            return largest_residual(x, protected, valid, valid, capacity, max_rank=max_rank)
        return residual_completion(x, protected, valid, valid, capacity, target, max_rank=max_rank).selected

    over_checkpoints = jax.vmap(one, in_axes=(None, 0, 0, 0, None))
    over_sets = jax.vmap(over_checkpoints, in_axes=(None, None, 0, 0, 0))
    out: Array = jax.vmap(over_sets, in_axes=(0, 0, 0, 0, None))(x, n, protected, capacity, target)
    return out


@jax.jit
def simple_selections(x: Any, n: Any, protected: Any, latest: Any, goal: Any, seed: Any, count: Any) -> Array:
    """Random, protected and random, most recent, most like the goal, most like the latest action: `[B, 5, C, N]`.

    `protected` is `[B, C, N]`, the rest as in `Batch`; `count` `[B, C]`.
    """
    rows = jnp.arange(x.shape[1])

    def one(x: Array, n: Array, protected: Array, latest: Array, goal: Array, seed: Array, count: Array) -> Array:
        valid = rows < n
        key = jax.random.key(seed)
        nothing = jnp.zeros_like(valid)
        return jnp.stack(
            [
                random_blocks(x, nothing, valid, valid, count, key=key),
                random_blocks(x, protected, valid, valid, count, key=key),
                most_recent(x, nothing, valid, valid, count),
                most_similar(x, nothing, valid, valid, count, query=goal),
                most_similar(x, nothing, valid, valid, count, query=latest),
            ]
        )

    over_checkpoints = jax.vmap(one, in_axes=(None, 0, 0, 0, 0, 0, 0), out_axes=1)
    out: Array = jax.vmap(over_checkpoints)(x, n, protected, latest, goal, seed, count)
    return out


@partial(jax.jit, static_argnames="max_rank")
def measures(
    x: Any, n: Any, selected: Any, action: Any, goal: Any, final: Any, whole: Any, *, max_rank: int
) -> dict[str, Array]:
    """C, E (Eq. 3), P_a, R_a, T3 (Eq. 4) and the goal's and the final state's projections, each `[B, S, C]`.

    Args:
        x, n, action, goal, final: as in `Batch`.
        selected: `[B, S, C, N]`.
        whole: energy that the full history holds of action, goal, final state, `[B, C, 3]`.
        max_rank: at least the largest number of selected blocks. 0: no basis; E and the projections are NaN.

    NaN where not defined. `P_goal` and `P_final` are projections like `P_a`.
    """
    d = x.shape[2]
    tol = independence_tolerance(x.dtype, d)
    rows = jnp.arange(x.shape[1])
    # One product at a time: XLA's batched product on CPUs is half as fast.
    grams = lax.map(lambda one: jnp.matmul(one, one.T, precision=EXACT), x)
    targets = jnp.stack([action, goal, final], axis=2)
    inners = lax.map(lambda pair: jnp.matmul(pair[0], pair[1].T, precision=EXACT), (targets.reshape(len(x), -1, d), x))
    inners = inners.reshape(*targets.shape[:3], x.shape[1])

    def retained(selected: Array, gram: Array, valid: Array, inner: Array, acts: Array, whole: Array) -> Any:
        kept = selected & valid
        if max_rank:
            spans = span_energies(gram, inner, kept, tol, max_rank=max_rank)
            energy, projections = gram_captured_energy(gram, spans, valid), jnp.minimum(spans.targets, 1)
        else:
            energy, projections = jnp.full((), jnp.nan, gram.dtype), inner[:, 0] * jnp.nan
        return {
            "C": _or_nan(gram_centroid_similarity(gram, kept, valid, dim=d)),
            "E": energy,
            "P_a": projections[0],
            "R_a": _or_nan(projection_ratio(projections[0], whole[0], d)),
            "T3": _or_nan(nearest_retained(inner[0], kept, valid, acts, k=3)),
            "P_goal": projections[1],
            "P_final": projections[2],
            "count": jnp.sum(kept),
        }

    def one(x: Array, gram: Array, n: Array, inner: Array, whole: Array, action: Array, selected: Array) -> Any:
        acts = jnp.sum(action**2) > tol**2
        over_selections = jax.vmap(retained, in_axes=(0, None, None, None, None, None))
        return over_selections(selected, gram, rows < n, inner, acts, whole)

    over_checkpoints = jax.vmap(one, in_axes=(None, None, 0, 0, 0, 0, 1), out_axes=1)
    out: dict[str, Array] = jax.vmap(over_checkpoints)(x, grams, n, inners, whole, action, selected)
    return out


def _or_nan(ratio: Ratio) -> Array:
    return jnp.where(ratio.defined, ratio.value, jnp.nan)


def protected_sets(trajectories: Sequence[Checkpoints], rules: Sequence[Any]) -> list[np.ndarray]:
    """Places of the blocks under a set of rules, `[c, n]` for each trajectory (see `Checkpoints.protected`)."""
    return [t.protected(rules) for t in trajectories]


def natural(
    trajectories: Sequence[Checkpoints],
    variants: Mapping[str, tuple[list[np.ndarray], int, float]],
) -> dict[str, Values]:
    """Each variant at its own count: name -> (places, K, tau) completes the protected set as the compressor does."""
    return _run(trajectories, {n: (p, k, tau, None) for n, (p, k, tau) in variants.items()}, None)


def matched(
    trajectories: Sequence[Checkpoints],
    counts: Sequence[np.ndarray],
    paper: list[np.ndarray],
    default: list[np.ndarray],
    *,
    spans: bool = True,
) -> dict[str, Values]:
    """All selectors, each keeping exactly `counts` blocks (`[c]` for each trajectory; fewer where there are fewer).

    Where more blocks are protected than may be kept, the ones that the rules name first stay. `spans=False` leaves out
    the measures that need a basis of every selection (E and the projections), which take most of the time.
    """
    variants, simple = _at_counts(counts, paper, default)
    return _run(trajectories, variants, simple, spans)


def selections(
    trajectories: Sequence[Checkpoints],
    counts: Sequence[np.ndarray],
    paper: list[np.ndarray],
    default: list[np.ndarray],
) -> dict[str, list[np.ndarray]]:
    """Which blocks the selectors of `matched` keep: for each trajectory a mask, bool `[c, n]`."""
    out: dict[str, list[np.ndarray]] = {name: [np.zeros(p.shape, bool) for p in paper] for name in SELECTORS}
    variants, simple = _at_counts(counts, paper, default)
    for batch, chosen, _ in _chosen(trajectories, variants, simple):
        masks = np.asarray(chosen)
        for s, name in enumerate(_names(variants, simple)):
            for b, (t, start, stop) in enumerate(batch.parts):
                wide = min(masks.shape[3], out[name][t].shape[1])
                out[name][t][start:stop, :wide] = masks[b, s, : stop - start, :wide]
    return out


# By name: places, K, tau and exact counts. Of the last two one is None, the same one for all variants of a run.
_Variants = Mapping[str, tuple[list[np.ndarray], int, float | None, Sequence[np.ndarray] | None]]
_Simple = tuple[list[np.ndarray], Sequence[np.ndarray]] | None


def _at_counts(
    counts: Sequence[np.ndarray], paper: list[np.ndarray], default: list[np.ndarray]
) -> tuple[_Variants, _Simple]:
    nothing = [np.full(p.shape, UNRANKED) for p in paper]
    sets = {"geometry": nothing, "paper": paper, "default": default}
    return {n: (p, 0, None, counts) for n, p in sets.items()}, (paper, counts)


def exact(
    trajectories: Sequence[Checkpoints], counts: Sequence[np.ndarray], variants: Mapping[str, list[np.ndarray]]
) -> dict[str, Values]:
    """Protected sets, each cut or completed to exactly `counts` blocks as in `matched`."""
    return _run(trajectories, {name: (places, 0, None, counts) for name, places in variants.items()}, None)


def _names(variants: _Variants, simple: _Simple) -> list[str]:
    return [*variants, *(("random", "paper-random", "recency", "goal", "latest-action") if simple else ())]


def _chosen(
    trajectories: Sequence[Checkpoints], variants: _Variants, simple: _Simple
) -> Iterator[tuple[Batch, Array, int]]:
    """Each batch with the selections of `_names`, bool `[B, S, C, N]`, and a bound on how many blocks they hold."""
    capacities, masks = [], []
    for places, k, _, counts in variants.values():
        protected = [p < UNRANKED for p in places]
        wanted = [np.maximum(k, m.sum(axis=1)) for m in protected] if counts is None else list(counts)
        capacities.append([np.asarray(w, np.int32) for w in wanted])
        masks.append([p < w[:, None] for p, w in zip(places, wanted, strict=True)])
    seeds = None
    if simple:
        seeds = [p < c[:, None] for p, c in zip(*simple, strict=True)]
        simple_counts = [np.asarray(c, np.int32) for c in simple[1]]
    most = max((int(w.max()) for c in capacities for w in c if len(w)), default=1)
    rank = ranks_for(most)
    stops = [tau for _, _, tau, _ in variants.values() if tau is not None]
    target = np.array(stops, np.float32) if stops else None
    for batch in batches(trajectories):
        seeded = np.stack([batch.masks(m) for m in masks], axis=1)
        capacity = np.stack([batch.spread(c) for c in capacities], axis=1)
        rows = min(rank, batch.x.shape[1])
        chosen = completions(batch.x, batch.n, seeded, capacity, target, max_rank=rows)
        if simple and seeds is not None:
            others = simple_selections(
                batch.x, batch.n, batch.masks(seeds), batch.latest, batch.goal, batch.seed, batch.spread(simple_counts)
            )
            chosen = jnp.concatenate([chosen, others], axis=1)
        yield batch, chosen, rows


def _run(
    trajectories: Sequence[Checkpoints], variants: _Variants, simple: _Simple, spans: bool = True
) -> dict[str, Values]:
    names = _names(variants, simple)
    size = sum(len(t.counts) for t in trajectories)
    out = {name: {m: np.full(size, np.nan) for m in (*MEASURES, "count", "fraction")} for name in names}
    whole = [t.whole.astype(np.float32) for t in trajectories]
    final = [t.final_defined for t in trajectories]
    for batch, chosen, rows in _chosen(trajectories, variants, simple):
        got = measures(
            batch.x,
            batch.n,
            chosen,
            batch.action,
            batch.goal,
            batch.final,
            _spread_rows(batch, whole),
            max_rank=rows if spans else 0,
        )
        real = batch.places >= 0
        at = batch.places[real]
        lies_ahead = batch.spread(final, False)[real]
        for key, values in got.items():
            table = np.asarray(values).transpose(1, 0, 2)[:, real]
            for name, row in zip(names, table, strict=True):
                out[name][key][at] = np.where(lies_ahead, row, np.nan) if key == "P_final" else row
        for name in names:
            out[name]["fraction"][at] = out[name]["count"][at] / batch.n[real]
    return out


def _spread_rows(batch: Batch, values: Sequence[np.ndarray]) -> np.ndarray:
    out = np.zeros((*batch.n.shape, values[0].shape[1]), np.float32)
    for row, (t, start, stop) in zip(out, batch.parts, strict=False):
        row[: stop - start] = values[t][start:stop]
    return out

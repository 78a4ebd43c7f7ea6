"""From scored units to the order in which they enter the text, and the kernels' calls with padded shapes."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gemjax.distill.recipe import Recipe
from gemjax.distill.units import Units
from gemjax.kernels.host import power_of_two
from gemjax.kernels.tokens import (
    Fit,
    fill_gaps,
    knapsack,
    protect_ends,
    prune_middle,
    select_sentences,
    sentence_means,
    turn_decay,
)

_knapsack = jax.jit(knapsack, static_argnames="budget")
_select = jax.jit(select_sentences, static_argnames="fit")


class UnitPlan(NamedTuple):
    """What pruning decided.

    Attributes:
        scores: final score of each unit, `[n]`.
        protected: units that pruning had to leave.
        kept: units that survive pruning while their sentence is chosen.
        means: mean score of each sentence's surviving tokens, `[sentences]`.
    """

    scores: np.ndarray
    protected: np.ndarray
    kept: np.ndarray
    means: np.ndarray


@functools.partial(jax.jit, static_argnames=("head", "tail", "longer_than", "gap"))
def _prune(
    scores: jax.Array,
    sentence: jax.Array,
    turn: jax.Array,
    cost: jax.Array,
    valid: jax.Array,
    fixed: jax.Array,
    spared: jax.Array,
    turns: jax.Array,
    oldest: jax.Array,
    keep: jax.Array,
    *,
    head: int,
    tail: int,
    longer_than: int,
    gap: int,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    scores = scores * turn_decay(turn, turns, oldest)
    # Filler has left before the middle is measured; what is fixed (a header) is protected in any case.
    present = valid & ~spared
    protected = protect_ends(sentence, cost, present, head=head, tail=tail, longer_than=longer_than) | (fixed & valid)
    kept = prune_middle(scores, sentence, present, protected, keep)
    if gap:
        kept = fill_gaps(kept, sentence, cost, present, gap)
    means = sentence_means(scores, jnp.where(kept, cost, 0).astype(scores.dtype), sentence, sentence.shape[0])
    return scores, protected, kept, means


def plan(
    units: Units, scores: np.ndarray, spared: np.ndarray, fixed: np.ndarray, turns: int, recipe: Recipe
) -> UnitPlan:
    """Decay, protection, pruning, gap filling and the sentences' means (section 3.3).

    Args:
        units: of all turns.
        scores: of each unit, structural multipliers included.
        spared: units that filler rules leave out.
        fixed: units that pruning must leave: headers, and sentences that are taken whole or not at all.
        turns: how many turns there are.
        recipe: the method.
    """
    n = len(units)
    sentences = int(units.sentence.max()) + 1 if n else 0
    size = power_of_two(n, 256)

    def padded(values: np.ndarray, dtype: type) -> np.ndarray:
        return np.pad(values.astype(dtype), (0, size - n))

    decayed, protected, kept, means = _prune(
        padded(scores, np.float32),
        padded(units.sentence, np.int32),
        padded(units.turn, np.int32),
        padded(units.cost, np.int32),
        np.arange(size) < n,
        padded(fixed, bool),
        padded(spared, bool),
        np.int32(max(turns, 1)),
        np.float32(recipe.oldest),
        np.float32(recipe.keep),
        head=recipe.head,
        tail=recipe.tail,
        longer_than=recipe.longer_than,
        gap=recipe.gap,
    )
    per_unit = (np.asarray(x)[:n] for x in (decayed, protected, kept))
    scores_, protected_, kept_ = per_unit
    return UnitPlan(scores_, protected_, kept_, np.asarray(means)[:sentences].astype(np.float64))


def take(
    values: np.ndarray, costs: np.ndarray, turn: np.ndarray, opening: np.ndarray, budget: int, fit: Fit
) -> list[int]:
    """Sentences that fit, in the order they are taken. Arguments as for `kernels.tokens.select_sentences`."""
    m = len(values)
    size, turns = (power_of_two(k, 64) for k in (m, len(opening)))
    taken, order = _select(
        np.pad(values.astype(np.float32), (0, size - m)),
        np.pad(costs.astype(np.int32), (0, size - m)),
        np.arange(size) < m,
        np.pad(turn.astype(np.int32), (0, size - m)),
        np.pad(opening.astype(np.int32), (0, turns - len(opening))),
        np.int32(budget),
        fit=fit,
    )
    chosen = np.asarray(taken)
    return [int(i) for i in np.asarray(order) if chosen[i]]


def best_set(values: np.ndarray, costs: np.ndarray, budget: int) -> np.ndarray:
    """The exact knapsack over the sentences, padded: which to take, bool `[m]`."""
    m = len(values)
    size, columns = power_of_two(m, 64), power_of_two(max(budget, 1) + 1)
    # A table of a power of two columns serves all budgets below it: what is beyond the budget costs too much.
    pad = (0, size - m)
    costs = np.pad(costs, pad)
    real = np.arange(size) < m
    # An item that uses up the difference between the table and the budget is worth more than all others together.
    fixed = columns - 1 - budget
    worth = np.append(np.pad(values, pad), values.sum() + 1.0 if fixed else 0.0).astype(np.float32)
    price = np.append(costs, fixed).astype(np.int32)
    taken = _knapsack(worth, price, np.append(real, fixed > 0), budget=columns - 1)
    return np.asarray(taken)[:m]

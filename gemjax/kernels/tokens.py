"""Keep masks over the units of a text: decay, protection, pruning, gap filling and choice under a budget.

A unit is the least that can be dropped: a token, or several tokens that share a character or a word. `sentence` numbers
the units' sentences 0, 1, ... in order; `cost` is a unit's tokens. Arrays may be padded; padding has `valid` False.
"""

from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels._checks import require, require_one_of, working_dtype

Fit = Literal["prefix", "skip"]


def turn_decay(
    turn: Int[Array, "n"], turns: Int[Array, ""] | int, oldest: Float[Array, ""] | float = 0.6
) -> Float[Array, "n"]:
    """Linear weight of each unit's turn: 1 for the newest (the last), `oldest` for the first (section 3.3, item 4).

    Args:
        turn: the turn's index, `0 <= turn < turns`, `[n]`.
        turns: how many turns there are; a single one is the newest.
        oldest: weight of turn 0, in (0, 1].

    Returns: `[n]`.

    Raises: ValueError for a wrong shape.
    """
    turn = require("turn", turn, (None,), "int")
    depth = (turns - 1 - turn) / jnp.maximum(turns - 1, 1)
    return 1.0 - (1.0 - oldest) * depth


def protect_ends(
    sentence: Int[Array, "n"],
    cost: Int[Array, "n"],
    valid: Bool[Array, "n"],
    *,
    head: int = 3,
    tail: int = 3,
    longer_than: int = 8,
) -> Bool[Array, "n"]:
    """Units that pruning must not touch: all of a short sentence, the first and last tokens of a long one.

    Args:
        sentence: see the module.
        cost: see the module.
        valid: see the module.
        head: tokens protected at the sentence's start; a unit that holds one of them is protected.
        tail: the same at its end.
        longer_than: sentences of at most this many tokens are protected whole.

    Returns: `bool[n]`.

    Raises: ValueError for a wrong shape.
    """
    sentence, cost, valid = _units(sentence=sentence, cost=cost, valid=valid)
    n = sentence.shape[0]
    cost = jnp.where(valid, cost, 0)
    home = jnp.where(valid, sentence, n)
    total = jax.ops.segment_sum(cost, home, n + 1)
    stop = jnp.cumsum(cost)
    start = stop - cost
    base = jax.ops.segment_min(jnp.where(valid, start, jnp.iinfo(start.dtype).max), home, n + 1)
    before = start - base[home]
    after = total[home] - (before + cost)
    return valid & ((total[home] <= longer_than) | (before < head) | (after < tail))


def prune_middle(
    scores: Float[Array, "n"],
    sentence: Int[Array, "n"],
    valid: Bool[Array, "n"],
    protected: Bool[Array, "n"],
    keep: Float[Array, ""] | float,
) -> Bool[Array, "n"]:
    """Keep the protected units, and of each sentence's others the share `keep` with the highest scores.

    Args:
        scores: the higher, the later dropped; equal ones: the later unit goes first.
        sentence: see the module.
        valid: see the module.
        protected: kept whatever they score.
        keep: share of the unprotected units to keep, rounded up; 0 to 1.

    Returns: `bool[n]`.

    Raises: ValueError for a wrong shape.
    """
    sentence, valid, protected = _units(sentence=sentence, valid=valid, protected=protected)
    scores = require("scores", scores, sentence.shape)
    scores = scores.astype(working_dtype(scores))
    n = scores.shape[0]
    free = valid & ~protected
    home = jnp.where(free, sentence, n)
    count = jax.ops.segment_sum(free.astype(jnp.int32), home, n + 1)
    # By sentence, then by falling score, then by position: a unit's place in its sentence's block is its rank.
    order = jnp.lexsort((jnp.arange(n), -scores, home))
    place = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32))
    rank = place - (jnp.cumsum(count) - count)[home]
    # The small step back keeps 0.6 * 5 at 3 when the product comes out as 3.0000002.
    quota = jnp.ceil(jnp.asarray(keep, scores.dtype) * count - 1e-4)
    return (protected & valid) | (free & (rank < quota[home]))


def fill_gaps(
    kept: Bool[Array, "n"],
    sentence: Int[Array, "n"],
    cost: Int[Array, "n"],
    valid: Bool[Array, "n"],
    longest: int = 3,
) -> Bool[Array, "n"]:
    """Recover what lies between two kept units of one sentence if it is at most `longest` tokens (Algorithm 2, 14).

    Args:
        kept: what pruning left.
        sentence: see the module.
        cost: see the module.
        valid: see the module.
        longest: tokens of the widest gap that is filled; 0 fills nothing.

    Returns: `bool[n]`, at least `kept`.

    Raises: ValueError for a wrong shape.
    """
    kept, sentence, cost, valid = _units(kept=kept, sentence=sentence, cost=cost, valid=valid)
    n = kept.shape[0]
    kept = kept & valid
    cost = jnp.where(valid, cost, 0)
    index = jnp.arange(n)
    last = jax.lax.cummax(jnp.where(kept, index, -1))
    following = jax.lax.cummin(jnp.where(kept, index, n), reverse=True)
    inside = (last >= 0) & (following < n)
    left, right = jnp.maximum(last, 0), jnp.minimum(following, n - 1)
    tokens = jnp.cumsum(cost)
    gap = tokens[right] - cost[right] - tokens[left]
    same = (sentence[left] == sentence) & (sentence[right] == sentence)
    return kept | (valid & inside & same & (gap <= longest))


def sentence_means(
    values: Float[Array, "n"], weights: Float[Array, "n"], sentence: Int[Array, "n"], sentences: int
) -> Float[Array, "m"]:
    """Weighted mean of the units' values in each sentence.

    Args:
        values: of each unit, `[n]`.
        weights: not negative, `[n]`.
        sentence: see the module.
        sentences: how many there are, static.

    Returns: `[sentences]`; 0 where all weights are 0.

    Raises: ValueError for a wrong shape.
    """
    values = require("values", values, (None,))
    weights, sentence = require("weights", weights, values.shape), require("sentence", sentence, values.shape, "int")
    values, weights = (x.astype(working_dtype(x)) for x in (values, weights))
    total = jax.ops.segment_sum(values * weights, sentence, sentences)
    weight = jax.ops.segment_sum(weights, sentence, sentences)
    return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), 0)


def select_sentences(
    values: Float[Array, "m"],
    costs: Int[Array, "m"],
    valid: Bool[Array, "m"],
    group: Int[Array, "m"],
    opening: Int[Array, "g"],
    budget: Int[Array, ""] | int,
    *,
    fit: Fit = "prefix",
) -> tuple[Bool[Array, "m"], Int[Array, "m"]]:
    """Greedy choice by falling value under a budget; ties by position.

    Args:
        values: the worth of each sentence, `[m]`.
        costs: its tokens, `[m]`.
        valid: False for padding, `[m]`.
        group: the sentence's turn, `0 <= group < g`, `[m]`.
        opening: tokens that the first sentence taken of a turn costs on top (its header, a line end), `[g]`.
        budget: the most tokens, may be traced.
        fit: static. "prefix" stops at the first sentence that does not fit, so that a larger budget never drops what a
            smaller one kept; "skip" leaves it out and goes on, which fills the budget better and does not promise that.

    Returns: what is chosen, `bool[m]`, and the order of the visits (padding last), `int[m]`.

    Raises: ValueError for a wrong shape or `fit`.
    """
    values = require("values", values, (None,))
    costs, valid = require("costs", costs, values.shape, "int"), require("valid", valid, values.shape, "bool")
    group, opening = require("group", group, values.shape, "int"), require("opening", opening, (None,), "int")
    require_one_of("fit", fit, get_args(Fit))
    order = jnp.lexsort((jnp.arange(values.shape[0]), -values, ~valid))

    def visit(state: tuple[Array, Array, Array], i: Array) -> tuple[tuple[Array, Array, Array], Array]:
        room, going, opened = state
        home = group[i]
        cost = costs[i] + jnp.where(opened[home], 0, opening[home])
        fits = valid[i] & (cost <= room)
        take = fits & going
        state = (
            room - jnp.where(take, cost, 0),
            going & (fits | (fit == "skip")),
            opened.at[home].set(opened[home] | take),
        )
        return state, take

    start = (jnp.asarray(budget, costs.dtype), jnp.asarray(True), jnp.zeros(opening.shape, bool))
    _, taken = jax.lax.scan(visit, start, order)
    return jnp.zeros(values.shape, bool).at[order].set(taken), order


def knapsack(
    values: Float[Array, "m"], costs: Int[Array, "m"], valid: Bool[Array, "m"], budget: int
) -> Bool[Array, "m"]:
    """The sentences of greatest total value within the budget, exactly: dynamic programming, `O(m * budget)`.

    Args:
        values: not negative.
        costs: tokens; a sentence of cost 0 is taken when its value is positive.
        valid: False for padding.
        budget: static; the table has `budget + 1` columns.

    Returns: `bool[m]`.

    Raises: ValueError for a wrong shape.
    """
    values = require("values", values, (None,))
    values = values.astype(working_dtype(values))
    costs, valid = require("costs", costs, values.shape, "int"), require("valid", valid, values.shape, "bool")
    room = jnp.arange(budget + 1)

    def add(best: Array, item: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        value, cost, real = item
        fits = real & (room >= cost)
        other = best[jnp.maximum(room - cost, 0)] + value
        take = fits & (other > best)
        return jnp.where(take, other, best), take

    _, table = jax.lax.scan(add, jnp.zeros(budget + 1, values.dtype), (values, costs, valid))

    def back(left: Array, item: tuple[Array, Array]) -> tuple[Array, Array]:
        row, cost = item
        take = row[left]
        return left - jnp.where(take, cost, 0), take

    _, taken = jax.lax.scan(back, jnp.asarray(budget, costs.dtype), (table, costs), reverse=True)
    return taken


def _units(**arrays: Any) -> list[Any]:
    """Per-unit arrays of one length, as JAX arrays: sentences and tokens are integers, the rest are masks."""
    size: int | None = None
    out = []
    for name, array in arrays.items():
        out.append(require(name, array, (size,), "int" if name in ("sentence", "cost") else "bool"))
        size = out[0].shape[0]
    return out

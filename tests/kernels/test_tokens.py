"""Keep masks against plain Python written from the paper's words."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels.tokens import (
    fill_gaps,
    knapsack,
    protect_ends,
    prune_middle,
    select_sentences,
    sentence_means,
    turn_decay,
)

N = 48
protect = jax.jit(protect_ends, static_argnames=("head", "tail", "longer_than"))
prune = jax.jit(prune_middle)
fill = jax.jit(fill_gaps, static_argnames="longest")
select = jax.jit(select_sentences, static_argnames="fit")
pack = jax.jit(knapsack, static_argnames="budget")


@st.composite
def texts(draw):
    """Padded units of a few sentences: sentence numbers, costs, valid, scores."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, N))
    sentence = np.sort(rng.integers(0, draw(st.integers(1, 6)), n))
    cost = rng.integers(1, draw(st.sampled_from([2, 4])), n)
    scores = rng.choice([0.0, 0.5, 1.0, 2.0], n) if draw(st.booleans()) else rng.random(n)
    pad = (0, N - n)
    return (
        n,
        np.pad(sentence, pad).astype(np.int32),
        np.pad(cost, pad).astype(np.int32),
        np.arange(N) < n,
        np.pad(scores, pad, constant_values=9).astype(np.float32),
    )


def by_sentence(n, sentence):
    return [list(group) for _, group in itertools.groupby(range(n), key=lambda i: sentence[i])]


@settings(deadline=None, max_examples=80)
@given(texts())
def test_ends_of_long_sentences_and_all_of_short_ones_are_protected(text):
    n, sentence, cost, valid, _ = text
    got = np.asarray(protect(sentence, cost, valid))
    assert not got[n:].any()
    for group in by_sentence(n, sentence):
        tokens = [i for i in group for _ in range(cost[i])]
        expected = set(group) if len(tokens) <= 8 else {*tokens[:3], *tokens[-3:]}
        assert {i for i in group if got[i]} == expected


@settings(deadline=None, max_examples=80)
@given(texts(), st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]))
def test_pruning_keeps_the_share_of_highest_scores_and_never_a_lower_one_before(text, keep):
    n, sentence, cost, valid, scores = text
    protected = np.asarray(protect(sentence, cost, valid))
    got = np.asarray(prune(scores, sentence, valid, protected, keep))
    assert (got >= protected).all()
    assert not got[n:].any()
    for group in by_sentence(n, sentence):
        free = [i for i in group if not protected[i]]
        ranked = sorted(free, key=lambda i: (-scores[i], i))
        quota = -(-round(keep * 10) * len(free) // 10)
        assert {i for i in free if got[i]} == set(ranked[:quota])


@pytest.mark.parametrize("count", [25, 45])
def test_a_share_that_comes_out_whole_is_not_rounded_up(count):
    """0.6 * 25 is 15.000001 in float32."""
    valid = np.arange(N) < count
    got = prune(np.arange(N, dtype=np.float32), np.zeros(N, np.int32), valid, np.zeros(N, bool), 0.6)
    assert np.asarray(got).sum() == count * 3 // 5


@settings(deadline=None, max_examples=80)
@given(texts(), st.integers(0, 4))
def test_gaps_are_filled_within_a_sentence_only(text, longest):
    _, sentence, cost, valid, scores = text
    kept = (scores > 0.6) & valid
    got = np.asarray(fill(kept, sentence, cost, valid, longest=longest))
    expected = kept.copy()
    for a, b in itertools.pairwise(np.flatnonzero(kept)):
        if sentence[a] == sentence[b] and cost[a + 1 : b].sum() <= longest:
            expected[a:b] = True
    assert (got == expected).all()


def greedy(values, costs, group, opening, budget, fit):
    taken, opened = set(), set()
    for i in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        cost = costs[i] + (0 if group[i] in opened else opening[group[i]])
        if cost <= budget:
            budget -= cost
            taken.add(i)
            opened.add(group[i])
        elif fit == "prefix":
            break
    return taken


@st.composite
def sentence_sets(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(0, 12))
    pad = (0, 12 - m)
    values = rng.choice([0.0, 1.0, 2.0], m) if draw(st.booleans()) else rng.random(m)
    arrays = values.astype(np.float32), rng.integers(1, 9, m).astype(np.int32), rng.integers(0, 3, m).astype(np.int32)
    return m, *(np.pad(a, pad) for a in arrays), rng.integers(0, 4, 3).astype(np.int32)


@settings(deadline=None, max_examples=100)
@given(sentence_sets(), st.integers(0, 40), st.sampled_from(["prefix", "skip"]))
def test_greedy_choice_matches_plain_python(case, budget, fit):
    m, values, costs, group, opening = case
    taken, order = select(values, costs, np.arange(12) < m, group, opening, budget, fit=fit)
    expected = greedy(values[:m].tolist(), costs.tolist(), group.tolist(), opening.tolist(), budget, fit)
    assert set(np.flatnonzero(np.asarray(taken))) == expected
    assert sorted(np.asarray(order)) == list(range(12))
    spent = sum(costs[i] for i in expected) + sum(opening[g] for g in {group[i] for i in expected})
    assert spent <= budget


@settings(deadline=None, max_examples=60)
@given(sentence_sets(), st.integers(0, 39))
def test_a_larger_budget_keeps_what_a_smaller_one_kept(case, budget):
    m, values, costs, group, opening = case
    few, _ = select(values, costs, np.arange(12) < m, group, opening, budget, fit="prefix")
    more, _ = select(values, costs, np.arange(12) < m, group, opening, budget + 1, fit="prefix")
    assert (np.asarray(few) <= np.asarray(more)).all()


@settings(deadline=None, max_examples=40)
@given(sentence_sets(), st.sampled_from([0, 7, 20]))
def test_knapsack_is_optimal(case, budget):
    m, values, costs, _, _ = case
    m = min(m, 10)
    taken = np.asarray(pack(values, costs, np.arange(12) < m, budget=budget))
    assert costs[taken].sum() <= budget
    assert not taken[m:].any()
    best = max(
        sum(values[list(subset)])
        for size in range(m + 1)
        for subset in itertools.combinations(range(m), size)
        if sum(costs[list(subset)]) <= budget
    )
    assert abs(values[taken].sum() - best) < 1e-4


def test_decay_is_linear_and_the_newest_turn_counts_fully():
    np.testing.assert_allclose(turn_decay(jnp.arange(5), 5), [0.6, 0.7, 0.8, 0.9, 1.0], rtol=1e-6)
    np.testing.assert_allclose(turn_decay(jnp.asarray([0]), 1), [1.0])


def test_means_are_weighted_and_empty_sentences_have_none():
    got = sentence_means(jnp.asarray([1.0, 4.0, 9.0]), jnp.asarray([2.0, 1.0, 0.0]), jnp.asarray([0, 0, 2]), 4)
    np.testing.assert_allclose(got, [2, 0, 0, 0])


def test_one_trace_serves_every_budget_and_share():
    traces = []

    @functools.partial(jax.jit, static_argnames="fit")
    def counted(*args, fit):
        traces.append(fit)
        return select_sentences(*args, fit=fit)

    ones = np.ones(4, np.int32)
    for budget in (1, 2, 3):
        counted(np.ones(4, np.float32), ones, ones > 0, 0 * ones, ones, np.int32(budget), fit="skip")
    assert traces == ["skip"]


def test_wrong_shapes_name_the_argument():
    with pytest.raises(ValueError, match="`costs` has shape"):
        select_sentences(jnp.ones(3), jnp.ones(2, int), jnp.ones(3, bool), jnp.zeros(3, int), jnp.ones(1, int), 3)
    with pytest.raises(ValueError, match="`sentence` has shape"):
        fill_gaps(jnp.ones(3, bool), jnp.ones(2, int), jnp.ones(3, int), jnp.ones(3, bool))

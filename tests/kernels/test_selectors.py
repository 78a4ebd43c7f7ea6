"""The comparison selectors: matched counts, masks, ties, keys."""

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels import selection
from tests.kernels.problems import Problem, problems

N, D = 12, 5
SMALL = ((1, 8), (N, D), (N, D))

geometry = jax.jit(selection.geometry_only, static_argnames="max_rank")
drawn = jax.jit(selection.random_blocks)
recent = jax.jit(selection.most_recent)
similar = jax.jit(selection.most_similar)


@settings(deadline=None, max_examples=60)
@given(problems(dtypes=("float32",), shapes=SMALL), st.integers(-1, 14))
def test_every_selector_keeps_the_matched_count_of_eligible_real_rows(p: Problem, count: int) -> None:
    allowed = p.eligible & p.valid
    wanted = min(max(count, 0), allowed.sum())
    query = p.x[0]
    for kept in (
        geometry(p.x, p.eligible, p.valid, count, max_rank=p.x.shape[1]),
        recent(p.eligible, p.valid, count),
        similar(p.x, query, p.eligible, p.valid, count),
        drawn(jax.random.key(count + 1), np.zeros_like(p.valid), p.eligible, p.valid, count),
    ):
        kept = np.asarray(kept)
        assert kept.sum() == wanted and (kept <= allowed).all()


@settings(deadline=None, max_examples=40)
@given(problems(dtypes=("float32",), shapes=SMALL), st.integers(0, 14))
def test_random_completion_keeps_the_protected_rows(p: Problem, count: int) -> None:
    kept = np.asarray(drawn(jax.random.key(0), p.protected, p.eligible, p.valid, count))
    protected = p.protected & p.valid
    others = p.eligible & p.valid & ~protected
    assert (protected <= kept).all() and (kept <= protected | others).all()
    assert kept.sum() == max(protected.sum(), min(count, protected.sum() + others.sum()))


def test_random_blocks_depend_on_the_key_and_not_on_the_padding() -> None:
    every = np.ones(N, bool)
    keep = partial(drawn, protected=~every, eligible=every, valid=every, count=4)
    first = np.asarray(keep(jax.random.key(1)))
    assert np.array_equal(first, keep(jax.random.key(1)))
    assert not np.array_equal(first, keep(jax.random.key(2)))
    # The same rows with padding between them.
    wide = np.zeros(3 * N, bool)
    wide[::3] = True
    again = np.asarray(drawn(jax.random.key(1), np.zeros(3 * N, bool), np.ones(3 * N, bool), wide, 4))
    assert np.array_equal(again[::3], first) and not again[~wide].any()


def test_random_blocks_are_uniform() -> None:
    every = np.ones(N, bool)
    keys = jax.random.split(jax.random.key(0), 3000)
    kept = jax.jit(jax.vmap(lambda key: selection.random_blocks(key, ~every, every, every, 4)))(keys)
    # 1000 expected a row, standard deviation sqrt(3000 * 1/3 * 2/3) = 26; 5 deviations.
    assert np.abs(np.asarray(kept).sum(0) - 1000).max() < 130


def test_recent_and_similar_choose_what_they_say() -> None:
    every = np.ones(4, bool)
    eligible = np.array([True, True, True, False])
    assert recent(eligible, every, 2).tolist() == [False, True, True, False]
    x = np.array([[1, 0], [0, 0], [0, 1], [1, 0]], np.float32)
    assert similar(x, np.array([2, 0], np.float32), every, every, 1).tolist() == [True, False, False, False]
    assert similar(x, np.array([1, 0], np.float32), eligible, every, 2).tolist() == [True, True, False, False]
    assert similar(x, np.array([0, -1], np.float32), every, every, 3).tolist() == [True, True, False, True]


def test_geometry_only_is_completion_without_seeds_then_filled_up() -> None:
    x = np.concatenate([np.eye(3, D), np.eye(3, D)]).astype(np.float32)
    every = np.ones(6, bool)
    assert geometry(x, every, every, 3, max_rank=D).tolist() == [True] * 3 + [False] * 3
    assert geometry(x, every, every, 4, max_rank=D).tolist() == [True] * 4 + [False] * 2


def test_selectors_under_vmap_over_counts() -> None:
    x = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    every, counts = np.ones(N, bool), np.array([2, 5, 9])
    for alone in (
        lambda c: selection.geometry_only(x, every, every, c, max_rank=D),
        lambda c: selection.random_blocks(jax.random.key(3), ~every, every, every, c),
        lambda c: selection.most_recent(every, every, c),
        lambda c: selection.most_similar(x, x[0], every, every, c),
    ):
        together = np.asarray(jax.jit(jax.vmap(alone))(counts))
        assert together.sum(1).tolist() == counts.tolist()
        assert np.array_equal(together[1], jax.jit(alone)(5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, m: selection.most_similar(x, x[0, :2], m, m, 1), r"`query` has shape \(2,\); expected \(4,\)"),
        (lambda x, m: selection.most_recent(m[:2], m, 1), r"`eligible` has shape \(2,\); expected \(3,\)"),
        (lambda x, m: selection.most_recent(m, 1.0 * m, 1), r"`valid` has dtype float\d+; expected bool"),
        (
            lambda x, m: selection.random_blocks(jax.random.key(0), m[None], m, m, 1),
            r"`protected` has shape \(1, 3\); expected \(3,\)",
        ),
        (lambda x, m: selection.geometry_only(x, m, m[:2], 1, max_rank=2), r"has shape \(2,\); expected \(3,\)"),
    ],
)
def test_wrong_shapes_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((3, 4), np.float32), np.ones(3, bool))

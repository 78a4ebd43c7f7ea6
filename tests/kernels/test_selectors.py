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

geometry = jax.jit(selection.largest_residual, static_argnames="max_rank")
drawn = jax.jit(selection.random_blocks)
recent = jax.jit(selection.most_recent)
similar = jax.jit(selection.most_similar)


@settings(deadline=None, max_examples=60)
@given(problems(dtypes=("float32",), shapes=SMALL), st.integers(-1, 14))
def test_every_selector_keeps_the_matched_count_of_eligible_real_rows(p: Problem, count: int) -> None:
    allowed = p.eligible & p.valid
    query = p.x[0]
    for protected, others in ((np.zeros_like(p.valid), allowed), (p.protected & p.valid, allowed & ~p.protected)):
        args = (p.x, protected, p.eligible, p.valid, count)
        for kept in (
            geometry(*args, max_rank=p.x.shape[1]),
            recent(*args),
            similar(*args, query=query),
            drawn(*args, key=jax.random.key(count + 1)),
        ):
            kept = np.asarray(kept)
            assert kept.sum() == max(protected.sum(), min(max(count, 0), protected.sum() + others.sum()))
            assert (protected <= kept).all() and (kept <= protected | others).all()


def test_random_blocks_depend_on_the_key_and_not_on_the_padding() -> None:
    every = np.ones(N, bool)
    keep = partial(drawn, np.zeros((N, D), np.float32), ~every, every, every, 4)
    first = np.asarray(keep(key=jax.random.key(1)))
    assert np.array_equal(first, keep(key=jax.random.key(1)))
    assert not np.array_equal(first, keep(key=jax.random.key(2)))
    # The same rows with padding between them.
    wide = np.zeros(3 * N, bool)
    wide[::3] = True
    again = np.asarray(
        drawn(np.zeros((3 * N, D), np.float32), wide & False, wide | True, wide, 4, key=jax.random.key(1))
    )
    assert np.array_equal(again[::3], first) and not again[~wide].any()


def test_random_blocks_are_uniform() -> None:
    every = np.ones(N, bool)
    x, keys = np.zeros((N, D), np.float32), jax.random.split(jax.random.key(0), 3000)
    kept = jax.jit(jax.vmap(lambda key: selection.random_blocks(x, ~every, every, every, 4, key=key)))(keys)
    # 1000 expected a row, standard deviation sqrt(3000 * 1/3 * 2/3) = 26; 5 deviations.
    assert np.abs(np.asarray(kept).sum(0) - 1000).max() < 130


def test_recent_and_similar_choose_what_they_say() -> None:
    every = np.ones(4, bool)
    eligible = np.array([True, True, True, False])
    x = np.array([[1, 0], [0, 0], [0, 1], [1, 0]], np.float32)
    assert recent(x, ~every, eligible, every, 2).tolist() == [False, True, True, False]
    last = np.array([False, False, False, True])
    assert recent(x, last, eligible, every, 2).tolist() == [False, False, True, True]
    toward = [np.array(q, np.float32) for q in ((2, 0), (1, 0), (0, -1))]
    assert similar(x, ~every, every, every, 1, query=toward[0]).tolist() == [True, False, False, False]
    assert similar(x, ~every, eligible, every, 2, query=toward[1]).tolist() == [True, True, False, False]
    assert similar(x, ~every, every, every, 3, query=toward[2]).tolist() == [True, True, False, True]
    assert similar(x, last, every, every, 2, query=toward[2]).tolist() == [True, False, False, True]


def test_largest_residual_is_completion_then_filled_up() -> None:
    x = np.concatenate([np.eye(3, D), np.eye(3, D)]).astype(np.float32)
    every = np.ones(6, bool)
    nothing, fifth = ~every, np.arange(6) == 4
    assert geometry(x, nothing, every, every, 3, max_rank=D).tolist() == [True] * 3 + [False] * 3
    assert geometry(x, nothing, every, every, 4, max_rank=D).tolist() == [True] * 4 + [False] * 2
    assert geometry(x, fifth, every, every, 3, max_rank=D).tolist() == [True, False, True, False, True, False]
    assert geometry(x, fifth, every, every, 4, max_rank=D).tolist() == [True, True, True, False, True, False]


def test_selectors_under_vmap_over_counts() -> None:
    x = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    every, counts = np.ones(N, bool), np.array([2, 5, 9])
    for alone in (
        lambda c: selection.largest_residual(x, ~every, every, every, c, max_rank=D),
        lambda c: selection.random_blocks(x, ~every, every, every, c, key=jax.random.key(3)),
        lambda c: selection.most_recent(x, ~every, every, every, c),
        lambda c: selection.most_similar(x, ~every, every, every, c, query=x[0]),
    ):
        together = np.asarray(jax.jit(jax.vmap(alone))(counts))
        assert together.sum(1).tolist() == counts.tolist()
        assert np.array_equal(together[1], jax.jit(alone)(5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x, m: selection.most_similar(x, m, m, m, 1, query=x[0, :2]),
            r"`query` has shape \(2,\); expected \(4,\)",
        ),
        (lambda x, m: selection.most_recent(x, m, m[:2], m, 1), r"`eligible` has shape \(2,\); expected \(3,\)"),
        (lambda x, m: selection.most_recent(x, m, m, 1.0 * m, 1), r"`valid` has dtype float\d+; expected bool"),
        (
            lambda x, m: selection.random_blocks(x, m[None], m, m, 1, key=jax.random.key(0)),
            r"`protected` has shape \(1, 3\); expected \(3,\)",
        ),
        (lambda x, m: selection.largest_residual(x, m, m, m[:2], 1, max_rank=2), r"`valid` has shape \(2,\)"),
    ],
)
def test_wrong_shapes_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((3, 4), np.float32), np.ones(3, bool))

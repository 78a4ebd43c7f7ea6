"""Second moments form a commutative monoid with removal, and stay accurate in float32. Oracle: NumPy in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels import moments as km

build = jax.jit(km.moments_from_rows, static_argnames="chunk")
merge = jax.jit(km.merge_moments)
unmerge = jax.jit(km.unmerge_moments)

SHAPE = (96, 8)


def exact(rows):
    rows = np.asarray(rows, np.float64)
    if not len(rows):
        return 0, np.zeros(rows.shape[1]), np.zeros((rows.shape[1],) * 2)
    mean = rows.mean(0)
    return len(rows), mean, (rows - mean).T @ (rows - mean)


def assert_close(state, rows, history=1.0):
    """`history` scales the tolerance: how many times the rows' own second moment has passed through the state."""
    count, mean, scatter = exact(rows)
    assert int(state.count) == count
    scale = max(1.0, float(np.abs(rows).max(initial=0.0)))
    # About 3 roundings a row and merge, on values of at most scale (mean) and n scale^2 (scatter).
    tol = 3 * np.finfo(np.float32).eps * history
    np.testing.assert_allclose(state.mean, mean, atol=8 * tol * scale)
    np.testing.assert_allclose(state.scatter, scatter, atol=tol * max(count, 8) * scale**2)


@st.composite
def rows_and_split(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offset = draw(st.sampled_from([0.0, 1.0]))
    rows = (offset + draw(st.sampled_from([1.0, 1e-3])) * rng.standard_normal(SHAPE)).astype(np.float32)
    group = rng.integers(0, 4, SHAPE[0])  # which of four machines holds the row; some may hold none
    if draw(st.booleans()):
        group = np.minimum(group, 1)
    return rows, group, rng.permutation(SHAPE[0])


@settings(deadline=None, max_examples=60)
@given(rows_and_split())
def test_any_order_and_any_split_give_the_same_moments(case):
    rows, group, order = case
    assert_close(build(rows[order]), rows)
    parts = [build(rows, jnp.asarray(group == g)) for g in range(4)]
    assert_close(functools.reduce(merge, parts), rows)
    assert_close(merge(merge(parts[3], parts[1]), merge(parts[0], parts[2])), rows)


@settings(deadline=None, max_examples=60)
@given(rows_and_split())
def test_remove_undoes_add(case):
    rows, group, _ = case
    all_rows, gone = build(rows), build(rows, jnp.asarray(group > 0))
    assert_close(unmerge(all_rows, gone), rows[group == 0], history=4.0 * SHAPE[0] / max(1, (group == 0).sum()))
    nothing = unmerge(all_rows, all_rows)
    assert all(not np.asarray(leaf).any() for leaf in nothing)


@settings(deadline=None, max_examples=20)
@given(rows_and_split())
def test_the_empty_state_is_neutral(case):
    rows, _, _ = case
    state, empty = build(rows), km.empty_moments(SHAPE[1])
    for same in (merge(state, empty), merge(empty, state), unmerge(state, empty)):
        for a, b in zip(same, state, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("chunk", [1, 7, 32, 96, 4096])
def test_chunk_size_does_not_matter_and_masked_rows_are_not_read(chunk):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal(SHAPE).astype(np.float32)
    keep = rng.random(SHAPE[0]) < 0.6
    poisoned = np.where(keep[:, None], rows, np.nan)
    assert_close(build(poisoned, jnp.asarray(keep), chunk=chunk), rows[keep])


def test_add_and_remove_one_row():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal(SHAPE).astype(np.float32)
    state = km.add_rows(build(rows[:-1]), rows[-1:])
    assert_close(state, rows)
    assert_close(km.remove_rows(state, rows[:1]), rows[1:], history=4.0)


def test_bfloat16_rows_are_accumulated_in_float32():
    rows = jnp.asarray(np.random.default_rng(2).standard_normal(SHAPE), jnp.bfloat16)
    state = build(rows)
    assert state.scatter.dtype == jnp.float32
    assert_close(state, np.asarray(rows, np.float64))


def test_a_million_unit_rows_in_float32():
    """The bound of the module's docstring holds with a large common mean, where the textbook form loses everything."""
    n, d = 1_000_000, 16
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((n, d), dtype=np.float32) * np.float32(0.01) + np.float32(1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    state = build(rows)
    _, mean, scatter = exact(rows)
    u = np.finfo(np.float32).eps / 2
    centred = np.abs(rows.astype(np.float64) - mean)
    absolute = centred.T @ centred
    chunks = -(-n // km.CHUNK)
    bound = (km.CHUNK + 3 * chunks + 8) * u * absolute + n * u * (np.abs(mean)[:, None] + np.abs(mean) + u)
    error = np.abs(np.asarray(state.scatter, np.float64) - scatter)
    assert (error <= bound).all()
    # What users feel: a relative error of 1e-4 in every variance, where the one-pass formula is off by 100 % and more.
    assert (np.diag(error) <= 1e-4 * np.diag(scatter)).all()
    naive = (rows.T @ rows) - n * np.outer(rows.mean(0, dtype=np.float32), rows.mean(0, dtype=np.float32))
    assert np.abs(np.diag(naive) - np.diag(scatter)).max() > 100 * np.diag(error).max()


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`rows` has shape \(3,\); expected \(any, any\)"):
        km.moments_from_rows(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"`keep` has shape \(2,\); expected \(3,\)"):
        km.moments_from_rows(jnp.zeros((3, 2)), jnp.ones(2, bool))
    with pytest.raises(ValueError, match="`chunk` is 0"):
        km.moments_from_rows(jnp.zeros((3, 2)), chunk=0)

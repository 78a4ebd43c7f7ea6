"""Sensitivity kernels against NumPy, and what of CoreMem's Theorem 1 (Eq. 8) holds, as properties.

The theorem says that dropping tokens changes the loss by at most C sum S_i. As it stands it is refuted here by an
example; what holds is the first-order statement (factor sqrt(d), no constant of the model) and, with a term for the
curvature, the statement about the whole change.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels.sensitivity import (
    average_pool,
    first_order_bound,
    impute_ends,
    normalised_ranks,
    second_order_bound,
    token_norms,
    token_sensitivity,
)

SHAPES = st.sampled_from([(1, 3), (7, 4), (16, 8)])


@st.composite
def cases(draw):
    n, d = draw(SHAPES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = 10.0 ** draw(st.floats(-3, 3))
    h = (scale * rng.standard_normal((n, d))).astype(np.float32)
    w = rng.standard_normal((n, d)).astype(np.float32)
    dropped = rng.random(n) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    return h, w, dropped


def linear(h, w):
    return jnp.sum(h * w), None


def smooth(h, w):
    # Its Hessian is diagonal with entries in (-0.77, 0.77) / 1: tanh'' is at most 4 / (3 sqrt 3) = 0.7698.
    return jnp.sum(jnp.tanh(h) * jnp.tanh(w)), None


run_linear = jax.jit(lambda h, w: token_sensitivity(linear, h, w))
run_smooth = jax.jit(lambda h, w: token_sensitivity(smooth, h, w))


@settings(deadline=None, max_examples=50)
@given(cases())
def test_squared_score_is_the_weighted_trace_of_the_diagonal_fisher(case):
    h, w, _ = case
    got = run_smooth(h, w)
    gradient = (1 - np.tanh(h.astype(np.float64)) ** 2) * np.tanh(w.astype(np.float64))
    # The diagonal empirical Fisher of one sample is the squared gradient; its entries are weighted by h squared.
    trace = np.einsum("nd,nd->n", gradient**2, h.astype(np.float64) ** 2)
    # 1 - tanh^2 cancels in float32: the gradient is wrong by up to 4 eps = 5e-7 of its largest value, 1, and so an
    # entry of gradient times embedding by 5e-7 |h|; roots and sums over d = 8 entries stay within ten times that.
    size = np.abs(h).max(1)
    assert (np.abs(got.scores - np.sqrt(trace)) <= 5e-6 * size).all()
    assert (np.abs(got.products - (gradient * h).sum(-1)) <= 5e-6 * size).all()


@settings(deadline=None, max_examples=50)
@given(cases())
def test_product_is_at_most_the_root_of_d_times_the_score(case):
    h, w, _ = case
    got = run_linear(h, w)
    d = h.shape[1]
    one_norm = np.abs(h * w).sum(-1)
    # float32: d products and sums, each with a relative error of 2^-24.
    slack = 1 + 4 * d * 2.0**-24
    assert (np.abs(got.products) <= one_norm * slack).all()
    assert (one_norm <= np.sqrt(d) * np.asarray(got.scores) * slack).all()


@settings(deadline=None, max_examples=50)
@given(cases())
def test_theorem_1_to_first_order_a_linear_loss_changes_by_at_most_the_bound(case):
    h, w, dropped = case
    got = run_linear(h, w)
    ablated = np.where(dropped[:, None], 0, h).astype(np.float64)
    change = abs((ablated * w).sum() - (h.astype(np.float64) * w).sum())
    bound = float(first_order_bound(got.scores, jnp.asarray(dropped), h.shape[1]))
    # The bound is a float32 sum of at most 16 norms over at most 8 entries.
    assert change <= bound * (1 + 32 * 2.0**-23)
    if not dropped.any():
        assert bound == 0


@settings(deadline=None, max_examples=50)
@given(cases())
def test_theorem_1_in_place_of_it_a_smooth_loss_changes_by_at_most_the_bound_with_curvature(case):
    h, w, dropped = case
    got = run_smooth(h, w)
    ablated = np.where(dropped[:, None], 0, h).astype(np.float64)
    w64 = np.tanh(w.astype(np.float64))
    change = abs((np.tanh(ablated) * w64).sum() - (np.tanh(h.astype(np.float64)) * w64).sum())
    bound = float(second_order_bound(got.scores, jnp.asarray(h), jnp.asarray(dropped), 0.7699))
    assert change <= bound * (1 + 32 * 2.0**-23)


def test_theorem_1_as_printed_is_refuted():
    """|L(X) - L(X~)| <= C sum S_i, C the Lipschitz constant of L by the embeddings: fails at a stationary point."""

    def cosine(h, w):
        return jnp.sum(jnp.cos(h * w)), None

    # The slope of cos(h w) by h is at most w = 1, so C = 1 is a Lipschitz constant of one token of one dimension.
    h, w = np.full((1, 1), np.pi, np.float32), np.ones((1, 1), np.float32)
    got = token_sensitivity(cosine, h, w)
    change = abs(float(cosine(0 * h, w)[0]) - float(got.loss))
    printed = 1.0 * float(got.scores.sum())
    assert change == pytest.approx(2) and printed < 1e-6
    # No constant helps, and no factor sqrt(d); the curvature does: cos'' is at most 1.
    assert change > 1e6 * printed
    assert change <= float(second_order_bound(got.scores, h, np.ones(1, bool), 1.0)) == pytest.approx(np.pi**2 / 2)


def test_the_second_order_term_is_half_the_smoothness_times_what_was_dropped():
    h, dropped = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([True, False, True, False])
    scores = np.array([1.0, 10.0, 2.0, 10.0], np.float32)
    got = float(second_order_bound(scores, jnp.asarray(h), jnp.asarray(dropped), 4.0))
    assert got == pytest.approx(3**0.5 * 3 + 0.5 * 4.0 * (5 + 36 + 49 + 64), rel=1e-6)


def test_norms_survive_extreme_scales():
    rows = np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 0], [3, 4]], np.float32)
    np.testing.assert_allclose(token_norms(jnp.asarray(rows)), [5e30, 5e-30, 0, 5], rtol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 5]), st.integers(0, 12), st.integers(0, 12))
def test_pooling_is_the_mean_of_the_valid_neighbours(seed, width, low, high):
    rng = np.random.default_rng(seed)
    n = 12
    scores = rng.gamma(1.0, size=n).astype(np.float32)
    valid = (np.arange(n) >= low) & (np.arange(n) < high)
    got = np.asarray(average_pool(jnp.asarray(scores), jnp.asarray(valid), width))
    for i in range(n):
        near = [scores[j] for j in range(max(0, i - width // 2), min(n, i + width // 2 + 1)) if valid[j]]
        expected = np.mean(near) if valid[i] else 0
        assert abs(got[i] - expected) <= 1e-5 * max(1, scores.max())


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(0, 9), st.integers(0, 9))
def test_ends_get_the_median_of_those_between(seed, low, length):
    n = 18
    scores = np.random.default_rng(seed).gamma(1.0, size=n).astype(np.float32)
    valid = (np.arange(n) >= low) & (np.arange(n) < low + length)
    got = np.asarray(impute_ends(jnp.asarray(scores), jnp.asarray(valid)))
    inner = scores[valid][1:-1]
    expected = scores * valid
    if length >= 3:
        expected[[low, low + length - 1]] = np.median(inner)
    else:
        expected[valid] = 1
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    one_side = np.asarray(impute_ends(jnp.asarray(scores), jnp.asarray(valid), last=False))
    if length >= 3:
        assert one_side[low + length - 1] == scores[low + length - 1]


def test_ranks_are_places_among_the_valid():
    scores = jnp.asarray([5.0, 1.0, 1.0, 9.0, 100.0])
    valid = jnp.asarray([True, True, True, True, False])
    np.testing.assert_allclose(normalised_ranks(scores, valid), [0.625, 0.125, 0.375, 0.875, 0])
    assert not np.asarray(normalised_ranks(scores, jnp.zeros(5, bool))).any()


def test_wrong_shapes_name_the_argument():
    with pytest.raises(ValueError, match=r"`embeddings` has shape \(3,\); expected \(any, any\)"):
        token_sensitivity(linear, jnp.ones(3), jnp.ones(3))
    with pytest.raises(ValueError, match="`dropped` has shape"):
        first_order_bound(jnp.ones(3), jnp.ones(2, bool), 4)
    with pytest.raises(ValueError, match="`width` is 4; expected an odd"):
        average_pool(jnp.ones(3), jnp.ones(3, bool), 4)


def test_kernels_are_safe_under_vmap_and_grad():
    h = jnp.asarray(np.random.default_rng(0).standard_normal((2, 5, 4)), jnp.float32)
    w = h[::-1]
    batched = jax.vmap(lambda h, w: token_sensitivity(smooth, h, w))(h, w)
    for i in range(2):
        np.testing.assert_allclose(batched.scores[i], run_smooth(h[i], w[i]).scores, rtol=1e-5)
    # A zero row has a norm without a direction; the gradient must not be NaN.
    gradient = jax.grad(lambda x: token_norms(x).sum())(jnp.asarray([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(gradient, [[0.6, 0.8], [0.0, 0.0]], rtol=1e-6)

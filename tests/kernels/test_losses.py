"""Cross-entropy by blocks of the vocabulary against the plain formula in float64 NumPy."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels.losses import cross_entropy


def exact(hidden, head, targets, weights):
    """The surprisals and the gradient of their weighted sum."""
    hidden, head = hidden.astype(np.float64), head.astype(np.float64)
    logits = hidden @ head.T
    logits -= logits.max(1, keepdims=True)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = np.arange(len(targets))
    losses = -np.log(shares[rows, targets])
    shares[rows, targets] -= 1
    return losses, (shares @ head) * weights[:, None]


@functools.partial(jax.jit, static_argnames="chunk")
def both(hidden, head, targets, weights, chunk):
    def total(hidden):
        return cross_entropy(hidden, head, targets, weights, chunk)

    # Without a gradient another program runs.
    return jax.value_and_grad(total, has_aux=True)(hidden), total(hidden)


def ours(hidden, head, targets, weights, chunk):
    ((value, losses), gradient), plain = both(hidden, head, targets, weights, chunk)
    np.testing.assert_allclose(plain[1], losses, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(plain[0], value, rtol=1e-6)
    return value, losses, gradient


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.sampled_from([1, 6]),
    vocab=st.sampled_from([1, 12, 13]),
    chunk=st.sampled_from([1, 4, 12, 50]),
    scale=st.sampled_from([0.01, 1.0, 20.0]),
)
def test_blocks_of_the_vocabulary_give_the_loss_and_its_gradient(seed, n, vocab, chunk, scale):
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((n, 6)).astype(np.float32) * np.float32(scale)
    head = rng.standard_normal((vocab, 6)).astype(np.float32)
    targets, weights = rng.integers(0, vocab, n), rng.choice([0, 0.5, 1, 2], n).astype(np.float32)
    value, losses, gradient = ours(hidden, head, targets, weights, chunk)
    wanted, slope = exact(hidden, head, targets, weights)
    size = max(1.0, float(np.abs(hidden @ head.T).max()))
    np.testing.assert_allclose(losses, wanted, atol=2e-6 * size)
    np.testing.assert_allclose(value, wanted @ weights, atol=1e-5 * size * n)
    np.testing.assert_allclose(gradient, slope, atol=1e-5 * size)


def test_a_sure_token_is_never_below_zero():
    rng = np.random.default_rng(0)
    head = rng.standard_normal((300, 64)).astype(np.float32)
    targets = np.arange(200)
    _, losses, _ = ours(head[:200] * 3, head, targets, np.ones(200, np.float32), 70)
    assert (np.asarray(losses) >= 0).all() and np.asarray(losses).max() < 1e-3


@pytest.mark.parametrize("where", [0, 5, 9])
def test_a_loss_that_is_not_a_number_is_told(where):
    hidden = np.ones((10, 4), np.float32)
    hidden[where, 1] = np.nan
    losses = cross_entropy(hidden, np.ones((6, 4), np.float32), np.zeros(10, int), np.ones(10, np.float32), 4)[1]
    assert np.isnan(losses).tolist() == [i == where for i in range(10)]


def test_a_batch_gives_what_its_members_give():
    rng = np.random.default_rng(1)
    hidden, head = rng.standard_normal((3, 5, 4)).astype(np.float32), rng.standard_normal((11, 4)).astype(np.float32)
    targets, weights = rng.integers(0, 11, (3, 5)), np.ones((3, 5), np.float32)
    (_, together), gradient = jax.vmap(lambda h, t, w: both(h, head, t, w, 4)[0])(hidden, targets, weights)
    for i in range(3):
        losses, slope = exact(hidden[i], head, targets[i], weights[i])
        np.testing.assert_allclose(together[i], losses, atol=1e-5)
        np.testing.assert_allclose(gradient[i], slope, atol=1e-5)

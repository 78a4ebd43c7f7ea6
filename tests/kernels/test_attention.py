"""Blocked attention against the plain formula in float64 NumPy, its gradients against the formula's derivative."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels import attention
from gemjax.kernels.attention import causal_attention, full_attention

SHAPES = {"grouped": (6, 2, 8), "one group": (3, 1, 4), "a group a head": (2, 2, 4)}


def draw(seed: int, n: int, shape: tuple[int, int, int]) -> tuple[np.ndarray, ...]:
    heads, groups, d = shape
    rng = np.random.default_rng(seed)
    sizes = [(n, heads, d), (n, groups, d), (n, groups, d), (n, heads, d)]
    return tuple(rng.standard_normal(size).astype(np.float32) for size in sizes)


def weights_of(q, k, valid, causal):
    n, heads, d = q.shape
    share = heads // k.shape[1]
    seen = np.broadcast_to(valid, (n, n)) & (np.tri(n, dtype=bool) if causal else True)
    out = np.zeros((heads, n, n))
    for head in range(heads):
        scores = np.where(seen, q[:, head] @ k[:, head // share].T / np.sqrt(d), -np.inf)
        exps = np.exp(scores - scores.max(1, keepdims=True))
        out[head] = exps / exps.sum(1, keepdims=True)
    return out


def exact(q, k, v, g, valid, causal):
    """Result and the gradients of `sum(result * g)`, head by head."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    _, heads, d = q.shape
    share = heads // k.shape[1]
    out, dq, dk, dv = np.zeros_like(q), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for head, weights in enumerate(weights_of(q, k, valid, causal)):
        group = head // share
        out[:, head] = weights @ v[:, group]
        dw = g[:, head] @ v[:, group].T
        ds = weights * (dw - (weights * dw).sum(1, keepdims=True)) / np.sqrt(d)
        dq[:, head] = ds @ k[:, group]
        dk[:, group] += ds.T @ q[:, head]
        dv[:, group] += weights.T @ g[:, head]
    return out, dq, dk, dv


@functools.partial(jax.jit, static_argnames="block")
def ours(q, k, v, g, valid, block):
    out, back = jax.vjp(lambda q, k, v: causal_attention(q, k, v, jnp.asarray(valid), block), q, k, v)
    return out, *back(g)


def close(mine, wanted):
    for a, b in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1, np.abs(b).max()))


# One block, a ragged block, several segments of blocks, and a last segment with one ragged block.
@pytest.mark.parametrize(("n", "block"), [(1, 4), (5, 8), (19, 4), (33, 4)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_blocks_give_attention_and_its_gradients(n, block, shape):
    arrays = draw(n, n, shape)
    valid = np.ones(n, bool)
    close(ours(*arrays, valid, block), exact(*arrays, valid, True))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 99), left=st.integers(0, 9), right=st.integers(0, 20), block=st.sampled_from([3, 4, 64]))
def test_padding_at_either_end_is_not_looked_at(seed, left, right, block):
    n = 30
    valid = np.ones(n, bool)
    valid[:left] = valid[n - right :] = False
    arrays = [np.array(x) for x in draw(seed, n, SHAPES["grouped"])]
    arrays[3][~valid] = 0
    inner = slice(left, n - right)
    wanted = exact(*(x[inner] for x in arrays), valid[inner], True)
    mine = ours(*arrays, valid, block)
    assert all(np.isfinite(x).all() for x in mine)
    close([x[inner] for x in mine], wanted)
    for gradient in mine[1:]:
        np.testing.assert_array_equal(gradient[~valid], 0)


@pytest.mark.parametrize(("n", "block"), [(1, 4), (19, 4), (19, 64), (40, 4)])
def test_full_attention_sees_both_sides(n, block):
    q, k, v, g = draw(3, n, SHAPES["grouped"])
    valid = np.arange(n) < max(1, n - 3)
    mine = full_attention(q, k, v, jnp.asarray(valid), block)
    close([mine], exact(q, k, v, g, valid, False)[:1])


def test_a_batch_gives_what_its_members_give():
    members = [draw(seed, 21, SHAPES["grouped"]) for seed in range(3)]
    valid = np.arange(21)[None] < np.array([21, 9, 1])[:, None]
    batch = [np.stack(x) for x in zip(*members, strict=True)]
    together = jax.jit(jax.vmap(lambda q, k, v, g, valid: ours(q, k, v, g, valid, 4)))(*batch, valid)
    for i, member in enumerate(members):
        close([x[i] for x in together], ours(*member, valid[i], 4))


def test_groups_go_in_turn_on_cpu_and_together_elsewhere():
    arguments = (*draw(0, 16, SHAPES["grouped"])[:3], np.ones(16, bool))
    traced = jax.jit(lambda *x: causal_attention(*x, 8)).trace(*arguments)
    assert "stablehlo.while" not in traced.lower(lowering_platforms=("cuda",)).as_text()
    here = traced.lower(lowering_platforms=("cpu",))
    assert "stablehlo.while" in here.as_text()
    assert "conditional" not in here.compile().as_text(), "the platform is asked for at run time"


def test_all_groups_at_once_give_the_same(monkeypatch):
    arrays, valid = draw(2, 21, SHAPES["grouped"]), np.arange(21) > 1
    monkeypatch.setattr(attention, "_each_group", lambda one, *groups: jax.vmap(one)(*groups))
    arrays[3][:2] = 0
    mine = ours.__wrapped__(*arrays, valid, 4)
    close([x[2:] for x in mine], exact(*(x[2:] for x in arrays), valid[2:], True))


def test_large_scores_do_not_overflow():
    q, k, v, g = (
        x * np.float32(scale) for x, scale in zip(draw(1, 12, SHAPES["one group"]), (90, 90, 1, 1), strict=True)
    )
    valid = np.ones(12, bool)
    mine, wanted = ours(q, k, v, g, valid, 4), exact(q, k, v, g, valid, True)
    assert all(np.isfinite(x).all() for x in mine)
    # float32 scores of this size are right to about 1e-3, and so are the weights.
    for a, b in zip(mine, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-2 * max(1, np.abs(b).max()))

"""Attention over kept keys against a plain loop in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemjax.kernels as k


def loop(q, key, value, start):
    n, heads, d = q.shape
    out = np.zeros((n, heads, d))
    for i in range(n):
        for h in range(heads):
            group = h // (heads // key.shape[0])
            seen = start + i + 1
            scores = key[group, :seen] @ q[i, h] / np.sqrt(d)
            weights = np.exp(scores - scores.max())
            out[i, h] = weights / weights.sum() @ value[group, :seen]
    return out


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from([(1, 8), (3, 8), (8, 8)]), st.integers(0, 5), st.sampled_from([(2, 1), (6, 3)]), st.integers(0, 99)
)
def test_each_new_position_sees_what_came_before_it(shape, start, heads, seed):
    (n, m), (many, groups) = shape, heads
    start = min(start, m - n)
    rng = np.random.default_rng(seed)
    q, key, value = (rng.standard_normal(s) for s in ((n, many, 4), (groups, m, 4), (groups, m, 4)))
    want = loop(q, key, value, start)
    # What stands behind the last position may be anything finite.
    key[:, start + n :], value[:, start + n :] = 1e3, -1e3
    np.testing.assert_allclose(k.cached_attention(q, key, value, start), want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 4), (2, 8, 4), (2, 8, 4)), "groups; expected a number that divides the 3 heads"),
        (((9, 2, 4), (2, 8, 4), (2, 8, 4)), "9 positions; expected at most the 8"),
        (((2, 2, 4), (2, 8, 5), (2, 8, 5)), "`k`"),
        (((2, 2, 4), (2, 8, 4), (2, 7, 4)), "`v`"),
    ],
)
def test_wrong_shapes_are_named(shapes, message):
    with pytest.raises(ValueError, match=message):
        k.cached_attention(*map(np.zeros, shapes), 0)

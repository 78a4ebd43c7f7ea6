"""Projections from inner products against least squares in float64."""

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemjax.kernels.linalg import independence_tolerance
from gemjax.kernels.spans import growing_basis, span_energies

energies = jax.jit(span_energies, static_argnames="max_rank")
basis = jax.jit(growing_basis)


def held(rows: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Squared length of each vector's least-squares fit by the rows."""
    if not rows.any():
        return np.zeros(len(vectors))
    fit = np.linalg.lstsq(rows.T, vectors.T, rcond=1e-6)[0]
    return np.sum((rows.T @ fit) ** 2, axis=0)


def clear(rows: np.ndarray) -> bool:
    """Whether no direction is so weak that float32 and float64 may disagree about independence."""
    s = np.linalg.svd(rows, compute_uv=False) if len(rows) else np.zeros(0)
    return not np.any((s > 1e-9) & (s < 3e-2))


@st.composite
def histories(draw):
    n, d = draw(st.sampled_from([(6, 24), (20, 24), (12, 5)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal((n, d)) + draw(st.sampled_from([0.0, 2.0])) * rng.standard_normal(d)
    x[rng.integers(n)] = x[rng.integers(n)]  # copies
    x[rng.integers(n)] = x[0] + x[-1]  # inside the span of others
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[rng.integers(n)] *= draw(st.sampled_from([0.0, 1.0]))  # no direction
    targets = rng.standard_normal((3, d))
    return x, rng.random(n) < draw(st.sampled_from([0.0, 0.4, 1.0])), targets / np.linalg.norm(targets, axis=1)[:, None]


@settings(deadline=None, max_examples=60)
@given(histories())
def test_span_energies_are_least_squares_projections(problem):
    x, selected, targets = problem
    assume(clear(x[selected]))
    tol = independence_tolerance(np.float32, x.shape[1])
    a = x.astype(np.float32)
    out = energies(a @ a.T, targets.astype(np.float32) @ a.T, selected, tol, max_rank=20)
    np.testing.assert_allclose(out.rows, held(x[selected], x), atol=2e-4)
    np.testing.assert_allclose(out.targets, held(x[selected], targets), atol=2e-4)
    assert int(out.rank) == (np.linalg.matrix_rank(x[selected], tol=1e-4) if selected.any() else 0)


@settings(deadline=None, max_examples=40)
@given(histories())
def test_first_rows_of_a_growing_basis_span_the_first_blocks(problem):
    x, _, targets = problem
    vectors = np.asarray(basis(x.astype(np.float32)), np.float64)
    sums = np.cumsum((targets @ vectors.T) ** 2, axis=1)
    for m in range(1, len(x) + 1):
        if not clear(x[:m]):
            continue
        np.testing.assert_allclose(sums[:, m - 1], held(x[:m], targets), atol=2e-4)


def test_wrong_shapes_are_refused():
    x = np.eye(3, dtype=np.float32)
    with pytest.raises(ValueError, match="gram"):
        span_energies(x[:2], x, np.ones(2, bool), 1e-5, max_rank=2)
    with pytest.raises(ValueError, match="inner"):
        span_energies(x, x[:, :2], np.ones(3, bool), 1e-5, max_rank=2)
    with pytest.raises(ValueError, match="max_rank"):
        span_energies(x, x, np.ones(3, bool), 1e-5, max_rank=0)

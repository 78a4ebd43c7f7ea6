"""Measures from inner products against least squares in float64, and against the same measures from vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemjax.kernels import gram as kg
from gemjax.kernels import retention
from gemjax.kernels.gram import span_energies
from gemjax.kernels.linalg import growing_basis, independence_tolerance, orthonormal_basis
from tests.kernels.problems import Problem, oracle_basis, problems, tolerance
from tests.kernels.problems import clear as clear_at

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


@jax.jit
def both_forms(x, action, kept, valid):
    """C, E, P_a, R_a and T_3 from vectors, and from inner products as the tables take them."""
    n, d = x.shape
    tol = independence_tolerance(x.dtype, d)
    some, every = (orthonormal_basis(x, mask, max_rank=min(n, d)).vectors for mask in (kept & valid, valid))
    from_vectors = (
        retention.centroid_similarity(x, kept, valid),
        retention.captured_energy(x, kept, valid, max_rank=min(n, d)),
        retention.action_projection(action, some),
        retention.action_ratio(action, some, every),
        retention.topk_retention(x, action, kept, valid),
    )
    gram, inner = jnp.matmul(x, x.T, precision="highest"), jnp.matmul(action, x.T, precision="highest")
    spans, whole = (kg.span_energies(gram, inner[None], m, tol, max_rank=n) for m in (kept & valid, valid))
    from_products = (
        kg.gram_centroid_similarity(gram, kept, valid, dim=d),
        kg.gram_captured_energy(gram, spans, valid),
        spans.targets[0],
        retention.projection_ratio(spans.targets[0], whole.targets[0], d),
        retention.nearest_retained(inner, kept, valid, jnp.sum(action**2) > 0),
    )
    return from_vectors, from_products, whole.targets[0]


@settings(deadline=None, max_examples=80)
@given(problems(dtypes=("float32",), shapes=((1, 8), (6, 24), (12, 5))), st.integers(0, 2**16))
def test_measures_from_inner_products_are_those_from_vectors(p: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d = p.x.shape[1]
    tol = tolerance(p.dtype, d)
    x = p.x * p.valid[:, None]  # inner products of padding must be finite
    kept = p.protected & p.valid
    assume(clear_at(p.x64[kept], tol) and clear_at(p.x64[p.valid], tol))
    action = p.x64[0] * (seed % 2) + rng.standard_normal(d)
    action = (action / np.linalg.norm(action) * (seed % 7 > 0)).astype(p.x.dtype)
    (c, e, part, r, t), (c2, e2, part2, r2, t2), whole = jax.tree.map(np.asarray, both_forms(x, action, kept, p.valid))
    # Inner products square the condition: a direction of residual rho is known to eps / rho (`oracle_basis`).
    slack = max(oracle_basis(p.x64[rows], tol, condition=2)[1] for rows in (kept, p.valid))
    assert abs(e - e2) <= slack and abs(part - part2) <= slack
    if whole > 1e-3:
        assert r.defined and r2.defined and abs(r.value - r2.value) <= 2 * slack / whole
    # A mean of length l is wrong by eps, its cosine by eps / l, and its square from inner products by eps / l^2.
    means = [np.linalg.norm(p.x64[rows].mean(0)) if rows.any() else 0 for rows in (kept, p.valid)]
    if min(means) > 1e-2:
        assert c.defined and c2.defined and abs(c.value - c2.value) <= tol / min(means) ** 2
    elif not kept.any():
        assert not c.defined and not c2.defined
    similarity = np.sort(p.x64[p.valid] @ action)
    if len(similarity) <= 3 or similarity[-3] - similarity[-4] > tol:  # else rounding orders the neighbours
        assert t.value == t2.value and t.defined == t2.defined

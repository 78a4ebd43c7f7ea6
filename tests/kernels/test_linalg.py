"""Bases, residuals and coverage: Propositions A.1 and A.2 on hostile inputs.

Tolerances: a residual over b directions is wrong by at most sqrt(b d) eps (`problems.tolerance`). A direction from a
row whose residual is rho is known to eps / sqrt(rho), which moves the residuals of other rows by as much.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings

from gemjax.kernels import linalg
from tests.kernels.problems import (
    Problem,
    clear,
    oracle_coverage,
    oracle_residuals,
    precision,
    problems,
    tolerance,
)

basis_of = jax.jit(linalg.orthonormal_basis, static_argnames="max_rank")
residuals_of = jax.jit(linalg.residuals)
coverage_of = jax.jit(linalg.coverage)
add_direction = jax.jit(linalg.new_direction)
unit = jax.jit(linalg.unit_rows)


def span(p: Problem) -> np.ndarray:
    """The rows to span: the protected ones that are real."""
    return p.protected & p.valid


def basis(p: Problem, selected: np.ndarray) -> linalg.Basis:
    return basis_of(p.x, selected, max_rank=min(p.x.shape))


@settings(deadline=None, max_examples=120)
@given(problems())
def test_prop_a1_residuals_and_coverage_have_both_forms_and_bounds(p: Problem) -> None:
    tol = tolerance(p.dtype, p.x.shape[1])
    with precision(p.dtype):
        b = basis(p, span(p))
        r = np.asarray(residuals_of(p.x, b.vectors, p.valid), np.float64)
        coverage = float(coverage_of(p.x, b.vectors, p.valid))
        q = np.asarray(b.vectors, np.float64)
    energy = (p.x64**2).sum(1) * p.valid
    inside = p.x64 @ q.T
    left = p.x64 - inside @ q
    # A.2: both forms, in float64 arithmetic on the kernel's own basis.
    assert np.abs(r - (left**2).sum(1) * p.valid).max() <= tol
    assert np.abs(r - (energy - (inside**2).sum(1) * p.valid)).max() <= tol
    assert (r >= 0).all() and (r <= energy * (1 + tol)).all()
    # A.3: both forms.
    assert 0 <= coverage <= 1
    total = energy.sum()
    if total > 0:
        assert abs(coverage - (inside[p.valid] ** 2).sum() / total) <= tol
        assert abs(coverage - (1 - (left[p.valid] ** 2).sum() / total)) <= tol
    else:
        assert coverage == 1


@settings(deadline=None, max_examples=120)
@given(problems())
def test_prop_a1_basis_is_orthonormal_and_spans_the_selected_rows(p: Problem) -> None:
    tol = tolerance(p.dtype, p.x.shape[1])
    chosen = span(p)
    assume(clear(p.x64[chosen], tol))
    with precision(p.dtype):
        b = basis(p, chosen)
        q = np.asarray(b.vectors, np.float64)
        r = np.asarray(residuals_of(p.x, b.vectors), np.float64)
    rank = int(b.rank)
    gram = np.zeros((len(q), len(q)))
    gram[:rank, :rank] = np.eye(rank)
    assert np.abs(q @ q.T - gram).max() <= tol  # unused rows are zero, the others orthonormal
    assert bool(b.complete)
    expected, pivot = oracle_residuals(p.x64, chosen, tol)
    assert np.abs(r - expected).max() <= tol * (1 + 1 / np.sqrt(pivot))


@settings(deadline=None, max_examples=120)
@given(problems())
def test_prop_a2_update_gain_residuals_and_monotone_coverage(p: Problem) -> None:
    n, d = p.x.shape
    tol = tolerance(p.dtype, d)
    inside = span(p)
    with precision(p.dtype):
        before = basis(p, inside)
        r = np.asarray(residuals_of(p.x, before.vectors, p.valid), np.float64)
        candidates = np.flatnonzero(p.valid & ~inside & (r > 30 * tol))
        assume(len(candidates) and clear(p.x64[inside], tol))
        j = candidates[len(candidates) // 2]
        row = jnp.asarray(p.x[j], before.vectors.dtype)
        q, residual = add_direction(before.vectors, row, jnp.asarray(tol, row.dtype))
        larger = inside | (np.arange(n) == j)
        after = basis(p, larger)
        r_after = np.asarray(residuals_of(p.x, after.vectors, p.valid), np.float64)
        gain = float(coverage_of(p.x, after.vectors, p.valid)) - float(coverage_of(p.x, before.vectors, p.valid))
        everything = float(coverage_of(p.x, basis(p, p.valid).vectors, p.valid))
        small, large = np.asarray(before.vectors, np.float64), np.asarray(after.vectors, np.float64)
        q, residual = np.asarray(q, np.float64), float(residual)
    assert abs(residual - r[j]) <= tol
    assert np.abs(small @ q).max(initial=0) <= tol and abs(q @ q - 1) <= tol  # A.4
    # The basis of the larger set is built in index order, so the same span is reached by another way; both ways know a
    # direction of residual rho to eps / sqrt(rho), and rho is at least 30 tol here (`clear`).
    _, pivot = oracle_residuals(p.x64, larger, tol)
    loose = tol * (1 + 2 / np.sqrt(min(pivot, residual)))
    assume(clear(p.x64[larger], tol))
    assert np.abs(large.T @ large - (small.T @ small + np.outer(q, q))).max() <= loose  # A.5
    total = (p.x64[p.valid] ** 2).sum()
    along = (p.x64 @ q) ** 2 * p.valid
    assert abs(gain - along.sum() / total) <= loose  # A.6
    assert np.abs(r_after - (r - along)).max() <= loose  # A.7
    assert gain >= residual / total - loose
    assert everything >= float(1 - r_after.sum() / total) - loose  # nested sets


@settings(deadline=None, max_examples=60)
@given(problems())
def test_coverage_matches_a_float64_oracle(p: Problem) -> None:
    tol = tolerance(p.dtype, p.x.shape[1])
    chosen = span(p)
    assume(clear(p.x64[chosen], tol))
    with precision(p.dtype):
        got = float(coverage_of(p.x, basis(p, chosen).vectors, p.valid))
    expected, pivot = oracle_residuals(p.x64, chosen, tol)
    assert abs(got - oracle_coverage(p.x64, expected, p.valid)) <= tol * (1 + 1 / np.sqrt(pivot))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_unit_rows_have_length_one_whatever_their_scale(dtype: str, scale: float) -> None:
    x = (scale * np.random.default_rng(0).standard_normal((6, 24))).astype(jnp.dtype(dtype))
    x[2] = 0
    with precision(dtype):
        u = unit(x)
        assert u.dtype == jnp.dtype(dtype)
        u = np.asarray(u, np.float64)
    eps = float(jnp.finfo(dtype).eps)
    lengths = np.linalg.norm(u, axis=1)
    assert np.abs(np.delete(lengths, 2) - 1).max() <= 8 * eps
    assert (u[2] == 0).all()
    wanted = np.delete(x.astype(np.float64), 2, 0)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert np.abs(np.delete(u, 2, 0) - wanted).max() <= 8 * eps


def test_unit_rows_clear_padding() -> None:
    x = np.full((3, 4), np.nan, np.float32)
    x[0] = 2
    assert np.array_equal(linalg.unit_rows(x, np.array([True, False, False])), [[0.5] * 4, [0] * 4, [0] * 4])


def test_zero_rows_have_no_residual_and_no_part_in_coverage() -> None:
    x = np.array([[1, 0], [0, 0], [0, 1]], np.float32)
    q = np.array([[1, 0]], np.float32)
    assert np.array_equal(linalg.residuals(x, q), [0, 0, 1])
    assert float(linalg.coverage(x, q)) == 0.5
    assert float(linalg.coverage(x * 0, q)) == 1


def test_padding_may_hold_anything() -> None:
    x = np.array([[1, 0], [0, 1], [np.nan, np.inf]], np.float32)
    q = np.array([[1, 0]], np.float32)
    valid = np.array([True, True, False])
    assert np.array_equal(linalg.residuals(x, q, valid), [0, 1, 0])
    assert float(linalg.coverage(x, q, valid)) == 0.5


def test_basis_says_when_max_rank_was_too_small() -> None:
    x = np.eye(3, dtype=np.float32)
    assert bool(basis_of(x, np.array([True, True, False]), max_rank=2).complete)
    small = basis_of(x, np.array([True, True, True]), max_rank=2)
    assert not bool(small.complete) and int(small.rank) == 2
    assert np.array_equal(small.vectors, x[:2])


def test_basis_under_vmap_equals_one_by_one() -> None:
    rng = np.random.default_rng(3)
    x = np.asarray(linalg.unit_rows(rng.standard_normal((12, 5)).astype(np.float32)))
    masks = rng.random((4, 12)) < 0.5
    together = jax.vmap(partial(basis_of, max_rank=5), in_axes=(None, 0))(x, masks)
    for i, mask in enumerate(masks):
        alone = basis_of(x, mask, max_rank=5)
        assert int(alone.rank) == int(together.rank[i])
        assert np.abs(alone.vectors - together.vectors[i]).max() <= tolerance("float32", 5)


def test_projections_split_a_row() -> None:
    x = np.random.default_rng(1).standard_normal((6, 24)).astype(np.float32)
    q = basis_of(x[:2], np.array([True, True]), max_rank=2).vectors
    inside, left = linalg.project(x, q), linalg.reject(x, q)
    scale = np.linalg.norm(x, axis=1).max()
    assert np.abs(inside + left - x).max() <= scale * tolerance("float32", 24)
    assert np.abs(left @ q.T).max() <= scale * tolerance("float32", 24)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, m: linalg.unit_rows(x[0]), r"`x` has shape \(4,\); expected \(any, any\)"),
        (lambda x, m: linalg.unit_rows(x.astype(int)), r"`x` has dtype int\d+; expected floating point"),
        (lambda x, m: linalg.unit_rows(x, m[:2]), r"`valid` has shape \(2,\); expected \(3,\)"),
        (
            lambda x, m: linalg.orthonormal_basis(x, m.astype(int), max_rank=2),
            r"`selected` has dtype .*; expected bool",
        ),
        (lambda x, m: linalg.orthonormal_basis(x, m, max_rank=0), r"`max_rank` is 0; expected a positive integer"),
        (lambda x, m: linalg.residuals(x, x[:, :2]), r"`vectors` has shape \(3, 2\); expected \(any, 4\)"),
        (lambda x, m: linalg.coverage(x, x, m[None]), r"`valid` has shape \(1, 3\); expected \(3,\)"),
        (lambda x, m: linalg.project(x[0], x), r"`x` has shape \(4,\)"),
    ],
)
def test_wrong_shapes_are_named(call, message: str) -> None:
    x, mask = np.ones((3, 4), np.float32), np.ones(3, bool)
    with pytest.raises(ValueError, match=message):
        call(x, mask)

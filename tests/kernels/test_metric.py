"""The low-rank metric against dense float64 algebra, scikit-learn, SciPy and numpyro; propositions as properties."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads
from scipy.spatial.distance import cdist

from gemjax.kernels import metric as km
from gemjax.kernels.moments import empty_moments, moments_from_rows

make = jax.jit(km.low_rank_metric)
solve = jax.jit(km.solve_metric)
quadratic = jax.jit(km.quadratic_form)
score = jax.jit(km.riemannian_score)
whiten = jax.jit(km.whitening_matrix)
EPS = np.finfo(np.float32).eps


def dense(factor, diag):
    factor, diag = np.asarray(factor, np.float64), np.asarray(diag, np.float64)
    return factor @ factor.T + np.diag(diag)


@st.composite
def metrics(draw):
    d, r = draw(st.sampled_from([(8, 2), (16, 5), (16, 16)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread = draw(st.sampled_from([1.0, 1e-4]))  # 1e-4: nearly parallel columns
    factor = 10.0 ** draw(st.floats(-3, 2)) * (rng.standard_normal((d, 1)) + spread * rng.standard_normal((d, r)))
    mean = rng.standard_normal(d)
    # Points near the span of the factor, where the textbook form cancels.
    x = rng.standard_normal((12, r)) @ factor.T + draw(st.sampled_from([0.0, 1e-3, 1.0])) * rng.standard_normal((12, d))
    arrays = (mean, factor, 10.0 ** rng.uniform(-2, 1, d), x)
    return tuple(a.astype(np.float32) for a in arrays)


def residual_error(factor, diag, x):
    """Bound on the error of the computed residual vector (y - A z, -z), from first-order perturbation theory.

    QR is backward stable: it solves exactly for B + dB, |dB| <= c eps |B|, B = [A; I]. Its residual rho
    moves by at most |dB| (|z| + |B^+| |rho|), and |B^+| <= 1, |z| <= |rho| = sqrt(quadratic form). Projecting y
    rounds by c eps |y|. c = 40 covers the dimension-dependent constants for d + r <= 32.
    """
    factor, diag, x = (np.asarray(a, np.float64) for a in (factor, diag, x))
    rho = np.sqrt(np.einsum("nd,nd->n", x, np.linalg.solve(dense(factor, diag), x.T).T))
    b = np.sqrt(np.sum(factor**2 / diag[:, None]) + factor.shape[1])
    return rho, 40 * EPS * (np.linalg.norm(x / np.sqrt(diag), axis=1) + 2 * b * rho) + 1e-30


@settings(deadline=None, max_examples=80)
@given(metrics())
def test_eq1_woodbury_equals_the_dense_inverse(case):
    mean, factor, diag, x = case
    metric = make(mean, factor, diag)
    sigma = dense(factor, diag)
    want = np.linalg.solve(sigma, x.T.astype(np.float64)).T
    _, bound = residual_error(factor, diag, x)
    error = (np.asarray(solve(metric, x), np.float64) - want) * np.sqrt(diag)
    assert (np.linalg.norm(error, axis=1) <= bound).all()
    np.testing.assert_allclose(metric.log_det, np.linalg.slogdet(sigma)[1], rtol=1e-3, atol=1e-2)


@settings(deadline=None, max_examples=80)
@given(metrics())
def test_the_quadratic_form_is_a_sum_of_squares(case):
    mean, factor, diag, x = case
    got = np.asarray(quadratic(make(mean, factor, diag), x), np.float64)
    rho, bound = residual_error(factor, diag, x)
    assert (got >= 0).all()
    assert (np.abs(np.sqrt(got) - rho) <= bound).all()


def test_the_textbook_difference_goes_negative_where_ours_does_not():
    rng = np.random.default_rng(0)
    factor = (100 * rng.standard_normal((16, 4))).astype(np.float32)
    diag = np.full(16, 1e-2, np.float32)
    x = (factor @ rng.standard_normal((4, 64)) / 100).T.astype(np.float32)  # in the span of the factor
    metric = make(np.zeros(16, np.float32), factor, diag)
    a = factor / np.sqrt(diag)[:, None]
    y = x / np.sqrt(diag)
    projected = y @ a
    capacitance = np.eye(4, dtype=np.float32) + a.T @ a
    textbook = (y * y).sum(1) - (projected * np.linalg.solve(capacitance, projected.T).T).sum(1)
    assert (textbook < 0).any()
    ours = np.asarray(quadratic(metric, x))
    want = np.einsum("nd,nd->n", x, np.linalg.solve(dense(factor, diag), x.T.astype(np.float64)).T)
    assert (ours >= 0).all()
    assert np.abs(ours - want).max() < np.abs(textbook - want).max() / 10


@st.composite
def row_sets(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.sampled_from([(60, 8), (5, 8)]))  # 5: fewer memories than dimensions
    scales = 10.0 ** rng.uniform(-1, 0, d)
    rows = 0.5 + rng.standard_normal((n, d)) * scales
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), draw(st.sampled_from(km.MODELS)), draw(st.sampled_from([0.1, 10.0])), rng


def paper_covariance(rows, ridge, energy, model):
    """The formulas of section 3.2 in float64, from an SVD."""
    rows = rows.astype(np.float64)
    centred = rows - rows.mean(0)
    var = centred.var(0)
    lam = ridge * var.mean()
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    r = int(np.argmax(np.cumsum(s**2) / np.sum(s**2) >= energy)) + 1
    v = vt[:r].T
    if model == "paper":
        return v @ np.diag(s[:r] ** 2 / len(rows) + lam) @ v.T + np.diag(var + lam)
    if model == "isotropic":
        return v @ np.diag(s[:r] ** 2 / len(rows)) @ v.T + lam * np.eye(len(var))
    return np.diag(var + lam)


fit_rows = jax.jit(km.fit_metric_from_rows, static_argnames="model")


@settings(deadline=None, max_examples=60)
@given(row_sets())
def test_fit_from_moments_equals_fit_from_rows_and_the_formulas(case):
    rows, model, ridge, _ = case
    want = paper_covariance(rows, ridge, 0.95, model)
    fitted = km.fit_metric_jit(moments_from_rows(rows), ridge=ridge, model=model)
    by_svd = fit_rows(rows, ridge=ridge, model=model)
    if model != "diagonal":
        s2 = np.linalg.svd(rows.astype(np.float64) - rows.mean(0, dtype=np.float64), compute_uv=False) ** 2
        margin = np.abs(np.cumsum(s2) / s2.sum() - 0.95).min()
        assert margin < 1e-5 or int(fitted.rank) == int(by_svd.rank)
        if margin < 1e-5:
            return  # the energy meets the limit within rounding: either rank is right
    scale = np.abs(want).max()
    atol = 2e-5 * scale
    if model != "diagonal" and int(fitted.rank) < len(s2):
        # Davis and Kahan: rounding of d eps turns the kept directions by up to 2 d eps / gap, each side of the product.
        gap = (s2[int(fitted.rank) - 1] - s2[int(fitted.rank)]) / s2[0]
        atol += 4 * rows.shape[1] * np.finfo(np.float32).eps / gap * scale
    for metric in (fitted, by_svd):
        np.testing.assert_allclose(km.dense_covariance(metric), want, atol=atol)
        assert np.linalg.eigvalsh(np.asarray(km.dense_covariance(metric), np.float64)).min() > 0


@settings(deadline=None, max_examples=30)
@given(row_sets())
def test_scores_do_not_depend_on_the_order_of_the_rows(case):
    rows, model, ridge, rng = case
    order = rng.permutation(len(rows))
    one = km.fit_metric_jit(moments_from_rows(rows), ridge=ridge, model=model)
    two = km.fit_metric_jit(moments_from_rows(rows[order], chunk=3), ridge=ridge, model=model)
    if int(one.rank) != int(two.rank):
        return
    a, b = np.asarray(score(one, rows[:3], rows[-3:])), np.asarray(score(two, rows[:3], rows[-3:]))
    scale = float(np.sqrt(np.max(quadratic(one, rows - one.mean)) ** 2)) + 1
    np.testing.assert_allclose(a, b, atol=2e-4 * scale)


@settings(deadline=None, max_examples=40)
@given(metrics())
def test_whitening_turns_the_metric_into_plain_distance(case):
    mean, factor, diag, _ = case
    metric = make(mean, factor, diag)
    g = np.asarray(whiten(metric), np.float64)
    exact = dense(factor, diag)
    # The whitening is right to float32 relative to its own size; multiplying by the covariance scales that error by the
    # condition number.
    bound = 32 * np.finfo(np.float32).eps * np.linalg.cond(exact) + 1e-3
    np.testing.assert_allclose(g.T @ g @ exact, np.eye(len(diag)), atol=bound)


@pytest.mark.parametrize("energy", [1e-6, 0.5, 1.0])
def test_rank_by_energy(energy):
    rows = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32) * np.arange(8, 0, -1, dtype=np.float32)
    metric = km.fit_metric_jit(moments_from_rows(rows), energy=energy)
    s2 = np.linalg.svd(rows - rows.mean(0), compute_uv=False) ** 2
    assert int(metric.rank) == int(np.sum(np.cumsum(s2) / s2.sum() < energy - 1e-6)) + 1
    capped = km.fit_metric_jit(moments_from_rows(rows), energy=1.0, max_rank=3)
    assert int(capped.rank) == 3 and capped.cov_factor.shape == (8, 3)


@pytest.mark.parametrize("rows", [np.ones((7, 4)) / 2, np.array([[0.6, 0.8, 0, 0]])], ids=["identical", "one"])
@pytest.mark.parametrize("model", km.MODELS)
def test_memories_without_spread_give_the_identity(rows, model):
    rows = jnp.asarray(rows, jnp.float32)
    for metric in (
        km.fit_metric_jit(moments_from_rows(rows), model=model),
        km.fit_metric_jit(moments_from_rows(rows), ridge=0.0, model=model),
        fit_rows(rows, model=model),
    ):
        assert int(metric.rank) == 0
        np.testing.assert_array_equal(km.dense_covariance(metric), np.eye(4))
        assert np.isfinite(score(metric, rows[0], rows[0]))


def test_a_ridge_of_zero_stays_invertible():
    rows = np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    rows[:, 2] = 0.25  # a dimension without variance
    for model in km.MODELS:
        metric = km.fit_metric_jit(moments_from_rows(rows), ridge=0.0, energy=1.0, model=model)
        assert np.isfinite(np.asarray(km.solve_metric(metric, rows))).all()


def test_no_rows_give_a_finite_metric():
    metric = km.fit_metric_jit(empty_moments(4))
    np.testing.assert_array_equal(km.dense_covariance(metric), np.eye(4))


def test_against_scikit_learn_and_scipy():
    covariance = pytest.importorskip("sklearn.covariance")
    rng = np.random.default_rng(1)
    rows = (rng.standard_normal((300, 12)) @ rng.standard_normal((12, 12))).astype(np.float32)
    plain = km.fit_metric_jit(moments_from_rows(rows), ridge=1e-7, energy=1.0, model="isotropic")
    oracle = covariance.EmpiricalCovariance().fit(rows.astype(np.float64))
    np.testing.assert_allclose(quadratic(plain, rows - plain.mean), oracle.mahalanobis(rows), rtol=2e-3)

    shrinkage = 0.2
    # (1 - s) S + s mean(var) I  =  (1 - s) (S + s / (1 - s) mean(var) I)
    ridge = shrinkage / (1 - shrinkage)
    shrunk = km.fit_metric_jit(moments_from_rows(rows), ridge=ridge, energy=1.0, model="isotropic")
    oracle = covariance.ShrunkCovariance(shrinkage=shrinkage).fit(rows.astype(np.float64))
    want = oracle.mahalanobis(rows)
    np.testing.assert_allclose(np.asarray(quadratic(shrunk, rows - shrunk.mean)) / (1 - shrinkage), want, rtol=1e-4)

    paper = km.fit_metric_jit(moments_from_rows(rows))
    precision = np.linalg.inv(np.asarray(km.dense_covariance(paper), np.float64))
    want = cdist(rows[:20], rows[20:70], "mahalanobis", VI=precision) ** 2
    got = km.squared_distance(paper, jnp.asarray(rows)[:20, None], jnp.asarray(rows)[None, 20:70])
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_against_numpyro():
    distributions = pytest.importorskip("numpyro.distributions")
    rng = np.random.default_rng(2)
    mean, factor = rng.standard_normal(10).astype(np.float32), rng.standard_normal((10, 3)).astype(np.float32)
    diag = rng.uniform(0.5, 2, 10).astype(np.float32)
    x = rng.standard_normal((20, 10)).astype(np.float32)
    oracle = distributions.LowRankMultivariateNormal(mean, factor, diag)
    np.testing.assert_allclose(km.log_density(make(mean, factor, diag), x), oracle.log_prob(x), rtol=1e-5)


def test_condition_number():
    rng = np.random.default_rng(3)
    factor, diag = rng.standard_normal((10, 3)).astype(np.float32), rng.uniform(0.5, 2, 10).astype(np.float32)
    metric = make(np.zeros(10, np.float32), factor, diag)
    np.testing.assert_allclose(km.condition_number(metric), np.linalg.cond(dense(factor, diag)), rtol=1e-4)


def test_the_query_transform_is_the_score():
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((40, 8)).astype(np.float32)
    metric = km.fit_metric_jit(moments_from_rows(rows))
    w, offset = km.query_transform(metric, rows[:5])
    np.testing.assert_allclose(rows @ w.T + offset, score(metric, rows[:5][None], rows[:, None]), atol=1e-5)


def test_gradients_exist_at_the_mean():
    metric = km.fit_metric_jit(moments_from_rows(np.random.default_rng(5).standard_normal((20, 4)).astype(np.float32)))
    np.testing.assert_array_equal(jax.grad(lambda x: quadratic(metric, x))(jnp.zeros(4)), np.zeros(4))
    check_grads(lambda x: quadratic(metric, x), (jnp.ones(4),), order=1, modes=["rev"], rtol=1e-2)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"`cov_diag` has shape \(2,\); expected \(3,\)"):
        km.low_rank_metric(jnp.zeros(3), jnp.zeros((3, 1)), jnp.ones(2))
    with pytest.raises(ValueError, match=r"`model` is .*; expected one of"):
        km.fit_metric(empty_moments(3), model="full")

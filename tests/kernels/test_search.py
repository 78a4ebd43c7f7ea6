"""The one-pass search against a float64 brute force, and its propositions as properties."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels import search as ks
from gemjax.kernels.metric import dense_covariance, fit_metric_jit
from gemjax.kernels.moments import moments_from_rows

N, D, Q, K = 192, 8, 3, 7  # 192 = 3 groups of 64: fewer than K, so the direct path; see the grouped test below
prepare = jax.jit(ks.prepare_queries)
norms_of = jax.jit(ks.memory_norms)


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@st.composite
def problems(draw, n=N):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, queries = unit(0.3 + rng.standard_normal((n, D))), unit(0.3 + rng.standard_normal((Q, D)))
    if draw(st.booleans()):
        rows[rng.integers(0, n, n // 2)] = rows[0]  # exact ties
    used = draw(st.sampled_from([n, n - 1, n // 2 + 1, K, 1]))
    eligible = (np.arange(n) < used) & (rng.random(n) < draw(st.sampled_from([1.0, 0.7, 0.02, 0.0])))
    return rows, queries, used, eligible, draw(st.sampled_from([0.0, 0.3, 0.5, 1.0]))


def run(problem, form="similarity", k=K, **options):
    rows, queries, used, eligible, alpha = problem
    metric = fit_metric_jit(moments_from_rows(rows, jnp.arange(len(rows)) < used))
    norms = None if form == "similarity" else norms_of(metric, rows, jnp.int32(used))
    top = ks.fused_search(
        jnp.asarray(rows), jnp.asarray(eligible), jnp.int32(used), prepare(metric, queries), jnp.float32(alpha), norms,
        k=k, form=form, **options,
    )  # fmt: skip
    return metric, jax.tree.map(np.asarray, top)


def brute_force(metric, problem, form="similarity"):
    """Scores [q, n] in float64 from the dense inverse: cosine, Riemannian, fused (over the eligible rows)."""
    rows, queries, _, eligible, alpha = problem
    precision = np.linalg.inv(np.asarray(dense_covariance(metric), np.float64))
    mean = np.asarray(metric.mean, np.float64)
    h, q = rows.astype(np.float64) - mean, queries.astype(np.float64) - mean
    inner = q @ precision @ h.T
    nh, nq = np.einsum("nd,de,ne->n", h, precision, h), np.einsum("nd,de,ne->n", q, precision, q)
    if form == "distance":
        rie = 2 * inner - nh - nq[:, None]
    elif form == "cosine":
        scale = np.sqrt(nh * nq[:, None])
        rie = np.where(scale > 1e-12, inner / np.where(scale > 1e-12, scale, 1), 0)
    else:
        rie = inner
    cos = queries.astype(np.float64) @ rows.T.astype(np.float64)

    def norm(x):
        if not eligible.any():
            return np.zeros_like(x)
        low, high = x[:, eligible].min(1, keepdims=True), x[:, eligible].max(1, keepdims=True)
        return np.where(high - low > 1e-9, (x - low) / np.where(high > low, high - low, 1), 0)

    return cos, rie, alpha * norm(cos) + (1 - alpha) * norm(rie)


def check_against(top, scores, problem, k=K):
    cos, rie, fused = scores
    _, queries, _, eligible, alpha = problem
    m = min(k, int(eligible.sum()))
    assert (top.valid.sum(1) == m).all() and top.valid[:, :m].all()
    for name in ("cosine", "riemannian", "fused"):
        assert np.isfinite(getattr(top, name)).all()
        assert not getattr(top, name)[:, m:].any()
    key = cos if alpha == 1 else rie if alpha == 0 else fused
    for i in range(len(queries) if m else 0):
        found = top.indices[i, :m]
        assert len(set(found.tolist())) == m and eligible[found].all()
        scale = 1 + np.abs(rie[i]).max()
        np.testing.assert_allclose(top.cosine[i, :m], cos[i, found], atol=1e-5)
        np.testing.assert_allclose(top.riemannian[i, :m], rie[i, found], atol=1e-4 * scale)
        if np.ptp(rie[i, eligible]) > 1e-2 * scale and np.ptp(cos[i, eligible]) > 1e-2:
            np.testing.assert_allclose(top.fused[i, :m], fused[i, found], atol=2e-3)
        # The k-th best of the oracle, give or take rounding.
        best = np.sort(key[i, eligible])[::-1][:m]
        np.testing.assert_allclose(key[i, found], best, atol=1e-4 * scale + 2e-3 * (0 < alpha < 1))


@settings(deadline=None, max_examples=60)
@given(problems(), st.sampled_from(ks.FORMS))
def test_search_equals_brute_force(problem, form):
    metric, top = run(problem, form)
    check_against(top, brute_force(metric, problem, form), problem)


@settings(deadline=None, max_examples=25)
@given(problems(n=1024), st.sampled_from([64, 300, None]))
def test_grouped_top_k_and_every_block_size_equal_brute_force(problem, block):
    metric, top = run(problem, block=block)
    check_against(top, brute_force(metric, problem), problem)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 5, 1000]))
def test_two_level_top_k_breaks_ties_by_the_lower_row(seed, levels):
    key = np.random.default_rng(seed).integers(0, levels, (1024, 2)).astype(np.float32)
    want = np.argsort(-key, axis=0, kind="stable")[:10].T
    np.testing.assert_array_equal(jax.jit(ks.best_rows, static_argnums=1)(key, 10), want)


@settings(deadline=None, max_examples=30)
@given(problems())
def test_alpha_one_ranks_as_cosine_and_alpha_zero_as_riemannian(problem):
    for alpha, name in ((1.0, "cosine"), (0.0, "riemannian")):
        _, top = run((*problem[:4], alpha))
        values = getattr(top, name)
        assert (np.where(top.valid[:, 1:], values[:, :-1] - values[:, 1:], 0) >= 0).all()


@settings(deadline=None, max_examples=30)
@given(problems(), st.integers(0, 2**32 - 1))
def test_permuting_memories_permutes_hits(problem, seed):
    rows, queries, _, eligible, alpha = problem
    whole = (rows, queries, N, eligible, alpha)
    order = np.random.default_rng(seed).permutation(N)
    metric, one = run(whole)
    _, two = run((rows[order], queries, N, eligible[order], alpha))
    for name in ("cosine", "riemannian", "fused"):
        a, b = getattr(one, name), getattr(two, name)
        if name == "fused":
            np.testing.assert_allclose(a, b, atol=5e-3)
    cos, rie, fused = brute_force(metric, whole)
    key = cos if alpha == 1 else rie if alpha == 0 else fused
    for i in range(Q):
        m = int(one.valid[i].sum())
        same = set(one.indices[i, :m].tolist()) ^ set(order[two.indices[i, :m]].tolist())
        # Only rows that tie with the last place, to rounding, may differ.
        assert all(abs(key[i, j] - key[i, one.indices[i, m - 1]]) < 5e-3 * (1 + np.abs(key[i]).max()) for j in same)


@settings(deadline=None, max_examples=30)
@given(problems())
def test_a_filtered_search_is_a_search_among_the_rows_that_pass(problem):
    rows, queries, _, eligible, alpha = problem
    metric, filtered = run(problem)
    kept = np.flatnonzero(eligible)
    alone = np.zeros_like(rows)
    alone[: len(kept)] = rows[kept]
    top = ks.fused_search(
        alone, jnp.arange(N) < len(kept), jnp.int32(len(kept)), prepare(metric, queries), jnp.float32(alpha), k=K
    )
    m = min(K, len(kept))
    np.testing.assert_allclose(top.fused[:, :m], filtered.fused[:, :m], atol=5e-3)


def test_equal_scores_fuse_to_zero():
    rows = np.repeat(unit(np.ones((1, D))), N, axis=0)
    _, top = run((rows, unit(np.ones((Q, D))), N, np.ones(N, bool), 0.5))
    assert not top.fused.any()
    np.testing.assert_array_equal(top.indices, np.tile(np.arange(K), (Q, 1)))


def test_rows_behind_the_count_are_never_read():
    rng = np.random.default_rng(0)
    rows = unit(rng.standard_normal((N, D)))
    used = 100
    problem = (rows, unit(rng.standard_normal((Q, D))), used, np.arange(N) < used, 0.5)
    _, clean = run(problem, block=50)
    rows = rows.copy()
    rows[used:] = np.nan
    metric = fit_metric_jit(moments_from_rows(rows, jnp.arange(N) < used))
    top = ks.fused_search(
        rows, jnp.arange(N) < used, jnp.int32(used), prepare(metric, problem[1]), jnp.float32(0.5), k=K, block=50
    )
    np.testing.assert_array_equal(top.indices, clean.indices)


def test_bfloat16_storage_loses_little():
    """Rounding a unit row to bfloat16 (8 bits) moves a cosine by at most 2^-9, plus float32."""
    rng = np.random.default_rng(1)
    rows, queries = unit(rng.standard_normal((1024, D))), unit(rng.standard_normal((Q, D)))
    metric, exact = run((rows, queries, 1024, np.ones(1024, bool), 0.5))
    half = ks.fused_search(
        jnp.asarray(rows, jnp.bfloat16), jnp.ones(1024, bool), jnp.int32(1024), prepare(metric, queries),
        jnp.float32(0.5), k=K,
    )  # fmt: skip
    cos = queries @ rows.T
    np.testing.assert_allclose(half.cosine, np.take_along_axis(cos, np.asarray(half.indices), 1), atol=2**-9 + 1e-6)
    assert half.cosine.dtype == jnp.float32
    overlap = [
        len(set(a) & set(b)) for a, b in zip(exact.indices.tolist(), np.asarray(half.indices).tolist(), strict=True)
    ]
    assert min(overlap) >= K - 2


def test_zero_rows_never_give_nan():
    rows = unit(np.random.default_rng(2).standard_normal((N, D)))
    rows[3] = 0
    for form in ks.FORMS:
        _, top = run((rows, np.zeros((Q, D), np.float32), N, np.ones(N, bool), 0.5), form)
        assert all(np.isfinite(x).all() for x in top)


def test_wrong_arguments_are_named():
    rows = unit(np.random.default_rng(3).standard_normal((N, D)))
    problem = (rows, rows[:Q], N, np.ones(N, bool), 0.5)
    for k in (0, N + 1):
        with pytest.raises(ValueError, match=r"`k` is .*; expected 1 to 192"):
            run(problem, k=k)
    with pytest.raises(ValueError, match=r"`form` is .*; expected one of"):
        ks.fused_search(rows, np.ones(N, bool), 1, prepare(run(problem)[0], rows[:Q]), 0.5, k=1, form="euclid")
    with pytest.raises(ValueError, match=r"`eligible` has shape .*; expected \(192,\)"):
        run((*problem[:3], np.ones(5, bool), 0.5))
    with pytest.raises(ValueError, match=r"`norms` is None; form='distance' needs"):
        ks.fused_search(rows, np.ones(N, bool), 1, prepare(run(problem)[0], rows[:Q]), 0.5, k=1, form="distance")

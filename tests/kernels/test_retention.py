"""Retention and low-energy measures against their definitions, in NumPy and float64."""

import jax
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemjax.kernels import retention
from gemjax.kernels.linalg import orthonormal_basis
from gemjax.kernels.spectrum import centered_spectrum
from tests.kernels.problems import (
    Problem,
    clear,
    oracle_basis,
    oracle_coverage,
    oracle_residuals,
    precision,
    problems,
    tolerance,
)

SHAPES = ((1, 8), (6, 24), (12, 5))
DTYPES = ("float32", "float64")

centroid = jax.jit(retention.centroid_similarity)
energy = jax.jit(retention.captured_energy, static_argnames="max_rank")
top = jax.jit(retention.topk_retention, static_argnames="k")
decompose = jax.jit(centered_spectrum)


@jax.jit
def measures(x, action, kept, valid):
    """Everything that a checkpoint reports, in one program: each pair of shape and dtype compiles once."""
    max_rank = min(x.shape)
    some, every = (orthonormal_basis(x, mask, max_rank=max_rank).vectors for mask in (kept & valid, valid))
    return (
        retention.centroid_similarity(x, kept, valid),
        retention.captured_energy(x, kept, valid, max_rank=max_rank),
        retention.topk_retention(x, action, kept, valid),
        retention.action_projection(action, some),
        retention.action_ratio(action, some, every),
    )


@jax.jit
def outside(x, action, rho, valid):
    spectrum = centered_spectrum(x, valid)
    return (
        spectrum,
        retention.low_energy_share(action, spectrum, rho),
        retention.block_low_energy(x, spectrum, rho, valid),
        retention.action_alignment(x, action, spectrum, rho, valid),
        retention.band_energies(action, spectrum, bands=3),
    )


def action_for(p: Problem, seed: int) -> np.ndarray:
    """An action near a block, a random one, or none."""
    rng = np.random.default_rng(seed)
    a = p.x64[0] * (seed % 2) + rng.standard_normal(p.x.shape[1])
    return (a / np.linalg.norm(a) * (seed % 7 > 0)).astype(p.x.dtype)


@settings(deadline=None, max_examples=80)
@given(problems(dtypes=DTYPES, shapes=SHAPES), st.integers(0, 2**16))
def test_coverage_and_action_measures_match_their_definitions(p: Problem, seed: int) -> None:
    d = p.x.shape[1]
    tol = tolerance(p.dtype, d)
    kept = p.protected & p.valid
    assume(clear(p.x64[kept], tol) and clear(p.x64[p.valid], tol))
    a = action_for(p, seed)
    with precision(p.dtype):
        c, e, t, p_a, r = jax.tree.map(np.asarray, measures(p.x, a, p.protected, p.valid))
    assert c.value.dtype == r.value.dtype == t.value.dtype == e.dtype == p.x.dtype
    residual, pivot = oracle_residuals(p.x64, kept, tol)
    slack = tol * (1 + 1 / np.sqrt(pivot))
    assert abs(e - oracle_coverage(p.x64, residual, p.valid)) <= slack
    q_some, _ = oracle_basis(p.x64[kept], tol)
    q_every, pivot_every = oracle_basis(p.x64[p.valid], tol)
    a64 = a.astype(np.float64)
    part, whole = ((q_some @ a64) ** 2).sum(), ((q_every @ a64) ** 2).sum()
    assert abs(p_a - part) <= slack and 0 <= p_a <= 1 + tol
    if whole > 1e-3:
        slack = tol * (1 + 1 / np.sqrt(min(pivot, pivot_every)))
        assert bool(r.defined) and abs(float(r.value) - part / whole) <= 2 * slack / whole
    elif whole == 0:
        assert not bool(r.defined) and float(r.value) == 0

    mean_kept = p.x64[kept].mean(0) if kept.any() else np.zeros(d)
    mean_all = p.x64[p.valid].mean(0)
    lengths = np.linalg.norm(mean_kept) * np.linalg.norm(mean_all)
    if lengths > 1e-3:
        assert bool(c.defined)
        assert abs(float(c.value) - mean_kept @ mean_all / lengths) <= tol / lengths
    elif not kept.any():
        assert not bool(c.defined) and float(c.value) == 0

    assert bool(t.defined) == bool(p.valid.any() and a.any())
    if t.defined:
        # Nearest by exact inner products; where rounding could order a neighbour otherwise, only bounds are checked.
        similarity = np.where(p.valid, p.x64 @ a64, -np.inf)
        order = np.argsort(-similarity, kind="stable")
        k = min(3, p.valid.sum())
        values = similarity[order]
        clear_cut = k == p.valid.sum() or values[k - 1] - values[k] > tol
        if clear_cut:
            assert float(t.value) == pytest.approx(kept[order[:k]].sum() / k)
        assert 0 <= t.value <= 1


@settings(deadline=None, max_examples=80)
@given(problems(dtypes=DTYPES, shapes=SHAPES[1:]), st.integers(0, 2**16), st.sampled_from([0.5, 0.9, 1.0]))
def test_low_energy_measures_match_their_definitions(p: Problem, seed: int, rho: float) -> None:
    a = action_for(p, seed)
    with precision(p.dtype):
        s, share, fraction, alignment, bands = jax.tree.map(np.asarray, outside(p.x, a, rho, p.valid))
    rank = int(s.rank)
    sigma, v = s.values[:rank].astype(np.float64), s.directions[:rank].astype(np.float64)
    # The decomposition is tested in test_spectrum; here it is given, and the definitions are applied to it.
    tol = tolerance(p.dtype, p.x.shape[1])
    cumulative = np.cumsum(sigma**2) / max((sigma**2).sum(), 1e-300)
    assume(rank == 0 or np.abs(cumulative - rho)[:-1].min(initial=1) > tol)
    cut = 0 if rank == 0 else min(int(np.searchsorted(cumulative, rho - tol)) + 1, rank)
    low = v[cut:]
    a64, x = a.astype(np.float64), p.x64 - p.x64[p.valid].mean(0)
    # Ratios are compared after multiplying with their denominators: errors of projections are absolute.
    whole = ((v @ a64) ** 2).sum()
    assert abs(share.value * whole - ((low @ a64) ** 2).sum()) <= 4 * tol
    assert bool(share.defined) == (whole > tol**2)
    for i in range(len(p.x)):
        block, block_low = v @ x[i], low @ x[i]
        if not p.valid[i]:
            assert not fraction.defined[i] and not alignment.defined[i] and fraction.value[i] == 0
            continue
        assert abs(fraction.value[i] * (block @ block) - block_low @ block_low) <= 4 * tol
        lengths = np.linalg.norm(block_low) * np.linalg.norm(low @ a64)
        assert abs(alignment.value[i] * lengths - block_low @ (low @ a64)) <= 4 * tol
        assert -1 <= alignment.value[i] <= 1 and 0 <= fraction.value[i] <= 1 + tol
    expected = [((v[[j for j in range(rank) if j * 3 // rank == b]] @ a64) ** 2).sum() for b in range(3)]
    assert np.abs(bands.value * whole - expected).max() <= 4 * tol
    assert bool(bands.defined) == bool(share.defined)
    assert np.isfinite([share.value, *fraction.value, *alignment.value, *bands.value]).all()


def test_topk_ties_go_to_the_lower_index_and_few_blocks_are_all_neighbours() -> None:
    x = np.array([[0, 1], [1, 0], [1, 0], [1, 0]], np.float32)
    a = np.array([1, 0], np.float32)
    kept = np.array([False, True, False, False])
    assert float(top(x, a, kept, k=1).value) == 1
    assert float(top(x, a, kept, k=2).value) == 0.5
    assert float(top(x, a, kept, k=9).value) == 0.25
    two = np.array([True, True, False, False])
    assert float(top(x, a, kept, two, k=3).value) == 0.5  # of two real blocks


def test_undefined_ratios_are_zero_and_say_so() -> None:
    x = np.array([[1, 0, 0], [-1, 0, 0]], np.float32)
    none, both = np.zeros(2, bool), np.ones(2, bool)
    away = np.array([0, 0, 1], np.float32)
    nothing_kept, cancelling = measures(x, away, none, both), measures(x, away, both, both)
    no_action, no_blocks = measures(x, 0 * away, both, both), measures(x, away, both, none)
    spectrum, share, fraction, alignment, bands = outside(x, away, 0.9, both)
    assert int(spectrum.rank) == 1  # one direction, all of it dominant: no block has a low-energy part
    assert np.all(fraction.defined) and not np.any(fraction.value)
    for result in (
        *(nothing_kept[0], cancelling[0], no_blocks[0]),
        *(cancelling[4], no_action[4], no_blocks[4]),
        *(no_action[2], no_blocks[2]),
        *(share, bands, alignment),
    ):
        assert not np.any(result.defined) and not np.any(result.value)


def test_a_block_at_the_mean_has_no_fraction() -> None:
    x = np.array([[1, 0], [0, 1], [0.5, 0.5]], np.float32)
    fraction = outside(x, x[0], 0.9, np.ones(3, bool))[2]
    assert fraction.defined.tolist() == [True, True, False]


def test_under_vmap_equals_one_by_one_and_padding_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((12, 5)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    a = x[3]
    valid = np.arange(12) < np.array([[6], [9], [12]])
    kept = rng.random((3, 12)) < 0.5

    c, e, t, p_a, _ = jax.jit(jax.vmap(measures, in_axes=(None, None, 0, 0)))(x, a, kept, valid)
    m = jax.jit(jax.vmap(outside, in_axes=(None, None, None, 0)))(x, a, 0.9, valid)[1]
    tol = tolerance("float32", 5)
    for i, count in enumerate((6, 9, 12)):
        cut, mask, every = x[:count], kept[i, :count], np.ones(count, bool)
        alone = measures(cut, a, mask, every)
        assert abs(c.value[i] - alone[0].value) <= tol
        assert abs(e[i] - alone[1]) <= 10 * tol and abs(p_a[i] - alone[3]) <= 10 * tol
        assert t.value[i] == alone[2].value
        assert abs(m.value[i] - outside(cut, a, 0.9, every)[1].value) <= 10 * tol
    filled = np.where(valid[0][:, None], x, np.nan)
    for value in jax.tree.leaves((measures(filled, a, kept[0], valid[0]), outside(filled, a, 0.9, valid[0]))):
        assert np.isfinite(value).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, m, s: retention.centroid_similarity(x, m[:1]), r"`selected` has shape \(1,\); expected \(3,\)"),
        (lambda x, m, s: retention.captured_energy(x, m, m, max_rank=0), r"`max_rank` is 0"),
        (lambda x, m, s: retention.action_projection(x, x), r"`action` has shape \(3, 4\); expected \(any,\)"),
        (
            lambda x, m, s: retention.action_ratio(x[0], x[:, :2], x),
            r"`vectors` has shape \(3, 2\); expected \(any, 4\)",
        ),
        (lambda x, m, s: retention.topk_retention(x, x[0, :2], m), r"`action` has shape \(2,\); expected \(4,\)"),
        (lambda x, m, s: retention.topk_retention(x, x[0], m, k=0), r"`k` is 0; expected a positive integer"),
        (lambda x, m, s: retention.low_energy_share(x[0, :2], s), r"`action` has shape \(2,\); expected \(4,\)"),
        (lambda x, m, s: retention.block_low_energy(x[:, :2], s), r"`x` has shape \(3, 2\); expected \(any, 4\)"),
        (lambda x, m, s: retention.action_alignment(x, x[0], s, 0.9, m[:2]), r"`valid` has shape \(2,\)"),
        (lambda x, m, s: retention.band_energies(x[0], s, bands=0), r"`bands` is 0; expected a positive integer"),
    ],
)
def test_wrong_shapes_are_named(call, message: str) -> None:
    x = np.eye(3, 4, dtype=np.float32)
    with pytest.raises(ValueError, match=message):
        call(x, np.ones(3, bool), decompose(x))

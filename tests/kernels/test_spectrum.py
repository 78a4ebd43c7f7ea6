"""Centred spectra against NumPy in float64, and what the controls keep and destroy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.kernels import spectrum
from tests.kernels.problems import Problem, precision, problems, tolerance

SHAPES = ((1, 8), (6, 24), (12, 5))

decompose = jax.jit(spectrum.centered_spectrum)
rank_of = jax.jit(spectrum.rank_at_energy)
effective = jax.jit(spectrum.effective_rank)
shifted = jax.jit(spectrum.feature_shift)
gaussian = jax.jit(spectrum.gaussian_control)


def oracle(p: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (descending) and eigenvectors of the centred second moment in float64."""
    x = p.x64[p.valid]
    centred = x - x.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    return np.maximum(values[::-1], 0), vectors[:, ::-1].T


@settings(deadline=None, max_examples=80)
@given(problems(shapes=SHAPES))
def test_spectrum_matches_the_eigenvalues_of_the_second_moment(p: Problem) -> None:
    n, d = p.x.shape
    # Singular values move by at most the norm of the error (Weyl): rounding of the rows and of the mean, sqrt(n) rows.
    tol = tolerance(p.dtype, d) * np.sqrt(n)
    with precision(p.dtype):
        s = decompose(p.x, p.valid)
        values, directions = np.asarray(s.values, np.float64), np.asarray(s.directions, np.float64)
        rank = int(s.rank)
    squares, _ = oracle(p)
    wanted = np.sqrt(squares)[: min(n, d)]
    # The eigenvalues of a product know a singular value to sqrt(eps) only.
    assert np.abs(values - wanted).max() <= tol + 1e-7
    assert (np.diff(values) <= 0).all() and (values[rank:] == 0).all() and (directions[rank:] == 0).all()
    assert np.abs(directions[:rank] @ directions[:rank].T - np.eye(rank)).max(initial=0) <= tol
    # What the directions leave of the centred rows is rounding.
    x = (p.x64 - p.x64[p.valid].mean(0)) * p.valid[:, None]
    assert np.abs(x - x @ directions.T @ directions).max() <= 4 * tol
    assert np.abs(np.asarray(s.mean, np.float64) - p.x64[p.valid].mean(0)).max() <= tol


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1e3), min_size=6, max_size=6), st.floats(0.01, 1.0))
def test_effective_rank_and_rank_at_energy_match_the_definition(values: list[float], rho: float) -> None:
    sigma = np.sort(np.array(values))[::-1]
    with precision("float64"):
        r_eff, r_rho = float(effective(sigma)), int(rank_of(sigma, rho))
    energy = (sigma / max(sigma[0], 1e-300)) ** 2
    if sigma[0] == 0:
        assert r_eff == 0 and r_rho == 0
        return
    p = energy / energy.sum()
    logs = np.log(p, where=p > 0, out=np.zeros(6))
    assert r_eff == pytest.approx(np.exp(-(p * logs).sum()), rel=1e-12)
    assert 1 - 1e-12 <= r_eff <= (p > 0).sum() * (1 + 1e-12)
    reached = np.cumsum(p)
    assert reached[r_rho - 1] >= rho - 1e-14
    assert r_rho == 1 or reached[r_rho - 2] < rho


def test_known_spectra() -> None:
    assert float(effective(np.ones(8, np.float32))) == pytest.approx(8, rel=1e-6)
    assert float(effective(np.array([3.0, 0, 0], np.float32))) == 1
    assert float(effective(np.full(4, 1e-25, np.float32))) == pytest.approx(4, rel=1e-6)  # squares would vanish
    assert int(rank_of(np.array([1, 1, 0, 0], np.float32), 1.0)) == 2
    same = np.tile(np.random.default_rng(0).standard_normal(24), (6, 1)).astype(np.float32)
    s = decompose(same)
    assert int(s.rank) == 0 and float(effective(s.values)) == 0 and int(rank_of(s.values)) == 0


def test_a_share_that_is_met_exactly_counts_as_met() -> None:
    pairs = [(n, k) for n in range(1, 33) for k in range(1, n + 1)]
    values = np.array([[1.0] * n + [0.0] * (32 - n) for n, _ in pairs], np.float32)
    shares = np.array([k / n for n, k in pairs], np.float32)
    assert jax.jit(jax.vmap(spectrum.rank_at_energy))(values, shares).tolist() == [k for _, k in pairs]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_feature_shift_rotates_every_feature_by_itself(dtype: str) -> None:
    x = np.random.default_rng(0).standard_normal((12, 5)).astype(jnp.dtype(dtype))
    valid = np.arange(12) % 4 != 1
    key = jax.random.key(0)
    got = shifted(x, key, valid)
    assert got.dtype == x.dtype
    got = np.asarray(got)
    assert (got[~valid] == 0).all()
    real, moved = x[valid], got[valid]
    offsets = []
    for f in range(5):
        fits = [o for o in range(len(real)) if np.array_equal(np.roll(real[:, f], o), moved[:, f])]
        assert len(fits) == 1
        offsets += fits
    assert len(set(offsets)) > 1
    assert np.array_equal(got, shifted(x, key, valid)) and not np.array_equal(got, shifted(x, jax.random.key(1), valid))
    packed = np.concatenate([real, np.zeros((3, 5), x.dtype)])  # the same rows, padded at the end
    assert np.array_equal(np.asarray(shifted(packed, key, np.arange(12) < 9))[:9], moved)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gaussian_control_has_the_shape_and_ignores_values_and_padding(dtype: str) -> None:
    with precision(dtype):
        x = np.zeros((12, 5), dtype)
        key, valid = jax.random.key(4), np.arange(12) % 3 != 0
        got = gaussian(x, key, valid)
        assert got.shape == x.shape and got.dtype == x.dtype
        got = np.asarray(got)
        assert (got[~valid] == 0).all() and len(np.unique(got[valid])) == 8 * 5
        assert np.array_equal(np.asarray(gaussian(x + 1, key, np.arange(12) < 8))[:8], got[valid])
    many = np.asarray(jax.jit(jax.vmap(lambda k: spectrum.gaussian_control(x, k)))(jax.random.split(key, 250)))
    assert abs(many.mean()) < 5 / np.sqrt(15000) and abs(many.var() - 1) < 5 * np.sqrt(2 / 15000)


def test_structured_history_has_less_effective_rank_than_its_controls() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((20, 3)) @ rng.standard_normal((3, 24)) + 0.1 * rng.standard_normal((20, 24))).astype("f")
    ranks = [
        float(effective(decompose(m).values))
        for m in (x, shifted(x, jax.random.key(0)), gaussian(x, jax.random.key(0)))
    ]
    assert ranks[0] < 5 < ranks[1] <= 19 and ranks[0] < ranks[2]


def test_under_vmap_equals_one_by_one() -> None:
    x = np.random.default_rng(0).standard_normal((3, 6, 24)).astype(np.float32)
    valid = np.arange(6) < np.array([[4], [5], [6]])
    together = jax.jit(jax.vmap(spectrum.centered_spectrum))(x, valid)
    keys = jax.random.split(jax.random.key(0), 3)
    moved = jax.jit(jax.vmap(spectrum.feature_shift))(x, keys, valid)
    drawn = jax.jit(jax.vmap(spectrum.gaussian_control))(x, keys, valid)
    cuts = jax.jit(jax.vmap(spectrum.rank_at_energy))(together.values)
    for i in range(3):
        alone = decompose(x[i], valid[i])
        assert np.abs(alone.values - together.values[i]).max() <= tolerance("float32", 24) * 6
        assert int(alone.rank) == int(together.rank[i]) == valid[i].sum() - 1
        assert int(cuts[i]) == int(rank_of(alone.values))
        assert np.array_equal(moved[i], shifted(x[i], keys[i], valid[i]))
        assert np.array_equal(drawn[i], gaussian(x[i], keys[i], valid[i]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, m: spectrum.centered_spectrum(x[0]), r"`x` has shape \(4,\); expected \(any, any\)"),
        (lambda x, m: spectrum.centered_spectrum(x, m[:1]), r"`valid` has shape \(1,\); expected \(3,\)"),
        (lambda x, m: spectrum.effective_rank(x), r"`values` has shape \(3, 4\); expected \(any,\)"),
        (lambda x, m: spectrum.rank_at_energy(x), r"`values` has shape \(3, 4\)"),
        (
            lambda x, m: spectrum.feature_shift(x, jax.random.key(0), m * 1.0),
            r"`valid` has dtype float\d+; expected bool",
        ),
        (lambda x, m: spectrum.gaussian_control(x.astype(int), jax.random.key(0)), r"`x` has dtype int"),
    ],
)
def test_wrong_shapes_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((3, 4), np.float32), np.ones(3, bool))

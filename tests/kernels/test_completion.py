"""Residual completion: the kernel part of Proposition A.3, and its choices against brute force and SciPy.

The judge below replays a result in float64: before each addition it computes every residual from scratch by LAPACK and
asks whether the row that was added had the largest one, up to the documented tie width and the error of the dtype.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemjax.kernels.linalg import independence_tolerance
from gemjax.kernels.selection import Completion, residual_completion
from tests.kernels.problems import (
    Problem,
    clear,
    oracle_coverage,
    oracle_residuals,
    precision,
    problems,
    rows,
    tolerance,
)

complete = jax.jit(residual_completion, static_argnames="max_rank")
MASKS = (0, 0, 0)


@partial(jax.jit, static_argnames="max_rank")
def complete_masks(x, protected, eligible, valid, capacity, target, *, max_rank):
    """Many checkpoints of one matrix."""
    one = partial(residual_completion, max_rank=max_rank)
    return jax.vmap(one, in_axes=(None, 0, 0, 0, None, None))(x, protected, eligible, valid, capacity, target)


@partial(jax.jit, static_argnames="max_rank")
def complete_each(x, protected, eligible, valid, capacity, target, *, max_rank):
    """Many checkpoints, each with its own matrix."""
    one = partial(residual_completion, max_rank=max_rank)
    return jax.vmap(one, in_axes=(0, 0, 0, 0, None, None))(x, protected, eligible, valid, capacity, target)


def run(p: Problem) -> Completion:
    with precision(p.dtype):
        out = complete(*p[:6], max_rank=min(p.x.shape))
        return Completion(*(np.asarray(a) for a in out))


def run_by_gram(p: Problem) -> Completion:
    """The same problem through the batching rule, beside a second checkpoint."""
    with precision(p.dtype):
        masks = [np.stack([mask, ~mask]) for mask in (p.protected, p.eligible, p.valid)]
        out = complete_masks(p.x, *masks, p.capacity, p.target, max_rank=min(p.x.shape))
        return Completion(*(np.asarray(a[0]) for a in out))


def check_sets(p: Problem, out: Completion) -> list[int]:
    """What must hold exactly, whatever the rounding. Returns the rows that were added, in order."""
    n, d = p.x.shape
    protected = p.protected & p.valid
    added = [int(j) for j in out.order if j >= 0]
    assert (out.order[len(added) :] == -1).all()
    assert (protected <= out.selected).all()  # P within B
    assert (out.selected <= (p.valid & (p.protected | p.eligible))).all()  # B within [n], only eligible rows added
    assert sorted(added) == np.flatnonzero(out.selected & ~protected).tolist()
    assert out.selected.sum() <= max(p.capacity, protected.sum())  # K_t
    assert out.rank <= min(n, d) and len(added) <= out.rank <= out.selected.sum()
    assert 0 <= out.coverage <= 1
    assert np.isfinite(out.residual).all() and (out.residual >= 0).all()
    assert (out.residual[out.selected | ~p.valid] == 0).all()
    return added


def judge(p: Problem, out: Completion, condition: float) -> None:
    """Replay in float64. `condition` is the power of 1/sqrt(pivot) by which errors may grow."""
    tol = tolerance(p.dtype, p.x.shape[1])
    added = check_sets(p, out)
    chosen = p.protected & p.valid
    capacity = max(p.capacity, chosen.sum())

    def state() -> tuple[np.ndarray, float, float, np.ndarray]:
        r, pivot = oracle_residuals(p.x64, chosen, tol)
        slack = tol * (1 + pivot ** (-condition / 2))
        return r, oracle_coverage(p.x64, r, p.valid), slack, p.valid & p.eligible & ~chosen

    for j in added:
        r, coverage, slack, open_rows = state()
        best = r[open_rows].max()
        assert open_rows[j] and chosen.sum() < capacity
        assert coverage < p.target + slack
        assert r[j] >= best - tol - slack
        assert not (r[:j][open_rows[:j]] > best - tol + slack).any(), "a lower index was as good"
        chosen[j] = True
    r, coverage, slack, open_rows = state()
    out_of_candidates = not (r[open_rows] > tol + slack).any()
    assert coverage >= p.target - slack or chosen.sum() >= capacity or out_of_candidates
    assert abs(out.coverage - coverage) <= slack
    assert np.abs(out.residual - np.where(p.valid & ~chosen, r, 0)).max() <= slack


@settings(deadline=None, max_examples=150)
@given(problems())
def test_prop_a3_protected_rows_are_in_the_core_and_additions_are_the_best(p: Problem) -> None:
    tol = tolerance(p.dtype, p.x.shape[1])
    assume(clear(p.x64[p.protected & p.valid], tol) and clear(p.x64[p.valid], tol))
    judge(p, run(p), condition=1)


@settings(deadline=None, max_examples=100)
@given(problems(dtypes=("float32", "float64"), shapes=((6, 24), (12, 5))))
def test_prop_a3_holds_under_vmap(p: Problem) -> None:
    tol = tolerance(p.dtype, p.x.shape[1])
    assume(clear(p.x64[p.protected & p.valid], tol) and clear(p.x64[p.valid], tol))
    # Inner products square the condition number: a pivot rho is known to eps / rho.
    judge(p, run_by_gram(p), condition=2)


@settings(deadline=None, max_examples=100)
@given(problems())
def test_prop_a1_a_core_that_reaches_the_target_reconstructs_within_one_minus_it(p: Problem) -> None:
    tol = tolerance(p.dtype, p.x.shape[1])
    assume(clear(p.x64[p.valid], tol))
    out = run(p)
    r, pivot = oracle_residuals(p.x64, out.selected, tol)
    error, energy = r[p.valid].sum(), (p.x64[p.valid] ** 2).sum()
    slack = tol * (1 + 1 / np.sqrt(pivot))
    assert error <= (1 - float(out.coverage) + slack) * energy
    if out.coverage >= p.target:
        assert error <= (1 - p.target + slack) * energy


@settings(deadline=None, max_examples=100)
@given(problems(dtypes=("float32", "float64"), shapes=((6, 24), (12, 5))), st.integers(0, 2**32 - 1))
def test_prop_a3_sets_hold_even_at_the_tolerance(p: Problem, seed: int) -> None:
    """Spreads over all magnitudes: independence is then a matter of rounding, but no set may ever be wrong."""
    rng = np.random.default_rng(seed)
    x = rows(rng, *p.x.shape, ["fresh", "near", "inside", "zero"], 10.0 ** rng.uniform(-4, -2))
    q = p._replace(x=x.astype(p.x.dtype))
    check_sets(q, run(q))
    check_sets(q, run_by_gram(q))


def brute_force(x, protected, eligible, capacity, target):
    """Greedy completion in float64, every residual from a fresh least-squares fit; ties to the lower index."""
    chosen = np.flatnonzero(protected).tolist()
    capacity, added = max(capacity, len(chosen)), []
    while True:
        r = np.ones(len(x))
        if chosen:
            fit = np.linalg.lstsq(x[chosen].T, x.T, rcond=None)[0]
            r = ((x - fit.T @ x[chosen]) ** 2).sum(1)
        candidates = [i for i in range(len(x)) if eligible[i] and i not in chosen and r[i] > 1e-10]
        if len(chosen) >= capacity or 1 - r.mean() >= target or not candidates:
            return added, r
        best = max(r[i] for i in candidates)
        j = next(i for i in candidates if r[i] > best - 1e-12)
        chosen.append(j)
        added.append(j)


@pytest.mark.parametrize("seed", range(6))
def test_completion_with_seeds_equals_a_float64_brute_force_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rows(rng, 20, 24, ["fresh", "copy", "near"] if seed % 2 else ["fresh"], 0.1)
    protected, eligible = rng.random(20) < 0.3, rng.random(20) < 0.8
    capacity, target = [(8, 2.0), (16, 0.7), (20, 2.0)][seed % 3]
    added, r = brute_force(x, protected, eligible, capacity, target)
    with precision("float64"):
        out = complete(x, protected, eligible, np.ones(20, bool), capacity, target, max_rank=20)
        assert [int(j) for j in out.order if j >= 0] == added
        assert np.abs(np.asarray(out.residual) - r).max() <= tolerance("float64", 24) * 100  # pivots of 1e-2, lstsq


@pytest.mark.parametrize("shape", [(20, 24), (12, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(3))
def test_completion_without_seeds_is_scipys_column_pivoted_qr(shape: tuple[int, int], dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Lengths differ, so that the first pivot is no tie between unit rows.
    x = (rows(rng, *shape, ["fresh"], 0) * rng.uniform(0.5, 1, (shape[0], 1))).astype(dtype)
    rank, every = min(shape), np.ones(shape[0], bool)
    _, r, pivots = scipy.linalg.qr(x.astype(np.float64).T, mode="economic", pivoting=True)
    diagonal = np.diag(r) ** 2
    assume_gap = np.abs(np.diff(diagonal)).min() > 10 * tolerance(dtype, shape[1])
    assert assume_gap, "the chosen seeds have no near-ties"
    with precision(dtype):
        out = complete(x, ~every, every, every, rank, 2.0, max_rank=rank)
        assert out.order.tolist() == pivots[:rank].tolist()


def test_duplicates_and_equal_first_residuals_go_to_the_lower_index() -> None:
    x = rows(np.random.default_rng(0), 10, 24, ["fresh"], 0)
    x = np.concatenate([x, x[::-1]]).astype(np.float32)
    every = np.ones(20, bool)
    out = complete(x, ~every, every, every, 16, 2.0, max_rank=20)
    assert int(out.order[0]) == 0  # all residuals are 1 at first
    assert int(out.rank) == 10 and set(out.order[:10].tolist()) == set(range(10))
    together = complete_masks(x, ~every[None], every[None], every[None], 16, 2.0, max_rank=20)
    assert together.order[0].tolist() == out.order.tolist()


def test_protected_row_in_the_span_stays_and_adds_no_direction() -> None:
    x = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32)
    protected = np.array([True, True, False, False])
    out = complete(x, protected, ~protected, np.ones(4, bool), 3, 2.0, max_rank=3)
    assert out.selected.tolist() == [True, True, True, False]  # capacity counts blocks, not directions
    assert int(out.rank) == 2 and float(out.coverage) == 0.75


def test_more_protected_than_capacity_keeps_them_all_and_adds_none() -> None:
    x = np.eye(6, 24, dtype=np.float32)
    protected = np.arange(6) < 4
    out = complete(x, protected, ~protected, np.ones(6, bool), 2, 2.0, max_rank=6)
    assert np.array_equal(out.selected, protected) and (np.asarray(out.order) == -1).all()


def test_too_small_max_rank_still_keeps_every_protected_row() -> None:
    x = np.eye(6, 24, dtype=np.float32)
    protected = np.arange(6) < 4
    out = complete(x, protected, ~protected, np.ones(6, bool), 6, 2.0, max_rank=2)
    assert np.array_equal(out.selected, protected) and int(out.rank) == 2


def test_nothing_to_complete() -> None:
    empty = np.zeros(0, bool)
    out = complete(np.zeros((0, 24), np.float32), empty, empty, empty, 4, 0.9, max_rank=2)
    assert out.selected.shape == (0,) and float(out.coverage) == 1 and int(out.rank) == 0
    zeros = np.ones(6, bool)
    out = complete(np.zeros((6, 24), np.float32), ~zeros, zeros, zeros, 4, 2.0, max_rank=6)
    assert not out.selected.any() and float(out.coverage) == 1


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_padding_does_not_change_the_answer(fill: float) -> None:
    rng = np.random.default_rng(5)
    x = rows(rng, 12, 24, ["fresh", "copy", "zero"], 0).astype(np.float32)
    protected, eligible, every = rng.random(12) < 0.2, rng.random(12) < 0.8, np.ones(12, bool)
    padded = np.full((20, 24), fill, np.float32)
    padded[:12] = x
    wide = [np.concatenate([mask, np.ones(8, bool)]) for mask in (protected, eligible)]
    small = complete(x, protected, eligible, every, 9, 0.95, max_rank=12)
    large = complete(padded, *wide, np.arange(20) < 12, 9, 0.95, max_rank=12)
    assert np.array_equal(large.selected[:12], small.selected) and not large.selected[12:].any()
    assert np.array_equal(large.order, small.order) and int(large.rank) == int(small.rank)
    tol = tolerance("float32", 24)
    assert np.abs(large.residual[:12] - small.residual).max() <= tol and abs(large.coverage - small.coverage) <= tol
    many = complete_masks(padded, *(m[None] for m in wide), np.arange(20)[None] < 12, 9, 0.95, max_rank=12)
    assert np.array_equal(many.selected[0], large.selected) and np.isfinite(many.coverage[0])


@pytest.mark.parametrize("max_rank", [1, 20])
def test_vmap_over_masks_and_over_matrices_equals_one_by_one(max_rank: int) -> None:
    """`max_rank=1` takes the sequential branch of the batching rule, 20 the inner products."""
    rng = np.random.default_rng(7)
    x = np.stack([rows(rng, 20, 24, ["fresh", "copy", "zero"], 0) for _ in range(3)]).astype(np.float32)
    protected, eligible, valid = rng.random((3, 20)) < 0.1, rng.random((3, 20)) < 0.8, rng.random((3, 20)) < 0.9
    each = complete_each(x, protected, eligible, valid, 12, 0.9, max_rank=max_rank)
    shared = complete_masks(x[0], protected, eligible, valid, 12, 0.9, max_rank=max_rank)
    for batch, matrices in ((each, x), (shared, x[[0, 0, 0]])):
        for i in range(3):
            alone = complete(matrices[i], protected[i], eligible[i], valid[i], 12, 0.9, max_rank=max_rank)
            assert np.array_equal(batch.selected[i], alone.selected)
            assert np.array_equal(batch.order[i], alone.order) and int(batch.rank[i]) == int(alone.rank)
            assert np.abs(batch.residual[i] - alone.residual).max() <= tolerance("float32", 24)
            assert abs(batch.coverage[i] - alone.coverage) <= tolerance("float32", 24)


def test_vmap_over_trajectories_of_vmap_over_checkpoints() -> None:
    rng = np.random.default_rng(8)
    x = np.stack([rows(rng, 20, 24, ["fresh"], 0) for _ in range(2)]).astype(np.float32)
    valid = np.arange(20) < np.array([[8, 14, 20]] * 2)[..., None]
    one = partial(residual_completion, capacity=6, target=0.9, max_rank=20)
    nested = jax.jit(jax.vmap(jax.vmap(lambda x, v: one(x, ~v, v, v), in_axes=(None, 0))))(x, valid)
    for i in range(2):
        for c in range(3):
            alone = complete(x[i], ~valid[i, c], valid[i, c], valid[i, c], 6, 0.9, max_rank=20)
            assert np.array_equal(nested.order[i, c], alone.order)


def test_one_trace_serves_every_capacity_target_and_mask() -> None:
    traces = 0

    @jax.jit
    def counted(x, protected, eligible, valid, capacity, target):
        nonlocal traces
        traces += 1
        return residual_completion(x, protected, eligible, valid, capacity, target, max_rank=6)

    every = np.ones(6, bool)
    x = np.eye(6, 24, dtype=np.float32)
    for capacity in (1, 5):
        counted(x, ~every, every, every, jnp.int32(capacity), jnp.float32(capacity / 10))
    assert traces == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_dtypes_and_tolerance(dtype: str) -> None:
    with precision(dtype):
        out = complete(np.eye(6, 24).astype(jnp.dtype(dtype)), *[np.ones(6, bool)] * 3, 6, 0.9, max_rank=6)
        assert out.residual.dtype == out.coverage.dtype == jnp.promote_types(dtype, jnp.float32)
        assert out.order.dtype == out.rank.dtype == jnp.int32
    assert independence_tolerance(dtype, 24) == pytest.approx(tolerance(dtype, 24))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones(3, np.float32)}, r"`x` has shape \(3,\); expected \(any, any\)"),
        ({"x": np.ones((3, 4), int)}, r"`x` has dtype int\d+; expected floating point"),
        ({"protected": np.ones(4, bool)}, r"`protected` has shape \(4,\); expected \(3,\)"),
        ({"eligible": np.ones((3, 1), bool)}, r"`eligible` has shape \(3, 1\); expected \(3,\)"),
        ({"valid": np.ones(3)}, r"`valid` has dtype float\d+; expected bool"),
        ({"capacity": np.ones(3, int)}, r"`capacity` has shape \(3,\); expected a scalar"),
        ({"target": np.ones((1, 1))}, r"`target` has shape \(1, 1\); expected a scalar"),
        ({"max_rank": 0}, r"`max_rank` is 0; expected a positive integer"),
    ],
)
def test_wrong_shapes_are_named(change: dict, message: str) -> None:
    mask = np.ones(3, bool)
    good = {"x": np.ones((3, 4), np.float32), "protected": mask, "eligible": mask, "valid": mask}
    good |= {"capacity": 2, "target": 0.9, "max_rank": 3}
    with pytest.raises(ValueError, match=message):
        residual_completion(**(good | change))

r"""Residual completion of a protected set, and the selectors that it is compared with (GEM 5.1, 5.3, A.2, D.1).

Completion starts from the protected blocks and adds, one at a time, the eligible block whose residual
$r_i = 1 - \|Q^\top x_i\|^2$ is largest, until the coverage target, the capacity or the last independent candidate is
reached. It is column-pivoted QR with seeds, a stopping rule and masks.

One checkpoint runs on the vectors: `O(n d)` a direction, each one orthogonalised twice. `jax.vmap` over checkpoints
runs on inner products instead (pivoted Cholesky on $X X^\top$): the checkpoints of one trajectory share one matrix, its
inner products are computed once, and a direction then costs `O(n b)` a checkpoint, whatever `d` is.

The selectors with a count have one signature, `(x, protected, eligible, valid, count, *, own arguments)`, and one rule:
the protected rows are kept, and eligible ones are added in the selector's order up to `count` in all.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from gemjax.kernels._checks import require, require_positive, require_rows, require_scalar, working_dtype
from gemjax.kernels.linalg import (
    EXACT,
    cholesky_step,
    coverage_of,
    energies,
    forward_only,
    independence_tolerance,
    new_direction,
    orthonormal_basis,
)

# Above this many rows the matrix of inner products (n^2 numbers) takes more memory than it saves time.
_MAX_GRAM_ROWS = 8192


class Completion(NamedTuple):
    """What `residual_completion` returns.

    Attributes:
        selected: the core $B_t$, `bool[n]`: every valid protected row and the added ones.
        order: indices of the added rows in the order of addition, `int32[max_rank]`, padded with -1.
        coverage: $E(B_t)$ in [0, 1] (A.3).
        residual: $r_i(B_t)$ in $[0, |x_i|^2]$ (A.2), `[n]`; 0 for rows in the core, zero rows and padding.
        rank: directions in the basis, protected and added.
    """

    selected: Bool[Array, "n"]
    order: Int[Array, "max_rank"]
    coverage: Float[Array, ""]
    residual: Float[Array, "n"]
    rank: Int[Array, ""]


class _Limits(NamedTuple):
    """When to stop, and what counts as equal; all traced scalars."""

    capacity: Int[Array, ""]  # K_t, blocks
    target: Float[Array, ""]
    tol: Float[Array, ""]
    tie: Float[Array, ""]


def residual_completion(
    x: Float[Array, "n d"],
    protected: Bool[Array, "n"],
    eligible: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    capacity: Int[Array, ""] | int,
    target: Float[Array, ""] | float,
    tol: Float[Array, ""] | float | None = None,
    *,
    max_rank: int,
) -> Completion:
    r"""Complete a protected set by largest residuals (Eq. 7, A.4-A.7, Algorithm 1 lines 8-13).

    Args:
        x: block vectors `[n, d]`, finite, unit or zero. Rows of another length count by their squared length.
        protected: rows that are in the core whatever they add. One whose vector is already in the span stays selected
            and adds no direction.
        eligible: rows that may be added.
        valid: real rows. Padding is neither protected nor eligible nor part of the coverage.
        capacity: $K$, in blocks; the core holds at most $K_t = \max(K, |P|)$.
        target: $\tau$. Nothing is added once the coverage has reached it. Above 1: never stop for coverage.
        tol: a candidate is independent if its residual exceeds this. None: `independence_tolerance(x.dtype, d)`.
        max_rank: directions kept, static. `min(d, max(K, |P|))` is always enough; with less, protected directions
            beyond it are left out, the coverage is a lower bound and nothing is added.

    Returns: the `Completion`. Which rows are chosen has no gradient; coverage and residuals have one in forward mode
        only, given the choice.

    Ties: residuals closer than `independence_tolerance` are equal, and of equal ones the lowest index is taken, so that
    rounding does not choose between duplicates.

    Cost: O(n d b) for `b` directions. Under `vmap` with a shared `x`: O(n^2 d) once and O(n b^2) a checkpoint.

    Accuracy: residuals are wrong by about `independence_tolerance / 10`. Under `vmap` inner products stand in for
    vectors, which squares the condition number: a protected direction of residual `rho` is known to `eps / rho`, so a
    residual that it lowers by `c` is wrong by about `c eps / rho` more (under 1 % at the default tolerance).

    Raises: ValueError for a wrong shape, a mask that is not bool, or `max_rank < 1`.
    """
    x, protected, eligible, valid = require_rows(x, protected=protected, eligible=eligible, valid=valid)
    require_positive("max_rank", max_rank)
    for name, value in (("capacity", capacity), ("target", target), ("tol", 0 if tol is None else tol)):
        require_scalar(name, value)
    rows = x.astype(working_dtype(x))
    tie = independence_tolerance(x.dtype, rows.shape[1])
    number = partial(jnp.asarray, dtype=rows.dtype)
    limits = _Limits(jnp.asarray(capacity, jnp.int32), number(target), number(tie if tol is None else tol), number(tie))
    if rows.shape[0] == 0:
        nothing = jnp.zeros(0, rows.dtype)
        return Completion(protected, jnp.full(max_rank, -1, jnp.int32), number(1), nothing, jnp.int32(0))
    args = (rows, protected & valid, eligible & valid, valid, limits)
    return cast(Completion, forward_only("residual_completion", _completion(max_rank), *args))


@lru_cache(maxsize=64)
def _completion(max_rank: int) -> Callable[..., Completion]:
    """The completion for one static `max_rank`, with its batching rule."""

    @custom_vmap
    def run(
        x: Float[Array, "n d"],
        protected: Bool[Array, "n"],
        eligible: Bool[Array, "n"],
        valid: Bool[Array, "n"],
        limits: _Limits,
    ) -> Completion:
        return _complete_vectors(x, protected, eligible, valid, limits, max_rank)

    @run.def_vmap
    def batched(axis_size: int, in_batched: Any, x: Array, *rest: Any) -> tuple[Completion, Completion]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, in_batched)
        n = x.shape[-2]
        by_gram = partial(_complete_gram, max_rank=max_rank)
        if not in_batched[0] and n <= min(axis_size * max_rank, _MAX_GRAM_ROWS):
            gram = jnp.matmul(x, x.T, precision=EXACT)
            out = jax.vmap(by_gram, in_axes=(None, *axes[1:]), axis_size=axis_size)(gram, *rest)
        elif in_batched[0] and n <= 8 * max_rank:
            gram = _many_grams(x)
            out = jax.vmap(by_gram, in_axes=(0, *axes[1:]), axis_size=axis_size)(gram, *rest)
        else:
            out = _one_by_one(run, axes, (x, *rest))
        return out, jax.tree.map(lambda _: True, out)

    return run


def _many_grams(x: Float[Array, "b n d"]) -> Float[Array, "b n n"]:
    """Inner products of each matrix of a batch."""

    def in_turn(x: Array) -> Array:
        # One product at a time keeps the operands in cache; XLA's batched product on CPUs is half as fast.
        return cast(Array, lax.map(lambda rows: jnp.matmul(rows, rows.T, precision=EXACT), x))

    def at_once(x: Array) -> Array:
        return jnp.einsum("bnd,bmd->bnm", x, x, precision=EXACT)

    return cast(Array, lax.platform_dependent(x, cpu=in_turn, default=at_once))


def _one_by_one(run: Callable[..., Completion], axes: Any, args: Any) -> Completion:
    """Checkpoints in sequence. In lockstep every matrix would be read from memory once for each direction."""
    leaves, structure = jax.tree.flatten(args)
    batched = [axis == 0 for axis in jax.tree.leaves(axes, is_leaf=lambda axis: axis is None)]

    def one(items: list[Array]) -> Completion:
        left = iter(items)
        filled = [next(left) if b else leaf for b, leaf in zip(batched, leaves, strict=True)]
        return run(*jax.tree.unflatten(structure, filled))

    return cast(Completion, lax.map(one, [leaf for b, leaf in zip(batched, leaves, strict=True) if b]))


def _pick(residual: Float[Array, "n"], candidates: Bool[Array, "n"], limits: _Limits) -> tuple[Array, Array]:
    """Of the independent candidates of (nearly) the largest residual the lowest index; and that largest residual.

    The second is -1 without candidates; the first means something only if the second exceeds `tol`.
    """
    score = jnp.where(candidates, residual, -1)
    best = jnp.max(score)
    equal = (score >= best - limits.tie) & (score > limits.tol)
    # The least index, not `argmax` of the mask: XLA vectorises it, and a step costs a tenth less at n = 4096.
    index = jnp.arange(score.shape[0], dtype=jnp.int32)
    return jnp.min(jnp.where(equal, index, score.shape[0] - 1)), best


class _Search(NamedTuple):
    """The state of one completion on vectors."""

    vectors: Float[Array, "r d"]
    rank: Int[Array, ""]
    residual: Float[Array, "n"]
    open: Bool[Array, "n"]  # may still be added
    order: Int[Array, "r"]
    added: Int[Array, ""]
    coverage: Float[Array, ""]
    row: Int[Array, ""]  # the candidate to look at next
    best: Float[Array, ""]  # the largest residual among the candidates


def _complete_vectors(
    x: Float[Array, "n d"],
    protected: Bool[Array, "n"],
    eligible: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    limits: _Limits,
    max_rank: int,
) -> Completion:
    """Completion on the vectors themselves: Gram-Schmidt on the protected rows, then A.7."""
    n = x.shape[0]
    index = jnp.arange(n, dtype=jnp.int32)
    energy = energies(x, valid)
    count = jnp.sum(protected, dtype=jnp.int32)
    room = jnp.maximum(limits.capacity, count) - count

    # Without room for a direction `rank` stays at `max_rank`, and nothing is added.
    vectors, rank, _, _ = orthonormal_basis(x, protected, limits.tol, max_rank=max_rank)

    def project_all() -> Array:
        coordinates = jnp.matmul(x, vectors.T, precision=EXACT)
        return jnp.sum(coordinates * coordinates, axis=1)

    # One product for all seeds; without seeds it would cost as much as several added directions.
    seen = lax.cond(rank > 0, project_all, lambda: jnp.zeros(n, x.dtype))
    # Padding may hold anything, NaN too, so it is masked after every product.
    residual = jnp.where(protected | ~valid, 0, jnp.clip(energy - seen, 0, energy))
    candidates = eligible & ~protected
    row, best = _pick(residual, candidates, limits)

    def unfinished(s: _Search) -> Array:
        return (s.best > limits.tol) & (s.added < room) & (s.rank < max_rank) & (s.coverage < limits.target)

    def add(s: _Search) -> _Search:
        q, fresh = new_direction(s.vectors, x[s.row], limits.tol)
        # `residual` carries the rounding of every earlier update; `fresh` does not. If the two disagree about
        # independence the candidate is closed without being added.
        independent = fresh > limits.tol
        along = jnp.matmul(x, q, precision=EXACT)
        residual = jnp.where((index == s.row) | ~valid, 0, jnp.maximum(s.residual - along * along, 0))
        still_open = s.open & (index != s.row)
        row, best = _pick(residual, still_open, limits)
        step = independent.astype(jnp.int32)
        return _Search(
            vectors=s.vectors.at[s.rank].set(q),
            rank=s.rank + step,
            residual=residual,
            open=still_open,
            order=s.order.at[s.added].set(jnp.where(independent, s.row, -1)),
            added=s.added + step,
            coverage=coverage_of(residual, energy),
            row=row,
            best=best,
        )

    order = jnp.full(max_rank, -1, jnp.int32)
    search = _Search(vectors, rank, residual, candidates, order, jnp.int32(0), coverage_of(residual, energy), row, best)
    done = lax.while_loop(unfinished, add, search)
    selected = protected.at[jnp.where(done.order < 0, n, done.order)].set(True, mode="drop")
    return Completion(selected, done.order, done.coverage, done.residual, done.rank)


def _complete_gram(
    gram: Float[Array, "n n"],
    protected: Bool[Array, "n"],
    eligible: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    limits: _Limits,
    *,
    max_rank: int,
) -> Completion:
    """Completion on inner products: pivoted Cholesky, protected rows first.

    Written for `vmap`: `max_rank` steps whatever the data (a batched `while_loop` would copy its state at each step),
    and each step writes row `k` of the state at the loop counter. A step that adds nothing writes a zero row.
    """
    n = gram.shape[0]
    index = jnp.arange(n, dtype=jnp.int32)
    energy = jnp.where(valid, jnp.diagonal(gram), 0)
    count = jnp.sum(protected, dtype=jnp.int32)
    room = jnp.maximum(limits.capacity, count) - count

    def step(k: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        coordinates, residual, seeds, candidates, order, added, rank = state
        # Largest residual first among the protected rows too. The span is the same, and a nearly dependent row comes
        # last, when its error can no longer spread.
        seed, seed_best = _pick(residual, seeds, limits)
        row, best = _pick(residual, candidates, limits)
        seeding = seed_best > limits.tol
        coverage = coverage_of(jnp.where(protected, 0, residual), energy)
        wanted = (best > limits.tol) & (added < room) & (coverage < limits.target)
        takes = seeding | wanted
        row = jnp.where(seeding, seed, row)
        coordinates, residual = cholesky_step(gram, coordinates, residual, k, row, takes)
        here = (index == row) & takes
        adds = takes & ~seeding
        return (
            coordinates,
            jnp.where(here | ~valid, 0, residual),
            seeds & ~here,
            candidates & ~here,
            lax.dynamic_update_slice(order, jnp.where(adds, row, -1)[None], (k,)),
            added + adds.astype(jnp.int32),
            rank + takes.astype(jnp.int32),
        )

    zero = jnp.int32(0)
    start = (
        jnp.zeros((max_rank, n), gram.dtype),
        energy,
        protected,
        eligible & ~protected,
        jnp.full(max_rank, -1, jnp.int32),
        zero,
        zero,
    )
    _, residual, _, _, order, _, rank = lax.fori_loop(0, max_rank, step, start)
    residual = jnp.where(protected, 0, residual)
    selected = protected.at[jnp.where(order < 0, n, order)].set(True, mode="drop")
    order = order[jnp.argsort(order < 0, stable=True)]
    return Completion(selected, order, coverage_of(residual, energy), residual, rank)


def largest_residual(
    x: Float[Array, "n d"],
    protected: Bool[Array, "n"],
    eligible: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    count: Int[Array, ""] | int,
    tol: Float[Array, ""] | float | None = None,
    *,
    max_rank: int,
) -> Bool[Array, "n"]:
    """The protected rows completed by residual to exactly `count`, whatever the coverage; D.1's "geometry only" if none
    is protected.

    When no independent candidate is left, the rest is filled up by residual, then by the lower index, so that the
    retained count matches.

    Args:
        x: block vectors `[n, d]`, unit or zero.
        protected: kept whatever they add, `[n]`.
        eligible: rows that may be added, `[n]`.
        valid: real rows, `[n]`.
        count: rows to keep, may be traced. With more protected rows than that, those and no others.
        tol: as for `residual_completion`.
        max_rank: at least `count` for a greedy order throughout, static.

    Returns: `bool[n]`.

    Raises: ValueError for a wrong shape or `max_rank < 1`.
    """
    x, protected, eligible, valid = require_rows(x, protected=protected, eligible=eligible, valid=valid)
    done = residual_completion(x, protected, eligible, valid, count, 2.0, tol, max_rank=max_rank)
    noise = independence_tolerance(x.dtype, x.shape[1])
    residual = jnp.where(done.residual > noise, done.residual, 0)
    return _filled(residual, done.selected, eligible & valid, count)


def random_blocks(
    x: Float[Array, "n d"],
    protected: Bool[Array, "n"],
    eligible: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    count: Int[Array, ""] | int,
    *,
    key: PRNGKeyArray,
) -> Bool[Array, "n"]:
    """The protected rows, and eligible ones drawn uniformly without replacement up to `count` in all (D.2, "random").

    Args:
        x: block vectors `[n, d]`; only how many there are is read.
        protected: kept whatever the draw, `[n]`; all False for plain random selection.
        eligible: rows that may be drawn, `[n]`.
        valid: real rows, `[n]`.
        count: rows to keep, may be traced. With more protected rows than that, those and no others.
        key: a `jax.random` key. The draw depends on it and on the order of the valid rows, not on the padding.

    Returns: `bool[n]`.

    Raises: ValueError for a wrong shape.
    """
    x, protected, eligible, valid = require_rows(x, protected=protected, eligible=eligible, valid=valid)
    position = jnp.cumsum(valid) - 1
    draw = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i)))(position)
    return _filled(draw, protected & valid, eligible & valid, count)


def most_recent(
    x: Float[Array, "n d"],
    protected: Bool[Array, "n"],
    eligible: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    count: Int[Array, ""] | int,
) -> Bool[Array, "n"]:
    """The protected rows and the last eligible ones up to `count` in all: what "keep the last N" keeps.

    Args:
        x: block vectors `[n, d]`; only how many there are is read.
        protected: kept wherever they are, `[n]`.
        eligible: rows that may be kept, `[n]`.
        valid: real rows, `[n]`.
        count: rows to keep, may be traced. With more protected rows than that, those and no others.

    Returns: `bool[n]`.

    Raises: ValueError for a wrong shape.
    """
    x, protected, eligible, valid = require_rows(x, protected=protected, eligible=eligible, valid=valid)
    return _filled(jnp.arange(x.shape[0]), protected & valid, eligible & valid, count)


def most_similar(
    x: Float[Array, "n d"],
    protected: Bool[Array, "n"],
    eligible: Bool[Array, "n"],
    valid: Bool[Array, "n"],
    count: Int[Array, ""] | int,
    *,
    query: Float[Array, "d"],
) -> Bool[Array, "n"]:
    """The protected rows and the eligible ones of largest inner product with `query`, up to `count` in all.

    Args:
        x: block vectors `[n, d]`. For unit rows the order is that of the cosine; zero rows score 0.
        protected: kept whatever they are like, `[n]`.
        eligible: rows that may be kept, `[n]`.
        valid: real rows, `[n]`.
        count: rows to keep, may be traced. With more protected rows than that, those and no others.
        query: the goal or the latest action, of any length, `[d]`.

    Returns: `bool[n]`; ties by lower index.

    Raises: ValueError for a wrong shape.
    """
    x, protected, eligible, valid = require_rows(x, protected=protected, eligible=eligible, valid=valid)
    query = require("query", query, (x.shape[1],))
    dtype = working_dtype(x, query)
    score = jnp.matmul(x.astype(dtype), query.astype(dtype), precision=EXACT)
    return _filled(score, protected & valid, eligible & valid, count)


def _filled(
    score: Array, kept: Bool[Array, "n"], candidates: Bool[Array, "n"], count: Int[Array, ""] | int
) -> Bool[Array, "n"]:
    """`kept` and the candidates of the highest score, up to `count` in all; ties by the lower index."""
    candidates = candidates & ~kept
    order = jnp.lexsort((-score, ~candidates))  # stable, candidates first
    place = jnp.zeros(order.shape, jnp.int32).at[order].set(jnp.arange(order.shape[0], dtype=jnp.int32))
    return kept | (candidates & (place < count - jnp.sum(kept)))

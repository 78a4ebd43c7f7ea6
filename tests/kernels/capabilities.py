"""What each public kernel can do, found by doing it: the table of docs/kernels.md.

`python -m tests.kernels.capabilities` prints it. A column is found by tracing, in float64, on a small item:

* jit: "yes" under `jax.jit`, "compiled" where the kernel is compiled already.
* vmap: two different items go together.
* grad: the modes that exist; "zero" for results that are choices or counts, which do not depend on a tangent.
* from 16 bits: the dtype of what is computed from bfloat16 rows.

That batches and gradients have the right values is a matter of `test_capabilities`.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from gemjax import kernels as k
from tests.kernels.problems import enable_x64

N, D = 6, 4
HEADER = "| kernel | jit | vmap | grad | from 16 bits |\n| --- | --- | --- | --- | --- |"
PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"
# Needs a mesh of devices; `test_sharding` runs it on several.
EXEMPT = {"sharded_search": "| `sharded_search` | compiled | - | - | float32 |"}


@dataclasses.dataclass(frozen=True)
class Case:
    """How to call a kernel.

    Attributes:
        make: arguments of one item from a generator.
        call: the kernel with its static arguments.
        by: which arguments are differentiated.
        outputs: which results are; None: all.
    """

    make: Callable[[np.random.Generator], tuple[Any, ...]]
    call: Callable[..., Any]
    by: tuple[int, ...] = (0,)
    outputs: int | None = None


def _rows(rng: np.random.Generator, n: int = N, d: int = D) -> np.ndarray:
    x = rng.standard_normal((n, d)) + 0.5
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def _masks(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    valid = np.arange(N) < N - 1
    return np.arange(N) == rng.integers(N - 1), valid, valid


def _basis(rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((D, 2)))[0].T


def _spectrum(rng: np.random.Generator) -> Any:
    return k.centered_spectrum(_rows(rng))


def _moments(rng: np.random.Generator) -> Any:
    return k.moments_from_rows(_rows(rng))


def _metric(rng: np.random.Generator) -> Any:
    return k.low_rank_metric(rng.standard_normal(D), rng.standard_normal((D, 2)), rng.uniform(0.5, 2, D))


def _search(rng: np.random.Generator) -> tuple[Any, ...]:
    metric = _metric(rng)
    norms = k.quadratic_form(metric, _rows(rng) - metric.mean)
    return _rows(rng), np.arange(N) < N - 1, np.int32(N), k.prepare_queries(metric, _rows(rng, 2)), norms


def _channels(rng: np.random.Generator) -> Any:
    return k.Channels(rng.uniform(size=(N, 2)), 0.1 * rng.uniform(size=(N, 2)), np.array([0, 0, 0, 1, 1, -1]))


def _weights() -> Any:
    return k.ChannelWeights(np.float64(0.5), np.float64(0.3), np.float64(0.2))


def _joined(rng: np.random.Generator) -> tuple[Any, ...]:
    return (*_search(rng)[:4], np.float64(0.5), _channels(rng), _weights())


def _unmerge(rng: np.random.Generator) -> tuple[Any, ...]:
    x = _rows(rng)
    return k.moments_from_rows(x), k.moments_from_rows(x[:2])


def _units(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "scores": rng.permutation(N).astype(float),
        "sentence": np.array([0, 0, 0, 0, 1, 1]),
        "cost": np.ones(N, np.int32),
        "valid": np.arange(N) < N,
        "mask": np.array([True, False, False, True, False, False]),
    }


def _of_units(*names: str) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: tuple(_units(rng)[name] for name in names)


def _loss(h: Any, w: Any) -> tuple[Any, None]:
    return jnp.sum(jnp.tanh(h) * w), None


def _at(*makers: Any) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: tuple(make(rng) for make in makers)


def _vector(rng: np.random.Generator) -> np.ndarray:
    return _rows(rng, 1)[0]


def _every(rng: np.random.Generator) -> np.ndarray:
    return np.arange(N) < N - 1


def _some(rng: np.random.Generator) -> np.ndarray:
    return np.array([True, False, True, False, False, False])


def _values(rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.uniform(0.5, 2, D))[::-1].copy()


def _gram(rng: np.random.Generator) -> tuple[Any, ...]:
    x = _rows(rng)
    return x @ x.T, _rows(rng, 2) @ x.T, _some(rng)


def _spans(gram: Any, inner: Any, selected: Any) -> Any:
    # Symmetric, as every matrix of inner products is, also where differences are taken.
    return k.span_energies((gram + gram.T) / 2, inner, selected, 1e-12, max_rank=3)


def _of_gram(gram: Any, inner: Any, selected: Any) -> Any:
    return k.gram_captured_energy((gram + gram.T) / 2, _spans(gram, inner, selected))


def _heads(rng: np.random.Generator) -> tuple[Any, ...]:
    q, key, v = (rng.standard_normal((N, heads, 2)) for heads in (2, 1, 1))
    return q, key, v, np.arange(N) < N


def _kept_heads(rng: np.random.Generator) -> tuple[Any, ...]:
    new = N // 2
    return (*(rng.standard_normal(shape) for shape in ((new, 2, 2), (1, N, 2), (1, N, 2))), np.int32(N - new))


def _predictions(rng: np.random.Generator) -> tuple[Any, ...]:
    targets = rng.integers(0, 5, N)
    return rng.standard_normal((N, D)), rng.standard_normal((5, D)), targets, rng.uniform(0.5, 1, N)


def _key(rng: np.random.Generator) -> Any:
    return jax.random.key(int(rng.integers(99)))


def _selector(kernel: Callable[..., Any], **static: Any) -> Case:
    return Case(lambda rng: (_rows(rng), *_masks(rng), np.int32(3)), partial(kernel, **static))


def _psum(state: Any) -> Any:
    together = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    return jax.vmap(partial(k.psum_moments, axis_name="devices"), axis_name="devices")(together)


CASES: dict[str, Case] = {
    "unit_rows": Case(_at(_rows, _every), k.unit_rows),
    "independence_tolerance": Case(lambda rng: (), lambda: jnp.asarray(k.independence_tolerance("float32", D))),
    "orthonormal_basis": Case(_at(_rows, _some), partial(k.orthonormal_basis, max_rank=3)),
    "growing_basis": Case(_at(_rows), k.growing_basis),
    "project": Case(_at(_rows, _basis), k.project, (0, 1)),
    "reject": Case(_at(_rows, _basis), k.reject, (0, 1)),
    "captured": Case(_at(_rows, _basis), k.captured, (0, 1)),
    "energies": Case(_at(_rows, _every), k.energies),
    "residuals": Case(_at(_rows, _basis, _every), k.residuals),
    "coverage": Case(_at(_rows, _basis, _every), k.coverage),
    "residual_completion": Case(
        lambda rng: (_rows(rng), *_masks(rng), np.int32(3), np.float64(2)), partial(k.residual_completion, max_rank=3)
    ),
    "largest_residual": _selector(k.largest_residual, max_rank=3),
    "random_blocks": Case(
        lambda rng: (_rows(rng), *_masks(rng), np.int32(3), _key(rng)), lambda *a: k.random_blocks(*a[:5], key=a[5])
    ),
    "most_recent": _selector(k.most_recent),
    "most_similar": Case(
        lambda rng: (_rows(rng), *_masks(rng), np.int32(3), _vector(rng)), lambda *a: k.most_similar(*a[:5], query=a[5])
    ),
    "centroid_similarity": Case(_at(_rows, _some, _every), k.centroid_similarity),
    "captured_energy": Case(_at(_rows, _some, _every), partial(k.captured_energy, max_rank=3)),
    "action_projection": Case(_at(_vector, _basis), k.action_projection, (0, 1)),
    "action_ratio": Case(
        lambda rng: (_vector(rng), _basis(rng), np.linalg.qr(rng.standard_normal((D, 3)))[0].T), k.action_ratio, (0, 1)
    ),
    "topk_retention": Case(_at(_rows, _vector, _some), k.topk_retention),
    "low_energy_share": Case(_at(_vector, _spectrum), k.low_energy_share),
    "block_low_energy": Case(_at(_rows, _spectrum), k.block_low_energy),
    "action_alignment": Case(_at(_rows, _vector, _spectrum), k.action_alignment),
    "band_energies": Case(_at(_vector, _spectrum), partial(k.band_energies, bands=2)),
    "join": Case(
        lambda rng: (rng.standard_normal((N, 2)), _channels(rng), np.arange(N) < N - 1, _weights()), k.join, (0,)
    ),
    "joined_scores": Case(_joined, k.joined_scores, by=(0,)),
    "joined_search": Case(_joined, partial(k.joined_search, k=2), by=(0,)),
    "standardise": Case(lambda rng: (rng.standard_normal((N, 2)), np.arange(N) < N - 1), k.standardise),
    "span_energies": Case(_gram, _spans, (0, 1)),
    "gram_captured_energy": Case(_gram, _of_gram),
    "gram_centroid_similarity": Case(
        lambda rng: (_gram(rng)[0], _some(rng), _every(rng)), partial(k.gram_centroid_similarity, dim=D)
    ),
    "centered_rows": Case(_at(_rows, _every), k.centered_rows),
    "centered_spectrum": Case(_at(_rows), k.centered_spectrum),
    "energy_shares": Case(_at(_values), k.energy_shares),
    "effective_rank": Case(_at(_values), k.effective_rank),
    "rank_at_energy": Case(_at(_values), k.rank_at_energy),
    "feature_shift": Case(_at(_rows, _key), k.feature_shift),
    "gaussian_control": Case(_at(_rows, _key), k.gaussian_control),
    "empty_moments": Case(lambda rng: (), partial(k.empty_moments, D)),
    "merge_moments": Case(_at(_moments, _moments), k.merge_moments, (0, 1)),
    "unmerge_moments": Case(_unmerge, k.unmerge_moments, (0, 1)),
    "moments_from_rows": Case(_at(_rows, _every), partial(k.moments_from_rows, chunk=4)),
    "add_rows": Case(_at(_moments, _rows), k.add_rows, (0, 1)),
    "remove_rows": Case(lambda rng: (_moments(rng), _rows(rng)[:1]), k.remove_rows, (0, 1)),
    "psum_moments": Case(_at(_moments), _psum),
    "covariance": Case(_at(_moments), k.covariance),
    "low_rank_metric": Case(
        lambda rng: (rng.standard_normal(D), rng.standard_normal((D, 2)), rng.uniform(0.5, 2, D)),
        k.low_rank_metric,
        (0, 1, 2),
    ),
    "fit_metric": Case(_at(_moments), k.fit_metric),
    "fit_metric_from_rows": Case(_at(_rows), k.fit_metric_from_rows),
    "solve_metric": Case(_at(_metric, _rows), k.solve_metric, (0, 1)),
    "quadratic_form": Case(_at(_metric, _rows), k.quadratic_form, (0, 1)),
    "squared_distance": Case(_at(_metric, _rows, _rows), k.squared_distance, (1, 2)),
    "query_transform": Case(_at(_metric, _rows), k.query_transform, (0, 1)),
    "riemannian_score": Case(_at(_metric, _rows, _rows), k.riemannian_score, (1, 2)),
    "log_density": Case(_at(_metric, _rows), k.log_density, (0, 1)),
    "dense_covariance": Case(_at(_metric), k.dense_covariance),
    "condition_number": Case(_at(_metric), k.condition_number),
    "whitening_matrix": Case(_at(_metric), k.whitening_matrix),
    "prepare_queries": Case(_at(_metric, _rows), k.prepare_queries, (0, 1)),
    "memory_norms": Case(lambda rng: (_metric(rng), _rows(rng), np.int32(N)), partial(k.memory_norms, block=4)),
    "fuse": Case(
        lambda rng: (rng.uniform(size=N), rng.uniform(size=N), (0.0, 1.0), (-1.0, 2.0), np.float64(0.4)), k.fuse, (0, 1)
    ),
    "fused_search": Case(lambda rng: (*_search(rng)[:4], np.float64(0.5)), partial(k.fused_search, k=2), by=(0,)),
    "score_columns": Case(_search, partial(k.score_columns, form="cosine"), by=(0,)),
    "token_sensitivity": Case(_at(_rows, _rows), partial(k.token_sensitivity, _loss)),
    "token_norms": Case(_at(_rows), k.token_norms),
    "first_order_bound": Case(lambda rng: (rng.uniform(size=N), _some(rng)), partial(k.first_order_bound, dim=D)),
    "second_order_bound": Case(
        lambda rng: (rng.uniform(size=N), _rows(rng), _some(rng), np.float64(2)), k.second_order_bound, (0, 1)
    ),
    "average_pool": Case(_of_units("scores", "valid"), partial(k.average_pool, width=3)),
    "impute_ends": Case(_of_units("scores", "valid"), k.impute_ends),
    "normalised_ranks": Case(_of_units("scores", "valid"), k.normalised_ranks),
    "turn_decay": Case(_of_units("sentence"), partial(k.turn_decay, turns=2)),
    "protect_ends": Case(_of_units("sentence", "cost", "valid"), k.protect_ends),
    "prune_middle": Case(_of_units("scores", "sentence", "valid", "mask"), partial(k.prune_middle, keep=0.5)),
    "fill_gaps": Case(_of_units("mask", "sentence", "cost", "valid"), k.fill_gaps),
    "sentence_means": Case(
        lambda rng: (_units(rng)["scores"], rng.uniform(1, 2, N), _units(rng)["sentence"]),
        partial(k.sentence_means, sentences=2),
        (0, 1),
    ),
    "select_sentences": Case(
        lambda rng: (*_of_units("scores", "cost", "valid", "sentence")(rng), np.ones(2, np.int32), np.int32(4)),
        k.select_sentences,
    ),
    "knapsack": Case(_of_units("scores", "cost", "valid"), partial(k.knapsack, budget=3)),
    "causal_attention": Case(_heads, partial(k.causal_attention, block=4), (0, 1, 2)),
    "cached_attention": Case(_kept_heads, k.cached_attention, (0, 1, 2)),
    "full_attention": Case(_heads, partial(k.full_attention, block=4), (0, 1, 2)),
    "cross_entropy": Case(_predictions, partial(k.cross_entropy, chunk=3), outputs=0),
}


def public() -> list[str]:
    """The kernels that are functions, module by module."""
    names = [name for name in k._PUBLIC if not inspect.isclass(getattr(k, name))]
    return [name for name in names if not name[0].isupper()]


def _floats(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]


@dataclasses.dataclass(frozen=True)
class Moving:
    """A kernel as a function of the floats that it is differentiated by."""

    call: Callable[..., list[Any]]
    at: tuple[Any, ...]


def moving(case: Case, seed: int = 1) -> Moving | None:
    """The floats of the arguments `case.by`, and the floats that come out; None without any of either."""
    args = case.make(np.random.default_rng(seed))
    leaves, structure = jax.tree.flatten([args[i] for i in case.by if i < len(args)])
    places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]

    def of(*floats: Any) -> list[Any]:
        filled = list(leaves)
        for place, value in zip(places, floats, strict=True):
            filled[place] = value
        given = list(args)
        for place, value in zip(case.by, jax.tree.unflatten(structure, filled), strict=False):
            given[place] = value
        found = case.call(*given)
        return _floats(found if case.outputs is None else found[case.outputs])

    at = tuple(jnp.asarray(leaves[i]) for i in places)
    return Moving(of, at) if at and jax.eval_shape(of, *at) else None


def batch_of(case: Case) -> tuple[Any, ...]:
    """Two different items, stacked."""
    items = [case.make(np.random.default_rng(seed)) for seed in (1, 2)]
    stacked: tuple[Any, ...] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *items)
    return stacked


def _vmap(case: Case) -> str:
    batch = batch_of(case)
    return "yes" if batch and jax.eval_shape(jax.vmap(case.call), *batch) else "-"


def _grad(case: Case) -> str:
    one = moving(case)
    if one is None:
        return "-"
    modes = []
    traced = jax.make_jaxpr(lambda at, along: jax.jvp(one.call, at, along)[1])(one.at, one.at)
    # A rule for reverse mode alone is refused when it is evaluated; the trace has its residuals only.
    if "custom_lin" not in str(traced):
        modes.append("forward")
        _, used = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
        if not any(used[len(one.at) :]):
            return "zero"
    try:
        results = jax.eval_shape(one.call, *one.at)
        jax.eval_shape(lambda at, back: jax.vjp(one.call, *at)[1](back), one.at, results)
    except ValueError as error:
        if "has no reverse-mode gradient" not in str(error):
            raise
    else:
        modes.append("reverse")
    return "both" if len(modes) == 2 else modes[0]


def _single(leaf: Any) -> Any:
    leaf = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    return leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf


def _from_16_bits(case: Case) -> str:
    args = list(case.make(np.random.default_rng(1)))
    rows = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and np.issubdtype(a.dtype, np.floating)]
    if not rows:
        return "-"
    args[rows[0]] = args[rows[0]].astype(jnp.bfloat16)
    # Beside 16-bit rows all else is float32, as it comes outside of this table.
    single = [jax.tree.map(_single, argument) for argument in args]
    found = _floats(jax.eval_shape(case.call, *single))
    names = {str(leaf.dtype) for leaf in found}
    return " and ".join(sorted(names)) if names else "-"


def row(name: str) -> str:
    """One line of the table."""
    case = CASES[name]
    with enable_x64(True):
        compiled = "compiled" if hasattr(getattr(k, name), "lower") else "yes"
        cells = [compiled, _vmap(case), _grad(case), _from_16_bits(case)]
    return f"| `{name}` | {' | '.join(cells)} |"


def on_page() -> dict[str, str]:
    """The lines of the page's table by kernel."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text[text.index(HEADER) + len(HEADER) :].lstrip("\n").split("\n\n")[0].splitlines()
    return {line.split("`")[1]: line for line in lines}


def table() -> Iterator[str]:
    """All lines, in the order of the modules."""
    yield HEADER
    for name in public():
        yield EXEMPT.get(name) or row(name)


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)

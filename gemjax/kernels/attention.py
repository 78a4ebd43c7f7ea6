"""Attention in blocks of queries: scores are never all in memory, and the causal backward pass makes them again."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels._checks import require, require_positive, working_dtype

_Residuals = tuple[Array, Array, Array, Array, Array, Array]
_Block = tuple[int, int]

# Blocks that the compiler may hold at once: it starts all that do not wait for each other, and on CPU, memory that is
# handed back to the system and taken again costs more than the products.
_TOGETHER = 4


def causal_attention(
    q: Float[Array, "n heads d"],
    k: Float[Array, "n groups d"],
    v: Float[Array, "n groups d"],
    valid: Bool[Array, "n"],
    block: int = 128,
) -> Float[Array, "n heads d"]:
    r"""Grouped-query causal attention $\mathrm{softmax}(q k^\top / \sqrt d)\, v$ of one sequence.

    Each block of queries meets only the keys up to its own end, which halves the work of a full square, and its weights
    live only while it is computed: memory is `O(n * block)` a head. On CPU the groups go one after another, each
    product over all cores; elsewhere together. Take batches by `jax.vmap`.

    Args:
        q: queries, `[n, heads, d]`; head `h` reads the keys of group `h // (heads / groups)`.
        k: keys, `[n, groups, d]`.
        v: values, `[n, groups, d]`.
        valid: False for padding, `[n]`: no query looks at it. A query that may look at nothing (padding at the left)
            gets an average, finite and without meaning.
        block: queries in a block, static.

    Returns: `[n, heads, d]`. Reverse mode has its own rule; forward mode (`jax.jvp`) has none.

    Raises: ValueError for a wrong shape.
    """
    return _causal(*_checked(q, k, v, valid, block), block)


def full_attention(
    q: Float[Array, "n heads d"],
    k: Float[Array, "n groups d"],
    v: Float[Array, "n groups d"],
    valid: Bool[Array, "n"],
    block: int = 128,
) -> Float[Array, "n heads d"]:
    """As `causal_attention`, every query seeing all valid keys: for encoders of whole texts.

    Args:
        q: queries, `[n, heads, d]`.
        k: keys, `[n, groups, d]`.
        v: values, `[n, groups, d]`.
        valid: False for padding, `[n]`.
        block: queries in a block, static.

    Returns: `[n, heads, d]`. Gradients exist in both modes; reverse mode keeps all weights in memory.

    Raises: ValueError for a wrong shape.
    """
    q, k, v, valid = _checked(q, k, v, valid, block)
    return _attend(*_by_group(q, k, v), valid, block, causal=False)[0]


def _checked(q: Array, k: Array, v: Array, valid: Array, block: int) -> tuple[Array, Array, Array, Array]:
    """The arguments as JAX arrays in their working dtype."""
    q = require("q", q, (None, None, None))
    n, heads, d = q.shape
    k = require("k", k, (n, None, d))
    v = require("v", v, k.shape)
    if not k.shape[1] or heads % k.shape[1]:
        raise ValueError(f"`k` has {k.shape[1]} groups; expected a number that divides the {heads} heads of `q`")
    require_positive("block", block)
    dtype = working_dtype(q, k, v)
    return q.astype(dtype), k.astype(dtype), v.astype(dtype), require("valid", valid, (n,), "bool")


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _causal(q: Array, k: Array, v: Array, valid: Array, block: int) -> Array:
    return _forward(q, k, v, valid, block)[0]


def _by_group(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Scaled queries `[groups, heads / groups, n, d]`, keys and values `[groups, n, d]`."""
    return _grouped(q * q.shape[-1] ** -0.5, k.shape[1]), k.transpose(1, 0, 2), v.transpose(1, 0, 2)


def _grouped(q: Array, groups: int) -> Array:
    n, heads, d = q.shape
    return q.reshape(n, groups, heads // groups, d).transpose(1, 2, 0, 3)


def _ungrouped(x: Array) -> Array:
    groups, share, n, d = x.shape
    return x.transpose(2, 0, 1, 3).reshape(n, groups * share, d)


def _segments(n: int, block: int) -> list[list[_Block]]:
    blocks = [(start, min(start + block, n)) for start in range(0, n, block)]
    return [blocks[i : i + _TOGETHER] for i in range(0, len(blocks), _TOGETHER)]


def _each_group(one: Callable[..., tuple[Array, ...]], *groups: Array) -> tuple[Array, ...]:
    """`one` of every group; on CPU in turn, which keeps what it holds in the cache."""

    def in_turn(*groups: Array) -> tuple[Array, ...]:
        out: tuple[Array, ...] = jax.lax.map(lambda group: one(*group), groups)
        return out

    out: tuple[Array, ...] = jax.lax.platform_dependent(*groups, cpu=in_turn, default=jax.vmap(one))
    return out


def _bias(valid: Array, start: int, stop: int, keys: int, causal: bool, dtype: jnp.dtype) -> Array:
    """What is added to the scores of the queries `start:stop` against the first `keys` keys, `[block, keys]`."""
    seen = valid[None, :keys]
    if causal:
        seen &= jnp.arange(start, stop)[:, None] >= jnp.arange(keys)[None, :]
    # Finite, so that a row without any key gives an average and not NaN.
    return jnp.where(seen, 0.0, jnp.finfo(dtype).min / 2).astype(dtype)


def _attend(q: Array, k: Array, v: Array, valid: Array, block: int, causal: bool) -> tuple[Array, Array, Array]:
    """The result, and by group: the result and the logarithm of every query's softmax denominator."""
    n = q.shape[2]
    parts = []
    for blocks in _segments(n, block):
        (begin, _), (_, end) = blocks[0], blocks[-1]
        one = functools.partial(_attend_segment, valid=valid, blocks=blocks, causal=causal)
        keys = end if causal else n
        parts.append(_each_group(one, q[:, :, begin:end], k[:, :keys], v[:, :keys]))
    out, log = (jnp.concatenate(x, 2) for x in zip(*parts, strict=True))
    return _ungrouped(out), out, log


def _attend_segment(
    q: Array, k: Array, v: Array, *, valid: Array, blocks: list[_Block], causal: bool
) -> tuple[Array, Array]:
    """One group's queries `[share, segment, d]` and all the keys that they may look at, `[keys, d]`."""
    share, _, d = q.shape
    begin = blocks[0][0]
    outs, logs = [], []
    for start, stop in blocks:
        rows, keys = share * (stop - start), stop if causal else len(k)
        scores = q[:, start - begin : stop - begin].reshape(rows, d) @ k[:keys].T
        scores = scores.reshape(share, stop - start, keys) + _bias(valid, start, stop, keys, causal, q.dtype)
        top = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - top).reshape(rows, keys)
        # A product with ones: faster on CPU than a reduction, and its blocked summation is more accurate.
        total = weights @ jnp.ones((keys, 1), q.dtype)
        outs.append((weights @ v[:keys] / total).reshape(share, stop - start, d))
        logs.append(top[..., 0] + jnp.log(total).reshape(share, stop - start))
    return jnp.concatenate(outs, 1), jnp.concatenate(logs, 1)


def _forward(q: Array, k: Array, v: Array, valid: Array, block: int) -> tuple[Array, _Residuals]:
    by_group = _by_group(q, k, v)
    result, out, log = _attend(*by_group, valid, block, causal=True)
    return result, (*by_group, valid, out, log)


def _backward(block: int, residuals: _Residuals, gradient: Array) -> tuple[Array, Array, Array, None]:
    q, k, v, valid, out, log = residuals
    groups, _, n, d = q.shape
    g = _grouped(gradient, groups)
    inner = jnp.sum(g * out, -1)
    dk, dv = jnp.zeros_like(k), jnp.zeros_like(v)
    dqs = []
    for blocks in _segments(n, block):
        (begin, _), (_, end) = blocks[0], blocks[-1]
        one = functools.partial(_backward_segment, valid=valid, blocks=blocks)
        queries = (x[:, :, begin:end] for x in (q, g, inner, log))
        dq, dk, dv = _each_group(one, *queries, k, v, dk, dv)
        dqs.append(dq)
    return _ungrouped(jnp.concatenate(dqs, 2)) * d**-0.5, dk.transpose(1, 0, 2), dv.transpose(1, 0, 2), None


def _backward_segment(
    q: Array,
    g: Array,
    inner: Array,
    log: Array,
    k: Array,
    v: Array,
    dk: Array,
    dv: Array,
    *,
    valid: Array,
    blocks: list[_Block],
) -> tuple[Array, Array, Array]:
    """One group's gradients by a segment's queries; those by its keys and values are added to `dk` and `dv`."""
    share, _, d = q.shape
    begin = blocks[0][0]
    dq = []
    for start, stop in blocks:
        width, here = stop - start, slice(start - begin, stop - begin)
        rows = share * width
        queries, gs = q[:, here].reshape(rows, d), g[:, here].reshape(rows, d)
        # Keys first: of the three products at the end only one then needs a transposed left side.
        bias = _bias(valid, start, stop, stop, True, q.dtype).T[:, None]
        scores = (k[:stop] @ queries.T).reshape(stop, share, width) + bias
        weights = jnp.exp(scores - log[None, :, here])
        dw = (v[:stop] @ gs.T).reshape(weights.shape)
        ds = (weights * (dw - inner[None, :, here])).reshape(stop, rows)
        dq.append((ds.T @ k[:stop]).reshape(share, width, d))
        dk = dk.at[:stop].add(ds @ queries)
        dv = dv.at[:stop].add(weights.reshape(stop, rows) @ gs)
    return jnp.concatenate(dq, 1), dk, dv


_causal.defvjp(_forward, _backward)


def cached_attention(
    q: Float[Array, "n heads d"],
    k: Float[Array, "groups m d"],
    v: Float[Array, "groups m d"],
    start: Int[Array, ""] | int,
) -> Float[Array, "n heads d"]:
    r"""Causal attention of new positions over all that are kept: $\mathrm{softmax}(q k^\top / \sqrt d)\, v$.

    The query at position `start + i` sees the keys `0 ... start + i`; what lies behind may hold anything finite.
    Memory is `O(n * m)` a head: give long prompts in chunks. Take batches by `jax.vmap`.

    Args:
        q: queries of the new positions, `[n, heads, d]`; head `h` reads the keys of group `h // (heads / groups)`.
        k: kept keys, those of the new positions included, `[groups, m, d]`.
        v: kept values, `[groups, m, d]`.
        start: position of the first query, at least 0 and at most `m - n`.

    Returns: `[n, heads, d]`. Gradients exist in both modes.

    Raises: ValueError for a wrong shape.
    """
    q = require("q", q, (None, None, None))
    n, heads, d = q.shape
    k = require("k", k, (None, None, d))
    v = require("v", v, k.shape)
    groups, m = k.shape[:2]
    if not groups or heads % groups:
        raise ValueError(f"`k` has {groups} groups; expected a number that divides the {heads} heads of `q`")
    if n > m:
        raise ValueError(f"`q` has {n} positions; expected at most the {m} that are kept")
    dtype = working_dtype(q, k, v)
    scaled = _grouped((q * d**-0.5).astype(dtype), groups)
    scores = jnp.einsum("gsnd,gmd->gsnm", scaled, k.astype(dtype))
    seen = jnp.arange(m) <= jnp.asarray(start) + jnp.arange(n)[:, None]
    weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
    return _ungrouped(jnp.einsum("gsnm,gmd->gsnd", weights, v.astype(dtype)))

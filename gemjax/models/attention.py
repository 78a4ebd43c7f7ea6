"""Attention in blocks of queries: scores are never all in memory, and the causal backward pass makes them again."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_Residuals = tuple[Array, Array, Array, Array, Array, Array]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def causal_attention(
    q: Float[Array, "n heads d"],
    k: Float[Array, "n groups d"],
    v: Float[Array, "n groups d"],
    valid: Bool[Array, "n"],
    block: int = 128,
) -> Float[Array, "n heads d"]:
    r"""Grouped-query causal attention $\mathrm{softmax}(q k^\top / \sqrt d)\, v$ of one sequence.

    Each block of queries meets only the keys up to its own end, which halves the work of a full square, and its weights
    live only while it is computed: memory is `O(n * block)` a head. Take batches by `jax.vmap`.

    Args:
        q: queries, `[n, heads, d]`; head `h` reads the keys of group `h // (heads / groups)`.
        k, v: keys and values, `[n, groups, d]`.
        valid: False for padding: no query looks at it. A query that may look at nothing (padding at the left) gets an
            average, finite and without meaning.
        block: queries in a block.
    """
    return _forward(q, k, v, valid, block)[0]


def _bounds(n: int, block: int) -> list[tuple[int, int]]:
    return [(start, min(start + block, n)) for start in range(0, n, block)]


def _grouped(q: Array, groups: int) -> Array:
    """`[n, heads, d]` to `[groups, heads / groups, n, d]`."""
    n, heads, d = q.shape
    return q.reshape(n, groups, heads // groups, d).transpose(1, 2, 0, 3)


def _ungrouped(x: Array) -> Array:
    groups, share, n, d = x.shape
    return x.transpose(2, 0, 1, 3).reshape(n, groups * share, d)


def _bias(valid: Array, start: int, stop: int, dtype: jnp.dtype) -> Array:
    causal = jnp.arange(start, stop)[:, None] >= jnp.arange(stop)[None, :]
    # Finite, so that a row without any key gives an average and not NaN.
    return jnp.where(causal & valid[None, :stop], 0.0, jnp.finfo(dtype).min / 2).astype(dtype)


def _scores(q: Array, k: Array, valid: Array, start: int, stop: int) -> Array:
    """Scores of the queries `start:stop` against the keys `:stop`, `[groups, share, block, keys]`."""
    groups, share, _, d = q.shape
    rows = q[:, :, start:stop].reshape(groups, share * (stop - start), d)
    scores = (rows @ k[:, :stop].swapaxes(1, 2)).reshape(groups, share, stop - start, stop)
    return scores + _bias(valid, start, stop, q.dtype)


def _forward(q: Array, k: Array, v: Array, valid: Array, block: int) -> tuple[Array, _Residuals]:
    groups, d = k.shape[1:]
    qs, ks, vs = _grouped(q * d**-0.5, groups), k.transpose(1, 0, 2), v.transpose(1, 0, 2)
    share = qs.shape[1]
    outs, logs = [], []
    for start, stop in _bounds(q.shape[0], block):
        scores = _scores(qs, ks, valid, start, stop)
        top = scores.max(-1, keepdims=True)
        weights = jnp.exp(scores - top).reshape(groups, share * (stop - start), stop)
        # A product with ones: faster on CPU than a reduction, and its blocked summation is more accurate.
        total = weights @ jnp.ones((groups, stop, 1), q.dtype)
        outs.append(((weights @ vs[:, :stop]) / total).reshape(groups, share, stop - start, d))
        logs.append(top[..., 0] + jnp.log(total).reshape(groups, share, stop - start))
    out = jnp.concatenate(outs, 2)
    return _ungrouped(out), (qs, ks, vs, valid, out, jnp.concatenate(logs, 2))


def _backward(block: int, residuals: _Residuals, gradient: Array) -> tuple[Array, Array, Array, None]:
    q, k, v, valid, out, log = residuals
    groups, share, n, d = q.shape
    g = _grouped(gradient, groups)
    inner = jnp.sum(g * out, -1, keepdims=True)
    bounds = _bounds(n, block)
    dq = []
    dk = [jnp.zeros((groups, stop - start, d), q.dtype) for start, stop in bounds]
    dv = list(dk)
    for start, stop in bounds:
        rows = share * (stop - start)
        weights = jnp.exp(_scores(q, k, valid, start, stop) - log[:, :, start:stop, None])
        gb = g[:, :, start:stop].reshape(groups, rows, d)
        dw = (gb @ v[:, :stop].swapaxes(1, 2)).reshape(weights.shape)
        ds = (weights * (dw - inner[:, :, start:stop])).reshape(groups, rows, stop)
        dq.append((ds @ k[:, :stop]).reshape(groups, share, stop - start, d))
        new_k = ds.swapaxes(1, 2) @ q[:, :, start:stop].reshape(groups, rows, d)
        new_v = weights.reshape(groups, rows, stop).swapaxes(1, 2) @ gb
        for i, (a, b) in enumerate(bounds[: len(dq)]):
            dk[i] = dk[i] + new_k[:, a:b]
            dv[i] = dv[i] + new_v[:, a:b]
    back = [jnp.concatenate(x, 1).transpose(1, 0, 2) for x in (dk, dv)]
    return _ungrouped(jnp.concatenate(dq, 2)) * d**-0.5, back[0], back[1], None


causal_attention.defvjp(_forward, _backward)


def full_attention(
    q: Float[Array, "n heads d"],
    k: Float[Array, "n groups d"],
    v: Float[Array, "n groups d"],
    valid: Bool[Array, "n"],
    block: int = 128,
) -> Float[Array, "n heads d"]:
    """As `causal_attention`, every query seeing all valid keys: for encoders of whole texts, forward only in mind."""
    groups, d = k.shape[1:]
    qs, ks, vs = _grouped(q * d**-0.5, groups), k.transpose(1, 0, 2), v.transpose(1, 0, 2)
    bias = jnp.where(valid, 0.0, jnp.finfo(q.dtype).min / 2).astype(q.dtype)
    outs = []
    for start, stop in _bounds(q.shape[0], block):
        rows = qs[:, :, start:stop].reshape(groups, -1, d)
        weights = jax.nn.softmax(rows @ ks.swapaxes(1, 2) + bias, -1)
        outs.append((weights @ vs).reshape(groups, qs.shape[1], stop - start, d))
    return _ungrouped(jnp.concatenate(outs, 2))

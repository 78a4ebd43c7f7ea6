"""Cross-entropy of the next token without ever holding `[tokens, vocabulary]` logits."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gemjax.kernels._checks import require, require_positive, working_dtype


def cross_entropy(
    hidden: Float[Array, "n d"],
    head: Float[Array, "vocab d"],
    targets: Int[Array, "n"],
    weights: Float[Array, "n"],
    chunk: int = 1024,
) -> tuple[Float[Array, ""], Float[Array, "n"]]:
    r"""Weighted sum $\sum_i w_i \ell_i$ of $\ell_i = -\log \mathrm{softmax}(W h_i)_{t_i}$, and the $\ell_i$, in nats.

    Logits exist for `chunk` entries of the vocabulary at a time: their running maximum and sum are all that a loss
    needs. Its gradient, $(\mathrm{softmax}(W h) - e_t) W$, is made in the same pass (the weights are known by then) as
    attention over the vocabulary, so the backward pass neither keeps nor repeats logits. Differentiable in the first
    result with respect to `hidden` only: the model is frozen.

    Args:
        hidden: last hidden states, `[n, d]`.
        head: output embedding, one row a vocabulary entry, `[vocab, d]`.
        targets: the token each position should predict, `0 <= targets < vocab`, `[n]`; any value where the weight is 0.
        weights: 0 leaves a position out, `[n]`.
        chunk: vocabulary entries a block of logits covers, static; memory is `O(n * chunk)`.

    Returns: the weighted sum, a scalar, and the $\ell_i$, `[n]`. Reverse mode has its own rule; forward mode has none.

    Raises: ValueError for a wrong shape.
    """
    hidden = require("hidden", hidden, (None, None))
    n, d = hidden.shape
    head = require("head", head, (None, d))
    targets, weights = require("targets", targets, (n,), "int"), require("weights", weights, (n,))
    require_positive("chunk", chunk)
    dtype = working_dtype(hidden, head, weights)
    return _cross_entropy(hidden.astype(dtype), head.astype(dtype), targets, weights.astype(dtype), chunk)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _cross_entropy(hidden: Array, head: Array, targets: Array, weights: Array, chunk: int) -> tuple[Array, Array]:
    return _forward(hidden, head, targets, weights, chunk, with_gradient=False)[0]


def _forward(
    hidden: Array, head: Array, targets: Array, weights: Array, chunk: int, with_gradient: bool = True
) -> tuple[tuple[Array, Array], Array | None]:
    n, vocab, dtype = hidden.shape[0], head.shape[0], hidden.dtype
    chunk = min(chunk, vocab)

    def meet(state: tuple[Array, Array, Array | None], rows: Array) -> tuple[Array, Array, Array | None]:
        """One block of the vocabulary: what came before is rescaled to the new maximum."""
        top, total, mean = state
        logits = hidden @ rows.T
        new = jnp.maximum(top, logits.max(-1, keepdims=True))
        exps, scale = jnp.exp(logits - new), jnp.exp(top - new)
        total = total * scale + exps @ jnp.ones((exps.shape[1], 1), dtype)
        return new, total, None if mean is None else mean * scale + exps @ rows

    start = (
        jnp.full((n, 1), -jnp.inf, dtype),
        jnp.zeros((n, 1), dtype),
        jnp.zeros_like(hidden) if with_gradient else None,
    )
    whole = vocab // chunk
    state = jax.lax.fori_loop(
        0, whole, lambda i, state: meet(state, jax.lax.dynamic_slice_in_dim(head, i * chunk, chunk)), start
    )
    if whole * chunk < vocab:
        state = meet(state, head[whole * chunk :])
    top, total, mean = state
    goal = jnp.asarray(head)[targets]
    # The target's logit is summed in another order here than in its block: a sure token would come out just below 0.
    losses = jnp.maximum((top + jnp.log(total))[:, 0] - jnp.sum(hidden * goal, -1), 0.0)
    gradient = None if mean is None else (mean / total - goal) * weights[:, None]
    return (jnp.sum(jnp.where(weights != 0, losses * weights, 0.0)), losses), gradient


def _backward(chunk: int, gradient: Array, cotangents: tuple[Array, Array]) -> tuple[Array, None, None, None]:
    return gradient * cotangents[0], None, None, None


_cross_entropy.defvjp(_forward, _backward)

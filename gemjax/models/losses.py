"""Cross-entropy of the next token without ever holding `[tokens, vocabulary]` logits."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def cross_entropy(
    hidden: Float[Array, "n d"],
    head: Float[Array, "vocab d"],
    targets: Int[Array, "n"],
    weights: Float[Array, "n"],
    chunk: int = 128,
) -> tuple[Float[Array, ""], Float[Array, "n"]]:
    r"""Weighted sum $\sum_i w_i \ell_i$ of $\ell_i = -\log \mathrm{softmax}(W h_i)_{t_i}$, and the $\ell_i$, in nats.

    Logits exist for `chunk` positions at a time. The gradient with respect to `hidden` is made in the same pass (the
    weights are known by then), so the backward pass neither keeps nor repeats them. Differentiable in the first result
    with respect to `hidden` only: the model is frozen.

    Args:
        hidden: last hidden states, `[n, d]`.
        head: output embedding, one row a vocabulary entry.
        targets: the token each position should predict, `0 <= targets < vocab`; any value where the weight is 0.
        weights: 0 leaves a position out.
        chunk: positions a block of logits covers.
    """
    return _forward(hidden, head, targets, weights, chunk, with_gradient=False)[0]


def _forward(
    hidden: Array, head: Array, targets: Array, weights: Array, chunk: int, with_gradient: bool = True
) -> tuple[tuple[Array, Array], Array | None]:
    n, d = hidden.shape
    pad = -n % min(chunk, n)
    blocks = (n + pad) // min(chunk, n)
    rows = jnp.pad(hidden, ((0, pad), (0, 0))).reshape(blocks, -1, d)
    goal = jnp.pad(targets, (0, pad)).reshape(blocks, -1)
    weight = jnp.pad(weights, (0, pad)).reshape(blocks, -1)

    def block(_: None, part: tuple[Array, Array, Array]) -> tuple[None, tuple[Array, Array | None]]:
        h, t, w = part
        logits = h @ head.T
        logits = logits - logits.max(-1, keepdims=True)
        exps = jnp.exp(logits)
        total = exps @ jnp.ones((exps.shape[1], 1), exps.dtype)
        picked = jnp.take_along_axis(logits, t[:, None], 1)
        loss = (jnp.log(total) - picked)[:, 0]
        if not with_gradient:
            return None, (loss, None)
        # softmax - onehot, without writing the one-hot matrix: its product with the head is a row of the head.
        grad = (exps @ head) / total - head[t]
        return None, (loss, grad * w[:, None])

    _, (losses, grads) = jax.lax.scan(block, None, (rows, goal, weight))
    losses = losses.reshape(-1)[:n]
    gradient = None if grads is None else grads.reshape(-1, d)[:n]
    return (jnp.sum(jnp.where(weights != 0, losses * weights, 0.0)), losses), gradient


def _backward(chunk: int, gradient: Array, cotangents: tuple[Array, Array]) -> tuple[Array, None, None, None]:
    return gradient * cotangents[0], None, None, None


cross_entropy.defvjp(_forward, _backward)

"""Fisher sensitivity of tokens to a loss, its smoothing, and what it bounds (CoreMem, section 3.3, Appendix F)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gemjax.kernels._checks import require_rank, require_shape


class Sensitivity(NamedTuple):
    """What one backward pass says about every token.

    Attributes:
        scores: $S_i = \\lVert g_i \\odot h_i \\rVert_2$, `[n]`, in the loss's unit, never negative.
        products: $\\langle g_i, h_i \\rangle$, `[n]`: the loss falls by about this much when token i's embedding is
            set to zero.
        loss: the loss itself, a scalar.
        detail: what the loss function returned beside the loss.
    """

    scores: Array
    products: Array
    loss: Array
    detail: Any


def sensitivity(loss: Callable[..., Any], embeddings: Float[Array, "n d"], *args: Any) -> Sensitivity:
    r"""Sensitivity $S_i = \lVert \nabla_{h_i} L \odot h_i \rVert_2$ of each token (Eq. 3, 6) for any loss.

    $S_i^2 = \sum_j g_{ij}^2 h_{ij}^2$ is exactly the trace of the diagonal empirical Fisher of $h_i$ weighted by
    $h_i^2$. One forward and one backward pass; jit- and vmap-safe.

    Args:
        loss: `loss(embeddings, *args) -> (scalar, detail)`; the detail (any pytree, or None) is handed on.
        embeddings: input embeddings $h$, `[n, d]`.
        args: passed on, not differentiated.
    """
    require_rank("embeddings", embeddings, 2)
    (value, detail), gradient = jax.value_and_grad(loss, has_aux=True)(embeddings, *args)
    weighted = gradient * embeddings
    return Sensitivity(token_norms(weighted), weighted.sum(-1), value, detail)


def token_norms(weighted: Float[Array, "n d"]) -> Float[Array, "n"]:
    """Euclidean norm of each row without overflow or underflow of the squares; a zero row gives 0."""
    top = jnp.max(jnp.abs(weighted), -1, keepdims=True)
    safe = jnp.where(top > 0, top, 1)
    return jnp.sqrt(jnp.sum(jnp.square(weighted / safe), -1)) * top[..., 0]


def first_order_bound(scores: Float[Array, "n"], dropped: Bool[Array, "n"], dim: int) -> Float[Array, ""]:
    r"""$\sqrt d \sum_{i\ \mathrm{dropped}} S_i$: no first-order change of the loss is larger.

    Setting the embeddings of the dropped tokens to zero changes the loss by $-\sum_i \langle g_i, h_i \rangle$ to first
    order, and $|\langle g_i, h_i \rangle| \le \lVert g_i \odot h_i \rVert_1 \le \sqrt d\, S_i$ (Cauchy-Schwarz). This
    is what of the paper's Eq. 8 can be proved; it needs no Lipschitz constant, and says nothing about another model.

    Args:
        scores: $S$, `[n]`.
        dropped: which tokens are ablated.
        dim: $d$, the embedding's size.
    """
    require_shape("dropped", dropped, tuple(scores.shape))
    return jnp.sqrt(jnp.asarray(dim, scores.dtype)) * jnp.sum(jnp.where(dropped, scores, 0))


def second_order_bound(
    scores: Float[Array, "n"],
    embeddings: Float[Array, "n d"],
    dropped: Bool[Array, "n"],
    smoothness: Float[Array, ""] | float,
) -> Float[Array, ""]:
    r"""First-order bound $+ \frac{\Lambda}{2} \sum_{i\ \mathrm{dropped}} \lVert h_i \rVert^2$, for a smooth loss.

    Args:
        scores: as for `first_order_bound`.
        dropped: as for `first_order_bound`.
        embeddings: $h$, `[n, d]`.
        smoothness: a Lipschitz constant of the gradient on the segment between the two inputs.
    """
    require_shape("embeddings", embeddings, (*scores.shape, embeddings.shape[-1]))
    energy = jnp.sum(jnp.where(dropped, jnp.sum(jnp.square(embeddings), -1), 0))
    return first_order_bound(scores, dropped, embeddings.shape[-1]) + 0.5 * smoothness * energy


def average_pool(scores: Float[Array, "n"], valid: Bool[Array, "n"], width: int = 5) -> Float[Array, "n"]:
    """Centred moving average over the valid neighbours (Algorithm 2, line 10); padding neither gives nor gets.

    Args:
        scores: `[n]`.
        valid: False for padding; invalid positions give 0.
        width: odd; 1 changes nothing.
    """
    if width < 1 or width % 2 == 0:
        raise ValueError(f"width must be odd and at least 1, got {width}")
    require_shape("valid", valid, tuple(scores.shape))
    reach = width // 2
    weight = valid.astype(scores.dtype)

    def window_sum(x: Array) -> Array:
        padded = jnp.pad(x, reach)
        # A sum of shifts, not a difference of cumulative sums: that cancels where one score dwarfs the others.
        return sum((padded[i : i + x.shape[0]] for i in range(width)), jnp.zeros_like(x))

    count = window_sum(weight)
    return jnp.where(valid, window_sum(jnp.where(valid, scores, 0)) / jnp.maximum(count, 1), 0)


def impute_ends(
    scores: Float[Array, "n"], valid: Bool[Array, "n"], *, first: bool = True, last: bool = True
) -> Float[Array, "n"]:
    """Replace the first and the last valid token's score, which are artefacts, by the median of those between.

    The first token is an attention sink: its score is several times the others' whatever it says. The last token has no
    next token to predict: its score is exactly 0. With fewer than three valid tokens nothing can be imputed and all
    valid tokens get 1.

    Args:
        scores: `[n]`.
        valid: False for padding, at either end.
        first: whether to treat the first token; a window inside a longer text has only one artefact, or none.
        last: whether to treat the last token.
    """
    require_shape("valid", valid, tuple(scores.shape))
    index = jnp.arange(scores.shape[0])
    low = jnp.min(jnp.where(valid, index, scores.shape[0]))
    high = jnp.max(jnp.where(valid, index, -1))
    between = valid & (index > low) & (index < high)
    count = jnp.sum(between)
    ordered = jnp.sort(jnp.where(between, scores, jnp.inf))
    middle = 0.5 * (ordered[jnp.maximum(count - 1, 0) // 2] + ordered[count // 2])
    ends = ((index == low) & first) | ((index == high) & last)
    imputed = jnp.where(ends & valid, middle, scores)
    return jnp.where(valid, jnp.where(count > 0, imputed, 1.0), 0.0).astype(scores.dtype)


def normalised_ranks(scores: Float[Array, "n"], valid: Bool[Array, "n"]) -> Float[Array, "n"]:
    """Rank of each valid score among the valid ones, in (0, 1): `(rank + 0.5) / count`, ties by position; else 0.

    Sensitivities fall with position and with the text's length; ranks can be compared between texts.
    """
    require_shape("valid", valid, tuple(scores.shape))
    order = jnp.argsort(jnp.where(valid, scores, jnp.inf), stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
    return jnp.where(valid, (rank + 0.5) / jnp.maximum(jnp.sum(valid), 1), 0.0).astype(scores.dtype)

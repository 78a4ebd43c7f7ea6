"""Fisher sensitivity of tokens to a loss, its smoothing, and what it bounds (CoreMem, section 3.3, Appendix F)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from gemjax.kernels._checks import require, working_dtype
from gemjax.kernels.linalg import scaled_rows


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


def token_sensitivity(loss: Callable[..., Any], embeddings: Float[Array, "n d"], *args: Any) -> Sensitivity:
    r"""Sensitivity $S_i = \lVert \nabla_{h_i} L \odot h_i \rVert_2$ of each token (Eq. 3, 6) for any loss.

    $S_i^2 = \sum_j g_{ij}^2 h_{ij}^2$ is exactly the trace of the diagonal empirical Fisher of $h_i$ weighted by
    $h_i^2$. One forward and one backward pass; jit- and vmap-safe.

    Args:
        loss: `loss(embeddings, *args) -> (scalar, detail)`; the detail (any pytree, or None) is handed on.
        embeddings: input embeddings $h$, `[n, d]`.
        args: passed on, not differentiated.

    Returns: the `Sensitivity`.

    Raises: ValueError for a wrong shape.
    """
    embeddings = require("embeddings", embeddings, (None, None))
    (value, detail), gradient = jax.value_and_grad(loss, has_aux=True)(embeddings, *args)
    dtype = working_dtype(embeddings)
    weighted = gradient.astype(dtype) * embeddings.astype(dtype)
    return Sensitivity(token_norms(weighted), weighted.sum(-1), value, detail)


def token_norms(weighted: Float[Array, "n d"]) -> Float[Array, "n"]:
    """Euclidean norm of each row without overflow or underflow of the squares.

    Args:
        weighted: `[n, d]`.

    Returns: `[n]`; 0 for a zero row, and so is its gradient there.

    Raises: ValueError for a wrong shape.
    """
    weighted = require("weighted", weighted, (None, None))
    _, scale, square = scaled_rows(weighted.astype(working_dtype(weighted)))
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)) * scale, 0)


def first_order_bound(scores: Float[Array, "n"], dropped: Bool[Array, "n"], dim: int) -> Float[Array, ""]:
    r"""$\sqrt d \sum_{i\ \mathrm{dropped}} S_i$: no first-order change of the loss is larger (in place of Theorem 1).

    Setting the embeddings of the dropped tokens to zero changes the loss by $-\sum_i \langle g_i, h_i \rangle$ to first
    order, and $|\langle g_i, h_i \rangle| \le \lVert g_i \odot h_i \rVert_1 \le \sqrt d\, S_i$ (Cauchy-Schwarz). This
    is what of Theorem 1 (Eq. 8) can be proved; it needs no Lipschitz constant, and says nothing about another model.
    The theorem itself bounds the whole change by a Lipschitz constant times $\sum S_i$, which is wrong: at a stationary
    point every $S_i$ is 0 and the loss changes all the same.

    Args:
        scores: $S$, `[n]`.
        dropped: which tokens are ablated, `[n]`.
        dim: $d$, the embedding's size, static.

    Returns: a scalar, in the loss's unit.

    Raises: ValueError for a wrong shape.
    """
    scores = require("scores", scores, (None,))
    dropped = require("dropped", dropped, scores.shape, "bool")
    scores = scores.astype(working_dtype(scores))
    return jnp.sqrt(jnp.asarray(dim, scores.dtype)) * jnp.sum(jnp.where(dropped, scores, 0))


def second_order_bound(
    scores: Float[Array, "n"],
    embeddings: Float[Array, "n d"],
    dropped: Bool[Array, "n"],
    smoothness: Float[Array, ""] | float,
) -> Float[Array, ""]:
    r"""First-order bound $+ \frac{\Lambda}{2} \sum_{i\ \mathrm{dropped}} \lVert h_i \rVert^2$, for a smooth loss.

    This bounds the whole change and not its first order. $\Lambda$ of a language model is not known, so nothing in
    gemjax reports it for one: it is what stands in Theorem 1's place for losses whose smoothness is known.

    Args:
        scores: as for `first_order_bound`.
        embeddings: $h$, `[n, d]`.
        dropped: as for `first_order_bound`.
        smoothness: $\Lambda$, a Lipschitz constant of the gradient on the segment between the two inputs.

    Returns: a scalar, in the loss's unit.

    Raises: ValueError for a wrong shape.
    """
    embeddings = require("embeddings", embeddings, (*jnp.shape(scores), None))
    dropped = require("dropped", dropped, embeddings.shape[:1], "bool")
    embeddings = embeddings.astype(working_dtype(embeddings))
    energy = jnp.sum(jnp.where(dropped, jnp.sum(jnp.square(embeddings), -1), 0))
    return first_order_bound(scores, dropped, embeddings.shape[-1]) + 0.5 * smoothness * energy


def average_pool(scores: Float[Array, "n"], valid: Bool[Array, "n"], width: int = 5) -> Float[Array, "n"]:
    """Centred moving average over the valid neighbours (Algorithm 2, line 10); padding neither gives nor gets.

    Args:
        scores: `[n]`.
        valid: False for padding, `[n]`; invalid positions give 0.
        width: odd, static; 1 changes nothing.

    Returns: `[n]`.

    Raises: ValueError for a wrong shape or an even width.
    """
    if width < 1 or width % 2 == 0:
        raise ValueError(f"`width` is {width}; expected an odd number, at least 1")
    scores, valid = _per_token(scores, valid)
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

    Returns: `[n]`.

    Raises: ValueError for a wrong shape.
    """
    scores, valid = _per_token(scores, valid)
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

    Args:
        scores: `[n]`.
        valid: False for padding, `[n]`.

    Returns: `[n]`.

    Raises: ValueError for a wrong shape.
    """
    scores, valid = _per_token(scores, valid)
    order = jnp.argsort(jnp.where(valid, scores, jnp.inf), stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
    return jnp.where(valid, (rank + 0.5) / jnp.maximum(jnp.sum(valid), 1), 0.0).astype(scores.dtype)


def _per_token(scores: Float[Array, "n"], valid: Bool[Array, "n"]) -> tuple[Array, Array]:
    """Both as JAX arrays, the scores in their working dtype."""
    scores = require("scores", scores, (None,))
    return scores.astype(working_dtype(scores)), require("valid", valid, scores.shape, "bool")

"""A Llama / Qwen decoder in Flax that takes input embeddings, so that a loss can be differentiated by them.

The weights are an explicit argument (`graph, params = nnx.split(decoder)`), so `jax.grad`, `jit` and `vmap` apply.
Everything is written for one sequence; take batches by `jax.vmap`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from gemjax.kernels.attention import causal_attention, full_attention
from gemjax.models.config import DecoderConfig, rotary_frequencies


class Rotary(NamedTuple):
    """Cosines and sines of each position's rotary angles, `[n, head_dim / 2]`."""

    cos: Array
    sin: Array


def rotary(config: DecoderConfig, positions: Int[Array, "n"]) -> Rotary:
    """Rotary angles in float32, whatever the weights' dtype: in bfloat16 neighbouring positions would coincide."""
    frequencies = rotary_frequencies(config.rope_theta, config.head_dim)
    if config.rope_divisors is not None:
        frequencies = frequencies / np.asarray(config.rope_divisors)
    angles = positions.astype(jnp.float32)[:, None] * jnp.asarray(frequencies, jnp.float32)
    return Rotary(jnp.cos(angles), jnp.sin(angles))


def rotate(x: Float[Array, "n heads d"], angles: Rotary) -> Float[Array, "n heads d"]:
    """Rotate the pairs `(x[i], x[i + d / 2])` of every head by the position's angles."""
    a, b = jnp.split(x, 2, axis=-1)
    cos, sin = angles.cos[:, None].astype(x.dtype), angles.sin[:, None].astype(x.dtype)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def rms_norm(x: Float[Array, "... d"], scale: Float[Array, "d"], eps: float) -> Float[Array, "... d"]:
    """Root-mean-square normalisation over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + eps) * scale


class DecoderLayer(nnx.Module):
    """Attention and gated feed-forward, each behind a normalisation. Projections are kept as `[in, out]`."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        self.config = config

        def weight(rows: int, columns: int) -> nnx.Param[Array]:
            return nnx.Param(jax.random.normal(rngs.params(), (rows, columns)) * rows**-0.5)

        self.attention_norm = nnx.Param(jnp.ones(hidden))
        self.qkv = weight(hidden, (heads + 2 * groups) * size)
        self.qkv_bias = nnx.Param(jnp.zeros((heads + 2 * groups) * size)) if config.qkv_bias else None
        self.query_norm = nnx.Param(jnp.ones(size)) if config.qk_norm else None
        self.key_norm = nnx.Param(jnp.ones(size)) if config.qk_norm else None
        self.attention_out = weight(heads * size, hidden)
        self.mlp_norm = nnx.Param(jnp.ones(hidden))
        self.gate_up = weight(hidden, 2 * inner)
        self.down = weight(inner, hidden)

    def __call__(self, x: Float[Array, "n d"], angles: Rotary, valid: Bool[Array, "n"]) -> Float[Array, "n d"]:
        attention = causal_attention if self.config.causal else full_attention
        return self.finish(x, attention(*self.project(x, angles), valid))

    def project(
        self, x: Float[Array, "n d"], angles: Rotary
    ) -> tuple[Float[Array, "n heads s"], Float[Array, "n groups s"], Float[Array, "n groups s"]]:
        """Queries, keys (both rotated) and values of the normalised input."""
        c = self.config
        heads, groups, eps = c.num_attention_heads, c.num_key_value_heads, c.rms_norm_eps
        qkv = rms_norm(x, self.attention_norm[...], eps) @ self.qkv[...]
        if self.qkv_bias is not None:
            qkv = qkv + self.qkv_bias[...]
        parts = qkv.reshape(x.shape[0], heads + 2 * groups, c.head_dim)
        q, k, v = jnp.split(parts, (heads, heads + groups), axis=1)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = rms_norm(q, self.query_norm[...], eps), rms_norm(k, self.key_norm[...], eps)
        return rotate(q, angles), rotate(k, angles), v

    def finish(self, x: Float[Array, "n d"], mixed: Float[Array, "n heads s"]) -> Float[Array, "n d"]:
        """The layer's output from its input and what attention mixed."""
        x = x + mixed.reshape(x.shape[0], -1) @ self.attention_out[...]
        # Only the two products are kept for the backward pass; what lies between them is cheap to repeat.
        mlp = jax.checkpoint(_gated, policy=jax.checkpoint_policies.dots_saveable, static_argnums=(4,))
        out: Array = x + mlp(x, self.mlp_norm[...], self.gate_up[...], self.down[...], self.config.rms_norm_eps)
        return out


def _gated(x: Array, norm: Array, gate_up: Array, down: Array, eps: float) -> Array:
    gate, up = jnp.split(rms_norm(x, norm, eps) @ gate_up, 2, axis=-1)
    return (jax.nn.silu(gate) * up) @ down


class Decoder(nnx.Module):
    """Token embeddings, layers stacked on a leading axis (one scan, one compilation), final norm and output head.

    Args:
        config: sizes and variants.
        rngs: for random initialisation; loaders build under `nnx.eval_shape` and fill the values in.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=config.num_hidden_layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stack(rngs: nnx.Rngs) -> DecoderLayer:
            return DecoderLayer(config, rngs=rngs)

        shape = (config.vocab_size, config.hidden_size)
        self.config = config
        self.embedding = nnx.Param(jax.random.normal(rngs.params(), shape))
        self.layers = stack(rngs)
        self.norm = nnx.Param(jnp.ones(config.hidden_size))
        tied = config.tie_word_embeddings
        self.output = None if tied else nnx.Param(jax.random.normal(rngs.params(), shape) * config.hidden_size**-0.5)

    @property
    def head(self) -> Float[Array, "vocab d"]:
        """The output embedding: the input embedding where the two are tied."""
        return self.embedding[...] if self.output is None else self.output[...]

    def embed(self, ids: Int[Array, "n"]) -> Float[Array, "n d"]:
        """Input embeddings of token ids."""
        return self.embedding[...][ids]

    def hidden_states(
        self,
        embeddings: Float[Array, "n d"],
        valid: Bool[Array, "n"],
        positions: Int[Array, "n"] | None = None,
    ) -> Float[Array, "layers_plus_one n d"]:
        """Every layer's input, then the normalised last output. Holds them all: for tests and probing."""
        x, outputs = self._run(embeddings, valid, positions, keep=True)
        assert outputs is not None
        return jnp.concatenate([embeddings[None], outputs[:-1], x[None]])

    def __call__(
        self,
        embeddings: Float[Array, "n d"],
        valid: Bool[Array, "n"],
        positions: Int[Array, "n"] | None = None,
    ) -> Float[Array, "n d"]:
        """Normalised last hidden states of one sequence.

        Args:
            embeddings: input embeddings, `[n, hidden_size]`.
            valid: False for padding, at either end.
            positions: by default the number of valid tokens before each one.
        """
        return self._run(embeddings, valid, positions, keep=False)[0]

    def logits(self, hidden: Float[Array, "n d"]) -> Float[Array, "n vocab"]:
        """Next-token logits of hidden states; `[n, vocab]`, so mind the memory (`losses.cross_entropy` does not)."""
        return hidden @ self.head.T

    def _run(self, x: Array, valid: Array, positions: Array | None, keep: bool) -> tuple[Array, Array | None]:
        if x.ndim != 2 or x.shape[1] != self.config.hidden_size:
            raise ValueError(f"embeddings must have shape [n, {self.config.hidden_size}], got {tuple(x.shape)}")
        if valid.shape != x.shape[:1]:
            raise ValueError(f"valid must have shape {x.shape[:1]}, got {tuple(valid.shape)}")
        if positions is None:
            positions = jnp.maximum(jnp.cumsum(valid) - 1, 0)
        angles = rotary(self.config, positions)
        graph, stacked = nnx.split(self.layers)

        def step(x: Array, layer: nnx.State) -> tuple[Array, Array | None]:
            y = nnx.merge(graph, layer)(x, angles, valid)
            return y, y if keep else None

        x, outputs = jax.lax.scan(step, x, stacked)
        return rms_norm(x, self.norm[...], self.config.rms_norm_eps), outputs


@functools.lru_cache(maxsize=32)
def decoder_graph(config: DecoderConfig) -> "nnx.GraphDef[Decoder]":
    """The static half of a decoder of these sizes: `nnx.merge(decoder_graph(config), params)` is the network."""
    return nnx.split(nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0))))[0]

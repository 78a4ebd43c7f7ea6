"""From a checkpoint's tensors to a decoder's parameters: every tensor taken once, checked, and nothing left over."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from gemjax.models.config import DecoderConfig
from gemjax.models.decoder import Decoder, decoder_graph
from gemjax.models.parameters import Parameters

Tensors = Mapping[str, np.ndarray]
"""Tensors by Hugging Face's names, `[out, in]` as torch keeps projections."""


def load_decoder(config: DecoderConfig, tensors: Tensors, device: jax.Device | None = None) -> nnx.State:
    """A decoder's parameters, float32: `nnx.merge(decoder_graph(config), params)` is the network.

    Args:
        config: the sizes the tensors must have.
        tensors: by Hugging Face's names, with or without the prefix `model.`; half precisions are widened.
        device: where the weights go; JAX's default device otherwise.

    Raises:
        WeightsError: a parameter is missing, has another shape or is not finite, or a tensor is unknown.
    """
    source = Parameters(tensors, lambda name: name.removeprefix("model."))
    source.require_layers(config.num_hidden_layers)
    hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * size, config.num_key_value_heads * size

    def put(values: np.ndarray) -> jax.Array:
        # One parameter at a time: the host never holds all of them beside the device's.
        placed: jax.Array = jax.device_put(jnp.asarray(values), device)
        return placed

    def stack(make: Callable[[str], np.ndarray]) -> np.ndarray:
        layers = (make(f"layers.{i}.") for i in range(config.num_hidden_layers))
        first = next(layers)
        out = np.empty((config.num_hidden_layers, *first.shape), np.float32)
        out[0] = first
        for i, layer in enumerate(layers, 1):
            out[i] = layer
        return out

    def joined(parts: Mapping[str, int], columns: int) -> np.ndarray:
        def one(layer: str) -> np.ndarray:
            return np.concatenate([source.take(f"{layer}{p}.weight", (n, columns)) for p, n in parts.items()]).T

        return stack(one)

    def vector(part: str, length: int) -> np.ndarray:
        return stack(lambda layer: source.take(f"{layer}{part}", (length,)))

    projections = {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys}
    layers: dict[str, Any] = {
        "attention_norm": put(vector("input_layernorm.weight", hidden)),
        "qkv": put(joined(projections, hidden)),
        "attention_out": put(joined({"self_attn.o_proj": hidden}, queries)),
        "mlp_norm": put(vector("post_attention_layernorm.weight", hidden)),
        "gate_up": put(joined({"mlp.gate_proj": inner, "mlp.up_proj": inner}, hidden)),
        "down": put(joined({"mlp.down_proj": hidden}, inner)),
    }
    if config.qk_norm:
        layers["query_norm"] = put(vector("self_attn.q_norm.weight", size))
        layers["key_norm"] = put(vector("self_attn.k_norm.weight", size))
    if config.qkv_bias:
        layers["qkv_bias"] = put(np.concatenate([vector(f"{part}.bias", n) for part, n in projections.items()], 1))
    table = (config.vocab_size, hidden)
    values: dict[str, Any] = {
        "embedding": put(source.take("embed_tokens.weight", table)),
        "layers": layers,
        "norm": put(source.take("norm.weight", (hidden,))),
    }
    if not config.tie_word_embeddings:
        values["output"] = put(source.take("lm_head.weight", table))
    # Old checkpoints carry the rotary frequencies; tied ones sometimes repeat the head.
    spare = ("rotary_emb.inv_freq", "lm_head.weight") if config.tie_word_embeddings else ("rotary_emb.inv_freq",)
    source.refuse_leftovers(lambda name: name.endswith(spare))
    state = nnx.split(nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0))))[1]
    nnx.replace_by_pure_dict(state, values)
    return state


def merged(config: DecoderConfig, params: nnx.State) -> Decoder:
    """The network of these parameters."""
    return nnx.merge(decoder_graph(config), params)

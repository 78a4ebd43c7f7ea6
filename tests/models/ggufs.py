"""Writes tiny transformers models as GGUF, as converters do: names, metadata, rows of Llama's q and k permuted."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import pre_tokenizers

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
}
SIZES = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def random_model(family: str, **changes: Any) -> Any:
    """A transformers model of the family ("Llama", "Qwen2", "Qwen3") whose every parameter shows in the result."""
    torch.manual_seed(0)
    rope = {"rope_parameters": {"rope_theta": 5e4, "rope_type": "default"}}
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **rope, **changes})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=0.0 if name.endswith("bias") else 1.0, std=0.3)
        else:  # attention that is not uniform
            torch.nn.init.normal_(parameter, std=1.5 * parameter.shape[-1] ** -0.5)
    return model


def tensors(model: Any) -> dict[str, np.ndarray]:
    """The model's tensors by GGUF's names."""
    config = model.config
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    out = {}
    for name, parameter in model.state_dict().items():
        path, _, kind = name.removeprefix("model.").rpartition(".")
        if path == "lm_head" and config.tie_word_embeddings:
            continue
        number = ""
        if path.startswith("layers."):
            _, number, path = path.split(".", 2)
        value = parameter.numpy()
        short = NAMES[path]
        if config.model_type == "llama" and short in heads:
            # Halves (i, i + d/2) of each head become neighbours.
            count = heads[short]
            value = value.reshape(count, 2, len(value) // count // 2, -1).swapaxes(1, 2).reshape(value.shape)
        out[f"blk.{number}.{short}.{kind}" if number else f"{short}.{kind}"] = value
    return out


def write(
    path: Path,
    model: Any,
    *,
    kind: Any = None,
    change: Callable[[dict[str, np.ndarray]], None] = lambda tensors: None,
    raw: Mapping[str, tuple[np.ndarray, Any]] | None = None,
    extra: Callable[[Any], None] = lambda writer: None,
    skip: tuple[str, ...] = (),
) -> Path:
    """Write the model.

    Args:
        path: where.
        model: a causal language model.
        kind: quantisation of the matrices; None: float32.
        change: edits the tensors before they are written.
        raw: more tensors, as the bytes of their rows and their quantisation.
        extra: adds metadata.
        skip: metadata keys (without the architecture) that are left out.
    """
    import gguf

    c = model.config
    writer = gguf.GGUFWriter(path, c.model_type)
    keys = {
        "block_count": c.num_hidden_layers,
        "context_length": c.max_position_embeddings,
        "embedding_length": c.hidden_size,
        "feed_forward_length": c.intermediate_size,
        "attention.head_count": c.num_attention_heads,
        "attention.head_count_kv": c.num_key_value_heads,
    }
    if getattr(c, "head_dim", None):
        keys |= {"attention.key_length": c.head_dim, "attention.value_length": c.head_dim}
    for key, value in keys.items():
        if key not in skip:
            writer.add_uint32(f"{c.model_type}.{key}", value)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*alphabet, "<end>", "ab"])
    writer.add_token_types([1] * 256 + [3, 1])
    writer.add_token_merges(["a b"])
    extra(writer)
    values = tensors(model)
    change(values)
    for name, value in values.items():
        if kind is not None and value.ndim == 2:
            writer.add_tensor(name, gguf.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    for name, (rows, quantisation) in (raw or {}).items():
        writer.add_tensor(name, rows, raw_dtype=quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""What of a checkpoint's configuration determines a decoder's output; everything unknown is refused."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gemjax.errors import WeightsError


@dataclasses.dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and variants of a Llama, Qwen2 or Qwen3 decoder, by the names of Hugging Face's `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_divisors: tuple[float, ...] | None = None
    """What each rotary frequency is divided by, `head_dim / 2` numbers (Llama 3's long-context scaling)."""
    tie_word_embeddings: bool = False
    qk_norm: bool = False
    """Qwen3 normalises each head's queries and keys."""
    qkv_bias: bool = False
    """Qwen2 adds a bias to queries, keys and values."""
    causal: bool = True
    """False: every token sees all others (gte-Qwen2): an encoder of whole texts, no language model."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
            _positive(name, getattr(self, name), int)
        for name in ("num_key_value_heads", "head_dim", "max_position_embeddings"):
            _positive(name, getattr(self, name), int)
        for name in ("rms_norm_eps", "rope_theta"):
            _positive(name, getattr(self, name), float)
        if self.num_attention_heads % self.num_key_value_heads:
            raise WeightsError(
                f"num_attention_heads {self.num_attention_heads} is no multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise WeightsError(f"head_dim = {self.head_dim}; rotary positions need an even number")
        if self.rope_divisors is not None and len(self.rope_divisors) != self.head_dim // 2:
            raise WeightsError(f"{len(self.rope_divisors)} rotary divisors for head_dim {self.head_dim}")
        if not all(0 < divisor < math.inf for divisor in self.rope_divisors or ()):
            raise WeightsError(f"rotary divisors {self.rope_divisors}; expected positive numbers")

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "DecoderConfig":
        """Reads a parsed `config.json`, of transformers 4 (`rope_theta`, `rope_scaling`) or 5 (`rope_parameters`).

        Raises:
            WeightsError: another architecture, a value that asks for something this network does not do, a missing or
                impossible size, or an unknown key (it may change the result).
        """
        kind = config.get("model_type")
        if kind not in FAMILY:
            raise WeightsError(f"model_type {kind!r} is not supported; known are {', '.join(FAMILY)}")
        causal = config.get("is_causal", True)
        if not isinstance(causal, bool):
            raise WeightsError(f"config.json: is_causal = {causal!r}; expected true or false")
        fixed = {**_FIXED, "attention_bias": (kind == "qwen2", False) if kind == "qwen2" else (False,)}
        for key, allowed in fixed.items():
            if key in config and config[key] not in allowed:
                raise WeightsError(f"config.json: {key} = {config[key]!r} is not supported for {kind}")
        layer_types = config.get("layer_types")
        if layer_types is not None and set(layer_types) != {"full_attention"}:
            raise WeightsError(f"config.json: layer_types {sorted(set(layer_types))} are not supported")
        if config.get("auto_map") and not _is_gte(config):
            raise WeightsError("config.json: auto_map names code of the model's own, which is not run")
        known = _SIZES | fixed.keys() | _HARMLESS | {"model_type", "layer_types", "is_causal", "auto_map", *_ROPE_KEYS}
        if unknown := sorted(k for k in config.keys() - known if not k.startswith("_")):
            raise WeightsError(f"config.json: unknown keys {unknown} may change the result")
        values = {name: config[name] for name in _SIZES if config.get(name) is not None}
        values.setdefault("num_key_value_heads", values.get("num_attention_heads"))
        if "head_dim" not in values and {"hidden_size", "num_attention_heads"} <= values.keys():
            values["head_dim"] = 128 if kind == "qwen3" else values["hidden_size"] // values["num_attention_heads"]
        if missing := sorted(_REQUIRED - values.keys()):
            raise WeightsError(f"config.json lacks {missing}")
        theta, divisors = _rope(config, values["head_dim"])
        return cls(
            **values,
            rope_theta=theta,
            rope_divisors=divisors,
            qk_norm=kind == "qwen3",
            qkv_bias=kind == "qwen2",
            causal=causal,
        )


FAMILY = ("llama", "qwen2", "qwen3")
"""The `model_type`s that the decoder implements."""
_REQUIRED = frozenset(
    (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
    )
)
_SIZES = _REQUIRED | {"num_key_value_heads", "head_dim", "rms_norm_eps", "tie_word_embeddings"}
_ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
# Keys that may appear, with the only values this network implements.
_FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False,),
    "use_sliding_window": (False, None),
    "is_decoder": (False, True),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "partial_rotary_factor": (1.0, None),
    "rope_interleaved": (False,),
}
# `sliding_window` and `max_window_layers` act only with `use_sliding_window`.
_HARMLESS_NAMES = (
    "architectures attention_dropout initializer_range dtype torch_dtype torchscript use_bfloat16 use_cache "
    "transformers_version transformers.js_config chunk_size_feed_forward return_dict bos_token_id eos_token_id "
    "pad_token_id cls_token_id sep_token_id unk_token_id decoder_start_token_id pretraining_tp sliding_window "
    "max_window_layers is_llama_config output_attentions output_hidden_states problem_type tokenizer_class "
    "task_specific_params finetuning_task id2label label2id num_labels prefix name_or_path"
)
_HARMLESS = frozenset(_HARMLESS_NAMES.split())


def _is_gte(config: Mapping[str, Any]) -> bool:
    """Whether the code that the config names is gte-Qwen2's: Qwen2 whose tokens see all others, as `is_causal` says."""
    names, causal = config["auto_map"], config.get("is_causal")
    return (
        config["model_type"] == "qwen2"
        and causal is False
        and isinstance(names, Mapping)
        and all(str(name).startswith("modeling_qwen.Qwen2") for name in names.values())
    )


def rotary_frequencies(theta: float, head_dim: int) -> np.ndarray:
    """Radians a position of each pair of dimensions, `[head_dim / 2]`, float64, before any scaling."""
    return np.asarray(theta ** (-np.arange(0, head_dim, 2) / head_dim))


def llama3_divisors(theta: float, head_dim: int, scaling: Mapping[str, float]) -> tuple[float, ...]:
    """Llama 3's scaling: long wavelengths are divided by `factor`, short ones kept, smooth in between.

    Args:
        theta, head_dim: as in the config.
        scaling: `factor`, `low_freq_factor`, `high_freq_factor`, `original_max_position_embeddings`.
    """
    # How often a wavelength fits into the original context: at least `high` times, kept; at most `low` times, divided.
    turns = scaling["original_max_position_embeddings"] * rotary_frequencies(theta, head_dim) / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return tuple(float(x) for x in 1 / (kept + (1 - kept) / scaling["factor"]))


def _rope(config: Mapping[str, Any], head_dim: Any) -> tuple[float, tuple[float, ...] | None]:
    nested = config.get("rope_parameters")
    given = nested if nested is not None else (config.get("rope_scaling") or {})
    if not isinstance(given, Mapping):
        raise WeightsError(f"config.json: rope parameters {given!r} are not an object")
    scaling = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    known = {"rope_theta", "rope_type", "type", "partial_rotary_factor", *scaling}
    if unknown := sorted(str(key) for key in given.keys() - known):
        raise WeightsError(f"config.json: unknown rope parameters {unknown} may change the result")
    theta = given.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = given.get("rope_type", given.get("type", "default"))
    partial = given.get("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise WeightsError(f"config.json: partial_rotary_factor = {partial!r} is not supported")
    _positive("rope_theta", theta, float)
    if kind == "default":
        return float(theta), None
    if kind != "llama3":
        raise WeightsError(f"config.json: rope_type {kind!r} is not supported; known are default and llama3")
    _positive("head_dim", head_dim, int)
    for name in scaling:
        _positive(f"rope {name}", given.get(name), float)
    return float(theta), llama3_divisors(float(theta), head_dim, {name: float(given[name]) for name in scaling})


def _positive(name: str, value: Any, kind: type) -> None:
    numbers = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, numbers) or not 0 < value < math.inf:
        raise WeightsError(f"{name} = {value!r}; expected a positive {kind.__name__}")

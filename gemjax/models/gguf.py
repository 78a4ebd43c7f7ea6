"""Reads GGUF files: configuration, tokenizer and dequantised tensors. The `gguf` package does the block formats."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gemjax.errors import WeightsError
from gemjax.models.config import DecoderConfig
from gemjax.models.gguf_header import check_header, split_parts
from gemjax.models.opening import damage

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_TOP = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
}
_FREQUENCIES = "rope_freqs.weight"
# Per-architecture keys: those read, and those that change nothing here.
_READ_NAMES = (
    "block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv "
    "attention.key_length attention.value_length rope.freq_base attention.layer_norm_rms_epsilon attention.causal"
)
_READ = frozenset(_READ_NAMES.split())
_OPTIONAL_NAMES = "attention.key_length attention.value_length attention.head_count_kv rope.freq_base attention.causal"
_OPTIONAL = frozenset(_OPTIONAL_NAMES.split())
_HARMLESS = frozenset({"vocab_size", "rope.dimension_count", "pooling_type"})
# What `pooling_type` numbers; 0 (none) is also what a plain language model has.
_POOLINGS = ("none", "mean", "cls", "lasttoken", "rank")


def _reader(kind: type, path: Path) -> Any:
    """A `GGUFReader` that slices plain arrays: a slice of a memory map costs ten times as much, and a vocabulary has
    hundreds of thousands."""

    def keep(self: Any, data: np.ndarray) -> None:
        self.__dict__["data"] = data.view(np.ndarray)

    plain = property(lambda self: self.__dict__["data"], keep)
    return type("PlainReader", (kind,), {"data": plain})(str(path))


class GGUFFile(Mapping[str, np.ndarray]):
    """One model in GGUF: its tensors by Hugging Face's names, dequantised to float32 when they are asked for.

    Args:
        path: the file; of a split model (`NAME-00001-of-00003.gguf`) its first part, with the others beside it.

    Raises:
        WeightsError: the file cannot be read or is cut off, the architecture or a quantisation is not supported, it is
            a later part of a split model or a part is missing, or the `gguf` package is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            import gguf
        except ImportError as error:
            raise WeightsError("reading GGUF files needs the gguf package: pip install 'gemjax[fdtd]'") from error
        self.path = Path(path)
        self._dequantise = gguf.dequantize
        self.parts = split_parts(self.path)
        readers = []
        for part in self.parts:
            check_header(part)
            try:
                readers.append(_reader(gguf.GGUFReader, part))
            except Exception as error:  # the reader raises whatever its arithmetic meets in a damaged file
                raise WeightsError(f"{part} is cut off or damaged: {error}") from error
        self._reader = readers[0]
        with damage(self.path):
            self._read(readers)

    def _read(self, readers: list[Any]) -> None:
        number, count = self._field("split.no", 0), self._field("split.count", 0) or 1
        if number != 0:
            raise WeightsError(f"{self.path} is part {number + 1} of a model split into {count} files; name the first")
        if count != len(readers):
            raise WeightsError(
                f"{self.path} is part 1 of a model split into {count} files, which must be named "
                f"NAME-00001-of-{count:05d}.gguf and so on"
            )
        self.architecture = str(self._field("general.architecture"))
        if self.architecture not in _ARCHITECTURES:
            raise WeightsError(
                f"{self.path}: architecture {self.architecture!r} is not supported; "
                f"known are {', '.join(_ARCHITECTURES)}"
            )
        tensors = [tensor for reader in readers for tensor in reader.tensors]
        self._tensors = {self._name(tensor.name): tensor for tensor in tensors}
        if len(self._tensors) != len(tensors):
            raise WeightsError(f"{self.path}: two tensors have one name")
        self._divisors = self._tensors.pop(_FREQUENCIES, None)
        self.config = self._config()

    def _field(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def _name(self, name: str) -> str:
        if name in _TOP:
            return _TOP[name]
        kind, _, rest = name.partition(".")
        number, _, part = rest.partition(".")
        if kind == "blk" and number.isdigit() and part in _LAYER:
            return f"layers.{number}.{_LAYER[part]}"
        return name

    def _config(self) -> DecoderConfig:
        prefix = f"{self.architecture}."
        keys = {key.removeprefix(prefix) for key in self._reader.fields if key.startswith(prefix)}
        values = {key: self._field(prefix + key) for key in keys}
        scaling = {key for key in keys if key.startswith("rope.scaling.")}
        if values.get("rope.scaling.type", "none") == "none":
            keys -= scaling
        if unknown := sorted(keys - _READ - _HARMLESS):
            raise WeightsError(f"{self.path}: unknown keys {unknown} of {self.architecture} may change the result")
        if missing := sorted(_READ - _OPTIONAL - keys):
            raise WeightsError(f"{self.path} lacks the keys {missing} of {self.architecture}")
        heads = values["attention.head_count"]
        for key in ("embedding_length", "attention.head_count"):
            if not isinstance(values[key], int) or values[key] < 1:
                raise WeightsError(f"{self.path}: {key} = {values[key]!r}; expected a positive int")
        size = values.get("attention.key_length", values["embedding_length"] // heads)
        turned = values.get("rope.dimension_count", size)
        if values.get("attention.value_length", size) != size or turned != size:
            raise WeightsError(f"{self.path}: head sizes of keys, values and rotary positions differ; not supported")
        layers = values["block_count"]
        if not isinstance(layers, int) or not 0 < layers <= len(self._tensors):
            raise WeightsError(f"{self.path}: block_count = {layers!r}, and there are {len(self._tensors)} tensors")
        if "embed_tokens.weight" not in self._tensors:
            raise WeightsError(f"{self.path} lacks the tensor token_embd.weight")
        table = [int(n) for n in self._tensors["embed_tokens.weight"].shape[::-1]]
        if len(table) != 2:
            raise WeightsError(f"{self.path}: token_embd.weight has shape {table}; expected two axes")
        divisors = None
        if self._divisors is not None:
            divisors = tuple(float(x) for x in self._values(_FREQUENCIES, self._divisors).ravel())
        return DecoderConfig(
            vocab_size=table[0],
            hidden_size=values["embedding_length"],
            intermediate_size=values["feed_forward_length"],
            num_hidden_layers=values["block_count"],
            num_attention_heads=heads,
            num_key_value_heads=values.get("attention.head_count_kv", heads),
            head_dim=size,
            max_position_embeddings=values["context_length"],
            rms_norm_eps=values["attention.layer_norm_rms_epsilon"],
            rope_theta=values.get("rope.freq_base", 10000.0),
            rope_divisors=divisors,
            tie_word_embeddings="lm_head.weight" not in self._tensors,
            qk_norm=self.architecture == "qwen3",
            qkv_bias=self.architecture == "qwen2",
            causal=bool(values.get("attention.causal", True)),
        )

    @property
    def pooling(self) -> str:
        """How the file wants token vectors turned into a text's: none, mean, cls, lasttoken or rank."""
        number = self._field(f"{self.architecture}.pooling_type", 0)
        known = isinstance(number, int) and 0 <= number < len(_POOLINGS)
        return _POOLINGS[number] if known else f"number {number}"

    @property
    def chat_template(self) -> Any:
        """What the file holds as its chat template; None without one."""
        return self._field("tokenizer.chat_template")

    def tokenizer_fields(self) -> dict[str, Any]:
        """The `tokenizer.ggml.*` metadata by short name (`model`, `pre`, `tokens`, `merges`, `token_type`, ...)."""
        prefix = "tokenizer.ggml."
        with damage(f"{self.path}: the tokenizer"):
            return {key.removeprefix(prefix): self._field(key) for key in self._reader.fields if key.startswith(prefix)}

    def __getitem__(self, name: str) -> np.ndarray:
        value = self._values(name, self._tensors[name])
        if self.architecture == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            groups = "q_proj" not in name
            value = _unpermute(value, self.config.num_key_value_heads if groups else self.config.num_attention_heads)
        return value

    def _values(self, name: str, tensor: Any) -> np.ndarray:
        try:
            value = self._dequantise(tensor.data, tensor.tensor_type)
        except (NotImplementedError, KeyError) as error:
            raise WeightsError(
                f"{self.path}: tensor {name} is stored as {tensor.tensor_type.name}, which gguf cannot dequantise"
            ) from error
        with damage(f"{self.path}: tensor {name}"):
            return np.asarray(value, np.float32).reshape([int(n) for n in tensor.shape[::-1]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows from interleaved rotary pairs (0, d/2, 1, d/2 + 1, ...) back to halves, as Hugging Face keeps them."""
    out, columns = rows.shape
    if out % (2 * heads):
        raise WeightsError(f"a projection with {out} rows does not hold {heads} heads of an even size")
    return rows.reshape(heads, out // heads // 2, 2, columns).swapaxes(1, 2).reshape(out, columns)

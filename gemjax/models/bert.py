"""A BERT-family sentence encoder in Flax: BERT, RoBERTa and XLM-RoBERTa checkpoints, packed rows.

Several texts share one row of tokens ("packed"); `segments` says which token belongs to which text, and attention stays
inside a segment. So every dense product runs on real tokens instead of padding, and a handful of row shapes serve any
mix of lengths.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from gemjax.errors import WeightsError
from gemjax.models.parameters import Parameters

Pooling = Literal["mean", "cls"]


@dataclasses.dataclass(frozen=True, slots=True)
class BertConfig:
    """What of a Hugging Face `config.json` determines the network's output."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    position_offset: int = 0  # RoBERTa counts positions from pad_token_id + 1

    @property
    def max_tokens(self) -> int:
        """The longest text, special tokens included, that has positions."""
        return self.max_position_embeddings - self.position_offset

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> "BertConfig":
        """Reads a parsed `config.json`.

        Raises:
            WeightsError: the architecture is another one, a value asks for something this network does not do, a size
                is missing or impossible, or a key is unknown (it may change the result).
        """
        kind = config.get("model_type")
        if kind not in FAMILY:
            raise WeightsError(f"model_type {kind!r} is not supported; {_WAY_OUT}")
        for key, allowed in _FIXED.items():
            if key in config and config[key] not in allowed:
                raise WeightsError(f"config.json: {key} = {config[key]!r} is not supported; {_WAY_OUT}")
        if config.get("embedding_size", config.get("hidden_size")) != config.get("hidden_size"):
            raise WeightsError(f"config.json: factorised embeddings are not supported; {_WAY_OUT}")
        sizes = {field.name for field in dataclasses.fields(cls)} - {"position_offset"}
        known = sizes | _FIXED.keys() | _HARMLESS | {"model_type", "embedding_size", "pad_token_id"}
        if unknown := sorted(k for k in config.keys() - known if not k.startswith(_HARMLESS_PREFIXES)):
            raise WeightsError(f"config.json: unknown keys {unknown} may change the result; {_WAY_OUT}")
        values = {name: config[name] for name in sizes if name in config}
        if missing := sorted(sizes - values.keys() - {"type_vocab_size", "layer_norm_eps"}):
            raise WeightsError(f"config.json lacks {missing}")
        for name, value in values.items():
            number = float if name == "layer_norm_eps" else int
            if isinstance(value, bool) or not isinstance(value, number) or value <= 0:
                raise WeightsError(f"config.json: {name} = {value!r}; expected a positive {number.__name__}")
        if values["hidden_size"] % values["num_attention_heads"]:
            raise WeightsError(
                f"config.json: hidden_size {values['hidden_size']} is no multiple of "
                f"num_attention_heads {values['num_attention_heads']}"
            )
        offset = 0
        if kind != "bert":
            pad = config.get("pad_token_id", 1)
            if not isinstance(pad, int) or not 0 <= pad < values["max_position_embeddings"] - 1:
                raise WeightsError(f"config.json: pad_token_id = {pad!r} leaves no positions")
            offset = pad + 1
        return cls(**values, position_offset=offset)


_WAY_OUT = "use SentenceTransformerEncoder for this model"
FAMILY = ("bert", "roberta", "xlm-roberta", "camembert")
"""The `model_type`s that this network implements."""
# Keys that may appear, with the only values this network implements.
_FIXED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": (None, {}),  # code of its own
}
_HARMLESS = frozenset(
    """
    architectures attention_probs_dropout_prob hidden_dropout_prob initializer_range gradient_checkpointing dtype
    torch_dtype torchscript use_bfloat16 use_cache transformers_version chunk_size_feed_forward return_dict bos_token_id
    eos_token_id cls_token_id sep_token_id mask_token_id decoder_start_token_id tie_word_embeddings num_labels
    problem_type finetuning_task tokenizer_class language directionality task_specific_params prefix xla_device
    sentence_transformers
    """.split()  # noqa: SIM905
)
_HARMLESS_PREFIXES = ("_", "output_", "pooler_", "classifier_", "id2label", "label2id")


def segment_attention(
    q: Float[Array, "r h s d"], k: Float[Array, "r h s d"], v: Float[Array, "r h s d"], bias: Float[Array, "r 1 s s"]
) -> Float[Array, "r h s d"]:
    r"""Scaled dot-product attention $\mathrm{softmax}(q k^\top / \sqrt d + b)\, v$ of every row and head.

    Args:
        q, k, v: queries, keys, values: rows, heads, tokens, head size.
        bias: 0 where a token may look, the smallest float elsewhere.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2) + bias
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    # Dividing the s x d result is cheaper than dividing the s x s weights. The sum is >= 1: the maximum gives e^0.
    return (weights @ v) / weights.sum(-1, keepdims=True)


class BertLayer(nnx.Module):
    """Self-attention and feed-forward block with post-normalisation."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        norm = functools.partial(nnx.LayerNorm, hidden, epsilon=config.layer_norm_eps, use_fast_variance=False)
        self.heads = config.num_attention_heads
        self.qkv = nnx.Linear(hidden, 3 * hidden, rngs=rngs)
        self.attention_out = nnx.Linear(hidden, hidden, rngs=rngs)
        self.attention_norm = norm(rngs=rngs)
        self.up = nnx.Linear(hidden, inner, rngs=rngs)
        self.down = nnx.Linear(inner, hidden, rngs=rngs)
        self.output_norm = norm(rngs=rngs)

    def __call__(self, x: Float[Array, "r s e"], bias: Float[Array, "r 1 s s"]) -> Float[Array, "r s e"]:
        rows, length, hidden = x.shape
        qkv = self.qkv(x).reshape(rows, length, 3, self.heads, hidden // self.heads)
        q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
        mixed = segment_attention(q, k, v, bias).transpose(0, 2, 1, 3).reshape(x.shape)
        x = self.attention_norm(self.attention_out(mixed) + x)
        x = self.output_norm(self.down(nnx.gelu(self.up(x), approximate=False)) + x)
        return x


class Bert(nnx.Module):
    """Embeddings and `num_hidden_layers` layers whose parameters are stacked on a leading axis (one scan, one compile).

    Args:
        config: the network's sizes.
        rngs: for random initialisation; loaders build under `nnx.eval_shape` and fill the values in.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs) -> None:
        hidden = config.hidden_size

        @nnx.split_rngs(splits=config.num_hidden_layers)
        @nnx.vmap(in_axes=0, out_axes=0)
        def stack(rngs: nnx.Rngs) -> BertLayer:
            return BertLayer(config, rngs=rngs)

        self.offset = config.position_offset
        self.word = nnx.Embed(config.vocab_size, hidden, rngs=rngs)
        self.position = nnx.Embed(config.max_position_embeddings, hidden, rngs=rngs)
        self.token_type = nnx.Embed(config.type_vocab_size, hidden, rngs=rngs)
        self.norm = nnx.LayerNorm(hidden, epsilon=config.layer_norm_eps, use_fast_variance=False, rngs=rngs)
        self.layers = stack(rngs)

    def hidden_states(
        self, ids: Int[Array, "r s"], positions: Int[Array, "r s"], segments: Int[Array, "r s"]
    ) -> tuple[Float[Array, "r s e"], Float[Array, "layers r s e"]]:
        """The embedding output and every layer's output. Arguments as for `__call__`."""
        embedded, _, outputs = self._run(ids, positions, segments)
        return embedded, outputs

    def __call__(
        self,
        ids: Int[Array, "r s"],
        positions: Int[Array, "r s"],
        segments: Int[Array, "r s"],
        types: Int[Array, "r s"] | None = None,
    ) -> Float[Array, "r s e"]:
        """The last layer's output, one vector a token.

        Args:
            ids: token ids.
            positions: 0, 1, ... inside each text.
            segments: the text's number in its row, -1 for padding.
            types: of a pair of texts, which of the two a token is of; None: all of type 0, a single text.
        """
        return self._run(ids, positions, segments, types)[1]

    def _run(
        self, ids: Array, positions: Array, segments: Array, types: Array | None = None
    ) -> tuple[Array, Array, Array]:
        table = self.token_type.embedding[...]
        # Indexed, not called: calling an Embed of one row broadcasts instead.
        kind = table[0] if types is None else table[types]
        x = self.word(ids) + self.position(positions + self.offset) + kind
        x = self.norm(x)
        # Padding is a segment of its own, so no row of scores is fully masked and nothing can become NaN.
        same = segments[:, None, :, None] == segments[:, None, None, :]
        bias = jnp.where(same, 0.0, jnp.finfo(x.dtype).min).astype(x.dtype)
        graph, stacked = nnx.split(self.layers)

        def step(x: Array, layer: nnx.State) -> tuple[Array, Array]:
            y = nnx.merge(graph, layer)(x, bias)
            return y, y

        # Whoever needs only the last output drops the stacked ones, and XLA never stores them.
        last, outputs = jax.lax.scan(step, x, stacked)
        return x, last, outputs


def pool_segments(
    hidden: Float[Array, "r s e"],
    positions: Int[Array, "r s"],
    segments: Int[Array, "r s"],
    *,
    pooling: Pooling,
    slots: int,
) -> Float[Array, "r slots e"]:
    """One unit vector a segment: the mean of its tokens, or its first token. An empty slot gives a zero vector.

    Args:
        hidden: token vectors. positions, segments: as for `Bert`.
        pooling: "mean" or "cls".
        slots: how many segments a row can hold; segments numbered `slots` and above are dropped.
    """
    member = segments[:, None, :] == jnp.arange(slots, dtype=segments.dtype)[None, :, None]
    if pooling == "cls":
        member &= positions[:, None, :] == 0
    # The unnormalised sum is enough: the mean differs from it by a positive factor, which the unit length removes.
    pooled = member.astype(hidden.dtype) @ hidden
    square = jnp.sum(pooled * pooled, -1, keepdims=True)
    return pooled * jax.lax.rsqrt(jnp.where(square > 0, square, 1))


@functools.partial(jax.jit, static_argnames=("graph", "pooling", "slots"))
def embed_rows(
    params: nnx.State,
    ids: Int[Array, "r s"],
    positions: Int[Array, "r s"],
    segments: Int[Array, "r s"],
    *,
    graph: "nnx.GraphDef[Bert]",
    pooling: Pooling,
    slots: int,
) -> Float[Array, "r slots e"]:
    """Packed rows to unit sentence vectors. `graph, params = nnx.split(bert)`: the weights are an argument, not a
    constant of the program, so a compilation serves every checkpoint of the same sizes.
    """
    hidden = nnx.merge(graph, params)(ids, positions, segments)
    return pool_segments(hidden, positions, segments, pooling=pooling, slots=slots)


_PREFIXES = ("", "bert.", "roberta.", "model.", "auto_model.")
_IGNORED = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.", "cls.", "lm_head.")


def load_bert(config: BertConfig, tensors: Mapping[str, np.ndarray], device: jax.Device | None = None) -> Bert:
    """A `Bert` with the weights of a Hugging Face checkpoint, as float32.

    Args:
        config: the sizes the tensors must have.
        tensors: by their checkpoint names; a prefix `bert.`, `roberta.` or `model.` is taken off, half precisions are
            widened, and the heads of pre-training (`pooler.`, `cls.`, `lm_head.`) are left out.
        device: where the weights go; JAX's default device otherwise.

    Raises:
        WeightsError: a parameter is missing, has another shape or is not finite, or a tensor is unknown.
    """
    anchor = "embeddings.word_embeddings.weight"
    prefix = next((p for p in _PREFIXES if p + anchor in tensors), "")
    # Checkpoints converted from TensorFlow call a LayerNorm's parameters gamma and beta.
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

    def rename(name: str) -> str:
        return functools.reduce(lambda name, part: name.replace(part, old[part]), old, name.removeprefix(prefix))

    source = Parameters(tensors, rename)
    hidden, inner, count = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    source.require_layers(count)
    square, names = (hidden, hidden), [f"encoder.layer.{i}." for i in range(count)]

    def linear(part: str, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        # torch keeps [out, in]; the network multiplies from the right.
        kernels = np.stack([source.take(f"{n}{part}.weight", shape).T for n in names])
        return {"kernel": kernels, "bias": np.stack([source.take(f"{n}{part}.bias", shape[:1]) for n in names])}

    def norm(part: str) -> dict[str, np.ndarray]:
        scale = np.stack([source.take(f"{n}{part}.weight", (hidden,)) for n in names])
        return {"scale": scale, "bias": np.stack([source.take(f"{n}{part}.bias", (hidden,)) for n in names])}

    def table(part: str, rows: int) -> dict[str, np.ndarray]:
        return {"embedding": source.take(f"embeddings.{part}_embeddings.weight", (rows, hidden))}

    qkv = [linear(f"attention.self.{part}", square) for part in ("query", "key", "value")]
    values: dict[str, Any] = {
        "word": table("word", config.vocab_size),
        "position": table("position", config.max_position_embeddings),
        "token_type": table("token_type", config.type_vocab_size),
        "norm": {
            "scale": source.take("embeddings.LayerNorm.weight", (hidden,)),
            "bias": source.take("embeddings.LayerNorm.bias", (hidden,)),
        },
        "layers": {
            "qkv": {part: np.concatenate([x[part] for x in qkv], -1) for part in ("kernel", "bias")},
            "attention_out": linear("attention.output.dense", square),
            "attention_norm": norm("attention.output.LayerNorm"),
            "up": linear("intermediate.dense", (inner, hidden)),
            "down": linear("output.dense", (hidden, inner)),
            "output_norm": norm("output.LayerNorm"),
        },
    }
    source.refuse_leftovers(lambda name: name.startswith(_IGNORED), f"; {_WAY_OUT}")
    graph, state = nnx.split(nnx.eval_shape(lambda: Bert(config, rngs=nnx.Rngs(0))))
    nnx.replace_by_pure_dict(state, jax.device_put(values, device))
    return nnx.merge(graph, state)

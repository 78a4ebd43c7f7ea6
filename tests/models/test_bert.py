"""The Flax network against torch on small random checkpoints, and what its loader refuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from gemjax.errors import WeightsError
from gemjax.models.bert import Bert, BertConfig, load_bert, pool_segments, segment_attention
from tests.models.tiny import bert_json, bert_tensors

torch = pytest.importorskip("torch", reason="parity is checked against torch")
transformers = pytest.importorskip("transformers", reason="parity is checked against transformers")

# float32 over a few layers of width 16 with outputs of order 1: about 50 roundings of 6e-8 each.
CLOSE = {"rtol": 0, "atol": 1e-5}
RNG = np.random.default_rng(0)


def torch_model(kind: str, config: dict[str, Any], seed: int = 0) -> Any:
    classes = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
    sizes = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
    torch.manual_seed(seed)
    model = getattr(transformers, f"{classes[kind]}Model")(getattr(transformers, f"{classes[kind]}Config")(**sizes))
    with torch.no_grad():  # the default initialisation is so small that biases and norms would not show
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn_like(parameter))
    return model.eval()


def tensors_of(model: Any) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def pack(*texts: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One row: ids, positions, segments."""
    ids, positions, segments = np.zeros((1, width), np.int32), np.zeros((1, width), np.int32), np.full((1, width), -1)
    start = 0
    for number, text in enumerate(texts):
        stop = start + len(text)
        ids[0, start:stop], positions[0, start:stop], segments[0, start:stop] = text, np.arange(len(text)), number
        start = stop
    return ids, positions, segments.astype(np.int32)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("bert", {}),
        ("bert", {"num_attention_heads": 4, "num_hidden_layers": 3, "layer_norm_eps": 1e-3}),
        ("roberta", {"pad_token_id": 1, "type_vocab_size": 1}),
        ("xlm-roberta", {"pad_token_id": 3, "type_vocab_size": 1}),
    ],
)
def test_every_layer_of_packed_rows_equals_torch_on_each_text_alone(kind: str, changes: dict[str, Any]) -> None:
    config = bert_json(**changes)
    model = torch_model(kind, config)
    made = load_bert(BertConfig.from_json({**model.config.to_dict(), "model_type": kind}), tensors_of(model))
    # Ids above the special ones: RoBERTa derives positions from the padding id.
    texts = [RNG.integers(5, config["vocab_size"], n) for n in (7, 1, 12, 3)]
    graph, params = nnx.split(made)
    row = pack(*texts, width=32)
    embedded, outputs = jax.jit(lambda params: nnx.merge(graph, params).hidden_states(*row))(params)
    start = 0
    for text in texts:
        with torch.no_grad():
            states = model(torch.tensor(text[None]), output_hidden_states=True).hidden_states
        np.testing.assert_allclose(embedded[0, start : start + len(text)], states[0][0], **CLOSE)
        for layer, state in enumerate(states[1:]):
            np.testing.assert_allclose(outputs[layer, 0, start : start + len(text)], state[0], **CLOSE)
        start += len(text)
    assert np.isfinite(outputs).all()  # padding too


def test_pooling_is_the_unit_mean_or_first_token_of_each_segment() -> None:
    hidden = RNG.standard_normal((2, 10, 4)).astype(np.float32)
    _, positions, segments = pack(*(np.zeros(n, int) for n in (3, 1, 4)), width=10)
    positions, segments = np.repeat(positions, 2, 0), np.repeat(segments, 2, 0)
    spans = [(0, 3), (3, 4), (4, 8)]
    for pooling, reduce in (("mean", lambda x: x.mean(0)), ("cls", lambda x: x[0])):
        out = pool_segments(jnp.asarray(hidden), positions, segments, pooling=pooling, slots=5)
        assert out.shape == (2, 5, 4)
        for row in range(2):
            for slot, (start, stop) in enumerate(spans):
                want = reduce(hidden[row, start:stop].astype(np.float64))
                np.testing.assert_allclose(out[row, slot], want / np.linalg.norm(want), **CLOSE)
        assert not np.asarray(out)[:, 3:].any()  # empty slots: no direction, and no NaN


def test_a_zero_vector_has_no_direction() -> None:
    _, positions, segments = pack(np.zeros(2, int), width=4)
    assert not np.asarray(pool_segments(jnp.zeros((1, 4, 3)), positions, segments, pooling="mean", slots=1)).any()


def test_attention_survives_scores_that_overflow_without_the_maximum() -> None:
    q = jnp.full((1, 1, 3, 4), 1e3, jnp.float32)
    v = jnp.asarray(RNG.standard_normal((1, 1, 3, 4)), jnp.float32)
    out = segment_attention(q, q, v, jnp.zeros((1, 1, 3, 3)))
    np.testing.assert_allclose(out, np.broadcast_to(np.mean(v, 2, keepdims=True), v.shape), rtol=1e-5, atol=1e-6)


def loaded(tensors: dict[str, np.ndarray], **changes: Any) -> Bert:
    return load_bert(BertConfig.from_json(bert_json(**changes)), tensors)


def same(a: Bert, b: Bert) -> bool:
    leaves = zip(jax.tree.leaves(nnx.state(a)), jax.tree.leaves(nnx.state(b)), strict=True)
    return all(np.array_equal(x, y) and x.dtype == jnp.float32 for x, y in leaves)


@pytest.mark.parametrize("prefix", ["bert.", "roberta.", "model.", "auto_model."])
def test_prefixes_old_names_and_heads_of_pretraining_are_understood(prefix: str) -> None:
    tensors = bert_tensors(bert_json())
    renamed = {
        prefix + k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for k, v in tensors.items()
    }
    renamed[f"{prefix}embeddings.position_ids"] = np.arange(40)[None]
    renamed[f"{prefix}pooler.dense.weight"] = np.zeros((16, 16), np.float32)
    renamed["cls.predictions.bias"] = np.zeros(3, np.float32)
    assert same(loaded(tensors), loaded(renamed))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_precisions_are_loaded_as_float32(dtype: str) -> None:
    other = {k: v.astype(jnp.dtype(dtype)) for k, v in bert_tensors(bert_json()).items()}
    assert same(loaded(other), loaded({k: v.astype(np.float32) for k, v in other.items()}))


def test_missing_misshapen_unknown_and_non_finite_tensors_are_refused() -> None:
    tensors = bert_tensors(bert_json())
    for name in tensors:
        with pytest.raises(WeightsError, match=f"lack the parameter {name}"):
            loaded({k: v for k, v in tensors.items() if k != name})
        with pytest.raises(WeightsError, match=rf"{name} has shape .* the config asks for"):
            loaded({**tensors, name: np.zeros((*tensors[name].shape, 1), np.float32)})
    with pytest.raises(WeightsError, match=r"unknown tensors .*classifier"):
        loaded({**tensors, "classifier.weight": np.zeros(3)})
    with pytest.raises(WeightsError, match=r"unknown tensors .*encoder\.layer\.1"):
        loaded(tensors, num_hidden_layers=1)
    broken = {k: v.copy() for k, v in tensors.items()}
    broken["encoder.layer.1.output.dense.bias"][3] = np.nan
    with pytest.raises(WeightsError, match=r"encoder\.layer\.1\.output\.dense\.bias holds values that are not finite"):
        loaded(broken)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mpnet"}, "mpnet"),
        ({"model_type": None}, "model_type"),
        ({"hidden_act": "gelu_new"}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"embedding_size": 8}, "factorised"),
        ({"use_rotary": True}, "use_rotary"),
        ({"num_hidden_layers": 0}, "num_hidden_layers = 0"),
        ({"hidden_size": True}, "hidden_size"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps"),
        ({"num_attention_heads": 3}, "multiple"),
        ({"model_type": "roberta", "pad_token_id": 39}, "pad_token_id"),
    ],
)
def test_a_config_that_would_change_the_result_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        BertConfig.from_json(bert_json(**changes))


def test_a_config_without_a_size_is_refused_and_harmless_keys_are_not() -> None:
    config = bert_json()
    del config["hidden_size"]
    with pytest.raises(WeightsError, match=r"lacks \['hidden_size'\]"):
        BertConfig.from_json(config)
    for kind in ("Bert", "Roberta", "XLMRoberta"):
        written = getattr(transformers, f"{kind}Config")().to_dict()
        assert BertConfig.from_json(written).max_tokens in (512, 510)

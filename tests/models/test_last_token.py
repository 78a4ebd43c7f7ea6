"""Last-token pooling against sentence-transformers on tiny random Qwen3 and gte-Qwen2 style embedding models."""

import json
import shutil

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gemjax.encoders import Encoder, FlaxSentenceEncoder, LastTokenEncoder, load_encoder
from gemjax.errors import ConfigError, WeightsError
from gemjax.models.language import LanguageModel
from tests.models.tiny import write_json, write_model

WORDS = [f"w{i}" for i in range(60)]
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
PROMPTS = {"query": "w3 w4 ", "document": ""}


def changed(path, **values):
    write_json(path, {**json.loads(path.read_text()), **values})


@pytest.fixture(scope="module", params=["qwen3", "gte"])
def saved(request, tmp_path_factory):
    """A folder as sentence-transformers saves it, and the model that it saved."""
    bare, folder = (tmp_path_factory.mktemp(request.param) for _ in range(2))
    torch.manual_seed(0)
    gte = request.param == "gte"
    if gte:
        network = transformers.Qwen2Model(transformers.Qwen2Config(**SIZES, is_causal=False))
    else:
        network = transformers.Qwen3Model(transformers.Qwen3Config(**SIZES, head_dim=12))
    for parameter in network.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
        else:  # attention that is not uniform
            torch.nn.init.normal_(parameter, std=1.5 * parameter.shape[-1] ** -0.5)
    # The bare model: no head, as embedding checkpoints are.
    network.save_pretrained(bare)
    vocabulary = {"<pad>": 0, "<end>": 1, **{word: i + 2 for i, word in enumerate(WORDS)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("$A <end>", special_tokens=[("<end>", 1)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    fast.save_pretrained(bare)
    transformer = modules.Transformer(str(bare))
    # transformers rebuilds a Qwen2 tokenizer as byte-level BPE, which these words are not.
    transformer.processor, transformer.max_seq_length = fast, 240
    pooling = modules.Pooling(32, pooling_mode="lasttoken")
    oracle = sentence_transformers.SentenceTransformer(
        modules=[transformer, pooling, modules.Normalize()], device="cpu", prompts=PROMPTS
    )
    oracle.save(str(folder))
    if gte:
        # The published folders name code of their own, and leave the last token to a flag.
        changed(folder / "config.json", auto_map={"AutoModel": "modeling_qwen.Qwen2Model"})
        changed(folder / "tokenizer.json", post_processor=None)
        changed(folder / "tokenizer_config.json", add_eos_token=True, eos_token={"content": "<end>"})
    return folder, oracle


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved[0], tmp_path / "model")


def texts(count=12):
    """The first is longer than a block of 128 queries."""
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, 200 if i == 0 else rng.integers(1, 31))) for i in range(count)]


def test_a_folder_is_loaded_and_its_vectors_match_sentence_transformers(saved):
    folder, oracle = saved
    encoder = load_encoder(folder)
    assert isinstance(encoder, LastTokenEncoder)
    assert isinstance(encoder, Encoder)
    assert (encoder.window, encoder.dim) == (240, 32)
    np.testing.assert_allclose(encoder.encode(texts()), oracle.encode(texts(), normalize_embeddings=True), atol=2e-5)
    assert encoder.count_tokens(["w1 w2", ""]) == [2, 0]
    # An empty text is its end token alone, as there.
    np.testing.assert_allclose(encoder.encode([""]), oracle.encode([""]), atol=2e-5)


def test_dimensions_are_cut_before_normalising(saved):
    folder, oracle = saved
    got = load_encoder(folder, dim=8).encode(texts())
    expected = oracle.encode(texts(), truncate_dim=8, normalize_embeddings=True)
    np.testing.assert_allclose(got, expected, atol=5e-5)


def test_prompts_are_the_models_or_the_callers(saved, copied):
    _, oracle = saved
    expected = oracle.encode(texts(3), prompt_name="query", normalize_embeddings=True)
    np.testing.assert_allclose(LastTokenEncoder(copied, prompt="w3 w4 ").encode(texts(3)), expected, atol=2e-5)
    changed(copied / "config_sentence_transformers.json", default_prompt_name="query")
    by_default = load_encoder(copied)
    np.testing.assert_allclose(by_default.encode(texts(3)), expected, atol=2e-5)
    assert by_default.name != LastTokenEncoder(copied, prompt="").name


def test_a_model_that_reads_lower_case_gets_it(copied):
    write_json(copied / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True})
    encoder = load_encoder(copied)
    assert encoder.window == 64
    upper, lower, other = encoder.encode(["W5 W6", "w5 w6", "w7 w8"])
    np.testing.assert_array_equal(upper, lower)
    assert not np.allclose(lower, other, atol=1e-2)


def test_the_transformer_may_lie_in_a_subfolder_and_a_bare_one_is_read_too(saved, copied, tmp_path):
    expected = load_encoder(saved[0]).encode(texts(3))
    inner = copied / "0_Transformer"
    inner.mkdir()
    for path in [p for p in copied.iterdir() if p.is_file() and p.name not in ("modules.json",)]:
        if path.name != "config_sentence_transformers.json":
            path.rename(inner / path.name)
    steps = json.loads((copied / "modules.json").read_text())
    write_json(copied / "modules.json", [{**steps[0], "path": "0_Transformer"}, *steps[1:]])
    np.testing.assert_array_equal(load_encoder(copied).encode(texts(3)), expected)
    np.testing.assert_array_equal(load_encoder(inner).encode(texts(3)), expected)


def test_an_end_token_that_is_there_already_is_not_doubled(saved, copied):
    changed(copied / "tokenizer_config.json", add_eos_token=True, eos_token="<end>")
    np.testing.assert_array_equal(load_encoder(copied).encode(["w1 w2"]), load_encoder(saved[0]).encode(["w1 w2"]))


def test_other_weights_have_another_name(saved, copied):
    from safetensors.numpy import load_file, save_file

    tensors = load_file(copied / "model.safetensors")
    save_file({name: value * np.float32(1.01) for name, value in tensors.items()}, copied / "model.safetensors")
    assert load_encoder(copied).name != load_encoder(shutil.copytree(saved[0], copied.parent / "2" / "model")).name


def test_long_texts_are_pooled_and_arguments_are_checked(saved):
    folder, _ = saved
    encoder = LastTokenEncoder(folder, window=16)
    long = " ".join(WORDS)
    vectors = encoder.encode([long, " ".join(WORDS[:15])])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    # The tail counts: it is another text.
    assert not np.allclose(vectors[0], vectors[1], atol=1e-2)
    pieces = encoder.encode([" ".join(WORDS[a : a + 15]) for a in range(0, 60, 15)]).mean(0)
    np.testing.assert_allclose(vectors[0], pieces / np.linalg.norm(pieces), atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)
    assert np.isfinite(encoder.encode(["", "\ud800"])).all()
    for dim in (0, 33, True, 2.5):
        with pytest.raises(ConfigError, match="dim = "):
            load_encoder(folder, dim=dim)
    with pytest.raises(ConfigError, match="window = 257; expected 2 to 256"):
        LastTokenEncoder(folder, window=257)
    with pytest.raises(TypeError):
        encoder.encode("a string")


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "mean"}, "pooling 'mean' is not supported, only lasttoken"),
        ("config.json", {"model_type": "mistral"}, "model_type 'mistral' is not supported, only bert"),
        ("config.json", {"is_causal": True, "auto_map": {"AutoModel": "mine.Model"}}, "code of the model's own"),
        ("config.json", {"is_causal": "no"}, "is_causal = 'no'"),
        ("config_sentence_transformers.json", {"default_prompt_name": "none"}, "'none' is not among its prompts"),
        ("tokenizer_config.json", {"add_bos_token": True, "bos_token": None}, "bos_token is None"),
        ("tokenizer_config.json", {"add_bos_token": True, "bos_token": "<s>"}, r"does not know .*'<s>'"),
    ],
)
def test_what_is_not_implemented_is_said(copied, file, change, message):
    changed(copied / file, **change)
    with pytest.raises(WeightsError, match=message):
        load_encoder(copied)


def test_an_encoder_that_sees_what_follows_is_no_language_model(saved):
    folder, _ = saved
    if "is_causal" in json.loads((folder / "config.json").read_text()):
        with pytest.raises(WeightsError, match=r"not causal.*LastTokenEncoder"):
            LanguageModel.from_pretrained(folder)
    else:
        # Qwen3's config asks for a head, which an embedding model lacks.
        with pytest.raises(WeightsError, match="lack the parameter lm_head"):
            LanguageModel.from_pretrained(folder)


def test_a_bert_keeps_its_own_encoder(tmp_path):
    folder = write_model(tmp_path / "bert")
    assert isinstance(load_encoder(folder), FlaxSentenceEncoder)
    with pytest.raises(ConfigError, match="dim = 8; only the vectors of a Llama or Qwen"):
        load_encoder(folder, dim=8)
    with pytest.raises(WeightsError, match="pooling 'mean' is not supported, only lasttoken"):
        LastTokenEncoder(folder)
    with pytest.raises(WeightsError, match=r"neither a config\.json nor a \.gguf"):
        (tmp_path / "empty").mkdir()
        load_encoder(tmp_path / "empty")

"""Last-token pooling against sentence-transformers on a tiny random Qwen3 embedding model."""

import json

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers
from sentence_transformers import models as modules
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gemjax.encoders import LastTokenEncoder, as_encoder
from gemjax.errors import ConfigError

WORDS = [f"w{i}" for i in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("qwen3-embedding")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=False,
    )
    # The bare model: no head, as embedding checkpoints are.
    transformers.Qwen3Model(config).save_pretrained(path)
    vocabulary = {"<pad>": 0, "<end>": 1, **{word: i + 2 for i, word in enumerate(WORDS)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("$A <end>", special_tokens=[("<end>", 1)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", padding_side="left")
    fast.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def oracle(folder):
    transformer = modules.Transformer(str(folder), max_seq_length=128)
    pooling = modules.Pooling(32, pooling_mode="lasttoken")
    return sentence_transformers.SentenceTransformer(modules=[transformer, pooling, modules.Normalize()], device="cpu")


def texts(count=12):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 90))) for _ in range(count)]


def test_vectors_match_sentence_transformers(folder, oracle):
    encoder = as_encoder(LastTokenEncoder(folder, window=128))
    expected = oracle.encode(texts(), normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(texts()), expected, atol=2e-5)


def test_dimensions_are_cut_before_normalising(folder, oracle):
    got = LastTokenEncoder(folder, dim=8, window=128).encode(texts())
    expected = oracle.encode(texts(), normalize_embeddings=False)[:, :8]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(got, expected, atol=5e-5)


def test_long_texts_are_pooled_and_arguments_are_checked(folder):
    encoder = LastTokenEncoder(folder, window=16)
    long = " ".join(WORDS)
    vectors = encoder.encode([long, " ".join(WORDS[:15])])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    # The tail counts: it is another text.
    assert not np.allclose(vectors[0], vectors[1], atol=1e-2)
    assert encoder.encode([]).shape == (0, 32)
    assert np.isfinite(encoder.encode([""])).all()
    with pytest.raises(ConfigError, match="dim = 33"):
        LastTokenEncoder(folder, dim=33)
    with pytest.raises(ConfigError, match="window = 129"):
        LastTokenEncoder(folder, window=129)
    with pytest.raises(TypeError):
        encoder.encode("a string")


def test_config_without_head_is_what_was_meant(folder):
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False

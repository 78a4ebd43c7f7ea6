"""The cross-encoder against transformers on a tiny random model, and what a folder may not be."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from gemjax.encoders.cross import CrossEncoder, Reranker
from gemjax.errors import ConfigError, WeightsError

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(60))]
QUERY = "w1 w2 w3"
TEXTS = ["w4", "w1 w2", "", "w9 " * 37, "w5 w6 w7 w8 w9 w10", "unheard of", "w3 " * 200]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cross")
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=64,
        num_labels=1,
    )
    model = transformers.BertForSequenceClassification(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=1.0 if "LayerNorm.weight" in name else 0.0, std=0.3)
        else:
            torch.nn.init.normal_(parameter, std=1.5 * parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return model, folder


def torch_scores(model, folder, query, texts, window=64):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(window, strategy="longest_first")
    out = []
    for text in texts:
        e = tokenizer.encode(query, text)
        with torch.no_grad():
            found = model(
                input_ids=torch.tensor([e.ids]),
                token_type_ids=torch.tensor([e.type_ids]),
                attention_mask=torch.tensor([e.attention_mask]),
            )
        out.append(float(found.logits[0, 0]))
    return np.array(out)


def test_scores_are_torchs_one_by_one_and_together(pair):
    model, folder = pair
    encoder = CrossEncoder(folder)
    assert isinstance(encoder, Reranker)
    want = torch_scores(model, folder, QUERY, TEXTS)
    np.testing.assert_allclose(encoder.scores(QUERY, TEXTS), want, rtol=1e-4, atol=1e-5)
    for text, score in zip(TEXTS, want, strict=True):
        np.testing.assert_allclose(encoder.scores(QUERY, [text]), [score], rtol=1e-4, atol=1e-5)
    # More than one batch, in any order.
    many = [TEXTS[i % len(TEXTS)] for i in range(150)]
    np.testing.assert_allclose(encoder.scores(QUERY, many), want[np.arange(150) % len(TEXTS)], rtol=1e-4, atol=1e-5)
    assert len(encoder.scores(QUERY, [])) == 0
    assert np.ptp(want) > 0.1


def test_a_narrower_window_cuts_the_longer_side(pair):
    model, folder = pair
    want = torch_scores(model, folder, QUERY, TEXTS, window=16)
    np.testing.assert_allclose(CrossEncoder(folder, window=16).scores(QUERY, TEXTS), want, rtol=1e-4, atol=1e-5)
    for window in (3, 65, True, "16"):
        with pytest.raises(ConfigError, match="window"):
            CrossEncoder(folder, window=window)


def test_what_is_no_pair_of_texts_is_refused(pair):
    encoder = CrossEncoder(pair[1])
    for query, texts in ((1, ["a"]), ("a", "b"), ("a", [None])):
        with pytest.raises(TypeError, match="query must be a string"):
            encoder.scores(query, texts)
    assert np.isfinite(encoder.scores("lone \ud800", ["\udfff"])).all()


@pytest.mark.parametrize("fault", ["no head", "two labels", "roberta", "unknown tensor", "not finite"])
def test_another_model_is_named(pair, tmp_path, fault):
    for file in pair[1].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    if fault == "no head":
        tensors = {name: value for name, value in tensors.items() if "classifier" not in name}
    elif fault == "two labels":
        tensors |= {"classifier.weight": np.zeros((2, 24), np.float32), "classifier.bias": np.zeros(2, np.float32)}
    elif fault == "unknown tensor":
        tensors["bert.extra"] = np.zeros(1, np.float32)
    elif fault == "not finite":
        tensors["classifier.bias"] = np.full(1, np.nan, np.float32)
    else:
        config["model_type"] = "roberta"
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError):
        CrossEncoder(tmp_path)

"""Selecting without a language model: what counts the budget, and that nothing of a model is touched."""

import numpy as np
import pytest

from gemjax.distill import DistillConfig, Distiller, EvidenceSelector, SelectorConfig, Turn
from gemjax.errors import ConfigError, WeightsError
from gemjax.models import text_tokenizer
from gemjax.models.text_tokenizer import TextTokenizer, default_tokenizer
from tests.distill.conftest import tiny_model

MODEL = tiny_model()
TURNS = [
    Turn("Ann: We paid 120 francs at the Hotel Alpina near Zermatt.", 5, 0.2),
    Turn("Bob: My sister's café in 東京 opens at 7:30, even on holidays.", 5, 0.9),
    Turn("Ann: Wow, great!", 5, 0.1),
]


def test_the_selector_reads_nothing_and_says_so():
    before = MODEL.tokens_read
    out = EvidenceSelector(tokenizer=MODEL).distill(TURNS, 60, "When does the café open?")
    assert MODEL.tokens_read == before
    assert "opens at 7:30" in out.text and "Wow" not in out.text
    assert out.bound == out.change == 0 and not out.sensitivity.any()
    assert out.report["model"] is None and out.report["tokenizer"] == "tiny"


def test_the_distiller_weighs_the_same_order_by_sensitivity():
    out = Distiller(MODEL).distill(TURNS, 60)
    assert out.bound > 0 and out.report["model"] == "tiny"
    # Relevance decides first: the turn that nobody asked for has the factor 0.
    assert out.spans[0].turn != 2


def test_without_the_language_model_the_encoders_tokenizer_counts(monkeypatch):
    def nowhere(*given, **named):
        raise WeightsError("nowhere")

    monkeypatch.setattr(text_tokenizer, "find_language_model", nowhere)
    default_tokenizer.cache_clear()
    try:
        selector = EvidenceSelector()
    finally:
        default_tokenizer.cache_clear()
    assert selector.tokenizer.name.endswith("all-MiniLM-L6-v2")
    for budget in (1, 9, 20, 60):
        out = selector.distill(TURNS, budget)
        assert selector.tokenizer.count(out.text) == out.tokens_after <= budget
        for turn, start, stop in out.spans:
            assert TURNS[turn].text[start:stop] in out.text
    assert "opens at 7:30" in out.text


def test_a_tokenizer_alone_counts_as_its_model_does():
    alone = TextTokenizer(MODEL.tokenizer, "tiny")
    for turn in TURNS:
        assert alone.count(turn.text) == MODEL.count(turn.text) == len(alone.tokenize(turn.text).ids)
        for ours, theirs in zip(alone.tokenize(turn.text), MODEL.tokenize(turn.text), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    texts = [EvidenceSelector(tokenizer=t).distill(TURNS, 40).text for t in (alone, MODEL)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("config", [DistillConfig(), {}, "fast"])
def test_a_wrong_configuration_is_named(config):
    with pytest.raises(ConfigError, match="config must be a SelectorConfig or None, got"):
        EvidenceSelector(config, tokenizer=MODEL)


@pytest.mark.parametrize(("name", "value"), [("lexical", -1), ("neighbours", "x"), ("fit", "best"), ("filler", 3)])
def test_a_setting_out_of_range_is_named(name, value):
    with pytest.raises(ConfigError, match=name):
        SelectorConfig(**{name: value})

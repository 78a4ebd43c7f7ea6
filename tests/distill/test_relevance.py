"""Relevance: BM25 against a loop and against bm25s, the fused score against a loop, and what must not change it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.distill import SelectorConfig
from gemjax.distill.relevance import bm25, fused_relevance, words
from gemjax.errors import ConfigError

VOCABULARY = ("tea", "paris", "dog", "blue", "seven", "violin")
texts_ = st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join), min_size=1, max_size=9)
numbers = st.floats(-2, 2, width=32)
rows_ = st.lists(
    st.tuples(st.sampled_from((-1.0, 0.0, 0.25, 1.0)), st.sampled_from(VOCABULARY)), min_size=1, max_size=9
)


def test_words_leave_out_function_words_and_english_inflection():
    assert words("When did Melanie's kids paint the sunsets? Painting, painted!") == [
        "melani", "kid", "paint", "sunset", "paint", "paint"
    ]  # fmt: skip
    assert words("stories, stories' story") == ["story"] * 3
    assert words("glass bus is 2,022 go") == ["glass", "bus", "2", "022", "go"]
    assert words("") == words("the ... ?!") == []


def test_scripts_without_blanks_are_compared_by_pairs_of_characters():
    assert words("我喜欢北京") == ["我喜", "喜欢", "欢北", "北京"]
    assert words("茶 GREEN茶") == ["茶", "green", "茶"]
    assert words("Straße Ёлка") == ["strass", "ёлка"]
    assert words("हिन्दी चाय") == ["हिन्दी", "चाय"]
    found = bm25(["我昨天去了北京", "我喜欢喝茶", "他在上海"], "谁去了北京")
    assert found[0] > 0 and found[1] == found[2] == 0


@settings(max_examples=100, deadline=None)
@given(texts_, st.lists(st.sampled_from(VOCABULARY), max_size=4), st.floats(0, 3), st.floats(0, 1))
def test_bm25_twin(texts, asked, k1, b):
    split = [text.split() for text in texts]
    mean = sum(map(len, split)) / len(split)
    expected = []
    for text in split:
        score = 0.0
        for word in set(asked):
            df = sum(word in other for other in split)
            tf = text.count(word)
            if tf:
                idf = math.log(1 + (len(split) - df + 0.5) / (df + 0.5))
                score += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(text) / mean))
        expected.append(score)
    # Words of the vocabulary whose inflection is taken off stay different from each other.
    np.testing.assert_allclose(bm25(texts, " ".join(asked), k1=k1, b=b), expected, rtol=1e-12, atol=1e-15)


def test_bm25_agrees_with_the_package():
    bm25s = pytest.importorskip("bm25s", reason="install bm25s")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(VOCABULARY, rng.integers(1, 9))) for _ in range(12)]
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index([words(text) for text in texts], show_progress=False)
    theirs = index.get_scores(words("dog in Paris"))
    np.testing.assert_allclose(bm25(texts, "dog in Paris"), 2.2 * theirs, rtol=1e-5)


def standard(values):
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
    return [(v - mean) / spread if spread > 1e-9 else 0.0 for v in values]


@settings(max_examples=100, deadline=None)
@given(rows_, st.floats(0, 2), st.floats(0, 1))
def test_fused_relevance_twin(rows, lexical, neighbours):
    scores, texts = [row[0] for row in rows], [row[1] for row in rows]
    by_word = standard(list(bm25(texts, "blue violin")))
    alone = [a + lexical * b for a, b in zip(standard(scores), by_word, strict=True)]
    expected = []
    for i, own in enumerate(alone):
        for j in (i - 1, i + 1):
            if 0 <= j < len(alone) and alone[j] > 0:
                own += neighbours * alone[j]
        expected.append(own)
    got = fused_relevance(np.array(scores), texts, "blue violin", lexical=lexical, neighbours=neighbours)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(numbers, min_size=2, max_size=9), st.floats(0.1, 10), st.floats(-5, 5))
def test_only_differences_of_the_scores_matter(scores, factor, offset):
    values, texts = np.round(np.array(scores), 3), ["tea"] * len(scores)
    one, other = (
        fused_relevance(v, texts, "dog", lexical=1.0, neighbours=0.3) for v in (values, factor * values + offset)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | numbers, min_size=1, max_size=9), st.floats(0, 1))
def test_what_nobody_scored_comes_last(scores, neighbours):
    values = np.array([math.nan if s is None else s for s in scores])
    got = fused_relevance(values, ["dog"] + ["tea"] * (len(scores) - 1), "dog", lexical=1.0, neighbours=neighbours)
    unknown = np.isnan(values)
    assert np.isfinite(got).all()
    if unknown.any() and not unknown.all():
        assert got[unknown].max() < got[~unknown].min()


def test_without_words_and_neighbours_the_order_is_that_of_the_scores():
    scores = np.array([0.2, 0.9, 0.1, 0.5])
    got = fused_relevance(scores, ["dog", "tea", "dog", "tea"], "dog", lexical=0.0, neighbours=0.0)
    assert list(np.argsort(got)) == list(np.argsort(scores))
    assert len(fused_relevance(np.zeros(0), [], "dog", lexical=1.0, neighbours=0.3)) == 0


@pytest.mark.parametrize("name", ["lexical", "neighbours"])
@pytest.mark.parametrize("value", [-0.1, math.inf, math.nan, "1", True])
def test_weights_must_be_numbers_of_at_least_0(name, value):
    with pytest.raises(ConfigError, match=f"{name} = .*; expected a number of at least 0"):
        SelectorConfig(**{name: value})

"""Scores of turns against the model asked by hand: what is read together, and whose loss is differentiated."""

import dataclasses

import numpy as np
import pytest

from gemjax.distill import Turn
from gemjax.distill.recipe import Recipe
from gemjax.distill.scoring import score_turns
from gemjax.distill.turns import read_turns

TEXTS = ["Caroline went to the support group.", "", "It was so powerful that she cried!", "我喜欢北京。"]
PLAIN = dataclasses.replace(Recipe(), impute=False, window=128)


@pytest.fixture(scope="module")
def read(tiny):
    return read_turns([Turn(text) for text in TEXTS], tiny)


def ids(tiny, text):
    return tiny.tokenize(text).ids


def joined(tiny, texts):
    """The turns' ids on lines of their own, and the place of every id that is a turn's."""
    out, places = [], []
    for i, text in enumerate(texts):
        out += ids(tiny, "\n").tolist() if i else []
        places += range(len(out), len(out) + len(ids(tiny, text)))
        out += ids(tiny, text).tolist()
    return np.array(out, np.int32), np.array(places)


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * max(1, np.abs(expected).max()))


def test_turns_by_themselves_are_each_a_text(tiny, read):
    found = score_turns(read, tiny, PLAIN, None)
    expected = tiny.scores([ids(tiny, text) for text in TEXTS])
    close(found.raw, np.concatenate([e.sensitivity for e in expected]))
    close(found.products, np.concatenate([e.products for e in expected]))
    assert (found.scores == found.raw).all()
    assert found.loss == pytest.approx(sum(e.surprisal.sum() for e in expected), rel=1e-4)


@pytest.mark.parametrize("loss", ["text", "surprisal"])
def test_turns_in_one_text_are_read_after_one_another(tiny, read, loss):
    found = score_turns(read, tiny, dataclasses.replace(PLAIN, context="joint", loss=loss), None)
    whole, places = joined(tiny, TEXTS)
    (expected,) = tiny.scores([whole])
    close(found.raw, expected.sensitivity[places])
    close(found.scores, (expected.sensitivity if loss == "text" else expected.surprisal)[places])


def test_a_querys_loss_is_that_of_its_tokens_after_the_turns(tiny, read):
    query = "Who cried?"
    asked = ids(tiny, "\n" + query)

    def by_hand(texts):
        whole, places = joined(tiny, texts)
        weights = np.concatenate([np.zeros(len(whole), np.float32), np.ones(len(asked), np.float32)])
        return tiny.scores([np.concatenate([whole, asked])], [weights])[0].sensitivity[places]

    config = dataclasses.replace(PLAIN, loss="query")
    close(score_turns(read, tiny, config, query).raw, by_hand(TEXTS))
    # A window with room for two of these turns and the query: the third is read by itself, with the query again.
    line = len(ids(tiny, TEXTS[0])) + 1
    narrow = dataclasses.replace(config, window=len(asked) + 2 * line)
    thrice = read_turns([Turn(TEXTS[0])] * 3, tiny)
    close(score_turns(thrice, tiny, narrow, query).raw, np.concatenate([by_hand(TEXTS[:1] * n) for n in (2, 1)]))
    # Without a query it is the text's own loss.
    close(score_turns(read, tiny, config, None).raw, score_turns(read, tiny, PLAIN, None).raw)

"""Padding and batching as properties of the scores, and the bound in the limit of small ablations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from gemjax.kernels.sensitivity import first_order_bound, token_sensitivity
from gemjax.models.language import LanguageModel, token_loss
from tests.distill.conftest import tiny_model

MODEL = tiny_model()
WIDTH = 48
seeds = st.integers(0, 2**32 - 1)


@jax.jit
def scores(ids, valid):
    embeddings = MODEL.params["embedding"][...][ids]
    loss = functools.partial(token_loss, config=MODEL.config)
    return token_sensitivity(loss, embeddings, MODEL.params, ids, jnp.ones(WIDTH), valid)


def random_ids(seed, n):
    return np.random.default_rng(seed).integers(0, MODEL.config.vocab_size, n).astype(np.int32)


def padded(ids, left, fill):
    row = np.full(WIDTH, fill, np.int32)
    row[left : left + len(ids)] = ids
    place = np.arange(WIDTH)
    return row, (place >= left) & (place < left + len(ids))


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(1, WIDTH), st.data())
def test_padding_does_not_change_the_sensitivities(seed, n, data):
    ids = random_ids(seed, n)
    left, fill = data.draw(st.integers(0, WIDTH - n)), data.draw(st.integers(0, MODEL.config.vocab_size - 1))
    plain = scores(*padded(ids, 0, 0))
    other = scores(*padded(ids, left, fill))
    top = max(float(jnp.max(plain.scores)), 1e-6)
    for name in ("scores", "products", "detail"):
        expected, got = np.asarray(getattr(plain, name)), np.asarray(getattr(other, name))
        np.testing.assert_allclose(got[left : left + n], expected[:n], atol=1e-4 * max(top, 1))
        # What lies outside the text neither matters nor has a score.
        assert not got[:left].any()
        assert not got[left + n :].any()


@settings(deadline=None, max_examples=25)
@given(seeds, st.lists(st.integers(0, 64), min_size=1, max_size=6))
def test_a_texts_scores_do_not_depend_on_the_texts_beside_it(seed, lengths):
    texts = [random_ids(seed + i, n) for i, n in enumerate(lengths)]
    together = MODEL.scores(texts)
    assert [len(score.sensitivity) for score in together] == lengths
    for text, score in zip(texts, together, strict=True):
        alone = MODEL.scores([text])[0]
        for got, expected in zip(score, alone, strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-4 * max(1, np.abs(alone.sensitivity).max(initial=0)))


def test_a_pass_without_gradients_gives_the_same_surprisals():
    texts = [random_ids(n, n) for n in (32, 0, 1, 17)]
    for surprisal, score in zip(MODEL.surprisals(texts), MODEL.scores(texts), strict=True):
        np.testing.assert_allclose(surprisal, score.surprisal, rtol=1e-4, atol=1e-4)


@functools.cache
def change_and_curvature():
    """The loss's change when dropped embeddings are shrunk by 1 % and by 2 %, in one program."""

    def loss(ids, dropped, share):
        embeddings = MODEL.params["embedding"][...][ids] * (1 - share * dropped)[:, None]
        ones = jnp.ones(WIDTH)
        return token_loss(embeddings, MODEL.params, ids, ones, ones > 0, MODEL.config)[0]

    return jax.jit(jax.vmap(loss, (None, None, 0)))


@settings(deadline=None, max_examples=30)
@given(seeds, st.sampled_from([0.1, 0.5, 1.0]))
def test_small_ablations_change_the_loss_by_no_more_than_the_bound(seed, rate):
    ids = random_ids(seed, WIDTH)
    dropped = (np.random.default_rng(seed).random(WIDTH) < rate).astype(np.float32)
    found = scores(ids, np.ones(WIDTH, bool))
    bound = float(first_order_bound(found.scores, jnp.asarray(dropped > 0), MODEL.config.hidden_size))
    shares = np.array([0.0, 0.01, 0.02], np.float32)
    whole, small, double = np.asarray(change_and_curvature()(ids, dropped, shares), np.float64)
    # Losses of some 300 nats in float32 carry a rounding of 300 * 2^-23 each.
    rounding = 4 * whole * 2.0**-23
    # Second order: what is left of the doubled step after twice the single one is about twice the single one's rest.
    rest = abs((double - whole) - 2 * (small - whole)) + 4 * rounding
    assert abs(small - whole) <= 0.01 * bound + rest
    first = -0.01 * float(np.sum(np.asarray(found.products, np.float64)[dropped > 0]))
    assert abs((small - whole) - first) <= rest


def test_spans_cover_the_text_even_where_tokens_leave_characters_out():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = LanguageModel(MODEL.config, MODEL.params, tokenizer).tokenize("  a   b \n")
    assert tokens.ids.tolist() == [0, 1]
    assert (tokens.starts.tolist(), tokens.stops.tolist()) == ([0, 3], [3, 9])

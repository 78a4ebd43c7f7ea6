"""Continuing a text with kept keys and values, against torch and against reading everything anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from gemjax.models.cached_decoder import CHUNK, Cache, CachedDecoder, Draw, Step, nucleus
from gemjax.models.language_files import open_language_model
from tests.models.torch_models import KINDS, SIZES, torch_model

IDS = np.random.default_rng(3).integers(3, SIZES["vocab_size"], 40).astype(np.int32)


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model = torch_model(request.param, folder)
    opened = open_language_model(folder)
    return model, CachedDecoder(opened.config, opened.params)


def choice(rows, temperature=1.0, top_p=1.0, seed=0):
    keys = jax.random.split(jax.random.key(seed), rows)
    return Draw(jnp.float32(temperature), jnp.float32(top_p), keys)


def torch_logits(model, ids):
    with torch.no_grad():
        return model(torch.from_numpy(np.asarray(ids))[None].long()).logits[0].numpy()


def continued(decoder, prompts, count, steps=4, ends=(-2,), **chosen):
    """Prompt by prompt into the caches, then all together; the new tokens of each."""
    greedy = not chosen
    rows = [decoder.prefill(ids, decoder.empty(len(ids) + count + steps)) for ids in prompts]
    draw = choice(len(prompts), **chosen)
    token = decoder.first([hidden for hidden, _ in rows], draw, greedy=greedy)
    keys, values = (
        tuple(map(jnp.concatenate, zip(*part, strict=True))) for part in zip(*(c for _, c in rows), strict=True)
    )
    cache, out = Cache(keys, values), [np.asarray(token)[None]]
    lengths = jnp.asarray([len(ids) for ids in prompts], jnp.int32)
    step = Step(token, lengths, jnp.zeros(len(prompts), bool), jnp.ones((), jnp.int32))
    while sum(map(len, out)) < count:
        fresh, cache, step = decoder.decode(cache, step, jnp.asarray(ends, jnp.int32), draw, steps=steps, greedy=greedy)
        out.append(fresh)
    return np.concatenate(out)[:count].T


@pytest.mark.parametrize("cuts", [(), (1,), (7, 33), (39,)])
def test_any_split_of_a_text_gives_torchs_logits(pair, cuts):
    model, decoder = pair
    cache, at, found = decoder.empty(64), 0, []
    for part in np.split(IDS, cuts):
        hidden, cache = decoder.prefill(part, cache, at)
        found.append(np.asarray(decoder.logits(hidden)))
        at += len(part)
    want = torch_logits(model, IDS)
    assert np.abs(np.concatenate(found) - want).max() / np.abs(want).max() < 1e-4


def test_greedy_tokens_are_torchs(pair):
    model, decoder = pair
    (ours,) = continued(decoder, [IDS[:9]], 24)
    ids = list(IDS[:9])
    for _ in range(24):
        ids.append(int(torch_logits(model, ids)[-1].argmax()))
    assert list(ours) == ids[9:]


def test_a_batch_continues_each_as_alone(pair):
    _, decoder = pair
    prompts = [IDS[:5], IDS[5:30], IDS[:1]]
    together = continued(decoder, prompts, 12)
    for prompt, row in zip(prompts, together, strict=True):
        assert list(continued(decoder, [prompt], 12)[0]) == list(row)


def test_a_long_prompt_goes_through_in_chunks(pair):
    model, decoder = pair
    ids = np.resize(IDS, CHUNK + 70).astype(np.int32)
    hidden, _ = decoder.prefill(ids, decoder.empty(len(ids)))
    want = torch_logits(model, ids)[-1]
    got = np.asarray(decoder.logits(hidden[-1:]))[0]
    assert np.abs(got - want).max() / np.abs(want).max() < 1e-4


def test_a_row_ends_by_itself_and_says_nothing_more(pair):
    _, decoder = pair
    free = continued(decoder, [IDS[:9], IDS[:4]], 12)
    end = int(free[0, 3])
    rows = continued(decoder, [IDS[:9], IDS[:4]], 12, ends=(end,))
    for row, own in zip(rows, free, strict=True):
        stop = list(own[1:]).index(end) + 2 if end in own[1:] else len(own)
        assert list(row[:stop]) == list(own[:stop])
        assert (row[stop:] == -1).all()


def test_one_seed_gives_one_text_and_another_another(pair):
    _, decoder = pair
    drawn = [continued(decoder, [IDS[:9]], 24, temperature=2.0, seed=seed)[0] for seed in (1, 1, 2)]
    assert (drawn[0] == drawn[1]).all() and (drawn[0] != drawn[2]).any()
    # A nucleus of nothing but the best token is greedy.
    assert (continued(decoder, [IDS[:9]], 24, top_p=1e-6)[0] == continued(decoder, [IDS[:9]], 24)[0]).all()


@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.7, 1.0])
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(top_p):
    logits = np.random.default_rng(5).normal(size=40) * 2
    probabilities = np.exp(logits) / np.exp(logits).sum()
    order, total, kept = np.argsort(-probabilities), 0.0, set()
    for i in order:
        if kept and total >= top_p - 1e-7:
            break
        kept.add(int(i))
        total += probabilities[i]
    got = np.asarray(nucleus(jnp.asarray(logits, jnp.float32), jnp.float32(top_p)))
    assert set(np.flatnonzero(np.isfinite(got))) == kept
    np.testing.assert_allclose(got[list(kept)], logits[list(kept)], rtol=1e-6)


def test_draws_have_the_models_frequencies(pair):
    """A thousand first tokens, each with a key of its own, against the softmax in float64: chi-squared."""
    _, decoder = pair
    hidden, _ = decoder.prefill(IDS[:9], decoder.empty(16))
    logits = np.asarray(decoder.logits(hidden[-1:]))[0].astype(np.float64)
    n = 2000
    drawn = np.asarray(decoder.first([hidden] * n, choice(n, temperature=1.5, seed=7), greedy=False))
    expected = np.exp(logits / 1.5 - (logits / 1.5).max())
    expected *= n / expected.sum()
    large = expected >= 5
    seen = np.bincount(drawn, minlength=len(logits))
    observed, wanted = np.append(seen[large], seen[~large].sum()), np.append(expected[large], expected[~large].sum())
    statistic = ((observed - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum()
    # Mean k - 1, standard deviation sqrt(2 (k - 1)): five of them.
    free = len(observed) - 1
    assert statistic < free + 5 * np.sqrt(2 * free)

"""The loss of a continuation against log-softmaxes of all logits, and what the file of losses keeps."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from gemjax.errors import ConfigError
from gemjax.evaluation.next_action.losses import Losses
from gemjax.models.checkpoint import merged
from gemjax.models.language import LanguageModel

WIDTH = 1280


def by_hand(model, prompt, continuation):
    """Float64 log-softmax of every position's logits."""
    ids = np.concatenate([prompt, continuation])
    padded = np.pad(ids, (0, WIDTH - len(ids)))
    hidden = np.asarray(hidden_states(model.params, padded, np.arange(WIDTH) < len(ids), model.config), np.float64)
    logits = hidden @ np.asarray(merged(model.config, model.params).head, np.float64).T
    logits -= logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    places = np.arange(len(prompt), len(ids))
    return -logs[places - 1, ids[places]]


@functools.partial(jax.jit, static_argnames="config")
def hidden_states(params, ids, valid, config):
    decoder = merged(config, params)
    return decoder(decoder.embed(ids), valid)


# Around the widths at which padding changes, continuations longer than their prompts, and a prompt of one token.
SHAPES = [(1, 1), (1, 40), (31, 1), (32, 32), (5, 300), (1000, 40), (1200, 60)]


def test_surprisals_of_continuations(reader):
    rng = np.random.default_rng(0)
    pairs = [tuple(rng.integers(0, 384, n).astype(np.int32) for n in shape) for shape in SHAPES]
    seen = []
    together = reader.continuation_surprisals(*zip(*pairs, strict=True), progress=seen.append)
    assert sum(seen) == sum(map(sum, SHAPES))
    for (prompt, continuation), values in zip(pairs, together, strict=True):
        np.testing.assert_allclose(values, by_hand(reader, prompt, continuation), rtol=1e-4, atol=1e-4)
    whole = reader.surprisals([np.concatenate(pairs[4])])[0]
    np.testing.assert_allclose(together[4], whole[len(pairs[4][0]) :], rtol=1e-5, atol=1e-5)


def test_what_a_continuation_may_not_be(reader):
    some, none = np.ones(3, np.int32), np.zeros(0, np.int32)
    assert [len(x) for x in reader.continuation_surprisals([some, some], [none, some])] == [0, 3]
    assert reader.continuation_surprisals([], []) == []
    with pytest.raises(ConfigError, match="prompt is empty"):
        reader.continuation_surprisals([none], [some])
    with pytest.raises(ConfigError, match="2048 positions"):
        reader.continuation_surprisals([np.ones(2046, np.int32)], [some])


def test_a_loss_is_computed_once_and_found_by_the_next_run(reader, tmp_path):
    rng = np.random.default_rng(1)
    prompt, action, other = (rng.integers(0, 384, n).astype(np.int32) for n in (50, 7, 7))
    first = Losses(reader, tmp_path)
    assert not first.known(prompt, action)
    loss = first.loss(prompt, action)
    assert loss == pytest.approx(by_hand(reader, prompt, action).sum(), rel=1e-4)
    assert first.loss(prompt, action) == loss and first.computed == 1
    again = Losses(reader, tmp_path)
    assert again.known(prompt, action) and again.loss(prompt, action) == loss and again.computed == 0
    # The same tokens split elsewhere are another question.
    assert not again.known(np.concatenate([prompt, action[:1]]), action[1:]) and not again.known(prompt, other)


def test_other_weights_have_losses_of_their_own(reader, tmp_path):
    changed = jax.tree.map(lambda leaf: leaf.at[(0,) * leaf.ndim].add(1e-3), reader.params)
    other = LanguageModel(reader.config, changed, reader.tokenizer, name=reader.name)
    shorter = LanguageModel(
        dataclasses.replace(reader.config, rms_norm_eps=1e-3), reader.params, reader.tokenizer, name=reader.name
    )
    assert len({model.fingerprint() for model in (reader, other, shorter)}) == 3
    prompt = np.arange(9, dtype=np.int32)
    Losses(reader, tmp_path).loss(prompt, prompt)
    assert not Losses(other, tmp_path).known(prompt, prompt)


def test_a_damaged_loss_is_made_again(reader, tmp_path):
    prompt = np.arange(9, dtype=np.int32)
    loss = Losses(reader, tmp_path).loss(prompt, prompt)
    (path,) = tmp_path.glob("*.vectors")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    again = Losses(reader, tmp_path)
    with pytest.warns(UserWarning, match="damaged"):
        assert again.loss(prompt, prompt) == loss
    assert again.computed == 1

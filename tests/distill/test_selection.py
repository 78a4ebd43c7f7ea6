"""What pruning decides about the units of several turns: decay, filler, headers."""

import dataclasses

import numpy as np
import pytest

from gemjax.distill import Turn
from gemjax.distill.recipe import Recipe
from gemjax.distill.selection import plan
from gemjax.distill.turns import read_turns
from gemjax.distill.units import units_of

TEXTS = [
    "Ann: I went to the market with my brother and his old dog.",
    "Bob: So the very first thing that we really bought there was bread.",
    "Ann: Bread is good for you and for him.",
]
CONFIG = dataclasses.replace(Recipe(), longer_than=2, keep=0.5)


@pytest.fixture(scope="module")
def units(tiny):
    return units_of(read_turns([Turn(text, header=5) for text in TEXTS], tiny), "word")


def texts_of(units, mask):
    return [TEXTS[units.turn[i]][units.start[i] : units.stop[i]].strip() for i in np.flatnonzero(mask)]


def test_the_newest_turn_counts_fully_and_the_oldest_least(units):
    nothing = np.zeros(len(units), bool)
    made = plan(units, np.full(len(units), 2.0), nothing, nothing, 3, dataclasses.replace(CONFIG, oldest=0.6))
    np.testing.assert_allclose(made.scores, 2 * np.array([0.6, 0.8, 1.0])[units.turn], rtol=1e-6)
    np.testing.assert_allclose(made.means, [1.2, 1.6, 2.0], rtol=1e-6)


def test_filler_is_left_out_before_ends_are_protected_and_the_middle_is_measured(units):
    words = texts_of(units, np.ones(len(units), bool))
    # What the header's last unit holds stays, as the distiller asks.
    spared = np.array([word.lower() in ("the", "very", "really", "bread") for word in words]) & ~units.header
    second, scores = units.turn == 1, np.arange(len(units), dtype=float)
    made = plan(units, scores, spared, units.header, 3, CONFIG)
    assert spared[second].sum() == 4
    assert not (made.kept & spared).any()
    assert not (made.protected & spared).any()
    # The full stop is one token at the end; without filler "was" stands before it.
    assert texts_of(units, made.protected & second)[-1] == "."
    two = plan(units, scores, spared, units.header, 3, dataclasses.replace(CONFIG, tail=2))
    assert texts_of(units, two.protected & second)[-2] == "was"
    # Of what lies between, the half with the highest scores.
    free = np.flatnonzero(second & ~spared & ~made.protected)
    assert np.flatnonzero(made.kept & second & ~made.protected).tolist() == free[len(free) // 2 :].tolist()


def test_headers_are_protected_where_they_are_kept(units):
    nothing = np.zeros(len(units), bool)
    scores = np.where(units.header, 0.0, 1.0)
    assert plan(units, scores, nothing, units.header, 3, CONFIG).kept[units.header].all()
    bare = dataclasses.replace(CONFIG, headers=False, head=0, keep=0.0)
    assert not plan(units, scores, nothing, nothing, 3, bare).kept[units.header].any()


def test_the_word_after_a_header_is_not_a_part_of_it(tiny):
    for header in (4, 5):
        units = units_of(read_turns([Turn("Bob: hi there", header=header)], tiny), "word")
        texts = ["Bob: hi there"[a:b].strip() for a, b in zip(units.start, units.stop, strict=True)]
        assert "".join(t for t, h in zip(texts, units.header, strict=True) if h) == "Bob:"
    glued = units_of(read_turns([Turn("Bob:hi there", header=4)], tiny), "word")
    assert glued.header[0] and not glued.header[-1]

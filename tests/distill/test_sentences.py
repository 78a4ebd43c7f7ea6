"""Sentence splitting: what users write, in every script, exact to the character and linear in time."""

# ruff: noqa: RUF001 - punctuation of many scripts is meant

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.distill import sentences


def split(text):
    return [text[a:b].strip() for a, b in sentences(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["Dr. Smith went to Washington.", "He arrived at 3.30 p.m. on Monday."],
        ['"Is it late?" asked Bob.', '"Yes!"', "He left... and never returned."],
        ["J. K. Rowling wrote it.", "We met at 5 p.m.", "Then we left."],
        ["Use e.g. this one.", "See Fig. 3."],
        ["It costs $3.50 at example.com today.", "OK?", "Yes."],
        ["我喜欢北京。", "你呢？", "“好的。”", "他说。"],
        ["今日は晴れです。", "明日は？", "雨だ！"],
        ["هل أنت بخير؟", "نعم."],
        ["यह है।", "वह है।"],
        ["Wow!!!", "Great :)"],
    ],
)
def test_sentences_of_many_kinds(expected):
    joiner = "" if "。" in expected[0] else " "
    assert split(joiner.join(expected)) == expected


def test_lists_code_and_wrapped_lines():
    text = "- one. Two.\n- three\n1. Boil water. 2. Drink\nThis line is\nwrapped here.\n\n```\nx = 1. Y\n```\nEnd"
    assert split(text) == [
        "- one.",
        "Two.",
        "- three",
        "1. Boil water.",
        "2. Drink",
        "This line is\nwrapped here.",
        "```",
        "x = 1. Y",
        "```",
        "End",
    ]


def test_nothing_and_white_space():
    assert sentences("") == []
    assert sentences(" \n ") == [(0, 3)]
    assert sentences("\n a. ") == [(0, 5)]


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("aA1.!?。 \n\t\"”…`-'é你👩\u200d"), max_size=60))
def test_spans_follow_each_other_without_gap(text):
    spans = sentences(text)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(a < b for a, b in spans)
    if len(spans) > 1:
        assert all(text[a:b].strip() for a, b in spans)


def test_adversarial_text_stays_linear():
    """A quadratic rule would need hours here: the test would not end."""
    n = 200_000
    for text in ("." * n + "x", " " * n + "x", " \n" * n, "a." * n, "```\n" * n, '."' * n, "1. " * n, "a" * n + ". B"):
        spans = sentences(text)
        assert spans[-1][1] == len(text)

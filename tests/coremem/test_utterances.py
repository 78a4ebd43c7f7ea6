"""Turns in the shapes that people have them in, and the dates that dialogues write."""

import datetime as dt

import pytest

from gemjax.coremem.dates import read_time, spelled
from gemjax.coremem.utterances import Utterance, as_utterances
from gemjax.errors import MemoryBankError


def test_every_shape_becomes_an_utterance():
    when = dt.datetime(2023, 5, 8, 13, 56, tzinfo=dt.UTC)
    assert as_utterances(
        [
            {
                "speaker": "Ann",
                "dia_id": "D1:3",
                "text": "Look!",
                "blip_caption": "a dog",
                "time": "1:56 pm on 8 May, 2023",
            },
            {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {}}]},
            {"role": "system", "content": "You are a pirate."},
            {"role": "tool", "content": "42", "tool_call_id": "x"},
            {"role": "assistant", "content": None},
            {"speaker": "Ann"},
            {"role": "assistant", "content": "   "},
            ("Bob", "I climb."),
            "no speaker",
            Utterance("as it is", "Cy"),
            {"speaker": "Dee: the\n second", "text": "x", "session": 4},
        ]
    ) == [
        Utterance("Look! [a dog]", "Ann", when, None, "D1:3"),
        Utterance("Hi", "user"),
        Utterance("I climb.", "Bob"),
        Utterance("no speaker"),
        Utterance("as it is", "Cy"),
        Utterance("x", "Dee the second", None, "4"),
    ]
    assert Utterance("I climb.", "Bob").said == "Bob: I climb." and Utterance("Hm").said == "Hm"


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ("one string", "turns must be a sequence"),
        ({"text": "a"}, "turns must be a sequence"),
        ([3], "turn 0 must be a string"),
        ([{"text": 4}], "turn 0 has neither"),
        ([{"text": "a", "speaker": 4}], "turn 0: a speaker"),
        ([{"text": "a", "session": True}], "turn 0: a session"),
        ([{"text": "a", "time": "in spring"}], "turn 0: .*in spring"),
        ([{"text": "a", "time": True}], "turn 0: "),
    ],
)
def test_bad_turns_are_named(turns, message):
    with pytest.raises(MemoryBankError, match=message):
        as_utterances(turns)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("1:56 pm on 8 May, 2023", (2023, 5, 8, 13, 56)),
        ("12:05 am on 1 january, 2024", (2024, 1, 1, 0, 5)),
        ("12:05 PM on 1 Jan, 2024", (2024, 1, 1, 12, 5)),
        ("2023/05/22 (Mon) 05:28", (2023, 5, 22, 5, 28)),
        ("2023/05/22", (2023, 5, 22, 0, 0)),
        ("8 May 2023", (2023, 5, 8, 0, 0)),
        ("May 8, 2023", (2023, 5, 8, 0, 0)),
        ("2023-05-08T13:56:00+02:00", (2023, 5, 8, 11, 56)),
        ("2023-05-08", (2023, 5, 8, 0, 0)),
        (dt.date(2023, 5, 8), (2023, 5, 8, 0, 0)),
        (1683554160, (2023, 5, 8, 13, 56)),
        (1683554160000, (2023, 5, 8, 13, 56)),
    ],
)
def test_dates(value, moment):
    assert read_time(value) == dt.datetime(*moment, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "value", ["31 February 2023", "8 Mai 2023", "2023/13/01", "soon", "", True, float("nan"), float("inf"), 1e300, [1]]
)
def test_what_is_no_date_is_refused(value):
    with pytest.raises(MemoryBankError, match=r"^turn 3: "):
        read_time(value, "turn 3")


def test_a_date_is_spelled_in_one_way():
    assert read_time(None) is None
    assert spelled(dt.date(2023, 5, 8)) == "8 May 2023"

"""Expressions of time, and what they do to a search."""

import calendar
import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemjax.errors import ConfigError
from gemjax.memory import MemoryBank, MemoryConfig
from gemjax.memory.timing import MONTHS, WEEKDAYS, closeness, spans_in

WEDNESDAY = dt.date(2023, 6, 14)


def shown(text, reference=WEDNESDAY):
    return [(span.start.isoformat(), (span.end - dt.timedelta(1)).isoformat()) for span in spans_in(text, reference)]


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("What did I do last May?", "2023-05-01", "2023-05-31"),
        ("Where was I last June?", "2022-06-01", "2022-06-30"),
        ("What happened in December", "2022-12-01", "2022-12-31"),
        ("How was May 2021?", "2021-05-01", "2021-05-31"),
        ("in 2022", "2022-01-01", "2022-12-31"),
        ("before 2022", "0001-01-01", "2021-12-31"),
        ("since March", "2023-03-01", "9999-12-30"),
        ("by July 10, 2022", "0001-01-01", "2022-07-10"),
        ("on 9 June, 2023", "2023-06-09", "2023-06-09"),
        ("on June 9th 2023", "2023-06-09", "2023-06-09"),
        ("on the 5th of March", "2023-03-05", "2023-03-05"),
        ("on 2023-05-08?", "2023-05-08", "2023-05-08"),
        ("on 29 February", "2020-02-29", "2020-02-29"),
        ("last summer", "2022-06-01", "2022-08-31"),
        ("in the winter of 2021", "2021-12-01", "2022-02-28"),
        ("yesterday", "2023-06-13", "2023-06-13"),
        ("the day before yesterday", "2023-06-12", "2023-06-12"),
        ("ten days ago", "2023-06-04", "2023-06-04"),
        ("two weeks ago", "2023-05-28", "2023-06-03"),
        ("a couple of days ago", "2023-06-12", "2023-06-12"),
        ("in the past three months", "2023-03-14", "2023-06-14"),
        ("last week", "2023-06-05", "2023-06-11"),
        ("this weekend", "2023-06-17", "2023-06-18"),
        ("last month", "2023-05-01", "2023-05-31"),
        ("next year", "2024-01-01", "2024-12-31"),
        ("last Saturday", "2023-06-10", "2023-06-10"),
        ("on Wednesday", "2023-06-07", "2023-06-07"),
        ("the week before 9 June 2023", "2023-06-02", "2023-06-08"),
        ("the weekend before April 10, 2023", "2023-04-08", "2023-04-09"),
        ("the Sunday before October 25, 2022", "2022-10-23", "2022-10-23"),
        ("the day after 31 December 2022", "2023-01-01", "2023-01-01"),
        ("two weeks after May 3, 2023", "2023-05-14", "2023-05-20"),
        ("the month before May 2023", "2023-04-01", "2023-04-30"),
        ("between August 11 and August 15 2023", "2023-08-11", "2023-08-15"),
        ("from May 3 to May 9", "2023-05-03", "2023-05-09"),
        ("in the second week of November 2022", "2022-11-08", "2022-11-14"),
        ("in early November 2022", "2022-11-01", "2022-11-10"),
        ("the first half of September 2022", "2022-09-01", "2022-09-15"),
    ],
)
def test_expressions(text, first, last):
    assert shown(text) == [(first, last)]
    assert shown(text.upper()) == [(first, last)]


@pytest.mark.parametrize(
    "text",
    [
        "", "May I ask?", "You may go 5 times", "How many weeks ago did I go?", "What do I do on Saturday mornings?",
        "my Sunday group rides", "a week-long trip", "How many days did it take?", "Has Ann's march been long?",
        "room 2022", "1,234,567", "version 2.10.2022.3", "the second time", "half an hour", "after the road trip",
        "¿Qué hice en mayo?", "我上周做了什么",
    ],
)  # fmt: skip
def test_what_names_no_time(text):
    assert shown(text) == []


def test_a_day_seen_from_a_day():
    assert shown("What did Joanna finish last Friday on 23 January, 2022?") == [
        ("2022-01-23", "2022-01-23"),
        ("2022-01-21", "2022-01-21"),
    ]


def test_without_a_reference_only_what_is_complete_is_read():
    assert shown("last week, in May, yesterday", None) == []
    assert shown("in May 2021", None) == [("2021-05-01", "2021-05-31")]


days = st.dates(dt.date(1950, 1, 1), dt.date(2099, 12, 31))


@given(day=days, reference=days)
def test_a_written_date_is_that_day(day, reference):
    month, year = MONTHS[day.month - 1], day.year
    for text in (f"on {day.day} {month} {year}", f"{month} {day.day}, {year}", f"({day.isoformat()})"):
        assert shown(text, reference) == [(day.isoformat(), day.isoformat())]
    last = calendar.monthrange(year, day.month)[1]
    assert shown(f"in {month[:3]} {year}", reference) == [
        (day.replace(day=1).isoformat(), day.replace(day=last).isoformat())
    ]


@given(reference=st.dates(), number=st.integers(1, 999), weekday=st.sampled_from(WEEKDAYS))
def test_relative_expressions_at_any_moment(reference, number, weekday):
    found = spans_in(f"last {weekday}", reference)
    for span in found:
        assert span.start.strftime("%A") == weekday and 1 <= (reference - span.start).days <= 7
    for span in spans_in(f"{number} days ago", reference):
        assert (reference - span.start).days == number


PIECES = [
    "last", "next", "in", "on", "May", "march", "3", "31", "2023", "0000-00-00", "of", "the", "week", "two", "ago",
    "before", "after", "between", "and", "since", "winter", "Monday", "30", "February", "9999-12-31", "1999", "first",
    "half", "early", "5th", "years", "12", "couple", "a", "\0", "é",
]  # fmt: skip
pieces = st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join)


@given(text=st.one_of(pieces, st.text(max_size=40)), reference=st.one_of(st.none(), st.dates()))
def test_any_text_gives_spans_with_days_in_them(text, reference):
    for span in spans_in(text, reference):
        assert span.start < span.end


def test_closeness_falls_from_one_and_is_zero_where_nothing_is_known():
    (span,) = spans_in("in May 2023")
    first = (span.start - dt.date(1970, 1, 1)).days
    found = closeness(np.array([first - 30, first - 1, first, first + 30.9, first + 38, np.nan]), [span])
    assert found[2] == found[3] == 1 and found[5] == 0
    assert found[0] < 1e-6 and 0.3 < found[1] < 0.4 and 0.3 < found[4] < 0.5
    assert (closeness(np.array([0.0]), []) == 0).all()


def test_a_search_prefers_what_happened_then():
    bank = MemoryBank(lambda texts: np.ones((len(texts), 3)), MemoryConfig(when=2.0))
    for month in (3, 5, 6):
        bank.add([f"Ann painted a picture ({month})"], happened_at=f"2023-{month:02}-10")
    bank.add(["Ann painted a picture (ever)"])

    def first(question, at=None):
        return bank.search(question, 1, at=at)[0].text[-3:]

    assert first("What did Ann paint in May 2023?") == "(5)"
    assert first("What did Ann paint last month?", "2023-07-02") == "(6)"
    assert first("What did Ann paint last month?", "2023-04-02") == "(3)"
    assert first("What did Ann paint?") == "(3)"  # none: the order of insertion
    bank.remove([1])
    bank.upsert([0], ["Ann painted a picture (0)"], happened_at="2023-05-02")
    assert first("What did Ann paint in May 2023?") == "(0)"
    assert MemoryConfig().ranking == "fused" and MemoryConfig(when=1).ranking == "hybrid"


def test_what_is_older_fades_and_what_was_just_told_does_not():
    moment = dt.datetime(2023, 6, 14, tzinfo=dt.UTC)
    bank = MemoryBank(lambda texts: np.ones((len(texts), 3)), MemoryConfig(forgetting=10.0), clock=lambda: moment)
    bank.add(["tea one"], happened_at="2023-05-15")
    bank.add(["tea two"], happened_at="2023-06-04")
    bank.add(["tea three"])  # told now
    hits = bank.search("tea", 3)
    assert [hit.id for hit in hits] == [2, 1, 0]
    np.testing.assert_allclose([hit.score for hit in hits], np.exp([0, -1, -3]), atol=1e-5)
    early = bank.search("tea", 3, at="2023-05-01")  # before all of it: nothing has faded
    np.testing.assert_allclose([hit.score for hit in early], [1, 1, 1], atol=1e-5)
    for wrong in (-1, float("nan"), "a"):
        with pytest.raises(ConfigError, match="forgetting"):
            MemoryConfig(forgetting=wrong)

"""When a question asks about: English expressions of time as intervals of days.

Dates in any common order, months, seasons and years ("9 June 2023", "May", "last summer", "in 2022"), what is relative
to a reference date ("yesterday", "two weeks ago", "last Saturday", "the past three months"), and what is relative to a
date ("the week before 9 June 2023", "two weeks after May 3", "between May 3 and May 9", "the second week of November").
Seasons are the northern hemisphere's. A month or day without a year is the latest that has begun at the reference date.
Counts ("how many weeks ago") are no expressions of time. Other languages have none here.
"""

import calendar
import dataclasses
import datetime as dt
import itertools
import re
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MARGIN_BEFORE, MARGIN_AFTER = 1.0, 7.0
"""Days in which closeness falls to 1/e before and after an interval: what happened is told on the day or soon after."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The days from `start` to before `end`."""

    start: dt.date
    end: dt.date

    @property
    def days(self) -> int:
        """How many there are."""
        return (self.end - self.start).days


_FIRST, _LAST = dt.date(1, 1, 1), dt.date(9999, 12, 31)
_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?" + (
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY, _YEAR = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?", r"(?P<year>(?:19|20)\d\d)"
_NUMBERS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "a": 1, "an": 1, "a couple of": 2, "couple of": 2, "a few": 3, "few": 3, "several": 3,
}  # fmt: skip
_NUMBER = r"(?P<number>\d{1,3}|(?:a )?couple of|(?:a )?few|several|" + "|".join(list(_NUMBERS)[:14]) + ")"
_UNIT = r"(?P<unit>day|week|month|year)s?"
_WEEKDAY = "(?P<weekday>" + "|".join(day.casefold() for day in WEEKDAYS) + ")"
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_SEASON = "(?P<season>spring|summer|autumn|fall|winter)"
_ORDINALS = {"first": 0, "1st": 0, "second": 1, "2nd": 1, "third": 2, "3rd": 2, "fourth": 3, "4th": 3}
_BEGINS = r"(?:in|on|by|since|until|till|of|for|during|last|this|next|before|after|from|to|and|between|early|late|mid)"

# Dates, most exact first: what one has taken the next does not see.
_ABSOLUTE = [
    re.compile(form)
    for form in (
        r"(?<![\d-])(?P<year>\d{4})[-/](?P<number>\d{1,2})[-/](?P<day>\d{1,2})(?![\d-])",
        rf"\b{_DAY}(?: of)? {_MONTH}(?:,? {_YEAR})?\b",
        rf"\b{_MONTH} {_DAY}(?!\d)(?:,? {_YEAR})?\b",
        rf"\b{_MONTH},?(?: of)? {_YEAR}\b",
        rf"\b{_SEASON}(?: of)? {_YEAR}\b",
        rf"\b(?<=(?:last|this) ){_MONTH}\b",
        rf"\b{_BEGINS} (?:the month of )?{_MONTH}(?! i\b)\b",
        rf"\b(?:(?:in|during|over|of|for|last|this|since) (?:the )?){_SEASON}\b",
        rf"\b(?:in|during|of|since|by|before|after|from|to|year|until|throughout) {_YEAR}\b",
    )
]
_NAMED = re.compile(r"\b(?P<name>the day before yesterday|yesterday|today|tomorrow)\b")
_AGO = re.compile(rf"\b{_NUMBER} (?P<unit>day|week|month|year)s? ago\b")
_PAST = re.compile(rf"\b(?:last|past|previous) {_NUMBER} {_UNIT}\b")
_TURN = re.compile(r"\b(?P<turn>last|past|previous|this|next) (?P<unit>week|month|year|weekend)\b(?!-)")
_LAST_DAY = re.compile(rf"\b(?:last|this past|past|on) {_WEEKDAY}\b(?! (?:morning|evening|night|afternoon)s\b)")
_AROUND = re.compile(
    rf"(?:(?:{_NUMBER} {_UNIT}|(?:the |last |that )?(?P<one>day|week|weekend|month|year|{_WEEKDAY[12:-1]})) )?"
    r"(?P<side>before|after|following|prior to|preceding)(?: the)?$"
)
_OPEN = re.compile(r"\b(?P<side>since|until|till|by)(?: the)?$")
_PART = re.compile(
    r"\b(?:(?P<ordinal>first|second|third|fourth|1st|2nd|3rd|4th) (?P<what>week|half) (?:of|in)|"
    r"(?P<third>early|late|mid|beginning of|start of|end of|middle of)(?: in)?-?)(?: the)?$"
)


def spans_in(text: str, reference: dt.date | None = None) -> tuple[Span, ...]:
    """The intervals that a text names, in its order of kinds; none if it names none.

    Args:
        text: a question.
        reference: the day it is asked on; None: only what is complete by itself is read.
    """
    found: list[tuple[int, int, Span]] = []
    left = " ".join(text.casefold().split())
    years = set(re.findall(rf"\b{_YEAR}\b", left))
    only = int(years.pop()) if len(years) == 1 else None  # "between May 3 and May 9, 2023": said once for both
    for form in _ABSOLUTE:
        for match in form.finditer(left):
            start = min(match.start(name) for name, value in match.groupdict().items() if value)
            try:
                span = _absolute(match, reference, only)
            except (ValueError, OverflowError):
                continue  # the 31st of February
            if span is not None:
                found.append((start, match.end(), span))
                left = left[:start] + "\0" * (match.end() - start) + left[match.end() :]
    found.sort(key=lambda one: one[0])
    spans = _between(left, found)
    if spans is None:
        spans = []
        for start, _, span in found:
            moved, taken = _moved(left[:start].rstrip(), span)
            left = left[:taken] + "\0" * (start - taken) + left[start:]
            if moved is not None:
                spans.append(moved)
    # "last weekend, before 10 April": seen from that day.
    today = next((span.start for _, _, span in found if span.days == 1), reference)
    if today is not None:
        spans += _relative(left, today)
    return tuple(dict.fromkeys(spans))


def _absolute(match: re.Match[str], reference: dt.date | None, only: int | None) -> Span | None:
    parts = match.groupdict()
    year = int(parts["year"]) if parts.get("year") else only
    if parts.get("season"):
        season = str(parts["season"])
        return _latest(lambda y: _season(season, y), year, match[0].startswith("last "), reference)
    if not parts.get("month") and not parts.get("number"):
        assert year is not None
        return Span(dt.date(year, 1, 1), dt.date(year + 1, 1, 1))
    name = parts.get("month")
    month = int(parts["number"]) if name is None else [m.casefold()[:3] for m in MONTHS].index(name[:3]) + 1
    if parts.get("day"):
        day = int(parts["day"])
        return _latest(lambda y: _one(dt.date(y, month, day)), year, False, reference)
    before = match.string[: match.start()].endswith("last ") or match[0].startswith("last ")
    return _latest(lambda y: _month(y, month), year, before, reference)


def _latest(span_of: Callable[[int], Span], year: int | None, over: bool, reference: dt.date | None) -> Span | None:
    """The span of the year; without one the latest that has begun at the reference, or is over."""
    if year is not None:
        return span_of(year)
    for back in range(9 if reference is not None else 0):  # a 29th of February comes every eighth year at least
        assert reference is not None
        try:
            span = span_of(reference.year - back)
        except ValueError:
            continue
        if (span.end if over else span.start) <= reference:
            return span
    return None


def _one(day: dt.date) -> Span:
    return Span(day, day + dt.timedelta(1))


def _month(year: int, month: int) -> Span:
    return Span(dt.date(year, month, 1), dt.date(year + month // 12, month % 12 + 1, 1))


def _season(name: str, year: int) -> Span:
    first = _SEASONS[name]
    return Span(dt.date(year, first, 1), _shift(dt.date(year, first, 1), 3))


def _shift(day: dt.date, months: int) -> dt.date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return dt.date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def _near(day: dt.date, number: int, unit: str, sign: int) -> Span:
    """About so many units away: as exact as people are who count in them."""
    if unit == "day":
        return _one(day + dt.timedelta(sign * number))
    if unit == "week":
        centre, width = day + dt.timedelta(7 * sign * number), 3
    else:
        centre, width = _shift(day, sign * number * (12 if unit == "year" else 1)), 180 if unit == "year" else 12
    return Span(centre - dt.timedelta(width), centre + dt.timedelta(width + 1))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS[text]


def _between(text: str, found: Sequence[tuple[int, int, Span]]) -> list[Span] | None:
    """One span of two: "between A and B", "from A to B"."""
    for (start, end, one), (then, _, other) in itertools.pairwise(found):
        head, joint = text[:start].rstrip("\0 "), text[end:then].strip("\0 ")
        first = "between" if head.endswith("between") else "from" if head.endswith("from") else ""
        if (first, joint) in (("between", "and"), ("from", "to"), ("from", "until")) and one.start < other.end:
            return [Span(one.start, other.end)]
    return None


def _moved(head: str, span: Span) -> tuple[Span | None, int]:
    """The span that the words before a date make of it, and where they begin."""
    try:
        if match := _AROUND.search(head):
            return _around(match, span), match.start()
        if match := _OPEN.search(head):
            side = match["side"]
            return (Span(span.start, _LAST) if side == "since" else Span(_FIRST, span.end)), match.start()
        if match := _PART.search(head):
            return _part(match, span), match.start()
    except (ValueError, OverflowError):
        return None, len(head)
    return span, len(head)


def _around(match: re.Match[str], span: Span) -> Span:
    before = match["side"] in ("before", "prior to", "preceding")
    edge, sign = (span.start, -1) if before else (span.end - dt.timedelta(1), 1)
    if match["number"]:
        return _near(edge, _number(match["number"]), match["unit"], sign)
    one = match["one"]
    if one is None:
        return Span(_FIRST, span.start) if before else Span(span.end, _LAST)
    names = [day.casefold() for day in WEEKDAYS]
    if one in names or one == "weekend":
        wanted = names.index(one) if one in names else 5
        step = (edge.weekday() - wanted) % 7 or 7 if before else (wanted - edge.weekday()) % 7 or 7
        day = edge + dt.timedelta(sign * step)
        return Span(day, day + dt.timedelta(2 if one == "weekend" else 1))
    if one in ("day", "week"):
        length = dt.timedelta(7 if one == "week" else 1)
        return Span(span.start - length, span.start) if before else Span(span.end, span.end + length)
    months = 12 if one == "year" else 1
    return Span(_shift(span.start, -months), span.start) if before else Span(span.end, _shift(span.end, months))


def _part(match: re.Match[str], span: Span) -> Span:
    days = span.days
    if match["ordinal"]:
        number, half = _ORDINALS[match["ordinal"]], match["what"] == "half"
        length = -(-days // 2) if half else 7
        first = span.start + dt.timedelta(number * length)
        return span if first >= span.end else Span(first, min(first + dt.timedelta(length), span.end))
    third, word = max(days // 3, 1), match["third"]
    if word in ("early", "beginning of", "start of"):
        return Span(span.start, span.start + dt.timedelta(third))
    if word in ("late", "end of"):
        return Span(span.end - dt.timedelta(third), span.end)
    return Span(span.start + dt.timedelta(third), span.end - dt.timedelta(third)) if days > 2 else span


def _relative(text: str, today: dt.date) -> list[Span]:
    day, spans = dt.timedelta(1), []
    monday = today - day * today.weekday()
    try:
        for match in _NAMED.finditer(text):
            back = {"today": 0, "yesterday": 1, "tomorrow": -1}.get(match["name"], 2)
            spans.append(_one(today - day * back))
        spans += [_near(today, _number(m["number"]), m["unit"], -1) for m in _AGO.finditer(text)]
        for match in _PAST.finditer(text):
            number, unit = _number(match["number"]), match["unit"]
            months = {"month": number, "year": 12 * number}.get(unit)
            first = today - day * number * (7 if unit == "week" else 1) if months is None else _shift(today, -months)
            spans.append(Span(first, today + day))
        for match in _TURN.finditer(text):
            step = {"this": 0, "next": 1}.get(match["turn"], -1)
            if match["unit"] in ("week", "weekend"):
                saturday = monday + day * (5 + 7 * step)
                week = Span(monday + 7 * step * day, monday + 7 * (step + 1) * day)
                spans.append(week if match["unit"] == "week" else Span(saturday, saturday + 2 * day))
            elif match["unit"] == "month":
                first = _shift(today.replace(day=1), step)
                spans.append(_month(first.year, first.month))
            else:
                spans.append(Span(dt.date(today.year + step, 1, 1), dt.date(today.year + step + 1, 1, 1)))
        for match in _LAST_DAY.finditer(text):
            wanted = [name.casefold() for name in WEEKDAYS].index(match["weekday"])
            spans.append(_one(today - day * ((today.weekday() - wanted) % 7 or 7)))
    except (ValueError, OverflowError):  # at the ends of the calendar
        return []
    return spans


def closeness(days: Float[np.ndarray, "n"], spans: Sequence[Span]) -> Float[np.ndarray, "n"]:
    """How well moments fit the spans: 1 within one, falling to 0 outside; 0 where there is no moment.

    Args:
        days: moments in days since 1970, NaN where unknown.
        spans: from `spans_in`.
    """
    epoch = dt.date(1970, 1, 1)
    best = np.zeros(len(days))
    for span in spans:
        start, end = (span.start - epoch).days, (span.end - epoch).days
        outside = np.where(days < start, (start - days) / MARGIN_BEFORE, np.maximum(days - end, 0) / MARGIN_AFTER)
        best = np.maximum(best, np.exp(-np.where(np.isnan(days), np.inf, outside)))
    return best

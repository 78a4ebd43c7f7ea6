"""Dates as dialogues write them, and as prompts do."""

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from gemjax.errors import MemoryBankError
from gemjax.memory.record import moment
from gemjax.memory.timing import MONTHS

_MILLISECONDS = 1e11
_DAY_FIRST = re.compile(
    r"(?:(?P<hour>\d{1,2}):(?P<minute>\d{2})\s*(?P<half>[ap]m)\s+on\s+)?"
    r"(?P<day>\d{1,2})\s+(?P<month>[a-z]+)\.?,?\s+(?P<year>\d{4})"
)
_MONTH_FIRST = re.compile(r"(?P<month>[a-z]+)\.?\s+(?P<day>\d{1,2}),?\s+(?P<year>\d{4})")
_SLASHES = re.compile(
    r"(?P<year>\d{4})/(?P<month>\d{1,2})/(?P<day>\d{1,2})(?:\s*\([a-z]+\))?(?:\s+(?P<hour>\d{1,2}):(?P<minute>\d{2}))?"
)


def spelled(date: dt.date) -> str:
    """`8 May 2023`: no other order of day and month can be read into it."""
    return f"{date.day} {MONTHS[date.month - 1]} {date.year}"


def read_time(value: Any, where: str = "time") -> dt.datetime | None:
    """A moment in UTC, None for None.

    Takes what a bank takes (datetimes, dates, ISO 8601), seconds or milliseconds since 1970, and the forms of the
    benchmarks: `1:56 pm on 8 May, 2023`, `2023/05/22 (Mon) 05:28`, `8 May 2023`, `May 8, 2023`.

    Raises: MemoryBankError that begins with `where` for anything else.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return dt.datetime.fromtimestamp(value / 1000 if abs(value) > _MILLISECONDS else value, dt.UTC)
        except (ValueError, OverflowError, OSError):
            raise MemoryBankError(f"{where}: {value!r:.40} is no time since 1970") from None
    if isinstance(value, str):
        text = " ".join(value.casefold().split())
        for form in (_DAY_FIRST, _MONTH_FIRST, _SLASHES):
            if match := form.fullmatch(text):
                return _assembled(match.groupdict(), value, where)
    try:
        return moment(value, "the time")
    except MemoryBankError as error:
        raise MemoryBankError(f"{where}: {error}") from None


def _assembled(parts: Mapping[str, str | None], value: str, where: str) -> dt.datetime:
    month, hour = str(parts["month"]), int(parts.get("hour") or 0)
    if half := parts.get("half"):
        hour = hour % 12 + (12 if half == "pm" else 0)
    numbers = [int(month)] if month.isdigit() else [i for i, m in enumerate(MONTHS, 1) if _names(month, m)]
    try:
        return dt.datetime(
            int(str(parts["year"])),
            numbers[0],
            int(str(parts["day"])),
            hour,
            int(parts.get("minute") or 0),
            tzinfo=dt.UTC,
        )
    except (ValueError, IndexError):
        raise MemoryBankError(f"{where}: {value[:40]!r} is no date") from None


def _names(word: str, month: str) -> bool:
    return len(word) >= 3 and month.casefold().startswith(word)

"""Failures, recognised from what a result says rather than from a status that some agents never set.

Two questions decide: whose words are these (a program's own report, or content it was asked to show), and where does
the message stand (programs put theirs at line starts, where quoted source code rarely has them).
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from gemjax.history.signals import error_patterns as known
from gemjax.history.signals.error_patterns import Pattern
from gemjax.history.signals.sources import printable
from gemjax.history.signals.work import MOST, Work

WINDOW = 32_000
"""A longer result is looked at only at its beginning and its end, this many characters each."""
MAX_REASON = 90
"""Longest reason, in characters."""
_FRAME = 400
_SHORT = 600
_MAX_JSON = 400_000
_TAG = re.compile(r"</?[A-Za-z][\w-]{0,40}>")
_LINE, _LONG = 100, 400  # units of work that one pattern on one line costs, and the most for the line's length
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")


def error_in(text: str, *, quotes: bool, no_match: bool, is_error: bool, work: Work | None = None) -> str | None:
    """A short reason when a result reports a failure, None otherwise. Linear in the result.

    Args:
        text: the result.
        quotes: the result is content that the call was asked to show; only the tool's own frame around it counts.
        no_match: exit status 1 means that nothing was found.
        is_error: the provider's flag, which decides by itself.
        work: the block's account; None for one as large as an account can be.

    Raises: `WorkSpent` when the account is empty.

    >>> error_in("ModuleNotFoundError: No module named 'x'", quotes=False, no_match=False, is_error=False)
    "ModuleNotFoundError: No module named 'x'"
    >>> error_in("12:    raise ValueError('x')", quotes=True, no_match=False, is_error=False) is None
    True
    """
    work = work or Work(MOST)
    seen = _window(text)
    reason = _from_json(seen, quotes, no_match, work) or _from_text(seen, quotes, no_match, work)
    if reason is None and is_error:
        first = next((line for line in seen[:2_000].splitlines() if line.strip()), "")
        reason = f"reported by the tool: {first.strip()}" if first else "reported by the tool"
    return None if reason is None else _short(reason)


def _short(reason: str) -> str:
    line = printable(" ".join(_TAG.sub("", reason[:400]).split()).strip("*=- ").removeprefix("[-] "))
    if line.startswith("[") and line.endswith("]"):
        line = line[1:-1]
    return line if len(line) <= MAX_REASON else line[: MAX_REASON - 1] + "…"


def _window(text: str) -> str:
    if len(text) > 2 * WINDOW:
        text = text[:WINDOW] + "\n" + text[-WINDOW:]
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text


def _from_text(text: str, quotes: bool, no_match: bool, work: Work) -> str | None:
    work.spend(_LINE + len(text))
    if quotes:
        reason = None if known.SOURCE_LINE.match(text) else _opening(text)
        reason = reason or _first(known.SHELL, text, work)
        if reason is None:
            frame = text if len(text) <= _FRAME else text[: _FRAME // 2] + "\n" + text[-_FRAME // 2 :]
            reason = _first(known.HTTP, frame, work) or _first(known.TIMEOUT, frame, work)
    else:
        reason = _exception(text, work)
        for patterns in (known.FAILED_TESTS, known.SHELL, known.REPORTS, known.HTTP, known.TIMEOUT):
            reason = reason or _first(patterns, text, work)
        reason = reason or _opening(text)
    if reason is None and len(text) <= _SHORT:
        reason = _first(known.REFUSED, text, work)
    if reason is None:
        code = _exit_code(text)
        if code and not (no_match and code == 1):
            reason = f"exit code {code}"
    return reason


def _opening(text: str) -> str | None:
    if known.OPENING.match(text[:_FRAME]) is None:
        return None
    lines = text[:_FRAME].replace("OBSERVATION:", "", 1).strip().splitlines()
    return " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])


def _first(patterns: tuple[Pattern, ...], text: str, work: Work) -> str | None:
    for needles, regex, reason in patterns:
        for needle in needles:
            if needle in text:
                break
        else:
            continue
        for match in _matches(needles, regex, text, work):
            if any(word in match[0] for word in known.BENIGN):
                continue
            if reason:
                return reason.format(match[0], *match.groups())
            return (
                match[0] + text[match.end() : match.end() + 100].partition("\n")[2]
                if match[0][-1:] == ":"
                else match[0]
            )
    return None


def _matches(needles: tuple[str, ...], regex: re.Pattern[str], text: str, work: Work) -> Iterator[re.Match[str]]:
    """The matches on lines with one of the needles, in order. No pattern goes over the end of a line."""
    found = {needle: at for needle in needles if (at := text.find(needle)) >= 0}
    while found:
        first = min(found.values())
        end = text.find("\n", first)
        if end < 0:
            end = len(text)
        start = text.rfind("\n", 0, first) + 1
        work.spend(_LINE + min(end - start, _LONG))
        yield from regex.finditer(text, start, end)
        for needle in [needle for needle, at in found.items() if at < end]:
            at = text.find(needle, end)
            if at < 0:
                del found[needle]
            else:
                found[needle] = at


def _exception(text: str, work: Work) -> str | None:
    """The last exception of a traceback, or an exception's line by itself."""
    has_traceback = "Traceback (most" in text and known.TRACEBACK.search(text) is not None
    if not has_traceback and not any(needle in text for needle in known.EXCEPTION_NEEDLES):
        return None
    last = None
    for last in _matches(known.EXCEPTION_NEEDLES, known.EXCEPTION, text, work):  # noqa: B007 - the last ended the program
        pass
    if last is None:
        return "Traceback" if has_traceback else None
    if has_traceback:
        return f"Traceback ({last[1].rpartition('.')[2]})"
    return text[last.start() : last.start() + 120].split("\n", 1)[0]


def _exit_code(text: str) -> int | None:
    """The exit status in a result's frame: `<returncode>1</returncode>`, `Exit code: 2`, `exited with code 1` ..."""
    frame = text if len(text) <= 1_200 else text[:300] + "\n" + text[-600:]
    frame = frame.lower()
    if not any(needle in frame for needle in known.EXIT_NEEDLES):
        return None
    codes = [int(match[1]) for match in known.EXIT.finditer(frame)]
    return next((code for code in codes if code), 0)


_FAILED_WORDS = ("error", "failed", "failure", "fail")
_CODE_FIELDS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_STATUS_FIELDS = ("status", "status_code", "statusCode", "code", "http_status")


def _from_json(text: str, quotes: bool, no_match: bool, work: Work) -> str | None:
    start = text.lstrip()
    if start[:1] != "{" or len(text) > _MAX_JSON:
        return None
    work.spend(len(start))
    try:
        value = json.loads(start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    reason = _from_fields(value, no_match)
    for inner in ("metadata", "result", "response"):
        if reason is None and isinstance(value.get(inner), dict):
            reason = _from_fields(value[inner], no_match)
    if "metadata" in value or "exit_code" in value or "stdout" in value:  # Codex and others wrap what was printed
        for field in ("output", "stdout", "stderr"):
            printed = value.get(field)
            if isinstance(printed, str) and printed:
                reason = _from_text(_window(printed), quotes, no_match, work) or reason
    return reason


def _from_fields(value: dict[str, Any], no_match: bool) -> str | None:
    message = ""
    for field in ("reason", "detail", "message"):
        text = value.get(field)
        message = text if isinstance(text, str) and text else message
    for field in ("error", "errors", "Error", "exception"):
        given = value.get(field)
        if isinstance(given, dict) and given:
            given = given.get("message") or given.get("type") or message
            given = given or "reported"
        if isinstance(given, list) and given:
            given = given[0] if isinstance(given[0], str) else "reported"
        if given is True:
            given = message if message else "reported"
        if isinstance(given, str) and given:
            return f"error: {given}"
    if value.get("is_error") is True or value.get("isError") is True:
        return f"error: {message or 'reported'}"
    if value.get("success") is False or value.get("ok") is False:
        return f"not successful: {message}" if message else "not successful"
    for field in _CODE_FIELDS:
        code = value.get(field)
        if isinstance(code, int) and not isinstance(code, bool) and code and not (no_match and code == 1):
            return f"exit code {code}"
    for field in _STATUS_FIELDS:
        status = value.get(field)
        if isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600:
            return f"HTTP {status}"
        if isinstance(status, str) and status.lower() in _FAILED_WORDS:
            return f"status {status}: {message}" if message else f"status {status}"
    return None

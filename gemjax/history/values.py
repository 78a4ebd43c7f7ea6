"""Specific values in a text: what an agent copies from what it has seen, and cannot make up.

A value is a URL, a path, an identifier, a number of three digits or more, or a quoted name. Plain words are none, and
neither are the few names that every program has (`__init__`, `/dev/null`, `utf-8`).

* **URL**: whole, without punctuation at its end.
* **path**: whole, with at least one `/` between names, or a file name with an extension. A glob ends before its `*`.
* **identifier**: a word of at least four characters that has an underscore or a digit beside letters, an upper-case
  letter after a lower-case one, a dot or a hyphen inside, or upper-case letters only. `--flags` are none.
* **number**: at least three digits, with `.`, `,` or `-` between them (dates, versions, amounts).
* **quoted name**: 4 to 60 characters in quotes or backticks on one line, not a single lower-case word; and a whole
  argument of a call that is such a name.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from gemjax.history.records import BlockContent, ToolCall
from gemjax.history.signals.arguments import fields

_TOKEN = re.compile(
    r"""(?P<url>[a-z][a-z0-9+.-]*://[^\s"'<>`|\\)\]}]+)
      | (?P<path>(?:~|\.{1,2})?/?(?:[\w.@+%=~$-]+/)+[\w.@+%=~$-]*|/[\w.@+%=~$-]{2,})
      | (?P<word>(?<![\w-])[\w$@#][\w.$@-]*)""",
    re.X,
)
_QUOTED = re.compile(r"""(["'`])([^"'`\n\\]{4,60})\1""")
_NUMBER = re.compile(r"[#$]?\d[\d.,-]*")
_FILE = re.compile(r"[\w.@+-]*[A-Za-z][\w@+-]*\.[A-Za-z][A-Za-z0-9]{0,5}")
_MIXED = re.compile(r"[a-z][A-Z]|[A-Za-z]\d|\d[A-Za-z]|[A-Za-z0-9]_|_[A-Za-z0-9]|[A-Za-z]\.[A-Za-z]|\w-\w")
_PLAIN = re.compile(r"[a-z]+|[A-Z]?[a-z]+(?: [a-z]+)?")
_END = ".,;:!?-$"
_LEAST = 4
_LONGEST = 300

COMMON = frozenset(
    {
        "__init__",
        "__main__",
        "__name__",
        "__file__",
        "__dict__",
        "utf-8",
        "utf8",
        "ascii",
        "/dev/null",
        "/bin/bash",
        "/bin/sh",
        "/usr/bin/env",
        "/tmp",
        "/usr",
        "/usr/bin",
        "/bin",
        "/etc",
        "/home",
        "localhost",
        "127.0.0.1",
        "0.0.0.0",
        "2>&1",
        "sys.path",
        "sys.exit",
        "os.path",
        "console.log",
        "console.error",
        "node_modules",
        "e.g",
        "i.e",
        "etc.",
        "toString",
        "forEach",
        "addEventListener",
        "stdin",
        "stdout",
        "stderr",
        "README.md",
        "TODO",
        "FIXME",
        "NOTE",
        "NULL",
        "TRUE",
        "FALSE",
        "HEAD",
        "origin/main",
        "origin/master",
        "and/or",
        "read/write",
        "true/false",
        "yes/no",
        "N/A",
        "100",
        "000",
        "1000",
        "200",
        "404",
        "500",
        "max-width",
        "font-size",
        "no-op",
        "up-to-date",
        "read-only",
        "built-in",
    }
)
"""Shaped like a value, and in so many programs that standing in a history says nothing."""


def values_of(text: str) -> set[str]:
    """The specific values of a text; linear in its length.

    >>> sorted(values_of("cd /repo/app && grep -n 'Old Town' src/user_id.py | head -5  # see #1234, the main one"))
    ['#1234', '/repo/app', 'Old Town', 'src/user_id.py']
    """
    found: set[str] = set()
    for match in _TOKEN.finditer(text):
        value = match.group().rstrip(_END)
        kind = match.lastgroup
        if kind == "path":
            value = value.rstrip("/")
            kept = len(value) >= _LEAST and sum(map(str.isalnum, value)) >= 3 and "/" in value
            if not kept and "/" not in value:
                kept = _is_name(value)
        elif kind == "url":
            kept = len(value) > 8
        else:
            kept = _is_name(value)
        if kept and len(value) <= _LONGEST and value not in COMMON:
            found.add(value)
    for match in _QUOTED.finditer(text):
        quoted = match.group(2).strip()
        if _is_quoted_name(quoted):
            found.add(quoted)
    return found


def _is_name(word: str) -> bool:
    if _NUMBER.fullmatch(word):
        return sum(map(str.isdigit, word)) >= 3
    if len(word) < _LEAST:
        return False
    if _MIXED.search(word) or _FILE.fullmatch(word):
        return True
    return word.isupper() and word.isalpha()


def _is_quoted_name(text: str) -> bool:
    words = text.split()
    return (
        _LEAST <= len(text) <= 60
        and 1 <= len(words) <= 6
        and any(map(str.isalpha, text))
        and not _PLAIN.fullmatch(text)
        and text not in COMMON
    )


def leaves(value: Any) -> Iterable[str]:
    """The texts in an argument: strings, and numbers as they are written."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def values_of_call(call: ToolCall, without: frozenset[str] = frozenset()) -> set[str]:
    """The specific values of a call's arguments.

    Args:
        without: fields that are left out, `old_string` for one.
    """
    found: set[str] = set()
    for name, argument in fields(call.arguments).items():
        if name in without:
            continue
        for leaf in leaves(argument):
            found |= values_of(leaf)
            whole = leaf.strip()
            if "\n" not in whole and _is_quoted_name(whole) and len(whole.split()) <= 3:
                found.add(whole)
    return found


@lru_cache(maxsize=4096)
def values_of_content(content: BlockContent) -> tuple[frozenset[str], frozenset[str]]:
    """The values that a block's calls use, and those that its results show."""
    used: set[str] = set()
    for call in content.calls:
        used |= values_of_call(call)
    shown: set[str] = set()
    for result in content.results:
        shown |= values_of(result.text)
    return frozenset(used), frozenset(shown)

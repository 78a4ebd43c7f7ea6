"""Where information came from: one key for each page, document, file or search, so that repeats are recognised."""

import re

MAX_KEY = 300
"""Longest key of a source, in characters."""
MAX_URL = 2_000

_PARTS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|//)?(?:[^/?#@\s]*@)?([^/?#\s]*)([^?#\s]*)(?:\?([^#\s]*))?")
_TRACKING = re.compile(
    r"(?:utm_\w+|gclid|gbraid|wbraid|fbclid|msclkid|dclid|igshid|mc_[ce]id|_ga|_gl|_hs\w+|yclid|vero_id|oly_\w+"
    r"|ref|ref_src|ref_url|referrer|source|src|spm|si|feature|trk|cmpid|campaign)",
    re.I | re.ASCII,
)
_DEFAULT_PORT = re.compile(r":(?:80|443)$")


def normalise_url(url: str) -> str:
    """Host, path and the query that identifies the page: no scheme, `www.`, fragment, tracking or trailing slash.

    >>> normalise_url("https://www.Example.com/a/?utm_source=x&id=7#top")
    'example.com/a?id=7'
    """
    match = _PARTS.match(url.strip(" \t\r\n\"'<>")[:MAX_URL])
    if match is None:
        return ""
    host, path, query = match.groups()
    host = _DEFAULT_PORT.sub("", host.lower()).removeprefix("www.").rstrip(".")
    kept = [p for p in (query or "").split("&") if p and not _TRACKING.fullmatch(p.partition("=")[0])]
    key = host + re.sub(r"/{2,}", "/", path).rstrip("/") + ("?" + "&".join(kept) if kept else "")
    return printable(key)[:MAX_KEY] if host or len(key) > 1 else ""


def search_key(query: str) -> str:
    """A search is its own source: two searches for the same words are one.

    >>> search_key('  "JAX"   sharding ')
    'search: "jax" sharding'
    """
    words = " ".join(query[:MAX_KEY].lower().split())
    return f"search: {printable(words)}" if words else ""


def printable(text: str) -> str:
    """The text on one line, with a replacement character for what no terminal or JSON writer should meet."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

"""Request bodies as bytes, for every client that sends them over HTTP."""

from gemjax.integrations.document import Document
from gemjax.integrations.shortener import KEYS, Outcome, Shortener

_PATHS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic"}


def format_of(path: str) -> str | None:
    """The wire format of what is posted to a path; None for a path that holds no history."""
    return next((name for end, name in _PATHS.items() if path.rstrip("/").endswith(end)), None)


def rebuilt(document: Document, outcome: Outcome) -> bytes:
    """The bytes of what goes out: those of the client for every message that is not changed."""
    return document.rebuilt(outcome.request, [None if i in outcome.changed else i for i in outcome.sources])


def shortened_body(shortener: Shortener, path: str, body: bytes, session: str | None = None) -> bytes:
    """The body to send in place of `body`: the very object if nothing is left out. Never raises.

    Args:
        shortener: finds the conversation.
        path: of the URL.
        body: as the client made it.
        session: name of the session, if the caller knows it.
    """
    format = format_of(path)
    if format is None:
        return body
    try:
        document = Document(body, KEYS[format])
        outcome = shortener.shorten(document.value, format=format, scope=session)
        if outcome.request is document.value:
            return body
        return rebuilt(document, outcome)
    except ValueError:
        return body

"""From the bytes of one request to the bytes that go out."""

import dataclasses
import logging
import threading
from collections.abc import Mapping

from gemjax.integrations.document import Document
from gemjax.integrations.shortener import KEYS, Outcome, Shortener
from gemjax.integrations.wire import rebuilt
from gemjax.serve.encodings import unpacked
from gemjax.serve.endpoints import Endpoint, scope_of
from gemjax.serve.ledger import Ledger

_log = logging.getLogger("gemjax.serve")


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """`body` to send: the very object that came in if nothing was left out. `status` as in `Outcome`."""

    body: bytes
    status: str


class Rewriter:
    """Shortens request bodies; knows nothing of sockets.

    Args:
        shortener: finds conversations and compresses.
        ledger: told of each request.
        limit: bytes that a packed body may unpack to.
        dry_run: return every body as it came.
    """

    def __init__(self, shortener: Shortener, ledger: Ledger, limit: int, dry_run: bool = False) -> None:
        self.shortener, self.ledger, self.limit, self.dry_run = shortener, ledger, limit, dry_run

    def rewrite(
        self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes, late: threading.Event | None = None
    ) -> Rewritten:
        """The body to send in place of `body`.

        Args:
            endpoint: where it goes.
            headers: of the request, by lower-case name.
            body: as it came.
            late: set by the caller when it does not wait any longer and sends `body`: what is chosen then is forgotten.

        Raises: `TooLarge` for a packed body over the limit; nothing else, whatever the body holds.
        """
        try:
            plain = unpacked(body, headers["content-encoding"], self.limit) if headers.get("content-encoding") else body
            document = Document(plain, KEYS[endpoint.format])
        except (ValueError, ImportError):
            return Rewritten(body, "skipped")  # it is the upstream's to judge
        try:
            outcome = self._outcome(endpoint, headers, document)
            if late is not None and late.is_set():
                self.shortener.forget(outcome.session)
            if self.dry_run or outcome.request is document.value:
                return Rewritten(body, outcome.status)
            return Rewritten(rebuilt(document, outcome), outcome.status)
        except Exception as error:
            # The agent's request goes out whatever happens in here. The type only: a message may quote content.
            _log.warning("a request passed through unchanged: %s", type(error).__name__)
            return Rewritten(body, "failed")

    def _outcome(self, endpoint: Endpoint, headers: Mapping[str, str], document: Document) -> Outcome:
        scope = scope_of(headers, document.value)
        if endpoint.kind == "count":
            return self.shortener.preview(document.value, format=endpoint.format, scope=scope)
        outcome = self.shortener.shorten(document.value, format=endpoint.format, scope=scope)
        lengths = document.lengths()
        self.ledger.enter(outcome, endpoint.label, lengths, len(document.text) - sum(lengths))
        return outcome

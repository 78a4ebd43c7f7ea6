"""What one conversation has shortened on arrival, so that each request after it says the same."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from gemjax.errors import StateError
from gemjax.history.answers import user_words
from gemjax.history.arrival.config import ArrivalConfig
from gemjax.history.arrival.shorten import shortened
from gemjax.history.blocks import Parsed, Reader
from gemjax.history.formats import compact_json, plain
from gemjax.history.formats.results import with_results
from gemjax.history.records import Block, ToolCall
from gemjax.history.result import CompressionResult, Status
from gemjax.history.signals.tools import effects_of

_ID = 16
"""Hexadecimal digits that stand for a message in a saved state."""

_SPARE = 1_000
"""Names of messages that are no longer there, kept for a caller who goes back and forth."""


@dataclasses.dataclass(frozen=True, slots=True)
class Arrived:
    """A request whose long results have been shortened.

    Attributes:
        request: what goes on: the one that came in where nothing had to be shortened.
        copies: by index, the messages that are copies.
        saved: characters by which they are shorter, together.
        chars: characters of the request that came in; 0 if nothing was shortened.
        originals: by index, the blocks that a copy is part of, as they came in.
        key: the field of the request that holds its messages.
    """

    request: Any
    copies: Mapping[int, Any] = dataclasses.field(default_factory=dict)
    saved: int = 0
    chars: int = 0
    originals: Mapping[int, Block] = dataclasses.field(default_factory=dict)
    key: str = ""

    def told(self, result: CompressionResult) -> CompressionResult:
        """The result of the shortened request as one of the request that came in."""
        if not self.copies:
            return result
        sent = result.request if isinstance(result.request, list) else result.request[self.key]
        here = {id(message) for message in sent}
        copies = tuple(i for i, message in self.copies.items() if id(message) in here)
        status: Status = result.status
        reason = result.reason
        if result.request is self.request:
            n = len(copies)
            # A failure stays one: who keeps an earlier choice over it has to see it.
            status = status if status == "failed" else "compressed"
            reason = f"long results of {n} message{'s' * (n != 1)} are short; {reason}"
        after = result.chars_after if result.chars_before else self.chars - self.saved
        return dataclasses.replace(
            result, status=status, reason=reason, chars_before=self.chars, chars_after=after, shortened=copies
        )


class Arrivals:
    """The results that one conversation has shortened.

    A result is looked at while no turn of the model follows it: nobody has read it yet, no provider has cached it and
    no signed thinking is bound to it. What was decided then is remembered by the message's identity. The copy itself is
    a function of the message and its call, so that a restarted process makes it again.
    """

    def __init__(self) -> None:
        self._reader = Reader()
        self._known: set[str] = set()
        self._copies: dict[bytes, tuple[Any, int]] = {}

    def shorten(self, request: Any, format: str, config: ArrivalConfig | None, spared: Collection[str] = ()) -> Arrived:
        """The request with its long results short.

        Args:
            request: what came in; never changed.
            format: as in `HistoryCompressor.compress`.
            config: None shortens nothing.
            spared: tools whose results stay whole, such as the one that recalls.
        """
        if config is None:
            return Arrived(request)
        parsed = self._reader.parse(request, format)
        if parsed.problems:
            return Arrived(request)
        new = 1 + max((i for i, record in enumerate(parsed.records) if record.view.model), default=-1)
        copies: dict[int, Any] = {}
        saved, made = 0, {}
        for i, record in enumerate(parsed.records):
            name = record.identity.hex()[:_ID]
            # A result that is more than its text stays; one beside which the user speaks does not have to.
            more = record.view.bound and record.view.role == "result"
            if not record.view.results or more or not (i >= new or name in self._known):
                continue
            entry = self._copies.get(record.digest) or _copy(parsed, i, config, spared)
            made[record.digest] = entry
            if entry[1] > 0:
                self._known.add(name)
                copies[i] = entry[0]
                saved += entry[1]
        self._copies = made
        self._forget(parsed)
        if not copies:
            return Arrived(request)
        key = parsed.format.key
        messages = [copies.get(i, message) for i, message in enumerate(parsed.messages)]
        given = messages if isinstance(request, list) else {**request, key: messages}
        originals = {b.index: b for b in parsed.blocks if not copies.keys().isdisjoint(b.messages)}
        return Arrived(given, copies, saved, parsed.chars, originals, key)

    def _forget(self, parsed: Parsed) -> None:
        if len(self._known) > len(parsed.records) + _SPARE:
            self._known &= {record.identity.hex()[:_ID] for record in parsed.records}

    def to_json(self) -> list[str]:
        """Which messages were shortened, for a saved state."""
        return sorted(self._known)

    @classmethod
    def from_json(cls, data: Any) -> "Arrivals":
        """Read what `to_json` wrote. Raises `StateError` for anything else."""
        if not isinstance(data, list) or any(not isinstance(name, str) or len(name) != _ID for name in data):
            raise StateError(f"state field 'arrivals' must be an array of strings of {_ID} characters")
        arrivals = cls()
        arrivals._known = set(data)
        return arrivals


def _copy(parsed: Parsed, index: int, config: ArrivalConfig, spared: Collection[str]) -> tuple[Any, int]:
    """A message with its long results short, and by how many characters it is shorter."""
    record = parsed.records[index]
    calls = _calls(parsed, index)

    def short(name: str, text: str) -> str:
        call = calls.get(name)
        if len(text) <= config.limit or call is None or call.name in spared or user_words([(call.name, text)]):
            return text
        times = config.files if _reads_a_file(call, text) else 1
        return shortened(text, call, times * config.limit, times * config.keep)

    message = plain(parsed.messages[index])
    copy = with_results(message, parsed.format.name, short)
    return (copy, 0 if copy is message else record.chars - len(compact_json(copy)))


def _reads_a_file(call: ToolCall, text: str) -> bool:
    """Whether a result is the text of a file that the call names; a call that is too costly to read names none."""
    try:
        effects = effects_of(call, text[:500])
    except Exception:  # an agent is waiting, and this decides only how much stays
        return False
    return effects.quotes and any(source in effects.touches for source in effects.sources)


def _calls(parsed: Parsed, index: int) -> dict[str, ToolCall]:
    """The calls that a message's results answer, by the results' ids."""
    wanted = {result.id for result in parsed.records[index].view.results}
    found: dict[str, ToolCall] = {}
    for i in range(index - 1, -1, -1):
        view = parsed.records[i].view
        found = {call.id: call for call in view.calls if call.id in wanted and not view.bound} | found
        wanted -= {call.id for call in view.calls}
        if not wanted:
            break
    # Legacy results name the function; its id is told apart by a prefix.
    return found | {name.removeprefix("function:"): call for name, call in found.items()}

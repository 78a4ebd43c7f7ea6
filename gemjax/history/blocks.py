"""From a request to its removable blocks (paper 3.1, B.1), incrementally: what was read once is not read again."""

import dataclasses
import hashlib
import json
import marshal
from collections.abc import Sequence
from typing import Any

from gemjax.history.formats import (
    FORMATS,
    Exchange,
    Format,
    NotJSON,
    View,
    compact_json,
    detect,
    format_named,
    plain,
)
from gemjax.history.formats.base import kind, problem
from gemjax.history.formats.marks import count_marks, too_many_marks, unmarked
from gemjax.history.problems import Problem
from gemjax.history.records import Block, BlockContent
from gemjax.history.thinking import binding_warnings, is_signed

_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
_DIGEST_BYTES = 16
_UNSETTLED = 3
"""So many of the last exchanges are compared message by message: marks for the cache move within them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One message with what was computed from it.

    `digest` is of all of it; `identity` leaves out marks that say where a provider should cache (`cache_control`),
    which move with every request and change neither what is said nor what is cached; `marks` counts them. `chars` is
    its length as compact JSON; `signed` says that it carries thinking that a provider has signed.
    """

    digest: bytes
    identity: bytes
    chars: int
    view: View
    marks: int = 0
    signed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """A request, read.

    Attributes:
        format: the wire format.
        messages: the request's own messages, which are what is forwarded.
        records: one `Message` each.
        blocks: the complete removable blocks, oldest first.
        latest: what the last exchange says, complete or in flight; None without one.
        last_block: index of the block that ends the request, which is never dropped: the model is about to answer it.
        chars: characters of the whole request as compact JSON, `L([n])` in Eq. 8.
        problems: errors only; the request is valid when there are none.
        warnings: what is odd and tolerated.
    """

    format: Format
    messages: list[Any]
    records: list[Message]
    blocks: list[Block]
    latest: BlockContent | None
    last_block: int | None
    chars: int
    problems: list[Problem]
    warnings: list[Problem]


@dataclasses.dataclass(slots=True)
class _Settled:
    """What was read of messages before `stop`: later messages cannot change it. That is where one of the last exchanges
    begins, or the first one that still waits for a result.

    `print`, a hash to be continued, covers one message more: had the message at `stop` been a result, it would belong
    to the exchange before. SHA-256, which processors have instructions for: each request's history passes through it.
    """

    format: Format
    stop: int
    print: Any
    records: list[Message]
    chars: int
    blocks: list[Block]
    occurrences: dict[str, int]
    latest: BlockContent | None
    contents: dict[tuple[bytes, ...], tuple[str, BlockContent]]
    warnings: list[Problem]

    def still_holds(self, messages: list[Any], chosen: Format) -> bool:
        if chosen is not self.format or len(messages) <= self.stop:
            return False
        try:
            data = _marshalled(messages[: self.stop + 1])
        except (ValueError, NotJSON, RecursionError):
            return False
        return bool(hashlib.sha256(data).digest() == self.print.digest())


class Reader:
    """Reads the successive requests of one session. Keeps what the latest request still contains, and nothing else.

    A history that grew is read from its last exchange on; what comes before is compared by one digest.
    """

    def __init__(self) -> None:
        self._messages: dict[bytes, Message] = {}
        self._contents: dict[tuple[bytes, ...], tuple[str, BlockContent]] = {}
        self._frame: tuple[bytes, int, int] | None = None
        self._settled: _Settled | None = None

    def parse(self, request: Any, format: str = "auto") -> Parsed:
        """Read a request: a dict in a wire format, or a bare list of messages. Never raises on its content."""
        request = list(request) if isinstance(request, tuple) else request
        chosen = detect(request) if format == "auto" else format_named(format)
        messages, problems = _messages_of(request, chosen)
        if self._settled is not None and not self._settled.still_holds(messages, chosen):
            # What was read of it may still be there, in another order or beside something new.
            self._messages |= {record.digest: record for record in self._settled.records}
            self._contents |= self._settled.contents
            self._settled = None
        settled = self._settled
        start = settled.stop if settled else 0
        try:
            chars, marks = self._frame_size(request, chosen)
            new = self._read(messages, start, chosen)
        except NotJSON as error:
            self._settled = None
            index = error.index if error.index is not None else -1
            problems.append(problem("not-json", str(error), error.cure, index=index))
            return Parsed(chosen, messages, [], [], None, None, 0, problems, [])
        records = settled.records + new if settled else new
        chars += sum([r.chars for r in new]) + (settled.chars if settled else 0) + max(len(records) - 1, 0)
        views = [r.view for r in records]
        found = [dataclasses.replace(p, index=i) for i in range(start, len(views)) for p in views[i].problems]
        exchanges, pairing = chosen.exchanges(views, start)
        found += [p for p in pairing if not may_be_on_the_server(p, request, chosen)]
        found += chosen.frame_problems(request) if isinstance(request, dict) else []
        found += too_many_marks(marks + sum([r.marks for r in records]), chosen.name)
        problems += [p for p in found if p.severity == "error"]
        warnings = (settled.warnings if settled else []) + [p for p in found if p.severity == "warning"]
        warnings.sort(key=lambda p: (p.index, p.rule))
        blocks, contents = self._blocks(messages, records, exchanges, settled)
        latest = contents[-1] if contents else settled.latest if settled else None
        self._settle(chosen, messages, records, exchanges, blocks, contents, None if problems else warnings)
        last = next((b.index for b in reversed(blocks) if b.messages[-1] == len(records) - 1), None)
        return Parsed(chosen, messages, records, blocks, latest, last, chars, problems, warnings)

    def _frame_size(self, request: Any, chosen: Format) -> tuple[int, int]:
        """Characters of the request around its messages, the list's brackets included, and its cache marks."""
        if not isinstance(request, dict):
            return 2, 0
        listed = isinstance(request.get(chosen.key), list | tuple)
        frame = {key: (None if listed and key == chosen.key else value) for key, value in request.items()}
        try:
            print_ = fingerprint(frame)
            if self._frame is None or self._frame[0] != print_:
                frame = plain(frame)
                # `null` stands where the messages go; `[]` is what an empty list takes.
                chars = len(_to_json(frame)) - (len("null") - len("[]") if listed else 0)
                self._frame = (print_, chars, count_marks(frame))
        except NotJSON as error:
            raise error.under("the request") from None
        return self._frame[1:]

    def _read(self, messages: Sequence[Any], start: int, chosen: Format) -> list[Message]:
        """Records of the messages from `start` on; known content is not read again."""
        seen = self._messages
        kept: dict[bytes, Message] = {}
        records = []
        salt = chosen.name.encode()
        for index in range(start, len(messages)):
            message = messages[index]
            try:
                key = fingerprint(message, salt)
                record = kept.get(key) or seen.get(key)
                if record is None:
                    record = _message(key, plain(message), chosen, salt)
            except (NotJSON, RecursionError) as error:
                error = error if isinstance(error, NotJSON) else _too_deep()
                raise error.under(f"message {index}", index) from None
            kept[key] = record
            records.append(record)
        self._messages = kept
        return records

    def _blocks(
        self,
        messages: Sequence[Any],
        records: Sequence[Message],
        exchanges: Sequence[Exchange],
        settled: _Settled | None,
    ) -> tuple[list[Block], list[BlockContent]]:
        """All blocks, and the content of each of `exchanges`, which are those that are not settled."""
        seen = self._contents
        kept: dict[tuple[bytes, ...], tuple[str, BlockContent]] = {}
        blocks = list(settled.blocks) if settled else []
        before = settled.occurrences if settled else {}
        occurrences: dict[str, int] = {}
        contents = []
        for exchange in exchanges:
            span = exchange.members
            members = [records[i] for i in span]
            key = tuple([m.identity for m in members])
            entry = seen.get(key) or kept.get(key)
            if entry is None:
                marked = any([m.identity != m.digest for m in members])
                digest = _block_digest([messages[i] for i in span], marked)
                entry = (digest, _content([m.view for m in members]))
            kept[key] = entry
            contents.append(entry[1])
            if not exchange.removable:
                continue
            digest, content = entry
            count = before.get(digest, 0) + occurrences.get(digest, 0)
            occurrences[digest] = occurrences.get(digest, 0) + 1
            chars = sum([m.chars for m in members])
            blocks.append(Block(len(blocks), span, f"{digest}#{count}", chars, content))
        self._contents = kept
        return blocks, contents

    def _settle(
        self,
        chosen: Format,
        messages: list[Any],
        records: list[Message],
        exchanges: Sequence[Exchange],
        blocks: list[Block],
        exchanged: Sequence[BlockContent],
        warnings: list[Problem] | None,
    ) -> None:
        """Remember what later messages cannot change. What was settled already is a prefix of it.

        Args:
            exchanged: the content of each of `exchanges`.
            warnings: all there are; None for an invalid request, of which nothing is remembered.
        """
        settled = self._settled
        if warnings is None or not exchanges:
            self._settled = None if warnings is None else settled
            return
        # Of the last exchange later messages may still be a part; those before it cost little to look at once more.
        stop = min(
            [exchanges[max(len(exchanges) - _UNSETTLED, 0)].start, *[e.start for e in exchanges if not e.complete]]
        )
        while inside := [e.start for e in exchanges if e.start < stop < e.stop]:
            stop = min(inside)
        if settled and stop < settled.stop:
            return
        try:
            print_ = settled.print.copy() if settled else hashlib.sha256()
            print_.update(_marshalled(messages[settled.stop + 1 if settled else 0 : stop + 1]))
        except (ValueError, NotJSON, RecursionError):
            self._settled = None
            return
        passed = sum(e.stop <= stop for e in exchanges)
        latest = exchanged[passed - 1] if passed else settled.latest if settled else None
        occurrences = settled.occurrences if settled else {}
        whole = [b for b in blocks[len(settled.blocks) if settled else 0 :] if b.messages[0] < stop]
        contents = settled.contents if settled else {}
        for block in whole:
            key = tuple([records[i].identity for i in block.messages])
            if key in self._contents:
                contents[key] = self._contents[key]
            digest = block.key.rpartition("#")[0]
            occurrences[digest] = occurrences.get(digest, 0) + 1
        self._settled = _Settled(
            chosen,
            stop,
            print_,
            records[:stop],
            sum([r.chars for r in records[:stop]]),
            [*settled.blocks, *whole] if settled else whole,
            occurrences,
            latest,
            contents,
            [w for w in warnings if 0 <= w.index < stop],
        )
        self._contents = {key: entry for key, entry in self._contents.items() if key not in contents}


def _marshalled(messages: list[Any]) -> memoryview:
    """The messages' bytes one after the other: what `marshal` writes of a list, without type and length in front."""
    try:
        data = marshal.dumps(messages, 0)
    except ValueError:
        data = marshal.dumps([plain(message) for message in messages], 0)
    return memoryview(data)[5:]


def parse(request: Any, format: str = "auto") -> Parsed:
    """Read one request by itself; see `Reader.parse`."""
    return Reader().parse(request, format)


def validate(request: Any, *, format: str = "auto", warnings: bool = False) -> list[Problem]:
    """Check a request against its provider's rules for messages and tools.

    Args:
        request: a dict (chat completions, Responses or Anthropic Messages) or a bare list of messages.
        format: `auto`, `chat`, `responses` or `anthropic`.
        warnings: also list what is odd and yet accepted (severity `warning`).

    Returns: the problems, in the order of the messages; an empty list for a valid request. A trailing exchange whose
        results are not all there yet is valid: its results are on their way.

    Raises: `ConfigError` for an unknown `format`. Nothing else: what is wrong with the request is in the list.
    """
    parsed = parse(request, format)
    found = list(parsed.problems)
    if warnings:
        found += [*parsed.warnings, *binding_warnings(request, parsed.format, parsed.messages)]
    return sorted(found, key=lambda p: p.index)


def fingerprint(value: Any, salt: bytes = b"") -> bytes:
    """A 16-byte digest of a JSON value's content, dictionary order included. Raises `NotJSON` for what is not JSON."""
    try:
        # Version 0 has neither back references nor interning flags, so equal content gives equal bytes, and it costs
        # a fifth of `json.dumps`: every message of every request passes here.
        data = marshal.dumps(value, 0)
    except ValueError:
        # An object of an SDK, a subclass of str or dict, or nesting too deep for marshal.
        try:
            value = plain(value)
            data = marshal.dumps(value, 0)
        except ValueError:
            data = b"json:" + _to_json(value).encode("utf-8", "surrogatepass")
        except RecursionError:
            raise _too_deep() from None
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES, salt=salt).digest()


def _message(key: bytes, message: Any, chosen: Format, salt: bytes) -> Message:
    """Read a message that was not seen before, given as plain JSON."""
    text = _to_json(message)
    # Most messages have neither: a look at their text is cheaper than one at their parts.
    signed = ("thinking" in text or "reasoning_details" in text) and is_signed(message)
    if '"cache_control"' not in text:
        return Message(key, key, len(text), _view(chosen, message), 0, signed)
    bare = unmarked(message)
    identity = key if bare is message else fingerprint(bare, salt)
    return Message(key, identity, len(text), _view(chosen, message), count_marks(message), signed)


def _view(chosen: Format, message: Any) -> View:
    """The format's view; what its reader cannot stand (a type that is no string, say) is a problem of the message."""
    try:
        return chosen.view(message)
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        found = problem("content-type", f"the message cannot be read ({error})", "fix its fields' types")
        return View("other", problems=(found,))


def _to_json(value: Any) -> str:
    try:
        return compact_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJSON(str(error), "send JSON values only") from None


def _too_deep() -> NotJSON:
    return NotJSON("it is nested too deeply", "send it as text, or flatten it")


def _block_digest(messages: list[Any], marked: bool) -> str:
    """Digest of a block's canonical JSON (sorted keys), so that a client that reorders keys keeps its state."""
    try:
        text = _CANONICAL.encode([unmarked(plain(message)) for message in messages] if marked else messages)
    except TypeError:
        messages = [unmarked(plain(message)) for message in messages]
        try:
            text = _CANONICAL.encode(messages)
        except TypeError:
            # Keys of mixed types cannot be sorted; JSON writes them as strings all the same.
            text = compact_json(messages)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()


def _content(views: Sequence[View]) -> BlockContent:
    turn = [v for v in views if v.model]
    return BlockContent(
        reasoning="\n".join(v.reasoning for v in turn if v.reasoning),
        text="\n".join(v.text for v in turn if v.text),
        calls=tuple(c for v in turn for c in v.calls),
        results=tuple(r for v in views for r in v.results),
    )


def may_be_on_the_server(found: Problem, request: Any, chosen: Format) -> bool:
    """An output whose call the request does not hold: with a stored conversation the provider has it."""
    if found.rule != "orphan-result" or chosen.name != "responses" or not isinstance(request, dict):
        return False
    return bool(request.get("previous_response_id") or request.get("conversation"))


def _messages_of(request: Any, chosen: Format) -> tuple[list[Any], list[Problem]]:
    if isinstance(request, dict):
        value = request.get(chosen.key)
        if isinstance(value, list | tuple) and value:
            return value if isinstance(value, list) else list(value), []
        if isinstance(value, str) and chosen.name == "responses" and value:
            # Responses takes a bare string as the one user message: valid, and without anything to drop.
            return [], []
        came = "an empty array" if isinstance(value, list | tuple) else ("nothing" if value is None else kind(value))
        text = f"{chosen.key} must be a non-empty array, got {came}"
        if "contents" in request:
            text = "a request with `contents` (Gemini) is in no format that is read"
        return value if isinstance(value, list) else [], [problem("no-messages", text, "send the conversation")]
    if isinstance(request, list):
        if request:
            return request, []
        return request, [problem("no-messages", "the list of messages is empty", "send the conversation")]
    text = f"a request must be an object or a list of messages, got {kind(request)}"
    return [], [problem("request-type", text, f"send one of: {', '.join(FORMATS)}")]

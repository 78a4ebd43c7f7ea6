"""A JSON body whose messages can be taken out without touching a byte of what stays."""

import json
import re
from collections.abc import Sequence
from typing import Any

# CPython's own readers of one value and of one string: both say where they stopped.
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_scan_string = json.decoder.scanstring  # type: ignore[attr-defined]
_BLANK = re.compile(r"[ \t\n\r]*")
Span = tuple[int, int]


class Document:
    """A JSON object, read once: its values, and where in the text each of them stands.

    Args:
        body: UTF-8 text of one object.
        key: field whose array items are located one by one.

    Raises: `ValueError` for anything but one object with unique fields and an array in `key`.

    >>> document = Document('{"a": 1, "m": [ 1, {"x":  "é"}, 3 ]}'.encode(), "m")
    >>> document.without([1]).decode()
    '{"a": 1, "m": [ {"x":  "é"} ]}'
    """

    def __init__(self, body: bytes, key: str) -> None:
        self.text = body.decode("utf-8")
        self.key = key
        self.value: dict[str, Any] = {}
        self.fields: dict[str, Span] = {}
        self.items: list[Span] = []
        try:
            self._read()
        except (StopIteration, IndexError):
            raise ValueError("the body is no JSON object") from None
        except RecursionError:
            raise ValueError("the body is nested too deeply") from None
        if not isinstance(self.value.get(key), list):
            raise ValueError(f"there is no list of {key}")

    def without(self, kept: Sequence[int]) -> bytes:
        """The body with only the items `kept` (indices, ascending) in its array; every other byte as it came."""
        return self.rebuilt(self.value, kept)

    def rebuilt(self, request: dict[str, Any], sources: Sequence[int | None]) -> bytes:
        """The body of `request`, which was made from `value`.

        Args:
            request: `value` with another list of messages and perhaps other or further fields.
            sources: for each of its messages the index in this document, None for one to be written anew.

        Raises: `ValueError` if a field is missing.
        """
        if not self.fields.keys() <= request.keys():
            raise ValueError("a field of the request is gone")
        edits = [
            (span, _written(request[name]))
            for name, span in self.fields.items()
            if name != self.key and request[name] is not self.value[name]
        ]
        edits.append((self.fields[self.key], self._array(request[self.key], sources)))
        pieces = []
        position = 0
        for (start, stop), text in sorted(edits):
            pieces += [self.text[position:start], text]
            position = stop
        tail = self.text[position:]
        if added := [name for name in request if name not in self.fields]:
            brace = tail.rindex("}")
            more = "".join(f",{_written(name)}:{_written(request[name])}" for name in added)
            tail = tail[:brace] + more + tail[brace:]
        return "".join([*pieces, tail]).encode("utf-8")

    def lengths(self) -> list[int]:
        """Characters of each item."""
        return [stop - start for start, stop in self.items]

    def _array(self, messages: Sequence[Any], sources: Sequence[int | None]) -> str:
        start, stop = self.fields[self.key]
        if not self.items:
            return self.text[start:stop]
        pieces = [self.text[start : self.items[0][0]]]
        for place, source in enumerate(sources):
            if place:
                # What stood before a message stays before it, so that an array written over lines remains one.
                pieces.append(", " if source is None else self._before(source))
            pieces.append(_written(messages[place]) if source is None else self.text[slice(*self.items[source])])
        pieces.append(self.text[self.items[-1][1] : stop])
        return "".join(pieces)

    def _before(self, item: int) -> str:
        return self.text[self.items[item - 1][1] : self.items[item][0]] if item else ","

    def _read(self) -> None:
        text = self.text
        at = self._skip(0)
        if text[at] != "{":
            raise StopIteration
        at = self._skip(at + 1)
        while text[at] != "}":
            if self.fields:
                at = self._expect(at, ",")
            if text[at] != '"':
                raise StopIteration
            name, at = _scan_string(text, at + 1, True)
            if name in self.fields:
                # Two readers may pick different ones, so nothing here may be rewritten.
                raise ValueError("a field stands twice in the body")
            at = self._expect(self._skip(at), ":")
            start = at
            if name == self.key and text[at] == "[":
                self.value[name], at = self._read_items(at)
            else:
                self.value[name], at = _scan(text, at)
            self.fields[name] = (start, at)
            at = self._skip(at)
        if self._skip(at + 1) != len(text):
            raise ValueError("something follows the body's object")

    def _read_items(self, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        at = self._skip(at + 1)
        while self.text[at] != "]":
            if values:
                at = self._expect(at, ",")
            value, stop = _scan(self.text, at)
            values.append(value)
            self.items.append((at, stop))
            at = self._skip(stop)
        return values, at + 1

    def _skip(self, at: int) -> int:
        match = _BLANK.match(self.text, at)
        assert match is not None  # it matches the empty text too
        return match.end()

    def _expect(self, at: int, sign: str) -> int:
        if self.text[at] != sign:
            raise StopIteration
        return self._skip(at + 1)


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

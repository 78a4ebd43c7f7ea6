"""Checks what a GGUF file declares against its size, before anything is read or allocated on the strength of it."""

import re
import struct
from pathlib import Path
from typing import BinaryIO

from gemjax.errors import WeightsError
from gemjax.models.opening import regular_file

# Bytes of one value of each scalar type, by the format's type numbers; 8 is a string, 9 an array.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
# Far beyond any real model: the largest vocabularies have 300,000 entries, the largest models some thousand tensors.
_ELEMENTS = 1 << 22
_ENTRIES = 1 << 17
_NAME_BYTES = 1 << 16
_AXES = 4
_VERSIONS = (2, 3)
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def check_header(path: Path) -> None:
    """Walk through a file's metadata and tensor list by their declared sizes; time and memory are the header's own.

    Raises:
        WeightsError: naming the file and the field, where something that is declared does not fit into the file.
    """
    size = regular_file(path)
    try:
        with path.open("rb") as file:
            _Header(path, size, file).walk()
    except OSError as error:
        raise WeightsError(f"cannot read {path}: {error.strerror or error}") from error


def split_parts(path: Path) -> list[Path]:
    """All parts of a split model, from its first part; a file whose name is no part's stands alone.

    Raises:
        WeightsError: `path` is a later part, or a part is missing.
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count:
        raise WeightsError(f"{path.name} is part {number} of {count}, which cannot be")
    names = [f"{match['stem']}-{i:05d}-of-{count:05d}.gguf" for i in range(1, count + 1)]
    if number != 1:
        raise WeightsError(
            f"{path} is part {number} of a model split into {count} files; name its first part, {names[0]}"
        )
    if missing := [name for name in names if not path.with_name(name).is_file()]:
        raise WeightsError(f"{path} is part 1 of {count} of a split model, and the parts {missing} are missing")
    return [path.with_name(name) for name in names]


def is_later_part(path: Path) -> bool:
    """Whether the name is that of a split model's second or later part."""
    match = _PART.fullmatch(path.name)
    return match is not None and int(match["number"]) > 1


class _Header:
    def __init__(self, path: Path, size: int, file: BinaryIO) -> None:
        self._path, self._size, self._file = path, size, file

    def walk(self) -> None:
        if self._size < 24 or self._file.read(4) != b"GGUF":
            raise WeightsError(f"{self._path} is not a GGUF file")
        version = self._number("I", "version")
        if version not in _VERSIONS:
            raise self._error("version", f"{version} is not supported; known are {_VERSIONS}")
        tensors, fields = self._number("Q", "tensor count"), self._number("Q", "field count")
        for what, count in (("tensor count", tensors), ("field count", fields)):
            if count > _ENTRIES:
                raise self._error(what, f"{count:,} is more than any model has")
        for _ in range(fields):
            name = self._name("a field's name")
            self._value(name, self._number("I", name))
        for _ in range(tensors):
            self._tensor(self._name("a tensor's name"))

    def _tensor(self, name: str) -> None:
        axes = self._number("I", name)
        if not 1 <= axes <= _AXES:
            raise self._error(name, f"has {axes} axes; expected 1 to {_AXES}")
        elements = 1
        for _ in range(axes):
            elements *= self._number("Q", name)
        kind, offset = self._number("I", name), self._number("Q", name)
        # Whatever the quantisation, an element takes at least a bit.
        if elements > 8 * self._size or offset > self._size:
            raise self._error(
                name, f"(type {kind}) declares {elements:,} elements at {offset:,} of {self._size:,} bytes"
            )

    def _value(self, name: str, kind: int) -> None:
        if kind == _STRING:
            self._skip(self._number("Q", name), name)
        elif kind in _SIZES:
            self._skip(_SIZES[kind], name)
        elif kind == _ARRAY:
            self._array(name)
        else:
            raise self._error(name, f"has the unknown type {kind}")

    def _array(self, name: str) -> None:
        kind, length = self._number("I", name), self._number("Q", name)
        if length > _ELEMENTS:
            raise self._error(name, f"declares an array of {length:,} values; at most {_ELEMENTS:,} are sane")
        if kind in _SIZES:
            self._skip(length * _SIZES[kind], name)
        elif kind == _STRING:
            for _ in range(length):
                self._skip(self._number("Q", name), name)
        else:
            # Arrays of arrays are in the format and in no model.
            raise self._error(name, f"is an array of type {kind}, which is not supported")

    def _name(self, what: str) -> str:
        length = self._number("Q", what)
        if length > min(_NAME_BYTES, self._left()):
            raise self._error(what, f"declares {length:,} bytes")
        try:
            return self._file.read(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(what, f"is no UTF-8: {error}") from error

    def _number(self, code: str, what: str) -> int:
        size = struct.calcsize(code)
        data = self._file.read(size)
        if len(data) < size:
            raise self._error(what, "ends with the file")
        return int(struct.unpack(f"<{code}", data)[0])

    def _skip(self, length: int, what: str) -> None:
        if length > self._left():
            raise self._error(what, f"declares {length:,} bytes, the file has {self._left():,} left")
        self._file.seek(length, 1)

    def _left(self) -> int:
        return self._size - self._file.tell()

    def _error(self, what: str, why: str) -> WeightsError:
        return WeightsError(f"{self._path} is cut off or damaged: {what} {why}")

"""Vectors by text digest in one append-only file an encoder."""

import dataclasses
import hashlib
import json
import os
import re
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gemjax.durable import locked, remove_left_overs, replacing
from gemjax.errors import ConfigError

_MAGIC = b"gemjax-vectors-1"
KEY_BYTES = 16


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """Where the records of one open file are."""

    start: int  # bytes before the first record
    record: np.dtype


class VectorFile:
    """A persistent map from 16-byte digests to float32 vectors. A cache: whatever goes wrong with it, it forgets.

    The file is a checksummed header (encoder name, dim) and records of a fixed size (digest, vector, CRC-32). Records
    are only ever appended, under a lock between processes; a record torn by a crash is cut off by the next writer, and
    a record whose checksum is wrong is not returned. Above `max_entries` records the file is rewritten, atomically,
    with the newest half. Not thread-safe.

    Args:
        folder: made when it does not exist.
        name: the encoder's name; each has a file of its own.
        max_entries: the most records in the file.

    Raises:
        ConfigError: the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str, max_entries: int) -> None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"the cache folder {folder} cannot be made: {error.strerror}") from error
        readable = re.sub(r"[^A-Za-z0-9.-]+", "_", name)[:60]
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        self.path = Path(folder) / f"{readable}-{digest}.vectors"
        self._name, self._max_entries = name, max_entries
        self._layout: _Layout | None = None
        self._identity: tuple[int, int] | None = None  # device and inode: another process may replace the file
        self._records: np.ndarray | None = None  # mapped
        self._row: dict[bytes, int] = {}
        self._usable = True
        self._open()

    def __len__(self) -> int:
        return len(self._row)

    def get(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """The vectors of those keys that are here and whole."""
        found = {}
        for key in keys:
            row = self._row.get(key)
            if row is None:
                continue
            if self._records is None or row >= len(self._records):
                self._map()
            if self._records is not None and row < len(self._records):
                record = self._records[row]
                vector = record["vector"].copy()
                if _crc(key, vector) == record["crc"] and np.isfinite(vector).all():
                    found[key] = vector
                    continue
            del self._row[key]
            warnings.warn(f"{self.path}: record {row} is damaged and will be made again", stacklevel=2)
        return found

    def put(self, vectors: dict[bytes, np.ndarray]) -> None:
        """Appends the vectors, all of one length. When that fails the file is not used any more, with a warning."""
        if not self._usable or not vectors:
            return
        dim = len(next(iter(vectors.values())))
        try:
            with locked(self.path.with_suffix(".lock")):
                self._refresh()
                layout = self._layout
                if layout is None or layout.record["vector"].shape != (dim,):
                    self._rewrite(dim, np.zeros(0, _record(dim)), vectors)
                elif self._count() + len(vectors) > self._max_entries:
                    keep = max(0, min(self._max_entries // 2, self._max_entries - len(vectors)))
                    self._map()
                    assert self._records is not None
                    self._rewrite(dim, self._records[len(self._records) - keep :], vectors)
                else:
                    self._append(layout, vectors)
        except OSError as error:
            self._usable = False
            warnings.warn(
                f"{self.path} cannot be written ({error.strerror}); vectors are kept in memory only", stacklevel=2
            )

    def _append(self, layout: _Layout, vectors: dict[bytes, np.ndarray]) -> None:
        count = self._count()
        with open(self.path, "r+b") as stream:
            # A crash can leave a part of a record behind; what follows would then be out of step.
            stream.truncate(layout.start + count * layout.record.itemsize)
            stream.seek(0, os.SEEK_END)
            stream.write(_encode(layout.record, vectors).tobytes())
        self._row |= {key: count + i for i, key in enumerate(vectors)}

    def _rewrite(self, dim: int, old: np.ndarray, vectors: dict[bytes, np.ndarray]) -> None:
        header = _header(self._name, dim)
        fresh = _encode(_record(dim), dict(list(vectors.items())[-self._max_entries :]))
        remove_left_overs(self.path.parent)
        with replacing(self.path, mode=0o600) as stream:
            stream.write(header + old.tobytes() + fresh.tobytes())
        self._open()

    def _count(self) -> int:
        """Whole records in the file as it is now."""
        assert self._layout is not None
        return (self.path.stat().st_size - self._layout.start) // self._layout.record.itemsize

    def _refresh(self) -> None:
        """Opens the file again when it is not the one that was opened."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._layout = None
            return
        if (stat.st_dev, stat.st_ino) != self._identity or (self._layout is not None and self._count() < 0):
            self._open()

    def _open(self) -> None:
        self._layout, self._records, self._row = None, None, {}
        try:
            with open(self.path, "rb") as stream:
                stat = os.fstat(stream.fileno())
                self._identity = (stat.st_dev, stat.st_ino)
                start, dim = _read_header(stream.read(1 << 16), self._name)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            warnings.warn(f"{self.path} is damaged and will be made again ({error})", stacklevel=3)
            return
        self._layout = _Layout(start, _record(dim))
        self._map()
        keys = self._records["key"].tobytes() if self._records is not None else b""
        self._row = {keys[i : i + KEY_BYTES]: i // KEY_BYTES for i in range(0, len(keys), KEY_BYTES)}

    def _map(self) -> None:
        assert self._layout is not None
        count, self._records = self._count(), None
        if count > 0:
            self._records = np.memmap(self.path, self._layout.record, "r", self._layout.start, (count,))


def _record(dim: int) -> np.dtype:
    return np.dtype([("key", "u1", (KEY_BYTES,)), ("vector", "<f4", (dim,)), ("crc", "<u4")])


def _crc(key: bytes, vector: np.ndarray) -> int:
    return zlib.crc32(vector.tobytes(), zlib.crc32(key))


def _encode(record: np.dtype, vectors: dict[bytes, np.ndarray]) -> np.ndarray:
    out = np.zeros(len(vectors), record)
    for row, (key, vector) in zip(out, vectors.items(), strict=True):
        row["key"] = np.frombuffer(key, np.uint8)
        row["vector"] = vector
        row["crc"] = _crc(key, np.ascontiguousarray(vector, "<f4"))
    return out


def _header(name: str, dim: int) -> bytes:
    text = json.dumps({"name": name, "dim": dim}).encode()
    return _MAGIC + len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little") + text


def _read_header(head: bytes, name: str) -> tuple[int, int]:
    """Bytes of the header and dim. Raises `ValueError` when it is not the header of this encoder's file."""
    at = len(_MAGIC) + 8
    length = int.from_bytes(head[len(_MAGIC) : at - 4], "little")
    text = head[at : at + length]
    if not head.startswith(_MAGIC) or len(text) != length:
        raise ValueError("no header")
    if zlib.crc32(text) != int.from_bytes(head[at - 4 : at], "little"):
        raise ValueError("the header's checksum is wrong")
    header = json.loads(text)
    if header.get("name") != name or not isinstance(header.get("dim"), int) or header["dim"] < 1:
        raise ValueError(f"it belongs to encoder {header.get('name')!r}")
    return at + length, header["dim"]

"""A bank on disk: one directory, a JSON header that names two data files. No pickle.

    BANK/header.json                format, version, count, dim, dtype, encoder, settings; name, size and sha256 of the
                                    two files below; a digest of all of that
    BANK/vectors-<id>.safetensors   vectors [count, dim] (bfloat16 as its bits in uint16) and the moments
    BANK/memories-<id>.jsonl        one line a memory: [id, text, metadata, {scope and times}]

A save writes new data files beside the old ones, flushes them to disk, then replaces the header in one atomic rename:
a reader, or a crash, sees the old bank or the new one. Files that no header names are left-overs of a killed save; the
next save removes them, by their exact names: nothing else in the directory is ever touched. Saves to one directory take
turns (a lock file); the last one wins.

Files are read whole, not mapped: one that is cut under an open map ends the process.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import stat
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from gemjax.durable import is_left_over, locked, remove_left_overs, replacing
from gemjax.errors import ConfigError, MemoryBankError, StateError
from gemjax.memory.config import MemoryConfig
from gemjax.memory.record import TIMES, Memory, extras, moment, own_metadata, scope_of, versions

FORMAT = "gemjax-memory-bank"
VERSION = 2
"""Version 1 had no digest of the header and neither scopes nor times; it is still read."""
HEADER = "header.json"
LOCK = ".lock"
MOST_HEADER_BYTES = 1 << 20
MOST_DIM = 1 << 16
_STAMP = "[0-9a-f]{32}"
_LEFT_OVER = re.compile(rf"vectors-{_STAMP}\.safetensors|memories-{_STAMP}\.jsonl|header\.json\.{_STAMP}")
_TENSOR_TYPES = {"float32": "F32", "uint16": "U16", "int32": "I32", "float64": "F64", "int64": "I64"}


@dataclasses.dataclass(frozen=True, slots=True)
class Header:
    """What a bank's header says, apart from its files."""

    count: int
    dim: int | None
    dtype: str
    encoder: str | None
    next_id: int
    config: MemoryConfig


@dataclasses.dataclass(frozen=True, slots=True)
class Saved:
    """A bank as it lies on disk. `tensors` has `vectors [count, dim]` as stored and `moments.count`, `.mean`,
    `.scatter`; it is empty when there are no memories."""

    header: Header
    tensors: dict[str, np.ndarray]
    memories: list[Memory]


def write_bank(path: str | os.PathLike[str], saved: Saved) -> None:
    """Write a bank to the directory `path`, which may hold an older bank.

    Raises: StateError when it cannot be written (full disk, no permission, `path` is a file or a foreign directory);
    what was there before is unchanged.
    """
    folder = Path(path)
    stamp = uuid.uuid4().hex
    names = {"vectors": f"vectors-{stamp}.safetensors", "memories": f"memories-{stamp}.jsonl"}
    try:
        _refuse_foreign(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / LOCK):
            try:
                _write_vectors(folder / names["vectors"], saved.tensors)
                _write_memories(folder / names["memories"], saved.memories)
                files = {key: _describe(folder / name) for key, name in names.items()}
                _replace_header(folder, saved.header, files)
            except BaseException:
                for name in names.values():
                    with contextlib.suppress(OSError):
                        (folder / name).unlink(missing_ok=True)
                raise
            _sweep(folder, set(names.values()))
    except (OSError, ValueError) as exc:
        if isinstance(exc, StateError):
            raise
        raise StateError(f"cannot save the bank to {folder}: {exc}; what was there is unchanged") from exc


def read_bank(path: str | os.PathLike[str]) -> Saved:
    """Read a bank; returned only when every byte is the one that was saved.

    Raises: StateError.
    """
    folder = Path(path)
    try:
        for attempt in range(10):
            header, files = _read_header(folder)
            try:
                return _read_files(folder, header, files)
            except FileNotFoundError as exc:
                # A save between our two reads has swept the files that the old header named: read the new header.
                if attempt == 9 or _read_header(folder)[1] == files:
                    raise StateError(f"{folder}: {exc.filename} is missing; the bank is damaged") from exc
    except (OSError, ValueError, MemoryError) as exc:
        if isinstance(exc, StateError):
            raise
        raise StateError(f"{folder} cannot be read: {exc}") from exc
    raise AssertionError("unreachable")


# ---- writing -----------------------------------------------------------------------------------------------------


def _refuse_foreign(folder: Path) -> None:
    """Only a new or empty directory, or a bank's own, is written to; other files beside a bank are left alone."""
    if not folder.is_dir():
        return
    if not (folder / HEADER).exists():
        if any(not (_LEFT_OVER.fullmatch(name) or is_left_over(name) or name == LOCK) for name in os.listdir(folder)):
            raise StateError(f"{folder} is a directory that holds other files; choose an empty or a new one")
        return
    try:
        header = _parsed_header(folder)
    except StateError as exc:
        raise StateError(f"{exc}; not written over: remove it, or choose another directory") from None
    if header.get("format") != FORMAT:
        raise StateError(f"{folder / HEADER} is another program's; choose an empty or a new directory")


def _write_vectors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """In the safetensors format, straight into the file: its own writer leaves a temporary file when it is killed."""
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    layout: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        layout[name] = {
            "dtype": _TENSOR_TYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [start, end],
        }  # fmt: skip
    head = json.dumps(layout).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "xb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for array in arrays.values():
            file.write(array.reshape(-1).view(np.uint8).data)
        _flush(file)


def _write_memories(path: Path, memories: list[Memory]) -> None:
    with open(path, "x", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for memory in memories:
            line = [memory.id, memory.text, memory.metadata, extras(memory)]
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        _flush(file)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _replace_header(folder: Path, header: Header, files: dict[str, Any]) -> None:
    content = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(header), "files": files}
    with replacing(folder / HEADER) as file:
        file.write(json.dumps({**content, "digest": _digest_of(content)}, indent=1, sort_keys=True).encode())


def _digest_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        return {
            "name": path.name,
            "bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _sweep(folder: Path, keep: set[str]) -> None:
    remove_left_overs(folder, alone=True)
    for path in folder.iterdir():
        if _LEFT_OVER.fullmatch(path.name) and path.name not in keep:
            with contextlib.suppress(OSError):  # on Windows a reader may hold it; the next save tries again
                path.unlink()


# ---- reading -----------------------------------------------------------------------------------------------------


def _read(path: Path, most: int | None = None) -> bytes:
    """A regular file's bytes: a pipe or a device in its place is refused without waiting for it."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise StateError(f"{path} is no regular file")
        if most is not None and about.st_size > most:
            raise StateError(f"{path} has {about.st_size} bytes, more than the {most} it may have")
        return file.read()


def _json(data: bytes, what: str) -> Any:
    try:
        return json.loads(data.decode("utf-8", "surrogatepass"), parse_constant=_no_number)
    except ValueError as exc:
        raise StateError(f"{what} cannot be read: {exc}") from exc
    except RecursionError:
        raise StateError(f"{what} cannot be read: it is nested too deeply") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _parsed_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    try:
        header = _json(_read(path, MOST_HEADER_BYTES), str(path))
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise StateError(f"{folder} holds no memory bank ({HEADER} is missing)") from exc
    except OSError as exc:
        raise StateError(f"{path} cannot be read: {exc}") from exc
    if not isinstance(header, dict):
        raise StateError(f"{path} is not the header of a memory bank")
    return header


def _read_header(folder: Path) -> tuple[Header, dict[str, Any]]:
    header = _parsed_header(folder)
    path = folder / HEADER
    if header.get("format") != FORMAT:
        raise StateError(f"{path} is not the header of a memory bank")
    version = header.get("version")
    if isinstance(version, bool) or version not in (1, VERSION):
        raise StateError(f"{folder}: bank version {version!r:.40}; this release reads versions 1 and {VERSION}")
    digest = header.pop("digest", None)
    if version == VERSION and digest != _digest_of(header):
        raise StateError(f"{path} is damaged (its digest is not the saved one)")
    wanted = {"count": int, "dim": int | None, "dtype": str, "encoder": str | None, "next_id": int, "config": dict}
    for key, kind in {**wanted, "files": dict}.items():
        if not isinstance(header.get(key, ...), kind) or isinstance(header[key], bool):
            raise StateError(f"{path}: field {key!r} is missing or of a wrong type")
    for key, most in (("count", None), ("dim", MOST_DIM), ("next_id", None)):
        value = header[key]
        if value is not None and (value < 0 or (most is not None and not 1 <= value <= most)):
            raise StateError(f"{path}: field {key!r} is out of range")
    for key in ("vectors", "memories"):
        about = header["files"].get(key)
        if not isinstance(about, dict) or not {"name", "bytes", "sha256"} <= about.keys():
            raise StateError(f"{path}: files.{key} is missing or incomplete")
        if not isinstance(about["name"], str) or Path(about["name"]).name != about["name"] or "\0" in about["name"]:
            raise StateError(f"{path}: files.{key}.name must be a plain file name")
    try:
        config = MemoryConfig(**header["config"])
    except (ConfigError, TypeError) as exc:
        raise StateError(f"{folder}: the saved settings cannot be read: {exc}") from exc
    if header["dtype"] != config.dtype:
        raise StateError(f"{path}: the vectors are {header['dtype']!r:.40}, the settings say {config.dtype!r}")
    return Header(**{key: header[key] for key in wanted if key != "config"}, config=config), header["files"]


def _read_files(folder: Path, header: Header, files: dict[str, Any]) -> Saved:
    data = {}
    for key in ("vectors", "memories"):
        about = files[key]
        path = folder / about["name"]
        size = path.stat().st_size
        if size != about["bytes"]:
            raise StateError(f"{path} has {size} bytes instead of {about['bytes']}: it is truncated or damaged")
        data[key] = _read(path, size)
        if hashlib.sha256(data[key]).hexdigest() != about["sha256"]:
            raise StateError(f"{path} is damaged (its sha256 is not the saved one)")
    memories = _memories(folder / files["memories"]["name"], data["memories"], header)
    try:
        tensors = load_tensors(data["vectors"])
    except (SafetensorError, ValueError, TypeError, KeyError, OverflowError) as exc:
        raise StateError(f"{folder / files['vectors']['name']}: {exc}") from exc
    if memories:
        _check_tensors(folder, tensors, header)
    return Saved(header, tensors if memories else {}, memories)


def _memories(path: Path, data: bytes, header: Header) -> list[Memory]:
    memories: list[Memory] = []
    seen = set()
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1] if lines[-1] == b"" else lines, 1):
        memory = _memory(_json(line, f"{path}, line {number}"), f"{path}, line {number}")
        if memory.id in seen:
            raise StateError(f"{path}, line {number}: id {memory.id!r:.80} was already used")
        if isinstance(memory.id, int) and memory.id >= header.next_id:
            raise StateError(f"{path}, line {number}: id {memory.id} is not below next_id, {header.next_id}")
        seen.add(memory.id)
        memories.append(memory)
    if len(memories) != header.count:
        raise StateError(f"{path.parent}: {len(memories)} memories, the header says {header.count}")
    return memories


def _memory(line: Any, where: str) -> Memory:
    if not isinstance(line, list) or len(line) not in (3, 4):
        raise StateError(f"{where}: expected [id, text, metadata, more]")
    id, text, metadata, *rest = line
    more = rest[0] if rest else {}
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise StateError(f"{where}: the id must be a string or an integer")
    if not isinstance(text, str) or not text.strip():
        raise StateError(f"{where}: the text must be a non-empty string")
    if not isinstance(more, dict) or more.keys() - {"scope", "session", "history", *TIMES}:
        raise StateError(f"{where}: unknown fields beside id, text and metadata")
    try:
        session = more.get("session")
        if session is not None and not (isinstance(session, str) and session):
            raise StateError(f"{where}: the session must be a non-empty string")
        times = {name: moment(more.get(name), name) for name in TIMES}
        own, scope = own_metadata(metadata, "metadata"), scope_of(more.get("scope", ()))
        return Memory(id, text, own, scope, session, **times, history=versions(more.get("history", [])))
    except MemoryBankError as exc:
        raise StateError(f"{where}: {exc}") from exc


def _check_tensors(folder: Path, tensors: dict[str, np.ndarray], header: Header) -> None:
    """Shapes and types that belong together, unit vectors, and moments that are of them."""
    dim = header.dim
    if (shape := tensors["vectors"].shape if "vectors" in tensors else None) != (header.count, dim):
        raise StateError(f"{folder}: {header.count} memories but vectors of shape {shape}")
    kind = "uint16" if header.dtype == "bfloat16" else "float32"
    if tensors["vectors"].dtype.name != kind:
        raise StateError(f"{folder}: vectors are stored as {tensors['vectors'].dtype}, {header.dtype} needs {kind}")
    for name, want in (("count", (1,)), ("mean", (dim,)), ("scatter", (dim, dim))):
        tensor = tensors.get(f"moments.{name}")
        if tensor is None or tensor.shape != want or tensor.dtype.kind not in "fiu" or not np.isfinite(tensor).all():
            raise StateError(f"{folder}: moments.{name} is missing, of a wrong shape, or not finite")
    if int(tensors["moments.count"][0]) != header.count:
        raise StateError(f"{folder}: moments of {int(tensors['moments.count'][0])} memories, there are {header.count}")
    # bfloat16 is the upper half of a float32.
    vectors = tensors["vectors"]
    for start in range(0, header.count, 4096):
        part = vectors[start : start + 4096]
        rows = (part.astype(np.uint32) << 16).view(np.float32) if kind == "uint16" else part
        length = np.einsum("nd,nd->n", rows, rows)
        if not (np.abs(length - 1) < 0.05).all():
            raise StateError(f"{folder}: a vector is not of unit length (or not a number)")

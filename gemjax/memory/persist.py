"""A bank on disk: one directory, a JSON header that names two data files. No pickle.

    BANK/header.json            format, version, count, dim, dtype, encoder, settings, and for each data file its name, size, sha256
    BANK/vectors-<id>.safetensors   vectors [count, dim] (bfloat16 as its bits in uint16) and the moments
    BANK/memories-<id>.jsonl        one line a memory: [id, text, metadata]

A save writes new data files beside the old ones, flushes them to disk, and then replaces the header in one atomic rename:
whoever reads, or dies, sees the old bank or the new one. Files that no header names are left-overs of a killed save; the
next save removes them. Saves to one directory take turns (a lock file); the last one wins.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from gemjax.errors import ConfigError, StateError
from gemjax.kernels.moments import Moments
from gemjax.memory.config import MemoryConfig
from gemjax.memory.entries import Entry
from gemjax.memory.rows import Rows

if TYPE_CHECKING:
    from gemjax.memory.bank import MemoryBank

Bank = TypeVar("Bank", bound="MemoryBank")

FORMAT = "gemjax-memory-bank"
VERSION = 1
HEADER = "header.json"
LOCK = ".lock"


def save_bank(bank: "MemoryBank", path: str | os.PathLike[str]) -> None:
    """Write `bank` to the directory `path`, which may hold an older bank.

    Raises: StateError when it cannot be written (full disk, no permission, `path` is a file or a foreign directory);
    what was there before is unchanged.
    """
    with bank._lock:
        snapshot = _snapshot(bank)
    _write(Path(path), *snapshot)


def _write(folder: Path, tensors: dict[str, np.ndarray], entries: list[Entry], header: dict[str, Any]) -> None:
    stamp = uuid.uuid4().hex
    names = {"vectors": f"vectors-{stamp}.safetensors", "memories": f"memories-{stamp}.jsonl"}
    try:
        if folder.is_dir() and not (folder / HEADER).exists() and any(_foreign(folder)):
            raise StateError(f"{folder} is a directory that holds other files; choose an empty or a new one")
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            try:
                _write_vectors(folder / names["vectors"], tensors)
                _write_memories(folder / names["memories"], entries)
                files = {key: _describe(folder / name) for key, name in names.items()}
                _replace_header(folder, {**header, "files": files})
            except BaseException:
                for name in names.values():
                    (folder / name).unlink(missing_ok=True)
                raise
            _sweep(folder, set(names.values()))
    except OSError as exc:
        raise StateError(f"cannot save the bank to {folder}: {exc}; what was there is unchanged") from exc


def load_bank(
    kind: type[Bank], path: str | os.PathLike[str], encoder: Any = None, config: MemoryConfig | None = None
) -> Bank:
    """Read a bank. `config` replaces the saved settings (its dtype must be the saved one).

    Raises: StateError; a bank is returned only when every byte is the one that was saved.
    """
    folder = Path(path)
    for attempt in range(10):
        header = _read_header(folder)
        try:
            tensors, entries = _read_files(folder, header)
            break
        except FileNotFoundError as exc:
            # A save between our two reads has swept the files that the old header named: read the new header.
            if attempt == 9 or _read_header(folder)["files"] == header["files"]:
                raise StateError(f"{folder}: {exc.filename} is missing; the bank is damaged") from exc
    return _restore(kind, folder, header, tensors, entries, encoder, config)


def _snapshot(bank: "MemoryBank") -> tuple[dict[str, np.ndarray], list[Entry], dict[str, Any]]:
    tensors: dict[str, np.ndarray] = {}
    if bank._rows is not None and len(bank):
        vectors = bank.vectors()
        if bank.config.dtype == "bfloat16":
            vectors = np.asarray(jnp.asarray(vectors).astype(jnp.bfloat16)).view(np.uint16)
        moments = bank.moments
        tensors = {
            "vectors": np.ascontiguousarray(vectors),
            "moments.count": np.asarray(moments.count).reshape(1),
            "moments.mean": np.asarray(moments.mean),
            "moments.scatter": np.asarray(moments.scatter),
        }
    header = {
        "format": FORMAT,
        "version": VERSION,
        "count": len(bank),
        "dim": bank.dim,
        "dtype": bank.config.dtype,
        "encoder": bank.encoder_name,
        "next_id": bank._entries.next_id,
        "config": dataclasses.asdict(bank.config),
    }
    return tensors, bank._entries.live(), header


def _restore(
    kind: type[Bank],
    folder: Path,
    header: dict[str, Any],
    tensors: dict[str, np.ndarray],
    entries: list[Entry],
    encoder: Any,
    config: MemoryConfig | None,
) -> Bank:
    try:
        saved = MemoryConfig(**header["config"])
    except (ConfigError, TypeError) as exc:
        raise StateError(f"{folder}: the saved settings cannot be read: {exc}") from exc
    config = config or saved
    if config.dtype != saved.dtype:
        raise StateError(f"{folder}: vectors are stored as {saved.dtype}, the given config wants {config.dtype}")
    if encoder is not None and header["encoder"] is not None:
        from gemjax.encoders import as_encoder

        encoder = as_encoder(encoder)
        if encoder.name != header["encoder"]:
            raise StateError(f"{folder}: the vectors were made by {header['encoder']!r}, not by {encoder.name!r}")
    bank = kind(encoder, config)
    bank.encoder_name = header["encoder"]
    bank._entries.append(entries)
    bank._entries.reserve(header["next_id"])
    if entries:
        vectors = tensors["vectors"]
        if vectors.shape != (len(entries), header["dim"]):
            raise StateError(f"{folder}: {len(entries)} memories but vectors of shape {vectors.shape}")
        if config.dtype == "bfloat16":
            vectors = vectors.view(jnp.bfloat16)
        bank._rows = Rows(header["dim"], config.dtype)
        bank._rows.append(vectors)
        bank._moments = Moments(
            jnp.asarray(tensors["moments.count"][0]),
            jnp.asarray(tensors["moments.mean"]),
            jnp.asarray(tensors["moments.scatter"]),
        )
    elif header["dim"] is not None:
        bank._rows = Rows(header["dim"], config.dtype)
    return bank


def _write_vectors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    save_file(tensors, path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _write_memories(path: Path, entries: list[Entry]) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        for entry in entries:
            json.dump([entry.id, entry.text, entry.metadata], file, ensure_ascii=False, allow_nan=False)
            file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def _replace_header(folder: Path, header: dict[str, Any]) -> None:
    temporary = folder / f"{HEADER}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(header, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / HEADER)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # not every system can flush a directory; the rename is atomic all the same
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(path: Path) -> dict[str, Any]:
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": _digest(path)}


def _read_header(folder: Path) -> dict[str, Any]:
    try:
        header = json.loads((folder / HEADER).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise StateError(f"{folder} holds no memory bank ({HEADER} is missing)") from exc
    except (OSError, ValueError) as exc:
        raise StateError(f"{folder / HEADER} cannot be read: {exc}") from exc
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise StateError(f"{folder / HEADER} is not the header of a memory bank")
    if header.get("version") != VERSION:
        raise StateError(f"{folder}: bank version {header.get('version')!r}; this release reads version {VERSION}")
    wanted = {"count": int, "dim": int | None, "dtype": str, "encoder": str | None, "next_id": int, "config": dict}
    for key, kind in {**wanted, "files": dict}.items():
        if not isinstance(header.get(key, ...), kind):
            raise StateError(f"{folder / HEADER}: field {key!r} is missing or of a wrong type")
    for key in ("vectors", "memories"):
        about = header["files"].get(key)
        if not isinstance(about, dict) or not {"name", "bytes", "sha256"} <= about.keys():
            raise StateError(f"{folder / HEADER}: files.{key} is missing or incomplete")
        if Path(str(about["name"])).name != about["name"]:
            raise StateError(f"{folder / HEADER}: files.{key}.name must be a plain file name")
    return header


def _read_files(folder: Path, header: dict[str, Any]) -> tuple[dict[str, np.ndarray], list[Entry]]:
    for about in header["files"].values():
        path = folder / about["name"]
        size = path.stat().st_size
        if size != about["bytes"]:
            raise StateError(f"{path} has {size} bytes instead of {about['bytes']}: it is truncated or damaged")
        if _digest(path) != about["sha256"]:
            raise StateError(f"{path} is damaged (its sha256 is not the saved one)")
    try:
        tensors = load_file(folder / header["files"]["vectors"]["name"])
        with open(
            folder / header["files"]["memories"]["name"], encoding="utf-8", errors="surrogatepass", newline="\n"
        ) as file:
            entries = [Entry(*json.loads(line)) for line in file]
    except (SafetensorError, ValueError, TypeError) as exc:
        raise StateError(f"{folder}: {exc}") from exc
    if len(entries) != header["count"]:
        raise StateError(f"{folder}: {len(entries)} memories, the header says {header['count']}")
    return tensors, entries


def _ours(name: str) -> bool:
    return name in (HEADER, LOCK) or name.startswith(("vectors-", "memories-", f"{HEADER}."))


def _foreign(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if not _ours(path.name))


def _sweep(folder: Path, keep: set[str]) -> None:
    for path in folder.iterdir():
        if _ours(path.name) and path.name not in keep | {HEADER, LOCK}:
            with contextlib.suppress(OSError):  # on Windows a reader may hold it; the next save tries again
                path.unlink()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """An exclusive lock between processes, released by the system when its holder dies."""
    with open(folder / LOCK, "a+b") as file:
        try:
            import fcntl
        except ImportError:
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined,unused-ignore]
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

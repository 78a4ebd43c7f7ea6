"""Opens what a model's folder holds, as far as it can be trusted: regular files inside the folder, of sane sizes."""

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from gemjax.errors import WeightsError

_JSON_BYTES = 64 << 20
# What a damaged file makes a parser raise; anything else is a fault of ours and shows as what it is.
_DAMAGE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError, EOFError)


def regular_file(path: Path, limit: int | None = None) -> int:
    """The size of a file in bytes, looked at without opening it: opening a FIFO would wait for ever.

    Args:
        path: the file; links are followed, since a hub's cache is made of them.
        limit: bytes that are still sane for what it should hold; None: any.

    Raises:
        WeightsError: there is none, it is no regular file, or it is larger than `limit`.
    """
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(found.st_mode):
        raise WeightsError(f"{path} is no regular file")
    if limit is not None and found.st_size > limit:
        raise WeightsError(f"{path} has {found.st_size:,} bytes; more than {limit:,} is no such file")
    return found.st_size


def inside(folder: Path, name: Any, told_by: Path) -> Path:
    """A file or folder that another file of the model names.

    Args:
        folder: where the model lies.
        name: what stands in that other file.
        told_by: that other file, for the message.

    Raises:
        WeightsError: the name is no string, is absolute, or leads out of the folder.
    """
    if not isinstance(name, str) or "\0" in name:
        raise WeightsError(f"{told_by} names {name!r}; expected a path inside the folder")
    # Either separator counts, whatever the machine: the files come from elsewhere.
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or ":" in name:
        raise WeightsError(f"{told_by} names {name!r}, which is not inside the folder")
    return folder / parts


def read_json_file(path: Path) -> Any:
    """The JSON value in a file of at most 64 MB. Raises `WeightsError` when it cannot be read or is none."""
    regular_file(path, _JSON_BYTES)
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is damaged: {error or 'nested too deeply'}") from error


@contextlib.contextmanager
def damage(where: object) -> Iterator[None]:
    """Whatever a damaged file makes a parser raise becomes a `WeightsError` that says where."""
    try:
        yield
    except _DAMAGE as error:
        raise WeightsError(f"{where} is cut off or damaged: {type(error).__name__}: {str(error)[:200]}") from error


@contextlib.contextmanager
def no_panic(where: object) -> Iterator[None]:
    """A panic of a native library, which is no `Exception`, becomes a `WeightsError`; every other error passes."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise WeightsError(f"{where} makes the tokenizers library fail: {str(error)[:200]}") from error

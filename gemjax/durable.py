"""Files that are whole or not there, and locks between processes: what everything that is kept on disk stands on."""

import contextlib
import os
import re
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# Nothing but these exact names is ever removed.
_SCRATCH = re.compile(r"\.gemjax-[0-9a-f]{32}\.tmp")
# A scratch file younger than this may belong to a writer that has not locked it yet.
_YOUNG = 60.0


@contextlib.contextmanager
def replacing(target: str | os.PathLike[str], *, mode: int | None = None, flush: bool = True) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of `target` in one step when the block ends.

    Whoever reads sees the old file or the new one, also after a kill. If the block raises, what was there stays and
    the scratch file goes. A killed writer leaves a scratch file in the directory: `remove_left_overs` takes it away.

    Args:
        target: its directory must exist.
        mode: the permissions of the new file; None: those that a new file gets.
        flush: wait until the bytes are on the disk, so that a power cut loses nothing either.

    Raises: OSError.
    """
    path = Path(target)
    scratch = path.with_name(f".gemjax-{uuid.uuid4().hex}.tmp")
    descriptor = os.open(
        scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666 if mode is None else mode
    )
    try:
        with os.fdopen(descriptor, "wb") as file:
            _try_lock(file)
            if mode is not None:
                scratch.chmod(mode)
            yield file
            file.flush()
            if flush:
                os.fsync(file.fileno())
            if os.name != "nt":
                # Still locked, so that nobody takes it for a left-over.
                os.replace(scratch, path)
        if os.name == "nt":
            os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
        raise
    if flush:
        _flush_directory(path.parent)


def is_left_over(name: str) -> bool:
    """Whether a file of this name can only be one that `replacing` made."""
    return _SCRATCH.fullmatch(name) is not None


def remove_left_overs(folder: str | os.PathLike[str], *, alone: bool = False) -> None:
    """Remove the scratch files that killed writers left in a directory; those of living writers stay. Never raises.

    Args:
        folder: the directory, not those below it.
        alone: the caller holds a lock that every writer of this directory takes, so that none can be about to begin.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_left_over(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_dead(Path(entry.path), 0.0 if alone else _YOUNG)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold an exclusive lock between processes on the file `path`, which is made; the system frees a dead holder's.

    Raises: OSError.
    """
    with open(path, "a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _remove_if_dead(path: Path, age: float) -> None:
    if age and time.time() - path.stat().st_mtime < age:
        return
    with open(path, "rb") as file:
        if not _try_lock(file):
            return
        if os.name != "nt":
            path.unlink()
    if os.name == "nt":
        path.unlink()  # refused by the system while its writer has it open


def _try_lock(file: IO[bytes]) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _flush_directory(folder: Path) -> None:
    """Not every system can; the rename is atomic all the same."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

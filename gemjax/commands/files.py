"""Reading requests and writing results: one clear line for what cannot be read, and no half-written file."""

import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemjax.durable import remove_left_overs, replacing
from gemjax.errors import RequestError


def read_json(path: str) -> Any:
    """The JSON value in a file, or on standard input for `-`. Raises `RequestError` naming the file, or `OSError`."""
    return json_value(read_bytes(path), "standard input" if path == "-" else path)


def read_bytes(path: str) -> bytes:
    """A file's content, or standard input's for `-`. Raises `OSError`."""
    return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()


def json_value(data: bytes, name: str) -> Any:
    """The JSON value that bytes hold. Raises `RequestError` that begins with `name`."""
    try:
        # JSON allows escaped lone surrogates; raw ones are not UTF-8 and mean that the file is something else.
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise RequestError(f"{name} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise RequestError(f"{name} is not JSON ({error.msg}, line {error.lineno} column {error.colno})") from None
    except RecursionError:
        raise RequestError(f"{name} is nested too deeply") from None
    except ValueError:  # a JSONDecodeError was caught above; Python bounds the digits of what it converts
        digits = sys.get_int_max_str_digits()
        raise RequestError(f"{name} has an integer of more than {digits} digits") from None


def read_request(path: str) -> tuple[Any, str | None]:
    """A request, and the goal that is recorded beside it, if any.

    Takes a request body, a bare list of messages, or a recorded trajectory `{source, domain, goal, messages}`.
    """
    value = read_json(path)
    if not isinstance(value, dict | list):
        raise RequestError(f"{path} holds no request: expected an object or an array of messages")
    goal = value.get("goal") if isinstance(value, dict) else None
    return value, goal if isinstance(goal, str) and goal else None


def check_writable(path: str | None) -> None:
    """Raise `RequestError` for a target that is a folder or whose folder is missing, before any work is done for it."""
    if path is None or path == "-":
        return
    if Path(path).is_dir():
        raise RequestError(f"{path}: is a folder; name a file in it")
    if not Path(path).resolve().parent.is_dir():
        raise RequestError(f"{path}: its folder does not exist")


def write_atomically(path: str | Path, text: str) -> None:
    """Replace a file's content; an interruption or a full disk leaves the old file as it was. Raises `OSError`.

    A link is followed, the old file's mode is kept, and what is no regular file (a device, a pipe) is written to.
    """
    try:
        _write(Path(path).resolve(), text)
    except OSError as error:
        # The name that the caller gave: what failed may be a temporary file, or a stream without a name.
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def report_to(path: str | None, text: str, show: Callable[[], None]) -> None:
    """Show a report and write its text to the file that is asked for, if any. Raises `OSError`.

    Neither failure costs the other: a full disk or a closed pipe must not take with it what took long to measure.
    """
    try:
        show()
        sys.stdout.flush()
    finally:
        if path:
            write_atomically(path, text)


def _write(target: Path, text: str) -> None:
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
    remove_left_overs(target.parent)
    with replacing(target, mode=mode) as file:
        file.write(text.encode())


def json_text(value: Any) -> str:
    """Compact JSON that is UTF-8: non-ASCII characters as they are, unless there is a lone surrogate to escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def print_json(value: Any) -> None:
    """One JSON object on standard output; lone surrogates are escaped, so that it is UTF-8."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def one_line(error: Exception) -> str:
    """An error as the one line that the command line shows."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        return "standard input or output is closed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

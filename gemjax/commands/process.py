"""What surrounds every command: signals, standard streams and warnings. Nothing heavy is imported here."""

import _thread
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

_AGAIN = 0.02
"""Seconds until an interrupt that library code swallowed is raised once more."""


class Interrupts:
    """While this lasts Ctrl-C and SIGTERM raise `KeyboardInterrupt` in the main thread; `received` lists them.

    An interrupt that arrives inside a callback whose exceptions Python can only report (a finaliser, JAX's hook in the
    garbage collector) is raised again, and not reported; one that arrives while a native module starts, which some do
    not survive, is raised when the module is there. A signal that was ignored stays ignored, and a thread that is
    not the main one sets no handlers.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if (before := signal.getsignal(number)) != signal.SIG_IGN:
                    self._undo.callback(signal.signal, number, before)
                    signal.signal(number, self._raise)
        self._undo.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
        self._undo.callback(setattr, threading, "excepthook", threading.excepthook)
        sys.unraisablehook = self._quiet(sys.unraisablehook)
        threading.excepthook = self._quiet(threading.excepthook)
        return self

    def __exit__(self, *error: object) -> None:
        self._undo.close()

    @property
    def status(self) -> int:
        """130 for Ctrl-C, 143 for SIGTERM: 128 and the number of the first signal."""
        return 128 + (self.received[0] if self.received else signal.SIGINT)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if _starts_native_module(frame):
            self._again()
        else:
            raise KeyboardInterrupt

    def _quiet(self, report: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A hook for exceptions that nobody can catch; after an interrupt they are its consequences."""

        def hook(unraisable: Any) -> None:
            if not self.received:
                report(unraisable)
            elif issubclass(unraisable.exc_type, KeyboardInterrupt):
                self._again()

        return hook

    def _again(self) -> None:
        timer = threading.Timer(_AGAIN, _thread.interrupt_main, (self.received[0],))
        timer.daemon = True
        timer.start()


def _starts_native_module(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_qualname.startswith("ExtensionFileLoader."):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Python's warnings as one line each on standard error, every text once."""
    said: set[str] = set()

    def show(message: Any, *place: Any, **more: Any) -> None:
        text = " ".join(str(message).split())
        if text not in said:
            said.add(text)
            complain(text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def complain(text: str) -> None:
    """One line on standard error; nothing when that is closed."""
    with contextlib.suppress(OSError, ValueError):
        print(f"gemjax: {text}", file=sys.stderr, flush=True)


def open_streams() -> None:
    """Puts something in the place of standard streams that the caller closed.

    Otherwise the next file that is opened takes a closed stream's number, and what is printed goes into it. Reading
    and writing then fail as they would have ("Bad file descriptor"); messages to a closed standard error are lost.
    """
    for number, name, mode, flags in (
        (0, "stdin", "r", os.O_WRONLY),
        (1, "stdout", "w", os.O_RDONLY),
        (2, "stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is not None:
            continue
        with contextlib.suppress(OSError):
            opened = os.open(os.devnull, flags)  # the lowest free number
            if opened == number:
                setattr(sys, name, open(opened, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
            else:
                os.close(opened)


def discard_output() -> None:
    """What is still to be written to standard output goes nowhere: Python would complain about it when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stdout.flush()


def place_of(error: BaseException) -> str:
    """Where an exception was raised, as `module.py:12`."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"


def leave_promptly(status: int, interrupted: bool) -> None:
    """At the program's end a signal ends what Python still waits for; after an interrupt it waits for nothing.

    Worker threads may compute for a long time yet; nobody wants their results.
    """

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        os._exit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, leave)
    if interrupted:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()
        os._exit(status)

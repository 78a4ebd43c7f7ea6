"""The `gemjax` command. Each command imports what it needs when it runs, so that `--help` is instant."""

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from gemjax import __version__
from gemjax.errors import GemjaxError


def parser() -> argparse.ArgumentParser:
    """The command line's grammar; each command module adds its own arguments."""
    from gemjax.commands import compress, distill, doctor, eval, index, models, replay, search, serve, validate

    top = argparse.ArgumentParser(
        prog="gemjax", description="Make long agent histories and dialogue memories cheap without losing what matters."
    )
    top.add_argument("--version", action="version", version=f"gemjax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (compress, serve, replay, validate, index, search, distill, eval, models, doctor):
        name = module.__name__.rpartition(".")[2]
        summary = (module.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns: the exit status: 0 done, 1 the check failed, 2 bad input, 130 interrupted, 143 ended by SIGTERM, which
        like Ctrl-C keeps what is finished.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or file that cannot show a character gets its code, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    arguments = parser().parse_args(argv)
    with _terminations() as received:
        status = _status(arguments)
    return 143 if status == 130 and received else status


@contextmanager
def _terminations() -> Iterator[list[int]]:
    """While this lasts SIGTERM does what Ctrl-C does; the list fills with the signals that came.

    Only the main thread may set handlers, and who ignores the signal has asked for that.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        yield received
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, before)


def _status(arguments: argparse.Namespace) -> int:
    from gemjax.commands.files import one_line

    try:
        return int(arguments.run(arguments))
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (GemjaxError, OSError) as error:
        print(f"gemjax: {one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gemjax: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

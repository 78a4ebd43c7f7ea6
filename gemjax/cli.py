"""The `gemjax` command. Each command imports what it needs when it runs, so that `--help` is instant.

Signals have their handlers before anything else is imported, and whatever happens in a command ends in one line and a
status: commands only raise, and know nothing of this.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemjax.commands.process import (
    Interrupts,
    complain,
    discard_output,
    leave_promptly,
    open_streams,
    place_of,
    short_warnings,
)

if TYPE_CHECKING:
    import argparse

TRACEBACK = "GEMJAX_TRACEBACK"
"""Set in the environment, it shows where an error came from instead of one line."""


def parser() -> "argparse.ArgumentParser":
    """The command line's grammar; each command module adds its own arguments."""
    import argparse

    from gemjax import __version__
    from gemjax.commands import (
        ask,
        compress,
        distill,
        doctor,
        eval,
        index,
        models,
        remember,
        replay,
        search,
        serve,
        validate,
    )

    top = argparse.ArgumentParser(
        prog="gemjax", description="Make long agent histories and dialogue memories cheap without losing what matters."
    )
    top.add_argument("--version", action="version", version=f"gemjax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (compress, serve, replay, validate, index, search, remember, ask, distill, eval, models, doctor):
        name = module.__name__.rpartition(".")[2]
        summary = (module.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after `gemjax`; None for the program itself, whose own arguments they then are.

    Returns: the exit status: 0 done, 1 the check failed, 2 bad input or surroundings, 70 a defect of gemjax, 130
        interrupted, 141 the reader of the output went away, 143 ended by SIGTERM, which like Ctrl-C keeps what is
        finished.
    """
    with Interrupts() as interrupts, short_warnings():
        try:
            status = _run(argv, interrupts)
        except KeyboardInterrupt:  # a second one, while the first was dealt with
            status = interrupts.status
        if argv is None:
            leave_promptly(status, bool(interrupts.received))
    return status


def _run(argv: Sequence[str] | None, interrupts: Interrupts) -> int:
    try:
        open_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal or file that cannot show a character gets its code, not a traceback.
                stream.reconfigure(errors="backslashreplace")
        try:
            arguments = parser().parse_args(argv)
            status = int(arguments.run(arguments))
        finally:
            sys.stdout.flush()  # what cannot be written shows here, not when Python ends
        return interrupts.status if status == 130 else status
    except BrokenPipeError:
        if argv is None:
            discard_output()  # whoever read it has seen enough
        return 141
    except KeyboardInterrupt:
        complain("interrupted")
        return interrupts.status
    except Exception as error:
        return _failed(error, interrupts, own=argv is None)


def _failed(error: Exception, interrupts: Interrupts, own: bool) -> int:
    """One line for an error, and its status. What fails after an interrupt failed because of it.

    `own`: the process is this command and nothing else.
    """
    if os.environ.get(TRACEBACK):
        raise error
    if own and isinstance(error, OSError):
        discard_output()  # the streams of a program that called `main` itself are not ours
    if interrupts.received:
        complain("interrupted")
        return interrupts.status
    from gemjax.commands.files import one_line
    from gemjax.errors import GemjaxError

    if isinstance(error, GemjaxError | OSError):
        complain(one_line(error))
        return 2
    if isinstance(error, MemoryError):
        complain("out of memory")
        return 2
    complain(f"internal error ({place_of(error)}): {type(error).__name__}: {one_line(error)}; {TRACEBACK}=1 shows more")
    return 70


if __name__ == "__main__":
    sys.exit(main())

"""The `gemjax` command. Each command imports what it needs when it runs, so that `--help` is instant."""

import argparse
import io
import os
import sys
from collections.abc import Sequence

from gemjax import __version__
from gemjax.errors import GemjaxError


def parser() -> argparse.ArgumentParser:
    """The command line's grammar; each command module adds its own arguments."""
    from gemjax.commands import compress, distill, doctor, eval, index, models, replay, search, validate

    top = argparse.ArgumentParser(
        prog="gemjax", description="Make long agent histories and dialogue memories cheap without losing what matters."
    )
    top.add_argument("--version", action="version", version=f"gemjax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (compress, replay, validate, index, search, distill, eval, models, doctor):
        name = module.__name__.rpartition(".")[2]
        summary = (module.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, help=summary, description=summary)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0 done, 1 the check failed, 2 bad input, 130 interrupted."""
    from gemjax.commands.files import one_line

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or file that cannot show a character gets its code, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    arguments = parser().parse_args(argv)
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

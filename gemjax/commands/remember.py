"""Take the turns of a dialogue into a memory."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from gemjax.commands.files import print_json, read_bytes
from gemjax.commands.options import add_encoder_options, encoder_from, start_jax
from gemjax.wording import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        help='one turn a line: {"speaker": ..., "text": ..., "time": ...}; or chat messages, LoCoMo, LongMemEval or '
        "MemoryBank as JSON (`-`: stdin)",
    )
    parser.add_argument("--bank", metavar="DIR", required=True, help="directory of the memory, made if it is not there")
    parser.add_argument(
        "--scope",
        metavar="A/B",
        default="",
        help="whose memories these are; a file of several dialogues adds each name",
    )
    parser.add_argument(
        "--session", metavar="NAME", help="the dialogue's name (default: each turn's own, else its day)"
    )
    parser.add_argument("--date", metavar="DATE", help="when it was said, for turns that do not say (default: now)")
    parser.add_argument("--json", action="store_true", help="print one object")
    add_encoder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    from gemjax.coremem.dates import read_time
    from gemjax.coremem.dialogues import read_dialogues

    name = "standard input" if arguments.file == "-" else arguments.file
    kind, dialogues = read_dialogues(read_bytes(arguments.file), name)
    scope = scope_from(arguments.scope)
    when = read_time(arguments.date, "--date")
    start_jax(arguments)

    from gemjax.coremem import CoreMem

    memory = CoreMem(arguments.bank, encoder=encoder_from(arguments))
    added = known = 0
    try:
        with _bar(sum(len(dialogue.utterances) for dialogue in dialogues)) as advance:
            for dialogue in dialogues:
                out = memory.remember(
                    dialogue.utterances,
                    session=arguments.session,
                    scope=(*scope, dialogue.name) if len(dialogues) > 1 else scope,
                    happened_at=when,
                    progress=advance,
                )
                added, known = added + out.added, known + out.known
    finally:  # an interruption keeps what is encoded; the same command again adds the rest
        if len(memory):
            memory.save()
    if arguments.json:
        print_json({"bank": arguments.bank, "format": kind, "added": added, "known": known, "memories": len(memory)})
    else:
        again = f", {counted(known, 'turn')} known already" if known else ""
        total = counted(len(memory), "memory", "memories")
        print(f"{arguments.bank}: {counted(added, 'turn')} remembered{again}, {total} in all")
    return 0


def scope_from(text: str) -> tuple[str, ...]:
    """`ann/desk` as `("ann", "desk")`."""
    return tuple(part for part in text.split("/") if part)


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    errors = Console(file=sys.stderr)
    columns = (TextColumn("remembering"), BarColumn(), MofNCompleteColumn(), TextColumn("turns"))
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("remembering", total=total)
        yield lambda count: bar.advance(task, count)

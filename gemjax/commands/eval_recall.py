"""`gemjax eval recall`: whether a recall brings back what the next call of a recorded agent copies."""

import argparse
import json
from typing import Any

from gemjax.commands.files import check_writable, print_json, report_to
from gemjax.commands.options import add_encoder_options, encoder_from, vector_directory
from gemjax.errors import RequestError


def add_arguments(sets: Any) -> None:
    """The subcommand of `gemjax eval`."""
    parser = sets.add_parser(
        "recall",
        help="recalling what was dropped, on recorded agents",
        description="Where the next call of a recorded agent copies a value that is not forwarded: is it in what a "
        "recall brings back?",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="recorded trajectories, or folders of them")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the object to this file")
    add_encoder_options(parser)
    parser.set_defaults(evaluate=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    check_writable(arguments.output)

    from rich.console import Console

    from gemjax.encoders import CachedEncoder, as_encoder
    from gemjax.evaluation.recall import RecallOutcome, evaluate, summary
    from gemjax.evaluation.replay import load

    loaded = load(arguments.paths)
    encoder = CachedEncoder(as_encoder(encoder_from(arguments)), disk=vector_directory())
    outcomes: list[RecallOutcome] = []
    interrupted = False
    with Console(stderr=True).status("starting") as status:
        try:
            for t in loaded.trajectories:
                status.update(t.id)
                outcome = evaluate(t, encoder)
                outcomes += [] if outcome is None else [outcome]
        except KeyboardInterrupt:
            interrupted = True
    if not outcomes and not interrupted:
        raise RequestError("no recorded call copies a value from an earlier block")
    report = {"encoder": encoder.name, "interrupted": interrupted, **summary(outcomes)}
    shown = print_json if arguments.json else _print
    report_to(arguments.output, json.dumps(report, indent=1) + "\n", lambda: shown(report))
    return 130 if interrupted else 0


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from gemjax.terminal import print_table, report_console

    console = report_console()
    grounded = report["fully_grounded"]
    console.print(
        f"{report['trajectories']} trajectories, {report['calls']} calls that copy values, {report['dangling']} values "
        f"not forwarded; calls with all values: {'-' if grounded is None else format(grounded, '.3f')} without a recall"
    )
    table = Table(title="Share of those values in the exchanges recalled (mean over trajectories; pooled in brackets)")
    for head in ("asked by", "found by"):
        table.add_column(head, no_wrap=True)
    for head in ("top 1", "top 3", "top 5", "all values after one recall"):
        table.add_column(head, justify="right")
    for row in report["recalls"]:
        cells = [f"{_number(row[f'top{k}'])} ({_number(row[f'top{k}_pooled'])})" for k in (1, 3, 5)]
        table.add_row(row["query"], row["by"], *cells, _number(row["fully_after"]))
    print_table(table, console)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

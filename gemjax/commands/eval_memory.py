"""Retrieval from long dialogues, by turn and by session."""

import argparse
import json
import sys
from typing import Any

from gemjax.commands.files import check_writable, print_json, report_to
from gemjax.commands.options import add_encoder_options, cache_directory, encoder_from, token_count


def add_arguments(sets: Any) -> None:
    """Add `gemjax eval memory` to the sub-commands."""
    parser = sets.add_parser(
        "memory",
        help="retrieval on LoCoMo, LongMemEval or JSON of your own, by turn and by session",
        description="Which ranking finds the turns, and the sessions, that the answers rest on.",
    )
    parser.add_argument("path", metavar="PATH", help="LoCoMo, LongMemEval (.json or .json.gz), or your own JSON")
    parser.add_argument("--methods", metavar="A,B", help="default: cosine,bm25,rrf,fused,tuned,hybrid")
    parser.add_argument(
        "--rerank",
        metavar="NAME",
        help="also hybrid with this cross-encoder over its best (seconds a question)",
    )
    parser.add_argument(
        "--questions",
        type=token_count,
        metavar="N",
        help="at most N questions a haystack, spread evenly",
    )
    parser.add_argument("--resamples", type=int, default=2000, metavar="N", help="bootstrap resamples (0: none)")
    parser.add_argument("--no-vector-cache", action="store_true", help="do not keep vectors on disk for the next run")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the object to this file")
    add_encoder_options(parser)
    parser.set_defaults(evaluate=_run)


def _run(arguments: argparse.Namespace) -> int:
    check_writable(arguments.output)

    from rich.console import Console

    from gemjax.encoders import CachedEncoder, as_encoder
    from gemjax.encoders.cross import CrossEncoder
    from gemjax.evaluation.memory.haystacks import load_haystacks, thinned
    from gemjax.evaluation.memory.retrieval import DEFAULT_METHODS, encode, evaluate

    kind, haystacks = load_haystacks(arguments.path)
    if arguments.questions is not None:
        haystacks = [thinned(haystack, arguments.questions) for haystack in haystacks]
    reranker = None if arguments.rerank is None else CrossEncoder(arguments.rerank)
    disk = None if arguments.no_vector_cache else cache_directory() / "vectors"
    encoder = CachedEncoder(as_encoder(encoder_from(arguments)), disk=disk)
    methods = DEFAULT_METHODS if arguments.methods is None else [m.strip() for m in arguments.methods.split(",")]
    with Console(file=sys.stderr).status("starting") as status:
        corpora = encode(haystacks, encoder, status.update)
        report = evaluate(
            haystacks,
            corpora,
            methods,
            reranker=reranker,
            resamples=max(0, arguments.resamples),
            progress=status.update,
        )
    report |= {"format": kind, "encoder": encoder.name}
    text = json.dumps(report, indent=1) + "\n"
    report_to(arguments.output, text, lambda: print_json(report) if arguments.json else _print(report))
    return 0


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from gemjax.terminal import print_table, report_console
    from gemjax.wording import counted

    console = report_console()
    console.print(
        f"{report['format']}: {counted(report['haystacks'], 'haystack')}, {counted(report['turns'], 'turn')}, "
        f"{counted(report['sessions'], 'session')}, {counted(report['questions'], 'question')}. "
        f"Encoder {report['encoder']}."
    )
    shown = (
        "recall_any@1",
        "recall_any@5",
        "recall_any@10",
        "recall_all@5",
        "recall_all@10",
        "ndcg@5",
        "ndcg@10",
        "mrr",
    )
    for unit in ("turn", "session"):
        table = Table(title=f"By {unit}")
        table.add_column("method", no_wrap=True)
        for measure in shown:
            table.add_column(measure, justify="right")
        for name, entry in report["methods"].items():
            table.add_row(name, *(f"{entry[unit][measure]['value']:.3f}" for measure in shown))
        print_table(table, console)

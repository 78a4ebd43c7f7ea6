"""Reproduce a table of the papers on your own copy of the data."""

import argparse
import sys
from typing import Any

from gemjax.commands.files import print_json, write_atomically
from gemjax.commands.options import add_encoder_options, encoder_from, start_jax


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sets = parser.add_subparsers(dest="dataset", metavar="DATASET", required=True)
    locomo = sets.add_parser(
        "locomo", help="retrieval on LoCoMo", description="Which method finds the turns that LoCoMo's answers rest on."
    )
    locomo.add_argument("path", metavar="PATH", help="locomo10.json or a file in its schema")
    locomo.add_argument("--json", action="store_true", help="print one object")
    locomo.add_argument("-o", "--output", metavar="FILE", help="also write the object to this file")
    locomo.add_argument("--methods", metavar="A,B", help="only these methods (default: all)")
    locomo.add_argument("--resamples", type=int, default=2000, metavar="N", help="bootstrap resamples (0: none)")
    locomo.add_argument("--tune", action="store_true", help="search settings with cross-validation instead (slow)")
    add_encoder_options(locomo)


def run(arguments: argparse.Namespace) -> int:
    start_jax(arguments)

    from rich.console import Console

    from gemjax.encoders import as_encoder
    from gemjax.evaluation import locomo
    from gemjax.evaluation.tuning import cross_validate

    conversations = locomo.load_locomo(arguments.path)
    encoder = as_encoder(encoder_from(arguments))
    methods = arguments.methods.split(",") if arguments.methods else None
    with Console(file=sys.stderr).status("starting") as status:
        corpora = locomo.encode(conversations, encoder, status.update)
        if arguments.tune:
            report = cross_validate(conversations, corpora, progress=status.update)
        else:
            report = locomo.evaluate(
                conversations, corpora, methods, resamples=max(0, arguments.resamples), progress=status.update
            )
    report["encoder"] = encoder.name
    if arguments.output:
        import json

        write_atomically(arguments.output, json.dumps(report, indent=1) + "\n")
    if arguments.json:
        print_json(report)
    elif arguments.tune:
        _print_tuning(report)
    else:
        _print_tables(report)
    return 0


def _print_tables(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 150)
    data = report["data"]
    console.print(
        f"{data['conversations']} conversations, {data['turns']} turns, {data['questions']} questions of which "
        f"{data['answered']} carry an answer; evidence: {data['evidence']['malformed']} malformed, "
        f"{data['evidence']['pointing_nowhere']} pointing nowhere, {data['evidence']['questions_without']} questions "
        f"without. Encoder {report['encoder']}."
    )
    table = Table(title="Hit@10, cleaned evidence, questions that carry an answer (category 5 apart, all of its)")
    categories = next(iter(report["methods"].values()))["hit@10"]["cleaned"]["categories"]
    n = next(iter(report["methods"].values()))["hit@10"]["cleaned"]["n"]
    table.add_column("method", no_wrap=True)
    for head in (f"micro n={n}", "95 % by question", "by conversation", "macro 1-4", "literal"):
        table.add_column(head, justify="right")
    for key, category in categories.items():
        table.add_column(f"{key} {category['name']} n={category['n']}", justify="right")
    for head in ("vs cosine", "never found"):
        table.add_column(head, justify="right")
    for name, entry in report["methods"].items():
        hit = entry["hit@10"]["cleaned"]
        versus = entry.get("mcnemar_vs_cosine")
        table.add_row(
            name,
            f"{hit['micro']:.3f}",
            _interval(hit.get("interval_questions")),
            _interval(hit.get("interval_conversations")),
            f"{hit['macro']:.3f}",
            f"{entry['hit@10']['literal']['micro']:.3f}",
            *(f"{category['value']:.3f}" for category in hit["categories"].values()),
            f"+{versus['gained']} -{versus['lost']} p={versus['p']:.2g}" if versus else "",
            f"{entry['hubness@10']['never']:.3f}",
        )
    console.print(table)
    other = Table(title="By depth, cleaned evidence, micro")
    other.add_column("method", no_wrap=True)
    measures = [f"{m}@{k}" for m in ("hit", "recall", "all") for k in report["k"]]
    for measure in measures:
        other.add_column(measure, justify="right")
    for name, entry in report["methods"].items():
        other.add_row(name, *(f"{entry[measure]['cleaned']['micro']:.3f}" for measure in measures))
    console.print(other)


def _print_tuning(report: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"best on all conversations (n={report['n']}): {report['best']}")
    for name in ("in_sample", "held_out"):
        shown = "  ".join(f"{key} {report[name][key]:.3f}" for key in ("hit@1", "hit@5", "hit@10", "recall@10"))
        console.print(f"{name.replace('_', ' '):10} {shown}")
    for fold in report["folds"]:
        console.print(f"without {fold['left_out']}: {fold['chosen']} -> hit@10 {fold['hit@10']:.3f} on it")


def _interval(limits: list[float] | None) -> str:
    return "" if limits is None else f"{limits[0]:.3f}-{limits[1]:.3f}"

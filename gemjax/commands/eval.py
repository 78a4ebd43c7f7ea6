"""Reproduce a table of the papers on your own copy of the data."""

import argparse
import json
import sys
from typing import Any

from gemjax.commands import eval_agent, eval_answers, eval_compression, eval_memory, eval_recall, next_action
from gemjax.commands.files import check_writable, print_json, report_to
from gemjax.commands.options import add_encoder_options, cache_directory, encoder_from, start_jax
from gemjax.commands.reports import conclude


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
    locomo.set_defaults(evaluate=_locomo)
    gem = sets.add_parser(
        "gem",
        help="the GEM paper's tables on recorded agents",
        description="Every table of the GEM paper that needs no acting model, on recorded trajectories.",
    )
    gem.add_argument("paths", metavar="PATH", nargs="+", help="recorded trajectories, or folders of them")
    gem.add_argument("--tables", default="all", metavar="A,B", help="C.1, 1, Fig3, 2, D.1, D.2, D.3, D.4, E.1 or all")
    gem.add_argument("--out", metavar="DIR", help="write raw values, figures and report.html here")
    gem.add_argument("--json", action="store_true", help="print one object (raw values go to --out)")
    gem.add_argument("--goal", action="store_true", help="use the goal that is recorded with a trajectory")
    gem.add_argument("--no-vector-cache", action="store_true", help="do not keep vectors on disk for the next run")
    add_encoder_options(gem)
    gem.set_defaults(evaluate=_gem)
    eval_compression.add_arguments(sets)
    eval_recall.add_arguments(sets)
    eval_agent.add_arguments(sets)
    next_action.add_arguments(sets)
    eval_memory.add_arguments(sets)
    eval_answers.add_arguments(sets)


def run(arguments: argparse.Namespace) -> int:
    start_jax(arguments)
    return int(arguments.evaluate(arguments))


def _gem(arguments: argparse.Namespace) -> int:

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from gemjax.encoders import CachedEncoder, as_encoder
    from gemjax.evaluation.gem.report import save
    from gemjax.evaluation.gem.run import chosen_tables, evaluate

    tables = chosen_tables(arguments.tables)
    disk = None if arguments.no_vector_cache else cache_directory() / "vectors"
    encoder = CachedEncoder(as_encoder(encoder_from(arguments)), disk=disk)
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        result = evaluate(
            arguments.paths,
            tables,
            encoder,
            use_goal=arguments.goal,
            progress=lambda what, done, total: bar.update(task, description=what[-50:], completed=done, total=total),
        )
    return conclude(result, arguments, save)


def _locomo(arguments: argparse.Namespace) -> int:
    check_writable(arguments.output)

    from rich.console import Console

    from gemjax.encoders import as_encoder
    from gemjax.evaluation import locomo
    from gemjax.evaluation.tuning import cross_validate

    conversations = locomo.load_locomo(arguments.path)
    encoder = as_encoder(encoder_from(arguments))
    methods = None if arguments.methods is None else [name.strip() for name in arguments.methods.split(",")]
    with Console(file=sys.stderr).status("starting") as status:
        corpora = locomo.encode(conversations, encoder, status.update)
        if arguments.tune:
            report = cross_validate(conversations, corpora, progress=status.update)
        else:
            report = locomo.evaluate(
                conversations, corpora, methods, resamples=max(0, arguments.resamples), progress=status.update
            )
    report["encoder"] = encoder.name
    shown = print_json if arguments.json else _print_tuning if arguments.tune else _print_tables
    report_to(arguments.output, json.dumps(report, indent=1) + "\n", lambda: shown(report))
    return 0


def _print_tables(report: dict[str, Any]) -> None:
    from rich.table import Table

    from gemjax.terminal import print_table, report_console
    from gemjax.wording import counted

    console = report_console()
    data = report["data"]
    console.print(
        f"{counted(data['conversations'], 'conversation')}, {counted(data['turns'], 'turn')}, "
        f"{counted(data['questions'], 'question')} of which "
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
    print_table(table, console)
    other = Table(title="By depth, cleaned evidence, micro")
    other.add_column("method", no_wrap=True)
    measures = [f"{m}@{k}" for m in ("hit", "recall", "all") for k in report["k"]]
    for measure in measures:
        other.add_column(measure, justify="right")
    for name, entry in report["methods"].items():
        other.add_row(name, *(f"{entry[measure]['cleaned']['micro']:.3f}" for measure in measures))
    print_table(other, console)


def _print_tuning(report: dict[str, Any]) -> None:
    from gemjax.terminal import report_console

    console = report_console()
    console.print(f"best on all conversations (n={report['n']}): {report['best']}")
    for name in ("in_sample", "held_out"):
        shown = "  ".join(f"{key} {report[name][key]:.3f}" for key in ("hit@1", "hit@5", "hit@10", "recall@10"))
        console.print(f"{name.replace('_', ' '):10} {shown}")
    for fold in report["folds"]:
        console.print(f"without {fold['left_out']}: {fold['chosen']} -> hit@10 {fold['hit@10']:.3f} on it")


def _interval(limits: list[float] | None) -> str:
    return "" if limits is None else f"{limits[0]:.3f}-{limits[1]:.3f}"

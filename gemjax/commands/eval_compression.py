"""`gemjax eval compression`: what is left of LoCoMo's gold answers when retrieved turns are cut to a budget."""

import argparse
import json
import time
from typing import Any

from gemjax.commands.files import check_writable, print_json, report_to
from gemjax.commands.options import add_encoder_options, cache_directory, encoder_from, vector_directory

# A wait that is worth a line of its own.
_LONG_SECONDS = 60.0


def add_arguments(sets: Any) -> None:
    """The subcommand of `gemjax eval`."""
    parser = sets.add_parser(
        "compression",
        help="distilling to a budget, on LoCoMo",
        description="What is left of LoCoMo's gold answers when each question's retrieved turns are cut to a budget.",
        epilog="fdtd-paper, self-information and some ablations let the model read all turns anew for every question, "
        "which takes seconds each. What it has read is kept for the next run.",
    )
    parser.add_argument("path", metavar="PATH", help="locomo10.json or a file in its schema")
    parser.add_argument(
        "--budgets", type=_numbers, default=(250, 500, 1000), metavar="N,M", help="tokens (default 250,500,1000)"
    )
    parser.add_argument(
        "--sample", type=_count, metavar="N", help="questions, in equal shares of each kind (default: all)"
    )
    parser.add_argument("--seed", type=_from_zero, default=0, metavar="N", help="of the samples (default 0)")
    parser.add_argument("--methods", metavar="A,B", help="only these methods (and truncation, the baseline)")
    parser.add_argument(
        "--each-question",
        action=argparse.BooleanOptionalAction,
        help="whether to run what reads all turns anew for every question, unless --methods names it (default: with "
        "--sample only)",
    )
    parser.add_argument(
        "--ranking",
        default="cosine",
        metavar="NAME",
        help="who retrieves: cosine, tuned (the bank), ... (default cosine)",
    )
    parser.add_argument("--top", type=_count, default=50, metavar="K", help="turns retrieved a question (default 50)")
    parser.add_argument("--ablations", action="store_true", help="take the default and the printed method apart too")
    parser.add_argument(
        "--losses",
        type=_from_zero,
        default=0,
        metavar="N",
        help="the model's loss of the gold answer on N questions (slow)",
    )
    parser.add_argument(
        "--bounds",
        type=_from_zero,
        default=0,
        metavar="N",
        help="the bound beside the measured change on N questions (slow)",
    )
    parser.add_argument("--model", metavar="NAME", help="a model name, folder or .gguf file (default: SmolLM2-135M)")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the object to this file")
    parser.add_argument("--no-disk-cache", action="store_true", help="keep no vectors and readings for the next run")
    add_encoder_options(parser)
    parser.set_defaults(evaluate=run)


def run(arguments: argparse.Namespace) -> int:
    check_writable(arguments.output)

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from gemjax.evaluation import locomo
    from gemjax.evaluation.compression import cases
    from gemjax.evaluation.compression_run import evaluate, require_answers
    from gemjax.evaluation.compressors import chosen_methods, variants
    from gemjax.evaluation.rankings import method_named
    from gemjax.evaluation.remembering import RememberingModel

    each = arguments.sample is not None if arguments.each_question is None else arguments.each_question
    methods = chosen_methods(_names(arguments.methods), each_question=each)
    retrieve = method_named(arguments.ranking)
    conversations = locomo.load_locomo(arguments.path)
    require_answers(conversations)
    errors = Console(stderr=True, highlight=False)
    with errors.status("loading the language model") as status:
        model = RememberingModel(
            language_model(arguments.model), None if arguments.no_disk_cache else cache_directory()
        )
        status.update("loading the encoder")
        encoder = _encoder(arguments)
        corpora = locomo.encode(conversations, encoder, status.update)
        status.update(f"retrieving by {arguments.ranking}")
        rankings = [retrieve(corpus, arguments.top) for corpus in corpora]
    chosen = cases(conversations, rankings, sample=arguments.sample, seed=arguments.seed)
    if arguments.each_question is None and not each and (arguments.ablations or arguments.methods is None):
        errors.print(
            "without --sample: not fdtd-paper, self-information, nor what else reads all turns for every question "
            "(--each-question runs them)",
            style="dim",
        )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        waits = _Waits(lambda line: bar.console.print(line, style="dim"))

        def progress(what: str, done: int, total: int) -> None:
            if done == 0:
                bar.reset(task, description=what[-40:], total=total)
            bar.update(task, completed=done)
            waits.step(what, done, total)

        report = evaluate(
            conversations,
            chosen,
            model,
            methods,
            variants=variants(each_question=each) if arguments.ablations else None,
            budgets=arguments.budgets,
            losses=arguments.losses,
            bounds=arguments.bounds,
            seed=arguments.seed,
            progress=progress,
        )
    report |= {
        "ranking": arguments.ranking,
        "top": arguments.top,
        "encoder": encoder.name,
        "sample": arguments.sample,
        "seed": arguments.seed,
    }

    def show() -> None:
        if arguments.json:
            print_json(report)
        else:
            from gemjax.commands.compression_tables import print_report
            from gemjax.terminal import report_console

            print_report(report, report_console())

    report_to(arguments.output, json.dumps(report, indent=1) + "\n", show)
    if report["interrupted"]:
        errors.print("interrupted: the finished methods are above; run again to go on, what was read is kept")
        return 130
    return 0


class _Waits:
    """Says once for each long step how long it will take, as soon as one of its parts shows that."""

    def __init__(self, say: Any) -> None:
        self._say = say
        self._since = 0.0
        self._said = False

    def step(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        each, self._since = now - self._since, now
        if done == 0:
            self._said = False
        # The first part may have compiled programs, and one that was known from an earlier run takes no time.
        elif done > 1 and not self._said and each * (total - done) >= _LONG_SECONDS:
            self._said = True
            minutes = each * (total - done) / 60
            self._say(f"{what}: about {minutes:.0f} min, {each:.1f} s for each of {total}; Ctrl-C keeps what is done")


def language_model(name: str | None) -> Any:
    """The named model, or the default one."""
    from gemjax.models.language import LanguageModel, default_language_model

    return LanguageModel.from_pretrained(name) if name else default_language_model()


def _encoder(arguments: argparse.Namespace) -> Any:
    from gemjax.encoders import CachedEncoder, as_encoder

    return CachedEncoder(
        as_encoder(encoder_from(arguments)), disk=None if arguments.no_disk_cache else vector_directory()
    )


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _count(text: str) -> int:
    return _whole(text, 1)


def _from_zero(text: str) -> int:
    return _whole(text, 0)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_whole(part, 1) for part in text.split(",")))


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"expected whole numbers of at least {least}, got {text!r}")
    return value

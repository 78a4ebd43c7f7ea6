"""Answers from long dialogues by one generator that reads what different memories choose."""

import argparse
import json
import sys
from typing import Any

from gemjax.commands.files import check_writable, print_json, report_to
from gemjax.commands.generators import add_generator_options, check_generator_options, generator_from
from gemjax.commands.options import add_encoder_options, cache_directory, encoder_from, token_count


def add_arguments(sets: Any) -> None:
    """Add `gemjax eval answers` to the sub-commands."""
    parser = sets.add_parser(
        "answers",
        help="answers on LoCoMo, LongMemEval or JSON of your own, by one generator",
        description="What a generator answers when different memories choose what it reads; every answer is kept.",
    )
    parser.add_argument("path", metavar="PATH", help="LoCoMo, LongMemEval (.json or .json.gz), or your own JSON")
    parser.add_argument("--methods", metavar="A,B", help="default: all that neither read nor write with a model")
    parser.add_argument("--budget", type=token_count, default=500, metavar="N", help="tokens of evidence (default 500)")
    parser.add_argument("--max-tokens", type=token_count, default=64, metavar="N", help="of an answer (default 64)")
    parser.add_argument("--limit", type=token_count, metavar="N", help="only N questions, at random by a fixed seed")
    parser.add_argument("--kept", metavar="FILE", help="lines of JSON: each answer with its prompt; goes on from there")
    parser.add_argument("--judge-endpoint", metavar="URL", help="also ask a judge there; needs --judge-model")
    parser.add_argument("--judge-model", metavar="NAME", help="the judge's model")
    parser.add_argument("--resamples", type=int, default=2000, metavar="N", help="bootstrap resamples (0: none)")
    parser.add_argument("--no-vector-cache", action="store_true", help="do not keep vectors on disk for the next run")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the object to this file")
    add_generator_options(parser)
    add_encoder_options(parser)
    parser.set_defaults(evaluate=_run)


def _run(arguments: argparse.Namespace) -> int:
    check_writable(arguments.output)
    check_writable(arguments.kept)
    check_generator_options(arguments)
    judged = argparse.Namespace(endpoint=arguments.judge_endpoint, model=arguments.judge_model)
    check_generator_options(judged)

    from rich.console import Console

    from gemjax.coremem.generation import Sampling
    from gemjax.coremem.prompts import PromptTemplate
    from gemjax.encoders import CachedEncoder, as_encoder
    from gemjax.evaluation.answers.material import load_material, sample
    from gemjax.evaluation.answers.methods import Setting, chosen_methods
    from gemjax.evaluation.answers.run import Kept, Plan, answer_all, summarise
    from gemjax.models.language import default_language_model
    from gemjax.models.text_tokenizer import default_tokenizer

    kind, materials = load_material(arguments.path)
    materials = sample(materials, arguments.limit)
    methods = chosen_methods(None if arguments.methods is None else [m.strip() for m in arguments.methods.split(",")])
    kept = Kept(arguments.kept)
    disk = None if arguments.no_vector_cache else cache_directory() / "vectors"
    encoder = CachedEncoder(as_encoder(encoder_from(arguments)), disk=disk)
    records: list[dict[str, Any]] = []
    with Console(file=sys.stderr).status("starting") as status:
        generator = generator_from(arguments, status.update)
        model = default_language_model() if any(method.reads for method in methods.values()) else None
        setting = Setting(
            encoder, generator, model or default_tokenizer(), PromptTemplate(), model, arguments.max_tokens, kept
        )
        judge = generator_from(judged, status.update) if judged.endpoint else None
        plan = Plan(setting, Sampling(max_tokens=arguments.max_tokens), arguments.budget, judge)
        records = answer_all(
            materials, methods, plan, kept, lambda what, done, of: status.update(f"{what} ({done} of {of})")
        )
    report = {
        "format": kind,
        "dialogues": len(materials),
        "encoder": encoder.name,
        "budget": arguments.budget,
        "about": {name: method.about for name, method in methods.items()},
        **summarise(records, resamples=max(0, arguments.resamples)),
    }
    text = json.dumps(report, indent=1) + "\n"
    report_to(arguments.output, text, lambda: print_json(report) if arguments.json else _print(report))
    return 0


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from gemjax.terminal import print_table, report_console
    from gemjax.wording import counted

    console = report_console()
    first = next(iter(report["methods"].values()))
    console.print(
        f"{report['format']}: {counted(report['dialogues'], 'dialogue')}, {counted(first['n'], 'question')} with an "
        f"answer, {first['n_unanswerable']} without; {report['budget']} tokens of evidence. "
        f"Generator {', '.join(report['generators'])}, encoder {report['encoder']}."
    )
    scores = [score for score in ("f1", "rouge_l", "contained", "judged") if score in first]
    table = Table(title="Answers (means, 95 % over dialogues)")
    table.add_column("method", no_wrap=True)
    for head in (*scores, "vs cosine", "refused", "wrongly", "evidence", "prompt", "answer", "seconds"):
        table.add_column(head, justify="right")
    for name, entry in report["methods"].items():
        versus = entry.get("mcnemar_vs_cosine")
        table.add_row(
            name,
            *(_cell(entry[score]["value"], entry[score]["interval"]) for score in scores),
            f"+{versus['gained']} -{versus['lost']} p={versus['p']:.2g}" if versus else "",
            _cell(entry["refused"]),
            _cell(entry["wrongly_refused"]),
            *(f"{entry[count]:.0f}" for count in ("evidence_tokens", "prompt_tokens", "completion_tokens")),
            f"{entry['seconds']:.2f}",
        )
    print_table(table, console)
    if report["judge_prompt"]:
        console.print(f"Judge: {', '.join(report['judges'])}, two tokens, temperature 0. Its prompt:")
        console.print(report["judge_prompt"], markup=False, soft_wrap=True)


def _cell(value: float | None, interval: list[float] | None = None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if interval is None else f"{value:.3f} ({interval[0]:.3f}-{interval[1]:.3f})"

"""Answer a question from a memory, offline with a small local model or through an endpoint."""

import argparse
import sys
from typing import Any

from gemjax.commands.files import json_value, print_json, read_json
from gemjax.commands.generators import add_generator_options, check_generator_options, generator_from
from gemjax.commands.options import add_encoder_options, encoder_from, start_jax, token_count
from gemjax.commands.remember import scope_from
from gemjax.errors import ConfigError, RequestError
from gemjax.wording import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bank", metavar="DIR", help="directory that `gemjax remember` (or `index`) wrote")
    parser.add_argument("question", metavar="QUESTION", help="what is asked")
    who = add_generator_options(parser)
    who.add_argument("--no-answer", action="store_true", help="only recall: no model is loaded or asked")
    parser.add_argument("--rerank", metavar="NAME", help="a cross-encoder reads the best candidates with the question")
    parser.add_argument("--budget", type=token_count, metavar="N", help="most tokens of evidence (default 500)")
    parser.add_argument("--max-tokens", type=token_count, metavar="N", help="most tokens of the answer (default 64)")
    parser.add_argument("--scope", metavar="A/B", default="", help="only memories of this scope")
    parser.add_argument("--session", metavar="NAME", help="only memories of this session")
    parser.add_argument("--where", metavar="JSON", help='only memories that meet these conditions: {"speaker": "Ann"}')
    parser.add_argument("--date", metavar="DATE", help="the day of the question (default: today)")
    parser.add_argument(
        "--support", type=_support, metavar="X", help="do not answer below this support; `none`: always"
    )
    parser.add_argument("--prompt", metavar="FILE", help="a JSON object with the parts of a prompt (docs/coremem.md)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--show", action="store_true", help="also the evidence: where it is from, and what of it was kept"
    )
    form.add_argument("--json", action="store_true", help="print one object: answer, evidence, prompt, ledger")
    add_encoder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    where = _where(arguments)
    check_generator_options(arguments)
    start_jax(arguments)
    changes = _changes(arguments)

    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from rich.console import Console

    from gemjax.coremem import CoreMem, CoreMemConfig, UnansweredError
    from gemjax.terminal import printable

    if not Path(arguments.bank).exists():
        raise RequestError(
            f"{arguments.bank}: there is no memory; `gemjax remember FILE --bank {arguments.bank}` makes one"
        )
    errors = Console(file=sys.stderr)
    asked = {"scope": scope_from(arguments.scope), "where": where, "reference_date": arguments.date}
    with errors.status("opening the memory") as status, ThreadPoolExecutor(1) as pool:
        loading = None if arguments.no_answer else pool.submit(generator_from, arguments)
        memory = CoreMem(arguments.bank, encoder=encoder_from(arguments), config=CoreMemConfig(**changes))
        if loading is None:
            found = memory.recall(arguments.question, **asked)
        else:
            # The model loads in one thread while the encoder loads, and a search compiles, in this one.
            _warm(memory, arguments.question)
            status.update("loading the model")
            memory.generator = loading.result()
            status.update("answering")
            try:
                answer = memory.ask(arguments.question, **asked)
            except UnansweredError as error:
                status.stop()
                _evidence(error.recollection, arguments)
                raise
    if loading is None:
        _evidence(found, arguments, always=True)
        return 0
    if arguments.json:
        print_json(answer.to_dict())
        return 0
    _evidence(answer.recollection, arguments)
    print(printable(answer.text.strip()))
    reason = f"; {answer.reason}" if answer.reason else ""
    errors.print(_bill(answer.ledger) + reason, highlight=False, soft_wrap=True, markup=False)
    return 0


def _warm(memory: Any, question: str) -> None:
    """Load the encoder and the programs of a search."""
    if len(memory) and question.strip():
        memory.bank.search(question, memory.config.retrieve)


def _where(arguments: argparse.Namespace) -> dict[str, Any] | None:
    where: dict[str, Any] = {}
    if arguments.where is not None:
        where = json_value(arguments.where.encode("utf-8", "surrogatepass"), "--where")
        if not isinstance(where, dict):
            raise RequestError("--where must be a JSON object")
    if arguments.session is not None:
        where = {"and": [{"session": arguments.session}, where]} if where else {"session": arguments.session}
    return where or None


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the options say of the configuration."""
    from gemjax.coremem.generation import Sampling
    from gemjax.coremem.prompts import PromptTemplate

    out: dict[str, Any] = {}
    if arguments.budget is not None:
        out["budget"] = arguments.budget
    if arguments.max_tokens is not None:
        out["sampling"] = Sampling(max_tokens=arguments.max_tokens)
    if arguments.support is not None:
        out["support"] = None if arguments.support == "none" else arguments.support
    if arguments.rerank is not None:
        from gemjax.encoders.cross import CrossEncoder

        out["rerank"] = CrossEncoder(arguments.rerank)
    if arguments.prompt is not None:
        try:
            out["prompt"] = PromptTemplate.from_dict(read_json(arguments.prompt))
        except ConfigError as error:
            raise RequestError(f"{arguments.prompt}: {error}") from None
    return out


def _evidence(found: Any, arguments: argparse.Namespace, *, always: bool = False) -> None:
    """What was recalled, if it is asked for: kept text as it is, what was dropped between ~~ and ~~."""
    if arguments.json:
        print_json(found.to_dict())
        return
    if not (arguments.show or always):
        return
    from gemjax.coremem.dates import spelled
    from gemjax.distill.render import marked
    from gemjax.terminal import printable

    if not found.evidence:
        print(f"no evidence: {found.note or 'the budget has no room for any'}")
    for part in found.evidence:
        when = "" if part.happened_at is None else f"[{spelled(part.happened_at)}] "
        about = f"{part.id}, session {part.session}" if part.session else str(part.id)
        text = " ".join(marked(part.text, part.spans).split())
        print(printable(f"{part.rank:3} {part.score:+.2f}  {when}{text}  ({about})"))
    if found.left_out:
        print(f"{counted(len(found.left_out), 'memory', 'memories')} more had no room")
    print()


def _bill(ledger: Any) -> str:
    spent = sum(ledger.milliseconds.values()) / 1000
    peak = "" if ledger.peak_memory_bytes is None else f", peak {ledger.peak_memory_bytes / 2**30:.2f} GB"
    cut = f" ({ledger.memories_cut} cut: beyond the context)" if ledger.memories_cut else ""
    return (
        f"{ledger.memories_kept} of {counted(ledger.memories_retrieved, 'memory', 'memories')}{cut}, "
        f"{ledger.tokens_kept} of {counted(ledger.tokens_retrieved, 'token')} kept, {ledger.tokens_prompted} prompted, "
        f"{ledger.tokens_answered} answered, {spent:.1f} s{peak}"
    )


def _support(text: str) -> float | str:
    try:
        return "none" if text == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number or `none`, got {text!r}") from None

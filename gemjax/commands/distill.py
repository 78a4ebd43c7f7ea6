"""Shorten a text to a token budget: what a query asks for, or what is said only once; and show what went."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from gemjax.commands.files import print_json, read_bytes
from gemjax.commands.options import start_jax, token_count
from gemjax.errors import RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from gemjax.distill import Distillation, Turn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="UTF-8 text, one turn a line, or JSON (`-`: standard input)")
    parser.add_argument(
        "--budget", type=token_count, default=500, metavar="N", help="most tokens to keep (default 500)"
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="a model name, folder or .gguf file (default SmolLM2-135M); `selection` uses only its tokenizer",
    )
    parser.add_argument("--query", metavar="TEXT", help="what the text will be asked: what matches it goes in first")
    parser.add_argument(
        "--method",
        default="selection",
        choices=("selection", "fdtd", "paper"),
        help="selection: by the query's words and meaning, no language model; fdtd: by a model's sensitivities too; "
        "paper: as printed (default selection)",
    )
    parser.add_argument("--encoder", metavar="NAME", help="scores the turns against the query (default: MiniLM)")
    parser.add_argument("--whole", action="store_true", help="the file is plain text and one turn, not one a line")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one object: text, spans, counts, bound, report")
    form.add_argument("--show", action="store_true", help="print everything, what is dropped struck through")
    parser.add_argument("--no-compilation-cache", action="store_true", help="do not keep compiled programs on disk")


def run(arguments: argparse.Namespace) -> int:
    name = "standard input" if arguments.file == "-" else arguments.file
    text = _read(arguments.file, name)
    turns = _turns(text, name, whole=arguments.whole)
    start_jax(arguments)

    from rich.console import Console

    errors = Console(file=sys.stderr)
    out = _selected(arguments, turns) if arguments.method == "selection" else _distilled(arguments, turns, errors)
    if arguments.json:
        print_json(_report(out))
    elif arguments.show:
        _show(out, turns)
    else:
        sys.stdout.write(out.text.encode("utf-8", "replace").decode() + "\n")
    if not arguments.json:
        errors.print(
            f"{out.status}: {out.tokens_after} of {out.tokens_before} tokens, budget {out.budget} "
            f"(tokenizer of {out.report['tokenizer']})",
            highlight=False,
            soft_wrap=True,
        )
    return 0


def _selected(arguments: argparse.Namespace, turns: "list[Turn]") -> "Distillation":
    from gemjax.distill import EvidenceSelector
    from gemjax.models.text_tokenizer import TextTokenizer

    tokenizer = None if arguments.model is None else TextTokenizer.from_pretrained(arguments.model)
    selector = EvidenceSelector(tokenizer=tokenizer, encoder=arguments.encoder)
    return selector.distill(turns, arguments.budget, arguments.query)


def _distilled(arguments: argparse.Namespace, turns: "list[Turn]", errors: "Console") -> "Distillation":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gemjax.distill import DistillConfig, Distiller
    from gemjax.models.language_files import DEFAULT_LANGUAGE_MODEL

    config = DistillConfig.paper() if arguments.method == "paper" else DistillConfig()
    with errors.status("loading the model"):
        distiller = Distiller.from_pretrained(
            arguments.model or DEFAULT_LANGUAGE_MODEL, config, encoder=arguments.encoder
        )
    total = sum(distiller.model.count(turn.text) for turn in turns)
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("reading", total=total)
        return distiller.distill(turns, arguments.budget, arguments.query, progress=lambda n: bar.advance(task, n))


def _read(path: str, name: str) -> str:
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"{name} is not UTF-8 text") from None
    if "\0" in text:
        raise RequestError(f"{name} is binary, not text")
    if not text.strip():
        raise RequestError(f"{name} is empty")
    return text


def _turns(text: str, name: str, *, whole: bool) -> "list[Turn]":
    from gemjax.distill import Turn

    if whole:
        return [Turn(text)]
    records = _records(text)
    if records is None:
        return [Turn(line) for line in text.splitlines() if line.strip()]
    turns = []
    for number, record in enumerate(records, 1):
        said, speaker, score = record, None, None
        if isinstance(record, dict):
            said, score = _said(record), record.get("score")
            if said is None:  # a message that only calls tools
                continue
            speaker = next((record[key] for key in ("speaker", "role") if record.get(key)), None)
        try:
            if not isinstance(said, str) or not isinstance(speaker, str | None):
                raise ValueError
            header = f"{speaker}: " if speaker else ""
            turns.append(Turn(header + said, len(header), score))
        except ValueError:
            raise RequestError(
                f"{name}, turn {number}: expected a string, or an object with a string `text` or `content` and at most "
                "a `speaker` or `role` and a finite number `score`; --whole reads the file as plain text"
            ) from None
    if not any(turn.text.strip() for turn in turns):
        raise RequestError(f"{name} holds no text")
    return turns


def _said(record: dict[str, Any]) -> Any:
    """The text of a turn or a chat message, its text parts joined; None for a message without any."""
    said = record.get("text", record.get("content", ""))
    if not isinstance(said, list):
        return said
    parts = [part.get("text") if isinstance(part, dict) else part for part in said]
    return "\n".join(part for part in parts if isinstance(part, str)) or None


def _records(text: str) -> list[Any] | None:
    """What a JSON array, an object's `messages`, or JSON objects on lines of their own hold; None: it is no JSON."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return None
    if isinstance(value, dict):
        value = value["messages"] if isinstance(value.get("messages"), list) else [value]
    return list(value)


def _report(out: Any) -> dict[str, Any]:
    # json.dumps checks that nothing of NumPy is left.
    report: dict[str, Any] = json.loads(json.dumps(out.report))
    return {
        "status": out.status,
        "text": out.text,
        "spans": [list(span) for span in out.spans],
        "budget": out.budget,
        "tokens_before": out.tokens_before,
        "tokens_after": out.tokens_after,
        "bound": out.bound,
        "change": out.change,
        "report": report,
    }


def _show(out: Any, turns: "list[Turn]") -> None:
    """Every turn; dropped parts dim and struck through, kept ones brighter the more sensitive.

    Where there is no terminal what is dropped stands between ~~ and ~~.
    """
    import numpy as np
    from rich.console import Console
    from rich.text import Text

    from gemjax.distill.render import marked
    from gemjax.terminal import printable

    shades = ("white", "bright_white", "bright_yellow", "bold bright_yellow")
    positive = out.scores[out.scores > 0]
    steps = np.quantile(positive, (0.5, 0.8, 0.95)) if len(positive) else np.zeros(3)
    kept: dict[int, list[tuple[int, int]]] = {}
    for turn, start, stop in out.spans:
        kept.setdefault(turn, []).append((start, stop))
    console = Console(soft_wrap=True, highlight=False)
    for number, turn in enumerate(turns):
        spans = kept.get(number, [])
        text = turn.text.encode("utf-8", "replace").decode()
        if not console.is_terminal:
            sys.stdout.write(marked(text, spans) + "\n")
            continue
        shown = Text(printable(text), style="dim strike")
        for start, stop in spans:
            shown.stylize("not dim not strike white", start, stop)
        for i in np.flatnonzero(out.turn == number):
            a, b = int(out.starts[i]), int(out.stops[i])
            if a < b and any(start <= a and b <= stop for start, stop in spans):
                shown.stylize(f"not dim not strike {shades[int(np.searchsorted(steps, out.scores[i]))]}", a, b)
        console.print(shown)

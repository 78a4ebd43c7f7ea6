"""Shorten a text to a token budget by what a small language model finds telling, and show what went."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gemjax.commands.files import print_json
from gemjax.commands.options import start_jax
from gemjax.errors import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="UTF-8 text, one turn a paragraph line (`-`: standard input)")
    parser.add_argument("--budget", type=_budget, default=500, metavar="N", help="most tokens to keep (default 500)")
    parser.add_argument("--model", metavar="NAME", help="a model name, folder or .gguf file (default: SmolLM2-135M)")
    parser.add_argument("--query", metavar="TEXT", help="what the text will be asked: what matches it goes in first")
    parser.add_argument("--preset", default="default", choices=("default", "paper"), help="the method")
    parser.add_argument("--encoder", metavar="NAME", help="scores the turns against the query (default: MiniLM)")
    parser.add_argument("--whole", action="store_true", help="the file is one turn, not one a line")
    parser.add_argument("--json", action="store_true", help="print one object: text, spans, counts, bound, report")
    parser.add_argument("--show", action="store_true", help="print everything, what is dropped struck through")
    parser.add_argument("--no-compilation-cache", action="store_true", help="do not keep compiled programs on disk")


def run(arguments: argparse.Namespace) -> int:
    text = _read(arguments.file)
    turns = [text] if arguments.whole else [line for line in text.splitlines() if line.strip()]
    start_jax(arguments)

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from gemjax.distill import DistillConfig, Distiller
    from gemjax.models.language_files import DEFAULT_LANGUAGE_MODEL

    config = DistillConfig.paper() if arguments.preset == "paper" else DistillConfig()
    errors = Console(file=sys.stderr)
    with errors.status("loading the model"):
        distiller = Distiller.from_pretrained(
            arguments.model or DEFAULT_LANGUAGE_MODEL, config, encoder=arguments.encoder
        )
    total = sum(distiller.model.count(turn) for turn in turns)
    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("reading", total=total)
        out = distiller.distill(turns, arguments.budget, arguments.query, progress=lambda n: bar.advance(task, n))
    if arguments.json:
        print_json(_report(out))
    elif arguments.show:
        _show(out, turns)
    else:
        sys.stdout.write(out.text.encode("utf-8", "replace").decode() + "\n")
    if not arguments.json:
        errors.print(
            f"{out.status}: {out.tokens_after} of {out.tokens_before} tokens, budget {out.budget} "
            f"({distiller.model.name}'s tokenizer)",
            highlight=False,
        )
    return 0


def _read(path: str) -> str:
    name = "standard input" if path == "-" else path
    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"{name} is not UTF-8 text") from None
    if "\0" in text:
        raise RequestError(f"{name} is binary, not text")
    if not text.strip():
        raise RequestError(f"{name} is empty")
    return text


def _budget(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number of tokens, at least 1, got {text!r}")
    return value


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


def _show(out: Any, turns: list[str]) -> None:
    """Every turn; dropped parts dim and struck through, kept ones brighter the more sensitive."""
    import numpy as np
    from rich.console import Console
    from rich.text import Text

    shades = ("white", "bright_white", "bright_yellow", "bold bright_yellow")
    positive = out.scores[out.scores > 0]
    steps = np.quantile(positive, (0.5, 0.8, 0.95)) if len(positive) else np.zeros(3)
    kept: dict[int, list[tuple[int, int]]] = {}
    for turn, start, stop in out.spans:
        kept.setdefault(turn, []).append((start, stop))
    console = Console(soft_wrap=True, highlight=False)
    for number, turn in enumerate(turns):
        shown = Text(turn.encode("utf-8", "replace").decode(), style="dim strike")
        spans = kept.get(number, [])
        for start, stop in spans:
            shown.stylize("not dim not strike white", start, stop)
        for i in np.flatnonzero(out.turn == number):
            a, b = int(out.starts[i]), int(out.stops[i])
            if a < b and any(start <= a and b <= stop for start, stop in spans):
                shown.stylize(f"not dim not strike {shades[int(np.searchsorted(steps, out.scores[i]))]}", a, b)
        console.print(shown)

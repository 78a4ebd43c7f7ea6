"""`gemjax eval next-action`: what selections cost a small language model's prediction of recorded next actions."""

import argparse
from typing import Any

from gemjax.commands.options import add_encoder_options, cache_directory, encoder_from
from gemjax.commands.reports import conclude


def add_arguments(sets: Any) -> None:
    """Add the data set to the parsers of `gemjax eval`."""
    parser = sets.add_parser(
        "next-action",
        help="model-based evidence on recorded agents",
        description="How much worse a small language model predicts the recorded next action from what a selector "
        "leaves of the history, beside the GEM paper's measures of the same selections.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="recorded trajectories, or folders of them")
    parser.add_argument("--sample", type=int, default=50, metavar="N", help="checkpoints to measure (default 50)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the draw (default 0)")
    parser.add_argument("--model", metavar="NAME", help="a model name, folder or .gguf file (default: SmolLM2-135M)")
    parser.add_argument(
        "--count",
        type=_count,
        default="paper",
        metavar="HOW",
        help="blocks every selector keeps: as many as the paper's rules do (paper, the default), as the default rules "
        "do (default), or a number",
    )
    parser.add_argument("--window", type=int, metavar="N", help="most tokens of a full history (default: up to 8192)")
    parser.add_argument(
        "--block-tokens", type=int, default=96, metavar="N", help="most tokens of a block or message (default 96)"
    )
    parser.add_argument("--out", metavar="DIR", help="write raw values, the figure and next-action.html here")
    parser.add_argument("--json", action="store_true", help="print one object (raw values go to --out)")
    parser.add_argument("--goal", action="store_true", help="use the goal that is recorded with a trajectory")
    parser.add_argument("--no-cache", action="store_true", help="do not keep vectors and losses on disk")
    add_encoder_options(parser)
    parser.set_defaults(evaluate=_next_action)


def _count(text: str) -> str | int:
    if text in ("paper", "default"):
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected paper, default or a number of blocks, got {text!r}") from None


def language_model_from(name: str | None) -> Any:
    """The named language model, or the default one. Raises `WeightsError`."""
    from gemjax.models.language import LanguageModel
    from gemjax.models.language_files import DEFAULT_LANGUAGE_MODEL

    return LanguageModel.from_pretrained(name or DEFAULT_LANGUAGE_MODEL)


def _next_action(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from gemjax.encoders import CachedEncoder, as_encoder
    from gemjax.evaluation.next_action.report import save
    from gemjax.evaluation.next_action.run import Settings, evaluate

    settings = Settings(
        sample=arguments.sample,
        seed=arguments.seed,
        count=arguments.count,
        window=arguments.window,
        block_tokens=arguments.block_tokens,
        use_goal=arguments.goal,
    )
    errors = Console(stderr=True)
    with errors.status("loading the models"):
        model = language_model_from(arguments.model)
        settings.window_of(model)
        vectors = None if arguments.no_cache else cache_directory() / "vectors"
        encoder = CachedEncoder(as_encoder(encoder_from(arguments)), disk=vectors)
    # Tokens are the work: a bar that counted checkpoints would stand still for a minute at a time.
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        result = evaluate(
            arguments.paths,
            encoder,
            model,
            settings,
            disk=None if arguments.no_cache else cache_directory() / "losses",
            progress=lambda what, done, total: bar.update(task, description=what[-50:], completed=done, total=total),
        )
    return conclude(result, arguments, save)

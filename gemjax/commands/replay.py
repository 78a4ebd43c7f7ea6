"""Replay recorded agents and show what each way of shortening their history would have cost."""

import argparse
import importlib.util

from gemjax.commands.files import check_writable, print_json
from gemjax.commands.options import (
    add_encoder_options,
    encoder_from,
    prices,
    seconds,
    start_jax,
    vector_directory,
)
from gemjax.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="+", help="recorded trajectories, or folders of them")
    parser.add_argument("--policy", choices=("cost-aware", "paper"), help="only this policy (default: both)")
    parser.add_argument(
        "--methods", metavar="A,B,...", help="only these methods (default: both policies and all baselines)"
    )
    parser.add_argument("--delta", type=float, metavar="X", help="largest share of characters to remove, 0 to 1")
    parser.add_argument(
        "--prices",
        metavar="R,W,U|MODEL",
        type=prices,
        default=(0.1, 1.25, 1.0),
        help="prices of cached, newly cached and uncached input, or a model such as claude-opus-5.5 or "
        "claude-opus-5.5-1h (default 0.1,1.25,1.0)",
    )
    parser.add_argument(
        "--ttl",
        metavar="SECONDS",
        type=seconds,
        default=300.0,
        help="how long an unused cache lives, where recorded times are known; 0: for ever (default 300)",
    )
    parser.add_argument("--goal", action="store_true", help="use the goal that is recorded with a trajectory")
    parser.add_argument("--json", action="store_true", help="print one object: methods, trajectories")
    parser.add_argument(
        "--figure", metavar="FILE", help="draw cost against grounding (.png, .pdf, .svg; needs gemjax[figures])"
    )
    parser.add_argument(
        "--no-vector-cache", action="store_true", help="do not keep vectors on disk for the next replay"
    )
    add_encoder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.figure is not None:
        _check_figure(arguments.figure)
    start_jax(arguments)

    from gemjax.evaluation.replay import Prices
    from gemjax.evaluation.replay import run as replay

    if arguments.methods is not None and arguments.policy:
        raise ConfigError("use either --policy or --methods; a policy is a method too")
    methods = None if arguments.methods is None else arguments.methods.split(",")
    if methods is None and arguments.policy:
        methods = ["none", arguments.policy]
    read, write, uncached = arguments.prices
    report = replay(
        arguments.paths,
        methods,
        arguments.delta,
        Prices(read, write, uncached, ttl=arguments.ttl or None),
        encoder_from(arguments),
        progress=True,
        use_goal=arguments.goal,
        disk=None if arguments.no_vector_cache else vector_directory(),
    )
    try:
        if arguments.json:
            print_json(report.to_json())
        else:
            report.print()
    finally:
        if arguments.figure is not None and report.outcomes:
            from gemjax.evaluation.replay.figure import draw

            draw(report.to_json()["methods"], arguments.figure)
    return 130 if report.interrupted else 0


def _check_figure(path: str) -> None:
    """Before hours of replay. Raises `ConfigError`, and `OSError` for a place that cannot be written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--figure needs matplotlib: pip install 'gemjax[figures]'")
    if not path.endswith((".png", ".pdf", ".svg")):
        raise ConfigError(f"--figure must end in .png, .pdf or .svg, got {path!r}")
    check_writable(path)

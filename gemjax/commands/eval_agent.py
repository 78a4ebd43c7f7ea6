"""`gemjax eval agent`: AgentDojo's tasks, done by a scripted actor or by a model, under each way of shortening."""

import argparse
import json
from typing import Any

from gemjax.commands.files import check_writable, print_json, report_to
from gemjax.commands.options import add_encoder_options, encoder_from, prices, vector_directory
from gemjax.errors import ConfigError


def add_arguments(sets: Any) -> None:
    """The subcommand of `gemjax eval`."""
    parser = sets.add_parser(
        "agent",
        help="an acting agent on AgentDojo's tasks",
        description="AgentDojo's tasks, worked on in turn in one conversation a suite by a scripted actor that may "
        "only use values it is shown. Needs AgentDojo; see docs/agent.md.",
    )
    parser.add_argument("--suite", default="all", metavar="A,B", help="workspace, travel, banking, slack or all")
    parser.add_argument(
        "--methods",
        metavar="A,B",
        help="replay methods; +recall after a compressing one gives the agent the recall tool",
    )
    parser.add_argument("--prices", metavar="R,W,U", type=prices, default=(0.1, 1.25, 1.0), help="as in gemjax replay")
    parser.add_argument(
        "--calls", type=int, default=120, metavar="N", help="pad chains to this many calls (default 120)"
    )
    parser.add_argument("--width", type=int, default=20, metavar="N", help="tasks worked on at a time (default 20)")
    parser.add_argument("--endpoint", metavar="URL", help="let a model act: an endpoint for OpenAI's chat completions")
    parser.add_argument("--model", metavar="NAME", help="the model's name there (its key: OPENAI_API_KEY)")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write the object to this file")
    add_encoder_options(parser)
    parser.set_defaults(evaluate=_evaluate)


def _evaluate(arguments: argparse.Namespace) -> int:
    check_writable(arguments.output)

    if bool(arguments.endpoint) != bool(arguments.model):
        raise ConfigError("--endpoint and --model go together")

    from rich.console import Console

    from gemjax.encoders import CachedEncoder, as_encoder
    from gemjax.evaluation.agent.model import ModelEndpoint
    from gemjax.evaluation.agent.run import DEFAULT, run
    from gemjax.evaluation.replay import Prices

    encoder = CachedEncoder(as_encoder(encoder_from(arguments)), disk=vector_directory())
    methods = DEFAULT if arguments.methods is None else tuple(arguments.methods.split(","))
    with Console(stderr=True).status("starting") as status:
        chains = run(
            arguments.suite.split(","),
            methods,
            encoder,
            Prices(*arguments.prices),
            least_calls=arguments.calls,
            width=arguments.width,
            model=ModelEndpoint(arguments.endpoint, arguments.model) if arguments.endpoint else None,
            progress=status.update,
        )
    report = {
        "actor": arguments.model or "script",
        "encoder": encoder.name,
        "prices": list(arguments.prices),
        "chains": [c.to_json() for c in chains],
    }
    shown = print_json if arguments.json else _print
    report_to(arguments.output, json.dumps(report, indent=1) + "\n", lambda: shown(report))
    return 0


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from gemjax.terminal import print_table, report_console

    table = Table(title="AgentDojo; cost as a share of sending everything, all calls included")
    heads = (
        "tasks passed",
        "calls",
        "needed",
        "missing",
        "recalled",
        "recalls",
        "re-reads",
        "lost",
        "> 16 back",
        "cost",
    )
    for head in ("suite", "method"):
        table.add_column(head, no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    whole = {c["suite"]: c["cost"] for c in report["chains"] if c["method"] == "none"}
    for c in report["chains"]:
        full = whole.get(c["suite"])
        far = c["beyond_16"]
        table.add_row(
            c["suite"],
            c["method"],
            f"{c['passed']}/{c['tasks']}",
            *(str(c[key]) for key in ("calls", "needed", "missing", "recalled", "recalls", "reread", "lost")),
            "" if far is None else f"{far:.2f}",
            f"{c['cost'] / full:.3f}" if full else f"{c['cost']:.0f}",
        )
    print_table(table, report_console())

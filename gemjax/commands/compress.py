"""Shorten one request and print what was kept, what was dropped and why."""

import argparse
import json
from pathlib import Path
from typing import Any

from gemjax.commands.files import check_writable, json_text, print_json, read_json, read_request, write_atomically
from gemjax.commands.options import (
    add_encoder_options,
    add_selection_options,
    config_from,
    encoder_from,
    start_jax,
    vector_directory,
)
from gemjax.errors import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a request as JSON (`-`: standard input)")
    parser.add_argument("--goal", help="the current task (default: what the file records, or its user messages)")
    parser.add_argument(
        "--state", metavar="FILE", help="continue from this state and save it here (created if missing)"
    )
    parser.add_argument("--format", default="auto", choices=("auto", "chat", "responses", "anthropic"))
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the compressed request here (`-`: standard output, no table)"
    )
    parser.add_argument("--json", action="store_true", help="print one object: status, reason, request, report")
    add_selection_options(parser)
    add_encoder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    request, recorded_goal = read_request(arguments.file)
    goal = arguments.goal if arguments.goal is not None else recorded_goal
    state = _read_state(arguments.state)
    for path in (arguments.output, arguments.state):
        check_writable(path)
    config = config_from(arguments)
    start_jax(arguments)

    from gemjax.history import HistoryCompressor

    compressor = HistoryCompressor(encoder_from(arguments), config, vectors=vector_directory())
    if state is not None:
        compressor.load_state_dict("default", state)
    result = compressor.compress(request, goal, format=arguments.format)
    if arguments.output == "-":
        print_json(result.request)
    elif arguments.output:
        write_atomically(arguments.output, json_text(result.request) + "\n")
    if arguments.state:
        write_atomically(arguments.state, json.dumps(compressor.state_dict()) + "\n")
    if arguments.output == "-":
        pass
    elif arguments.json:
        report = result.report()
        head = {"status": report.pop("status"), "reason": report.pop("reason")}
        print_json({**head, "request": result.request, "report": report})
    elif result.status != "failed":
        result.explain()
    # An agent's loop goes on whatever happens; on the command line a failure should show in the exit status.
    if result.status == "failed":
        raise RequestError(result.reason)
    return 0


def _read_state(path: str | None) -> Any:
    if path is None or not Path(path).exists():
        return None
    return read_json(path)

"""Check requests against their providers' rules; exit status 1 if one breaks them."""

import argparse
import dataclasses
import sys
from typing import Any

from gemjax.commands.files import one_line, print_json, read_request
from gemjax.errors import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="a request as JSON (`-`: standard input)")
    parser.add_argument("--format", default="auto", choices=("auto", "chat", "responses", "anthropic"))
    parser.add_argument("--warnings", action="store_true", help="also list what is odd and yet accepted")
    parser.add_argument("--json", action="store_true", help="print one object: file -> problems (null: not read)")


def run(arguments: argparse.Namespace) -> int:
    from gemjax.history.blocks import parse

    found: dict[str, list[dict[str, Any]] | None] = {}
    failed = False
    unread = False
    for path in arguments.files:
        try:
            request, _ = read_request(path)
        except (RequestError, OSError) as error:
            unread = True
            found[path] = None
            print(f"gemjax: {one_line(error)}", file=sys.stderr)
            continue
        name = "standard input" if path == "-" else path
        parsed = parse(request, arguments.format)
        failed |= bool(parsed.problems)
        listed = parsed.problems + (parsed.warnings if arguments.warnings else [])
        found[path] = [dataclasses.asdict(p) for p in sorted(listed, key=lambda p: p.index)]
        if not arguments.json:
            for problem in sorted(listed, key=lambda p: p.index):
                print(f"{name}: {problem.severity}: {problem}")
            if not parsed.problems:
                messages, blocks = len(parsed.messages), len(parsed.blocks)
                size = f"{messages} message{'s' * (messages != 1)}, {blocks} block{'s' * (blocks != 1)}"
                print(f"{name}: valid ({parsed.format.name}, {size})")
    if arguments.json:
        print_json(found)
    return 2 if unread else int(failed)

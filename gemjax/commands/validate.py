"""Check requests against their providers' rules; exit status 1 if one breaks them."""

import argparse
import dataclasses

from gemjax.commands.files import print_json, read_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="a request as JSON (`-`: standard input)")
    parser.add_argument("--format", default="auto", choices=("auto", "chat", "responses", "anthropic"))
    parser.add_argument("--warnings", action="store_true", help="also list what is odd and yet accepted")
    parser.add_argument("--json", action="store_true", help="print one object: file -> problems")


def run(arguments: argparse.Namespace) -> int:
    from gemjax.history.blocks import parse

    found = {}
    failed = False
    for path in arguments.files:
        request, _ = read_request(path)
        parsed = parse(request, arguments.format)
        failed |= bool(parsed.problems)
        listed = parsed.problems + (parsed.warnings if arguments.warnings else [])
        found[path] = [dataclasses.asdict(p) for p in sorted(listed, key=lambda p: p.index)]
        if not arguments.json:
            for problem in sorted(listed, key=lambda p: p.index):
                print(f"{path}: {problem.severity}: {problem}")
            if not parsed.problems:
                size = f"{len(parsed.messages)} messages, {len(parsed.blocks)} blocks"
                print(f"{path}: valid ({parsed.format.name}, {size})")
    if arguments.json:
        print_json(found)
    return int(failed)

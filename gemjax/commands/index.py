"""Build or extend a memory bank from lines of JSON."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemjax.commands.files import json_value, print_json, read_bytes
from gemjax.commands.options import add_encoder_options, encoder_from, start_jax
from gemjax.errors import MemoryBankError, RequestError
from gemjax.wording import counted

BATCH = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help='one JSON object a line: {"id": ..., "text": ..., "metadata": {...}} (`-`: stdin)'
    )
    parser.add_argument("-o", "--output", metavar="BANK", required=True, help="directory of the bank")
    parser.add_argument("--append", action="store_true", help="add to an existing bank instead of replacing it")
    parser.add_argument(
        "--preset", choices=("paper", "tuned", "hybrid"), default="paper", help="settings of a new bank"
    )
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="storage of a new bank")
    parser.add_argument("--json", action="store_true", help="print one object")
    add_encoder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    records = list(_records(arguments.file))
    if not records:
        name = "standard input" if arguments.file == "-" else arguments.file
        raise RequestError(f"{name} is empty: expected one JSON object a line")
    start_jax(arguments)

    from rich.console import Console
    from rich.progress import Progress

    from gemjax.memory import MemoryBank, MemoryConfig

    encoder = encoder_from(arguments)
    if arguments.append and Path(arguments.output).exists():
        bank = MemoryBank.load(arguments.output, encoder)
    else:
        bank = MemoryBank(encoder, getattr(MemoryConfig, arguments.preset)(dtype=arguments.dtype))
    before = len(bank)
    interrupted = False
    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("encoding", total=len(records))
        for start in range(0, len(records), BATCH):
            part = records[start : start + BATCH]
            try:
                _add(bank, part)
            except KeyboardInterrupt:  # keep what is encoded: `--append` with the remaining lines goes on from here
                interrupted = True
                break
            progress.advance(task, len(part))
    bank.save(arguments.output)
    if arguments.json:
        print_json({"bank": arguments.output, "added": len(bank) - before, "memories": len(bank), "dim": bank.dim})
    else:
        print(f"{arguments.output}: {counted(len(bank) - before, 'memory', 'memories')} added, {len(bank)} in all")
    if interrupted:
        raise KeyboardInterrupt
    return 0


def _add(bank: Any, part: list[dict[str, Any]]) -> None:
    named = [record for record in part if "id" in record]
    plain = [record for record in part if "id" not in record]
    for group, ids in ((named, [record["id"] for record in named]), (plain, None)):
        if group:
            bank.add([r["text"] for r in group], ids=ids, metadata=[r.get("metadata") for r in group])


def _records(path: str) -> Iterator[dict[str, Any]]:
    """The file's lines, checked. Raises RequestError naming the line; OSError."""
    name = "standard input" if path == "-" else path
    data = read_bytes(path)
    seen: dict[Any, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        record = json_value(line, f"{name}, line {number}")
        if not isinstance(record, dict) or not isinstance(record.get("text"), str) or not record["text"].strip():
            raise RequestError(f"{name}, line {number}: expected an object with a non-empty string `text`")
        if unknown := record.keys() - {"id", "text", "metadata"}:
            raise RequestError(f"{name}, line {number}: unknown field {sorted(unknown)[0]!r}; put it into `metadata`")
        if "id" in record:
            id = record["id"]
            if isinstance(id, bool) or not isinstance(id, str | int):
                raise RequestError(f"{name}, line {number}: id must be a string or an integer, got {id!r}")
            if id in seen:
                raise MemoryBankError(f"{name}, line {number}: id {id!r} was already used in line {seen[id]}")
            seen[id] = number
        if not isinstance(record.get("metadata"), dict | None):
            raise RequestError(f"{name}, line {number}: metadata must be an object")
        yield record

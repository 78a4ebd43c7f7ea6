"""Show versions, devices, the encoder that would be used and why, and cache sizes."""

import argparse
import dataclasses
import importlib.metadata
import platform

from gemjax import __version__
from gemjax.commands.files import print_json
from gemjax.commands.options import cache_directory

_PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "numpy",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "sentence-transformers",
    "torch",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gemjax.serve.agents import AGENTS, DEFAULT_BASE

    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument(
        "--agent", choices=tuple(AGENTS), help="print the line that puts a tool behind gemjax serve, and check it"
    )
    parser.add_argument("--url", default=DEFAULT_BASE, help=f"address of gemjax serve (default {DEFAULT_BASE})")


def run(arguments: argparse.Namespace) -> int:
    if arguments.agent:
        return _run_agent(arguments)
    report = {
        "gemjax": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "devices": _devices(),
        "encoder": _encoder(),
        "caches": _caches(),
    }
    if arguments.json:
        print_json(report)
        return 0
    for key, value in report.items():
        if isinstance(value, dict):
            print(f"{key}:")
            for name, item in value.items():
                print(f"  {name:22} {item}")
        else:
            print(f"{key:24} {value}")
    return 0


def _run_agent(arguments: argparse.Namespace) -> int:
    """Print what to set and what was found; 1 if the tool would not reach the proxy."""
    from gemjax.serve.agents import AGENTS, checks

    base = arguments.url.rstrip("/").removesuffix("/v1")
    line = AGENTS[arguments.agent].line.format(base=base)
    found = checks(arguments.agent, base)
    if arguments.json:
        print_json({"agent": arguments.agent, "line": line, "checks": [dataclasses.asdict(c) for c in found]})
    else:
        print(line)
        for check in found:
            print(f"{'ok' if check.good else 'no':>4}  {check.text}")
    return 0 if all(check.good for check in found) else 1


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> str:
    import jax

    try:
        jax.devices()
    except RuntimeError as error:
        return f"JAX cannot start: {error}"
    return ", ".join(f"{d.platform}:{d.id} ({d.device_kind})" for d in jax.devices())


def _encoder() -> dict[str, str]:
    from gemjax.encoders import default_encoder
    from gemjax.errors import GemjaxError

    try:
        encoder = default_encoder()
    except (GemjaxError, RuntimeError) as error:  # where JAX cannot start, "devices" says why
        return {"status": f"missing: {error}"}
    return {"name": encoder.name, "dimensions": str(encoder.dim), "found": str(getattr(encoder, "source", "unknown"))}


def _caches() -> dict[str, str]:
    root = cache_directory()
    sizes = {"directory": str(root)}
    if root.is_dir():
        for child in sorted(root.iterdir()):
            files = [child] if child.is_file() else [f for f in child.rglob("*") if f.is_file()]
            total = sum(f.stat().st_size for f in files)
            sizes[child.name] = f"{total / 1e6:.1f} MB in {len(files)} file{'s' * (len(files) != 1)}"
    return sizes

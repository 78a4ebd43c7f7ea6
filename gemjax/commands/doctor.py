"""Show versions, devices, the encoder that would be used and why, and cache sizes."""

import argparse
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
    parser.add_argument("--json", action="store_true", help="print one object")


def run(arguments: argparse.Namespace) -> int:
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

"""Options that several commands share, and what they turn into."""

import argparse
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

from gemjax.errors import ConfigError
from gemjax.history.arrival.config import ArrivalConfig
from gemjax.history.config import GEMConfig
from gemjax.history.policy import CostAwarePolicy, PaperPolicy, Policy
from gemjax.history.price_list import prices_named


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", default="cost-aware", choices=("cost-aware", "paper"), help="when to rewrite")
    parser.add_argument("--delta", type=float, metavar="X", help="largest share of characters to remove, 0 to 1")
    parser.add_argument(
        "--arrival",
        metavar="LIMIT,KEEP",
        type=arrival,
        nargs="?",
        const=ArrivalConfig(),
        help="shorten results above LIMIT characters to about KEEP when they first come (default: no; alone: "
        f"{ArrivalConfig().limit},{ArrivalConfig().keep})",
    )
    parser.add_argument(
        "--prices",
        metavar="R,W,U|MODEL",
        type=prices,
        default=(0.1, 1.25, 1.0),
        help="prices of cached, newly cached and uncached input, or a model such as claude-opus-5.5 or "
        "claude-opus-5.5-1h (default 0.1,1.25,1.0)",
    )


def add_encoder_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--encoder", metavar="NAME", help="a model name or directory (default: all-MiniLM-L6-v2)")
    parser.add_argument("--no-compilation-cache", action="store_true", help="do not keep compiled programs on disk")


def token_count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number of tokens, at least 1, got {text!r}")
    return value


def seconds(text: str) -> float:
    """A finite number of seconds of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds, at least 0, got {text!r}")
    return value


def prices(text: str) -> tuple[float, float, float]:
    """`R,W,U` as three numbers >= 0, or the name of a model whose prices are known."""
    if "," not in text:
        try:
            return prices_named(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    try:
        read, write, uncached = (float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected three numbers R,W,U such as 0.1,1.25,1.0, got {text!r}") from None
    if not all(0 <= p < float("inf") for p in (read, write, uncached)):
        raise argparse.ArgumentTypeError(f"prices must be finite and >= 0, got {text!r}")
    return read, write, uncached


def arrival(text: str) -> ArrivalConfig:
    """`LIMIT,KEEP` as two numbers of characters."""
    try:
        limit, keep = (int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected LIMIT,KEEP in characters such as 2000,1000, got {text!r}") from None
    try:
        return ArrivalConfig(limit, keep)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def policy_from(name: str, prices: tuple[float, float, float]) -> Policy:
    """The named policy; the cost-aware one decides by the given prices."""
    read, write, _ = prices
    return PaperPolicy() if name == "paper" else CostAwarePolicy(read=read, write=write)


def config_from(arguments: argparse.Namespace) -> GEMConfig:
    """Raises `ConfigError` for values out of range. The command line waits for its encoder as long as it takes."""
    policy = policy_from(arguments.policy, arguments.prices)
    make = GEMConfig.paper if arguments.policy == "paper" else GEMConfig
    return make(
        policy=policy, delta=arguments.delta, encoder_timeout=None, encoder_wait=None, arrival=arguments.arrival
    )


def encoder_from(arguments: argparse.Namespace) -> Any:
    """The named encoder, or None for the default one."""
    if not arguments.encoder:
        return None
    from gemjax.encoders import load_encoder

    return load_encoder(arguments.encoder)


def vector_directory() -> Path | None:
    """Where vectors are kept, so that the next call encodes new blocks only; None if the cache cannot be written."""
    directory = cache_directory() / "vectors"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None  # a read-only home costs speed, not the command
    return directory if os.access(directory, os.W_OK) else None


def cache_directory() -> Path:
    """Where gemjax keeps what it can make again: `GEMJAX_CACHE`, else the user's cache folder."""
    named = os.environ.get("GEMJAX_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "gemjax"
    try:
        return Path.home() / ".cache" / "gemjax"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "gemjax"


def start_jax(arguments: argparse.Namespace) -> None:
    """Start JAX with its persistent compilation cache: a command's second run compiles nothing.

    Raises: `ConfigError` when JAX has no device, as with a `JAX_PLATFORMS` that it does not know.
    """
    import jax

    try:
        jax.devices()
    except RuntimeError as error:
        raise ConfigError(f"JAX cannot start: {error}") from None
    if arguments.no_compilation_cache:
        return
    directory = cache_directory() / "jax"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home costs speed, not the command
    _mend(directory)
    jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


_DAMAGED = re.compile(r"Error reading persistent compilation cache entry for '([\w.-]+)'")


def _mend(directory: Path) -> None:
    """Lets damaged entries be written again: JAX writes no entry that exists, so one that a kill cut short would cost a
    compilation and a warning in every later run."""
    show = warnings.showwarning

    def forget(message: Warning | str, *place: Any, **more: Any) -> None:
        if (match := _DAMAGED.match(str(message))) is None:
            show(message, *place, **more)
            return
        for entry in directory.glob(f"{match[1]}-*-cache"):
            entry.unlink(missing_ok=True)
        show(f"{directory}: a damaged compiled program ({match[1]}) is made again", *place, **more)

    warnings.showwarning = forget

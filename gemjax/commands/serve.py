"""Run a local proxy that shortens what agents such as Claude Code or Codex send to their provider."""

import argparse
import dataclasses
import logging
import os
import sys
import threading
import time
from typing import Any

from gemjax.commands.options import (
    add_encoder_options,
    add_selection_options,
    cache_directory,
    config_from,
    encoder_from,
    start_jax,
    vector_directory,
)
from gemjax.errors import ConfigError

THREADS = "gemjax-serve"
_EXTRA = "gemjax serve needs packages that are not installed: pip install 'gemjax[serve]'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine)")
    parser.add_argument("--port", type=int, default=8787, help="TCP port (default 8787)")
    parser.add_argument("--dry-run", action="store_true", help="forward everything unchanged, show what could be saved")
    for name in ("openai", "anthropic"):
        variable = f"GEMJAX_{name.upper()}_UPSTREAM"
        parser.add_argument(
            f"--{name}",
            metavar="URL",
            default=os.environ.get(variable),
            help=f"upstream (default: ${variable}, else its own)",
        )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="further name that may stand in Host"
    )
    parser.add_argument("--deadline", type=float, default=10.0, metavar="S", help="seconds that shortening may take")
    parser.add_argument(
        "--body-limit", type=float, default=64.0, metavar="MB", help="largest request that is looked into"
    )
    parser.add_argument("--proxy", metavar="URL", help="HTTP proxy on the way to the upstreams")
    parser.add_argument("--state", metavar="DIR", help="folder for what a restart must know (default: in the cache)")
    parser.add_argument("--no-state", action="store_true", help="keep nothing over a restart")
    add_selection_options(parser)
    add_encoder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        import uvicorn

        from gemjax.serve.app import create_app, is_local
    except ImportError as error:
        raise ConfigError(f"{_EXTRA} ({error.name} is missing)") from None
    from gemjax.history import HistoryCompressor
    from gemjax.serve.config import ServeConfig

    upstreams = {n: getattr(arguments, n) for n in ("openai", "anthropic") if getattr(arguments, n)}
    config = ServeConfig(
        host=arguments.host,
        port=arguments.port,
        allowed_hosts=tuple(arguments.allow_host),
        dry_run=arguments.dry_run,
        deadline=arguments.deadline,
        body_limit=int(arguments.body_limit * 1024 * 1024),
        proxy=arguments.proxy,
        state=None if arguments.no_state else arguments.state or cache_directory() / "serve",
        **upstreams,
    )
    start_jax(arguments)
    wait = 0.8 * config.deadline
    # Nothing asks the proxy for what was left out: an archive would be content that is kept for nobody.
    settings = dataclasses.replace(
        config_from(arguments),
        max_sessions=config.max_sessions,
        encoder_timeout=wait,
        encoder_wait=min(wait, 2.0),
        archive_blocks=0,
    )
    vectors = vector_directory()
    compressor = HistoryCompressor(encoder_from(arguments), settings, vectors=vectors)
    read, write, _ = arguments.prices
    app = create_app(config, compressor, (read, write))
    # Reasons may quote a request, and the log is no place for content. The page shows them.
    logging.getLogger("gemjax.history").addHandler(logging.NullHandler())
    logging.getLogger("gemjax.history").propagate = False
    threading.Thread(target=_warm_up, args=(compressor,), name=f"{THREADS}-warm-up", daemon=True).start()
    base = f"http://{'127.0.0.1' if is_local(config.host) else config.host}:{config.port}"
    print(f"gemjax serve on {base}{' (dry run)' if config.dry_run else ''}", flush=True)
    print(f"  Claude Code:  ANTHROPIC_BASE_URL={base} claude", flush=True)
    print(f"  Codex:        codex -c openai_base_url={base}/v1", flush=True)
    print(f"  what it does: {base}/", flush=True)
    if not is_local(config.host):
        print(f"gemjax: {config.host} can be reached from other machines", file=sys.stderr)
    server = uvicorn.Server(uvicorn.Config(app, config.host, config.port, **server_settings(config)))
    try:
        server.run()
    except KeyboardInterrupt:
        pass  # it has ended gracefully already; uvicorn raises the signal again
    except SystemExit:
        raise ConfigError(f"cannot listen on {config.host} port {config.port}; choose another --port") from None
    return _leave(0 if server.started else 2)


def server_settings(config: Any) -> dict[str, Any]:
    """How uvicorn runs the proxy: strict parsing, no headers and no log lines of its own."""
    from gemjax.serve.patience import impatient

    return {
        "http": impatient(config.head_timeout),
        "h11_max_incomplete_event_size": 64 * 1024,
        "ws_max_size": config.body_limit,
        "access_log": False,
        "log_level": "warning",
        "server_header": False,
        "date_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": 30,
    }


def _leave(status: int, patience: float = 5.0) -> int:
    """End in order, yet end: an encoder that hangs in a thread must not keep the process, nor abort it at its end.

    Everything that has to survive is on disk already.
    """
    end = time.monotonic() + patience
    for thread in threading.enumerate():
        if thread.name.startswith(THREADS):
            thread.join(max(0.0, end - time.monotonic()))
    if len(threading.enumerate()) > 1:
        # The interpreter would wait for some of them and take away from others what they still use.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status


def _warm_up(compressor: Any) -> None:
    """Load the encoder and compile its common shape before the first long history comes."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "warm up"}]
    for i in range(compressor.config.min_blocks):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "run", "arguments": f'{{"step": {i}}}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"step {i} " * 40})
    compressor.compress({"messages": messages}, session="gemjax-serve-warm-up", format="chat")
    compressor.reset("gemjax-serve-warm-up")

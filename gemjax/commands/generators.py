"""Options for the model that answers, and what they turn into."""

import argparse
import os
from collections.abc import Callable
from typing import Any

from gemjax.errors import RequestError


def add_generator_options(parser: argparse.ArgumentParser) -> Any:
    """`--local`, `--endpoint` and `--model`; returns the group of which only one may be given."""
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--local",
        nargs="?",
        const="",
        default="",
        metavar="MODEL",
        help="a model name, folder or .gguf file that runs here (the default: SmolLM2-135M)",
    )
    who.add_argument(
        "--endpoint", metavar="URL", help="what speaks OpenAI's chat completions; needs --model, key in OPENAI_API_KEY"
    )
    parser.add_argument("--model", metavar="NAME", help="the endpoint's model")
    return who


def check_generator_options(arguments: argparse.Namespace) -> None:
    """Raises RequestError for half an endpoint."""
    if (arguments.endpoint is None) != (arguments.model is None):
        raise RequestError("--endpoint and --model belong together")


def generator_from(arguments: argparse.Namespace, status: Callable[[str], None] = lambda what: None) -> Any:
    """The generator that the options name. Raises WeightsError, ConfigError."""
    if arguments.endpoint is not None:
        from gemjax.coremem.openai_generator import OpenAIGenerator

        # A server on one's own machine wants none; who does says so.
        key = os.environ.get("OPENAI_API_KEY", "none")
        return OpenAIGenerator(arguments.model, base_url=arguments.endpoint, api_key=key)
    from gemjax.coremem.local import LocalGenerator

    status("loading the model")
    return LocalGenerator(arguments.local) if arguments.local else LocalGenerator()

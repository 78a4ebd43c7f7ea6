"""What every framework's own recall tool is made of: its words, its arguments, and whom it asks."""

import dataclasses
from typing import Any

from gemjax.errors import ConfigError
from gemjax.integrations.shortener import Shortener


@dataclasses.dataclass(frozen=True)
class ToolText:
    """The tool as the model sees it; the same whenever it is asked for.

    Attributes:
        name, description: of the tool.
        schema: JSON schema of its arguments.
        query: description of its one argument.
    """

    name: str
    description: str
    schema: dict[str, Any]
    query: str


def text_of(shortener: Shortener) -> ToolText:
    """The words of the recall tool of a shortener.

    Raises: `ConfigError` for anything but a `Shortener`: the tool has to ask the one that the hook was given.
    """
    if not isinstance(shortener, Shortener):
        raise ConfigError(
            f"recall_tool needs the Shortener that the hook was given too, got {type(shortener).__name__}"
        )
    function = shortener.compressor.recall_tool("chat")["function"]
    schema = function["parameters"]
    return ToolText(function["name"], function["description"], schema, schema["properties"]["query"]["description"])

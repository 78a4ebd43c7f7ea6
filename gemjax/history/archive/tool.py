"""The recall tool on the wire: its definition, its calls and its answers, in the three formats."""

import dataclasses
import json
import re
from collections.abc import Collection
from typing import Any

from gemjax.errors import ConfigError
from gemjax.history.formats import format_named
from gemjax.history.records import BlockContent

TOOL_NAME = "recall_dropped_history"

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

DESCRIPTION = (
    "Find earlier tool calls and their results that are no longer shown in this conversation. Older exchanges are left "
    "out to save room; nothing is lost. Use this before repeating a call whose result you have already seen, or when "
    "you need an exact path, id, name or number from earlier. Returns the original exchanges that fit best."
)
_QUERY = "Exact names, paths, ids, numbers or words of an error that stand in what you look for, and its topic."


def definition(format: str, name: str = TOOL_NAME, tools: Any = None) -> dict[str, Any]:
    """The tool's definition: the same bytes whenever it is asked for, so that it never breaks a prompt cache.

    Args:
        format: `chat`, `responses` or `anthropic`.
        name: what the model calls it.
        tools: the agent's own tools, to be checked for the name; a definition of this tool among them is no clash.

    Raises: `ConfigError` for an unknown format, a name that providers refuse, or one that the agent already uses.
    """
    if format == "auto":
        raise ConfigError("recall_tool needs the wire format by name: chat, responses or anthropic")
    wire = format_named(format).name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"name must be 1 to 64 letters, digits, _ or -, got {name!r}")
    schema = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": _QUERY}},
        "required": ["query"],
    }
    made: dict[str, Any]
    if wire == "anthropic":
        made = {"name": name, "description": DESCRIPTION, "input_schema": schema}
    elif wire == "responses":
        made = {"type": "function", "name": name, "description": DESCRIPTION, "parameters": schema}
    else:
        made = {"type": "function", "function": {"name": name, "description": DESCRIPTION, "parameters": schema}}
    for tool in tools if isinstance(tools, list | tuple) else ():
        if tool != made and tool_name(tool) == name:
            raise ConfigError(f"the agent already has a tool named {name!r}; give recall_tool another name=")
    return made


def tool_name(tool: Any) -> str | None:
    """The name in a tool definition of any of the three formats."""
    if not isinstance(tool, dict):
        return None
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else tool.get("name")
    return name if isinstance(name, str) else None


@dataclasses.dataclass(frozen=True, slots=True)
class RecallCall:
    """A call as the model wrote it: the format, its id, the tool's name, and the query (empty if it has none)."""

    format: str
    id: str
    name: str
    query: str


def read_call(call: Any) -> RecallCall | None:
    """A call in any of the three formats, a dict or an SDK's object; None for what is no tool call."""
    if not isinstance(call, dict):
        dump = getattr(call, "model_dump", None)
        call = dump() if callable(dump) else None
        if not isinstance(call, dict):
            return None
    function = call.get("function")
    if isinstance(function, dict):
        found = ("chat", call.get("id"), function.get("name"), function.get("arguments"))
    elif call.get("type") == "function_call":
        found = ("responses", call.get("call_id"), call.get("name"), call.get("arguments"))
    elif call.get("type") == "tool_use":
        found = ("anthropic", call.get("id"), call.get("name"), call.get("input"))
    else:
        return None
    format, identity, name, arguments = found
    if not isinstance(identity, str) or not isinstance(name, str):
        return None
    return RecallCall(format, identity, name, query_of(arguments))


def answer(call: RecallCall, text: str) -> dict[str, Any]:
    """The result of a call: a message (chat), an item (Responses), or a content block of a user message (Anthropic)."""
    if call.format == "anthropic":
        return {"type": "tool_result", "tool_use_id": call.id, "content": text}
    if call.format == "responses":
        return {"type": "function_call_output", "call_id": call.id, "output": text}
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def without_recalls(content: BlockContent, names: Collection[str]) -> BlockContent | None:
    """What an exchange says beside recalls, whose answers are copies of what is archived; None if it was only that."""
    ours = {call.id for call in content.calls if call.name in names}
    if not ours:
        return content
    calls = tuple(call for call in content.calls if call.id not in ours)
    if not calls:
        return None
    results = tuple(result for result in content.results if result.id not in ours)
    return dataclasses.replace(content, calls=calls, results=results)


def query_of(arguments: Any) -> str:
    """The query in a call's arguments; text that is no JSON object is taken as the query itself."""
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
        arguments = {"query": read} if isinstance(read, str) else read
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return query if isinstance(query, str) else ""

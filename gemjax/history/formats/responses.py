"""OpenAI Responses items: `reasoning`, `function_call`, `function_call_output` and their relatives."""

from collections.abc import Sequence
from typing import Any

from gemjax.history.formats.base import (
    Exchange,
    Role,
    View,
    argument_text,
    call_id,
    carries_more,
    content_text,
    kind,
    not_an_object,
    placeholder,
    problem,
    programmatic,
    warning,
)
from gemjax.history.formats.pairing import Pairing
from gemjax.history.problems import Problem
from gemjax.history.records import ToolCall, ToolResult

_TEXT = frozenset({"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"})
_MESSAGE_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
# item type -> where its argument text stands
_CLIENT_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
}
_OUTPUTS = frozenset(f"{name}_output" for name in _CLIENT_CALLS)
# Hosted calls that hold their query and nothing that a later request needs.
_HOSTED = frozenset({"web_search_call", "file_search_call"})
# Items by the model or the provider that later requests depend on: definitions that were loaded, containers, images and
# approvals that are named again, a program that is replayed.
_KEPT = frozenset(
    {
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "tool_search_call",
        "tool_search_output",
        "program",
        "program_output",
    }
)
_CONVERSATION = frozenset(
    {
        "mcp_approval_response",
        "compaction",
        "compaction_summary",
        "compaction_trigger",
        "additional_tools",
        "configuration_update",
    }
)


class ResponsesFormat:
    """Responses requests: `{"input": [...]}`. The items of one model turn, outputs included, make one exchange."""

    name = "responses"
    key = "input"

    def view(self, message: Any) -> View:
        if not isinstance(message, dict):
            return not_an_object(message)
        name = message.get("type")
        if name is None and ("role" in message or "content" in message):
            name = "message"
        if name is None and isinstance(message.get("id"), str):
            name = "item_reference"
        if name == "message":
            return self._message(message)
        problems: list[Problem] = []
        if name == "reasoning":
            summary = content_text(message.get("summary"), _TEXT, problems, "summary")
            body = content_text(message.get("content"), _TEXT, problems)
            return View("assistant", "", body or summary, thought=True, id=_has_id(message), problems=tuple(problems))
        if name in _CLIENT_CALLS:
            return self._call(message, name, problems)
        if name in _OUTPUTS:
            return self._output(message, name, problems)
        if name in _HOSTED:
            return View("assistant", text=placeholder(message), id=_has_id(message))
        if name in _KEPT:
            return self._kept(message, name)
        if name == "item_reference":
            # It may stand for a reasoning item or a call, so its turn must stay.
            return View("assistant", bound=True, reference=True)
        if name in _CONVERSATION:
            return View("other")
        found = warning("item-type", f"item type {name!r} is not known, so it stays", "see docs/validity.md")
        answers = message.get("call_id")
        return View("other", answers=answers if isinstance(answers, str) else "", problems=(found,))

    @staticmethod
    def _kept(message: dict[str, Any], name: str) -> View:
        """An item that stays, with the exchange it is in. A search that the caller runs is a call and a result."""
        identity = message.get("call_id")
        if isinstance(identity, str) and identity and message.get("execution") == "client":
            if name == "tool_search_call":
                call = ToolCall(identity, "tool_search", argument_text(message.get("arguments")))
                return View("assistant", calls=(call,), bound=True, id=_has_id(message))
            if name == "tool_search_output":
                return View("result", results=(ToolResult(identity, placeholder(message)),), bound=True)
        return View("assistant", text=placeholder(message), bound=True, id=_has_id(message))

    @staticmethod
    def _output(message: dict[str, Any], name: str, problems: list[Problem]) -> View:
        if name == "function_call_output" and message.get("call_id") is None and isinstance(message.get("name"), str):
            # What a tool says by itself, by its name: no call waits for it.
            return View("other")
        identity = call_id(message.get("call_id"), "call_id", problems)
        output = message.get("output")
        failed = message.get("status") == "failed"
        if name == "shell_call_output" and isinstance(output, list):
            text = _shell_text(output, problems)
        else:
            if "output" not in message and name != "apply_patch_call_output":
                problems.append(problem("content-type", "an output item has no output", "send its output", identity))
            text = _output_text(output, problems)
        return View(
            "result",
            results=(ToolResult(identity, text, failed),),
            bound=carries_more(output) or programmatic(message.get("caller")),
            problems=tuple(problems),
        )

    @staticmethod
    def _message(message: dict[str, Any]) -> View:
        role = message.get("role")
        if not isinstance(role, str) or role not in _MESSAGE_ROLES:
            known = ", ".join(_MESSAGE_ROLES)
            return View("other", problems=(problem("role", f"unknown role {role!r}", f"use one of {known}"),))
        problems: list[Problem] = []
        if message.get("content") is None:
            problems.append(problem("content-type", f"the content of a {role} message is missing", "send its content"))
        text = content_text(message.get("content"), _TEXT, problems)
        return View(_MESSAGE_ROLES[role], text, problems=tuple(problems))

    @staticmethod
    def _call(message: dict[str, Any], item: str, problems: list[Problem]) -> View:
        identity = call_id(message.get("call_id"), "call_id", problems)
        name = message.get("name")
        if item in ("function_call", "custom_tool_call") and not (isinstance(name, str) and name):
            problems.append(problem("calls-type", f"a {item} has no name", "send the tool's name", identity))
        value = message.get(_CLIENT_CALLS[item])
        if item == "function_call" and not isinstance(value, str):
            problems.append(
                problem("arguments-type", f"arguments must be JSON text, got {kind(value)}", "send text", identity)
            )
        label = name if isinstance(name, str) and name else item.removesuffix("_call")
        return View(
            "assistant",
            calls=(ToolCall(identity, label, argument_text(value)),),
            bound=programmatic(message.get("caller")) or message.get("async") is True,
            deferred=message.get("async") is True,
            id=_has_id(message),
            problems=tuple(problems),
        )

    def frame_problems(self, request: dict[str, Any]) -> list[Problem]:
        return []

    def exchanges(self, views: Sequence[View], start: int = 0) -> tuple[list[Exchange], list[Problem]]:
        pairing = Pairing(views, start)
        return pairing.exchanges, pairing.problems


def _has_id(message: dict[str, Any]) -> bool:
    return isinstance(message.get("id"), str)


def _shell_text(chunks: list[Any], problems: list[Problem]) -> str:
    """What a shell printed, chunk by chunk, with how each ended where that is not success."""
    pieces: list[str] = []
    for chunk in chunks:
        if not isinstance(chunk, dict) or "type" in chunk:
            pieces.append(_output_text([chunk], problems))
            continue
        pieces += [text for name in ("stdout", "stderr") if isinstance(text := chunk.get(name), str) and text]
        outcome = chunk.get("outcome")
        if isinstance(outcome, dict) and outcome.get("type") == "timeout":
            pieces.append("Command timed out")
        elif isinstance(outcome, dict) and outcome.get("exit_code") not in (0, None):
            pieces.append(f"Exit code: {outcome['exit_code']}")
    return "\n".join(piece.rstrip("\n") for piece in pieces)


def _output_text(value: Any, problems: list[Problem]) -> str:
    if isinstance(value, dict):
        return placeholder(value) if "type" in value else argument_text(value)
    return content_text(value, _TEXT, problems, "output")

"""OpenAI Responses items: `reasoning`, `function_call`, `function_call_output` and their relatives."""

from collections.abc import Sequence
from typing import Any

from gemjax.history.formats.base import (
    Exchange,
    Role,
    View,
    argument_text,
    call_id,
    content_text,
    kind,
    not_an_object,
    pair,
    placeholder,
    problem,
    warning,
)
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
_SERVER_ITEMS = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "tool_search_call",
        "tool_search_output",
    }
)
_OTHER_ITEMS = frozenset({"mcp_approval_response", "compaction", "compaction_summary"})


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
            return View("assistant", reasoning=body or summary, thought=True, problems=tuple(problems))
        if name in _CLIENT_CALLS:
            return self._call(message, name, problems)
        if name in _OUTPUTS:
            identity = call_id(message.get("call_id"), "call_id", problems)
            if "output" not in message:
                problems.append(problem("content-type", "an output item has no output", "send its output", identity))
            result = ToolResult(identity, _output_text(message.get("output"), problems))
            return View("result", results=(result,), problems=tuple(problems))
        if name in _SERVER_ITEMS:
            # A request for approval is answered by a later item of the caller, so its turn must stay.
            return View("assistant", text=placeholder(message), bound=name == "mcp_approval_request")
        if name == "item_reference":
            # It may stand for a reasoning item or a call, so its turn must stay.
            return View("assistant", bound=True, reference=True)
        if name in _OTHER_ITEMS:
            return View("other")
        return View("other", problems=(problem("item-type", f"unknown item type {name!r}", "see docs/validity.md"),))

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
        return View("assistant", calls=(ToolCall(identity, label, argument_text(value)),), problems=tuple(problems))

    def exchanges(self, views: Sequence[View], start: int = 0) -> tuple[list[Exchange], list[Problem]]:
        found: list[Exchange] = []
        problems: list[Problem] = []
        i, n = start, len(views)
        referenced = False
        while i < n:
            view = views[i]
            if view.role == "result":
                if referenced:
                    i += 1
                    continue
                problems.append(
                    problem(
                        "orphan-result",
                        "an output item follows no model turn with calls",
                        "send the call it answers, or its previous_response_id, or leave it out",
                        view.results[0].id,
                        i,
                    )
                )
                i += 1
                continue
            if not view.model:
                referenced = False
                i += 1
                continue
            stop = i
            while stop < n and views[stop].model:
                stop += 1
            turn = views[i:stop]
            referenced = any(v.reference for v in turn)
            calls = [c for v in turn for c in v.calls]
            if not calls:
                if turn[-1].thought and stop < n:
                    problems.append(
                        warning(
                            "dangling-reasoning",
                            "a reasoning item is not followed by the item it belongs to",
                            "send that item, or leave the reasoning out",
                            index=stop - 1,
                        )
                    )
                i = stop
                continue
            j = stop
            while j < n and views[j].role == "result":
                j += 1
            results = [(k, views[k].results[0]) for k in range(stop, j)]
            complete, new = pair(calls, results, i, at_end=j == n)
            if referenced:
                new = [p for p in new if p.rule != "orphan-result"]
            problems += new
            bound = any(v.bound for v in turn)
            found.append(Exchange(i, j, complete, complete and not bound))
            i = j
        return found, problems


def _output_text(value: Any, problems: list[Problem]) -> str:
    if isinstance(value, dict):
        return placeholder(value) if "type" in value else argument_text(value)
    return content_text(value, _TEXT, problems, "output")

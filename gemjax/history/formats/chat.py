"""OpenAI chat completions: `tool_calls` and role `tool`, also the legacy `function_call` and role `function`."""

from collections.abc import Sequence
from typing import Any

from gemjax.history.formats.base import (
    Exchange,
    Role,
    View,
    answered,
    argument_text,
    call_id,
    carries_more,
    content_text,
    kind,
    not_an_object,
    pair,
    problem,
    warning,
)
from gemjax.history.problems import Problem
from gemjax.history.records import ToolCall, ToolResult

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "result",
    "function": "result",
}
_TEXT = frozenset({"text", "input_text", "output_text", "refusal"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


class ChatFormat:
    """Chat completions requests: `{"messages": [...]}`."""

    name = "chat"
    key = "messages"

    def view(self, message: Any) -> View:
        if not isinstance(message, dict):
            return not_an_object(message)
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            known = ", ".join(_ROLES)
            return View("other", problems=(problem("role", f"unknown role {role!r}", f"use one of {known}"),))
        problems: list[Problem] = []
        content = message.get("content")
        if role == "assistant" and isinstance(content, list):
            # Thinking in parts of its own (Mistral and servers that copy it) is reasoning, not text.
            content = [p for p in content if not (isinstance(p, dict) and p.get("type") in _THOUGHTS)]
        text = content_text(content, _TEXT, problems)
        if role == "assistant":
            return self._assistant(message, text, problems)
        if role in ("tool", "function"):
            field = "tool_call_id" if role == "tool" else "name"
            result = ToolResult(self._result_id(message, field, problems), text, message.get("is_error") is True)
            stays = carries_more(message.get("content"))
            return View("result", results=(result,), bound=stays, problems=tuple(problems))
        if message.get("content") is None:
            problems.append(problem("content-type", f"the content of a {role} message is missing", "send its content"))
        return View(_ROLES[role], text, problems=tuple(problems))

    @staticmethod
    def _result_id(message: dict[str, Any], field: str, problems: list[Problem]) -> str:
        value = call_id(message.get(field), field, problems)
        # Legacy results name the function, not a call; the prefix keeps the two kinds of id apart.
        return f"function:{value}" if field == "name" and value else value

    def _assistant(self, message: dict[str, Any], text: str, problems: list[Problem]) -> View:
        calls: list[ToolCall] = []
        raw = message.get("tool_calls")
        if raw is not None and not isinstance(raw, list):
            problems.append(problem("calls-type", f"tool_calls must be an array, got {kind(raw)}", "send an array"))
        elif raw is not None and not raw:
            problems.append(warning("empty-calls", "tool_calls is an empty array", "leave the field out"))
        if isinstance(raw, list):
            calls.extend(self._call(call, problems) for call in raw)
        legacy = message.get("function_call")
        if isinstance(legacy, dict):
            name, arguments = self._function(legacy, problems)
            calls.append(ToolCall(f"function:{name}" if name else "", name, arguments))
        elif legacy is not None:
            problems.append(
                problem("calls-type", f"function_call must be an object, got {kind(legacy)}", "send an object")
            )
        if (
            message.get("content") is None
            and not calls
            and not problems
            and message.get("audio") is None
            and message.get("refusal") is None
        ):
            problems.append(
                problem("content-type", "an assistant message has neither content nor tool calls", "send its content")
            )
        reasoning: str = next((r for f in _REASONING_FIELDS if isinstance(r := message.get(f), str) and r), "")
        content = message.get("content")
        if isinstance(content, list):
            reasoning = reasoning or "\n".join([thought for part in content if (thought := _thought(part))])
        return View("assistant", text, reasoning, tuple(calls), bound=carries_more(content), problems=tuple(problems))

    def _call(self, call: Any, problems: list[Problem]) -> ToolCall:
        if not isinstance(call, dict):
            problems.append(problem("calls-type", f"a tool call must be an object, got {kind(call)}", "send an object"))
            return ToolCall("", "", "")
        identity = call_id(call.get("id"), "id", problems)
        custom = call.get("custom")
        if isinstance(custom, dict):
            return ToolCall(identity, str(custom.get("name", "")), argument_text(custom.get("input")))
        name, arguments = self._function(call.get("function"), problems, identity)
        return ToolCall(identity, name, arguments)

    @staticmethod
    def _function(function: Any, problems: list[Problem], identity: str = "") -> tuple[str, str]:
        if not isinstance(function, dict):
            problems.append(
                problem("calls-type", f"function must be an object, got {kind(function)}", "send an object", identity)
            )
            return "", ""
        name = function.get("name")
        if not isinstance(name, str) or not name:
            problems.append(problem("calls-type", "a function call has no name", "send the function's name", identity))
            name = ""
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            problems.append(
                warning(
                    "arguments-type", f"arguments should be JSON text, got {kind(arguments)}", "send text", identity
                )
            )
        return name, argument_text(arguments)

    def frame_problems(self, request: dict[str, Any]) -> list[Problem]:
        return []

    def exchanges(self, views: Sequence[View], start: int = 0) -> tuple[list[Exchange], list[Problem]]:
        found: list[Exchange] = []
        problems: list[Problem] = []
        i, n = start, len(views)
        while i < n:
            view = views[i]
            if view.role == "result":
                problems.append(
                    problem(
                        "orphan-result",
                        "a tool result follows no assistant turn with calls",
                        "send the call it answers, or leave the result out",
                        view.results[0].id,
                        i,
                    )
                )
                i += 1
                continue
            if not view.calls:
                i += 1
                continue
            j = i + 1
            while j < n and views[j].role == "result":
                j += 1
            free = not any([v.bound for v in views[i:j]])
            if answered(views, i, j):
                found.append(Exchange(i, j, True, free))
                i = j
                continue
            results = [(k, views[k].results[0]) for k in range(i + 1, j)]
            complete, new = pair(view.calls, results, i, at_end=j == n)
            problems += new
            found.append(Exchange(i, j, complete, complete and free))
            i = j
        return found, problems


def _thought(part: Any) -> str:
    """The words of a typed thinking part: `{"type": "thinking", "thinking": [{"type": "text", "text": ...}]}`."""
    if not isinstance(part, dict) or part.get("type") not in _THOUGHTS:
        return ""
    for field in ("thinking", "reasoning", "text"):
        value = part.get(field)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return content_text(value, _TEXT, [])
    return ""

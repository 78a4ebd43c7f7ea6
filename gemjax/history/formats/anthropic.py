"""Anthropic Messages: `tool_use` and `tool_result` content blocks, `thinking` blocks, server tools."""

from collections.abc import Sequence
from typing import Any

from gemjax.history.formats.base import (
    MORE_THAN_A_RESULT,
    Exchange,
    View,
    call_id,
    carries_more,
    compact_json,
    content_text,
    kind,
    not_an_object,
    pair,
    placeholder,
    problem,
    programmatic,
    warning,
)
from gemjax.history.problems import Problem
from gemjax.history.records import ToolCall, ToolResult

_TEXT = frozenset({"text"})
_SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_USER_PARTS = frozenset(
    {"text", "image", "document", "search_result", "container_upload", "tool_addition", "tool_removal"}
)
_KEPT_PARTS = frozenset({"compaction", "container_upload", "fallback", "mcp_tool_listing", "image", "document"})
_RESULT_PARTS = frozenset({"text", "image", "document", "search_result", "browser_state"})


class AnthropicFormat:
    """Messages requests: `{"system": ..., "messages": [...]}`; roles `user` and `assistant` only."""

    name = "anthropic"
    key = "messages"

    def view(self, message: Any) -> View:
        if not isinstance(message, dict):
            return not_an_object(message)
        role = message.get("role")
        if role == "system":
            # Newer models take instructions and tools in the middle of a history: conversation, never part of a block.
            problems: list[Problem] = []
            text = content_text(message.get("content"), _TEXT, problems)
            if not text.strip() and not problems and not message.get("output_config"):
                problems.append(_empty_text())
            return View("system", text, problems=tuple(problems))
        if role not in ("user", "assistant"):
            return View("other", problems=(problem("role", f"unknown role {role!r}", "use user or assistant"),))
        content = message.get("content")
        if isinstance(content, str):
            if role == "assistant":
                return View("assistant", content, blank=not content.strip())
            return View("user", content, problems=() if content.strip() else (_empty_text(),))
        if not isinstance(content, list):
            came = "nothing" if content is None else kind(content)
            return View(
                "other",
                problems=(problem("content-type", f"content must be a string or an array, got {came}", "fix content"),),
            )
        return self._user(content) if role == "user" else self._assistant(content)

    def _user(self, parts: list[Any]) -> View:
        problems: list[Problem] = []
        results: list[ToolResult] = []
        texts: list[str] = []
        other = False
        kept = False
        for part in parts:
            if not isinstance(part, dict):
                problems.append(_bad_part(part))
                other = True
            elif part.get("type") == "tool_result":
                if other:
                    problems.append(
                        problem(
                            "result-order",
                            "tool results must come before any other content of their message",
                            "move the tool_result parts to the front",
                            str(part.get("tool_use_id", "")),
                        )
                    )
                identity = call_id(part.get("tool_use_id"), "tool_use_id", problems)
                text = content_text(part.get("content"), _TEXT, problems, "tool_result content")
                kept |= self._result_stays(part.get("content"), problems)
                results.append(ToolResult(identity, text, part.get("is_error") is True))
            else:
                other = True
                _known(part, _USER_PARTS, problems)
                texts.append(_part_text(part, problems))
        if not parts:
            problems.append(problem("empty-content", "a message has no content", "leave the message out"))
        text = "\n".join(t for t in texts if t)
        if results and not other:
            return View("result", results=tuple(results), bound=kept, problems=tuple(problems))
        return View("user", text, results=tuple(results), bound=bool(results), problems=tuple(problems))

    @staticmethod
    def _result_stays(content: Any, problems: list[Problem]) -> bool:
        """Whether a result says more than the result: it loads tools, or holds a part that nobody has heard of."""
        if not isinstance(content, list):
            return False
        known = True
        for part in content:
            if isinstance(part, dict):
                known &= _known(part, _RESULT_PARTS | MORE_THAN_A_RESULT, problems)
                if part.get("type") == "text" and isinstance(text := part.get("text"), str) and not text.strip():
                    problems.append(warning("empty-content", "a text in a tool_result is empty", "leave the part out"))
        return not known or carries_more(content)

    def _assistant(self, parts: list[Any]) -> View:
        problems: list[Problem] = []
        calls: list[ToolCall] = []
        texts: list[str] = []
        thoughts: list[str] = []
        stays = False
        for part in parts:
            if not isinstance(part, dict):
                problems.append(_bad_part(part))
                continue
            name = part.get("type")
            if name == "tool_use":
                identity = call_id(part.get("id"), "id", problems)
                stays |= programmatic(part.get("caller"))
                calls.append(ToolCall(identity, _tool_name(part, problems), _tool_input(part, problems)))
            elif name == "thinking":
                thought = part.get("thinking")
                thoughts.append(thought if isinstance(thought, str) else "")
            elif name == "redacted_thinking":
                thoughts.append("[redacted thinking]")
            elif name in _SERVER_CALLS:
                # The provider ran it, or will: citations, containers and loaded tools refer to it by its place.
                stays = True
                call_id(part.get("id"), "id", problems)
                texts.append(f"{part.get('name', name)} {_tool_input(part, problems)}")
            elif name == "text":
                texts.append(_part_text(part, problems))
            else:
                stays = True
                if not (isinstance(name, str) and name.endswith("_tool_result")):
                    _known(part, _KEPT_PARTS, problems)
                texts.append(placeholder(part))
        return View(
            "assistant",
            "\n".join(t for t in texts if t),
            "\n".join(t for t in thoughts if t),
            tuple(calls),
            bound=stays,
            blank=not parts,
            problems=tuple(problems),
        )

    def frame_problems(self, request: dict[str, Any]) -> list[Problem]:
        system = request.get("system")
        for part in system if isinstance(system, list | tuple) else ():
            if isinstance(part, dict) and isinstance(text := part.get("text"), str) and not text.strip():
                return [problem("empty-content", "a text of system must hold more than white space", "leave it out")]
        return []

    def exchanges(self, views: Sequence[View], start: int = 0) -> tuple[list[Exchange], list[Problem]]:
        found: list[Exchange] = []
        problems: list[Problem] = []
        seen = {c.id for v in views[:start] for c in v.calls}
        if start == 0 and views and views[0].role in ("assistant", "result"):
            problems.append(
                problem("first-role", "the first message must be a user message", "send the task first", "", 0)
            )
        i, n = start, len(views)
        while i < n:
            view = views[i]
            if view.blank and i < n - 1:
                problems.append(
                    problem("empty-content", "only the last assistant message may be empty", "leave it out", "", i)
                )
            if view.results:
                problems.extend(
                    problem(
                        "orphan-result",
                        "a tool_result follows no assistant message with tool_use",
                        "send the call it answers, or leave the result out",
                        r.id,
                        i,
                    )
                    for r in view.results
                )
            if not view.calls:
                i += 1
                continue
            # Consecutive user messages count as one for the provider, so results may be spread over them.
            j = i + 1
            while j < n and views[j].results:
                j += 1
            members = range(i + 1, j)
            results = [(k, r) for k in members for r in views[k].results]
            complete, new = pair(view.calls, results, i, at_end=j == n)
            problems += new
            repeated = sorted({c.id for c in view.calls} & seen - {""})
            problems.extend(
                problem("reused-id", "an earlier turn used this tool_use id", "give each call its own id", r, i)
                for r in repeated
            )
            seen.update(c.id for c in view.calls)
            bound = view.bound or any(views[k].bound for k in members)
            found.append(Exchange(i, j, complete, complete and not bound))
            i = j
        if n and views[-1].role == "assistant" and not views[-1].calls and not views[-1].bound:
            text = views[-1].text
            if text.strip() and text != text.rstrip():
                problems.append(
                    problem(
                        "trailing-whitespace",
                        "the last assistant message ends in white space",
                        "strip the text that the model is to continue",
                        "",
                        n - 1,
                    )
                )
        return found, problems


def _empty_text() -> Problem:
    return problem("empty-content", "a text must hold more than white space", "leave the message or part out")


def _bad_part(part: Any) -> Problem:
    return problem("content-type", f"a content part must be an object, got {kind(part)}", "fix content")


def _part_text(part: dict[str, Any], problems: list[Problem]) -> str:
    if part.get("type") != "text":
        return placeholder(part)
    text = part.get("text")
    if not isinstance(text, str):
        problems.append(problem("content-type", f"text must be a string, got {kind(text)}", "fix content"))
        return ""
    if not text.strip():
        problems.append(_empty_text())
    return text


def _known(part: dict[str, Any], types: frozenset[str], problems: list[Problem]) -> bool:
    """Whether a part's type is among `types`; if not, it is said, and what holds the part stays."""
    name = part.get("type")
    if isinstance(name, str) and name in types:
        return True
    if not isinstance(name, str):
        came = "none" if name is None else kind(name)
        problems.append(
            problem("content-type", f"the type of a content part must be a string, got {came}", "fix content")
        )
        return False
    problems.append(warning("part-type", f"a content part of type {name!r} is not known", "see docs/validity.md"))
    return False


def _tool_name(part: dict[str, Any], problems: list[Problem]) -> str:
    name = part.get("name")
    if isinstance(name, str) and name:
        return name
    problems.append(problem("calls-type", "a tool_use has no name", "send the tool's name", str(part.get("id", ""))))
    return ""


def _tool_input(part: dict[str, Any], problems: list[Problem]) -> str:
    value = part.get("input")
    identity = str(part.get("id", ""))
    if not isinstance(value, dict):
        text = f"input must be an object, got {kind(value)}"
        problems.append(problem("arguments-type", text, "send an object", identity))
        return value if isinstance(value, str) else ""
    try:
        return compact_json(value)
    except (TypeError, ValueError, RecursionError):
        problems.append(problem("arguments-type", "input is not JSON", "send JSON values only", identity))
        return ""

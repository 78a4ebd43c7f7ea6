"""What the three wire formats share: the view of one message, the exchange, and how content becomes text."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from gemjax.history.problems import Problem
from gemjax.history.records import ToolCall, ToolResult

Role = Literal["system", "user", "assistant", "result", "other"]

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

MORE_THAN_A_RESULT = frozenset({"tool_reference", "tool_addition", "tool_removal", "compaction", "mcp_tool_listing"})
"""Content parts that later requests depend on: they load or take away tools, or stand for what came before them."""


def compact_json(value: Any) -> str:
    """Compact JSON with non-ASCII characters kept: the serialisation that request lengths are counted in.

    Raises: TypeError, ValueError (NaN and infinity included) or RecursionError for what has no JSON form.
    """
    return _COMPACT.encode(value)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """One message as the rest of the package sees it.

    `role` "result" is a message that carries tool results and nothing else. `bound` says that the message may never be
    dropped although it takes part in an exchange: it carries conversation beside results, waits for a server, or later
    requests depend on it. `thought` marks a reasoning item by itself, `reference` an item that only names another, `id`
    that the provider has given the item a name. `deferred` is a call whose result may come at any later time,
    `answers` the id of a call that an item of unknown type speaks of, `blank` a message without any text. `model` says
    that the model wrote the message (Responses splits one model turn over several items).
    """

    role: Role
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    bound: bool = False
    thought: bool = False
    reference: bool = False
    id: bool = False
    deferred: bool = False
    answers: str = ""
    blank: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def model(self) -> bool:
        return self.role == "assistant"


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """One assistant turn with calls, messages `start` to `stop` (exclusive), and the results that follow it.

    `between` are the messages in that range which are not its own: conversation between a call and its output.
    """

    start: int
    stop: int
    complete: bool
    removable: bool
    between: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of its own messages."""
        if not self.between:
            return tuple(range(self.start, self.stop))
        return tuple(i for i in range(self.start, self.stop) if i not in self.between)


class Format(Protocol):
    """One wire format: where its messages are, how one is read, and how turns and results pair."""

    name: str
    key: str
    """The request field that holds the messages."""

    def view(self, message: Any) -> View:
        """Read one message; what is wrong with it goes into `View.problems` (index -1). Never raises."""
        ...

    def frame_problems(self, request: dict[str, Any]) -> list[Problem]:
        """What is wrong with the request beside its messages, as far as it concerns text."""
        ...

    def exchanges(self, views: Sequence[View], start: int = 0) -> tuple[list[Exchange], list[Problem]]:
        """Pair calls and results from message `start` on, which must not lie inside an exchange.

        The second part lists the pairing problems found there.
        """
        ...


def problem(rule: str, message: str, fix: str, id: str = "", index: int = -1) -> Problem:
    return Problem(rule, index, id, message, fix)


def warning(rule: str, message: str, fix: str, id: str = "", index: int = -1) -> Problem:
    return Problem(rule, index, id, message, fix, "warning")


def kind(value: Any) -> str:
    """A JSON-minded name of a value's type, for messages."""
    if value is None:
        return "null"
    names = {
        bool: "a boolean",
        str: "a string",
        int: "a number",
        float: "a number",
        dict: "an object",
        list: "an array",
    }
    return names.get(type(value), f"a {type(value).__name__}")


def not_an_object(message: Any) -> View:
    return View(
        "other",
        problems=(problem("message-type", f"a message must be an object, got {kind(message)}", "send a JSON object"),),
    )


def placeholder(part: dict[str, Any]) -> str:
    """A short typed stand-in for content that is not text: `[image image/png]`, never its data."""
    source = part.get("source")
    media = source.get("media_type") if isinstance(source, dict) else None
    name = part.get("type")
    label = name if isinstance(name, str) and name else "content"
    return f"[{label} {media}]" if isinstance(media, str) else f"[{label}]"


def carries_more(content: Any) -> bool:
    """Whether a result's content holds a part that later requests depend on, such as a `tool_reference`."""
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") in MORE_THAN_A_RESULT for part in content
    )


def programmatic(value: Any) -> bool:
    """Whether a `caller` says that a program running at the provider made the call, not the model itself."""
    return isinstance(value, dict) and value.get("type") != "direct"


def content_text(content: Any, text_types: frozenset[str], problems: list[Problem], where: str = "content") -> str:
    """The text of a string, null or list-of-parts content; anything else becomes a problem."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        problems.append(
            problem(
                "content-type", f"{where} must be a string or an array of parts, got {kind(content)}", f"fix {where}"
            )
        )
        return ""
    pieces = []
    for part in content:
        if isinstance(part, str):
            # Not in any provider's schema, yet several client libraries build it.
            pieces.append(part)
        elif not isinstance(part, dict):
            problems.append(
                problem("content-type", f"a part of {where} must be an object, got {kind(part)}", f"fix {where}")
            )
        elif part.get("type") in text_types:
            text = part.get("text", part.get("refusal", ""))
            if isinstance(text, str):
                pieces.append(text)
            else:
                problems.append(
                    problem("content-type", f"the text of a part must be a string, got {kind(text)}", f"fix {where}")
                )
        else:
            pieces.append(placeholder(part))
    return "\n".join(pieces)


def argument_text(value: Any) -> str:
    """Arguments as text: as they are if they are text, else as compact JSON; empty for none."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return compact_json(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def call_id(value: Any, field: str, problems: list[Problem]) -> str:
    """An id that is a non-empty string, or a problem and an empty string."""
    if isinstance(value, str) and value:
        return value
    came = "an empty string" if value == "" else kind(value)
    problems.append(
        problem("missing-id", f"{field} must be a non-empty string, got {came}", f"send the {field} of the call")
    )
    return ""


def answered(views: Sequence[View], start: int, stop: int) -> bool:
    """Whether messages `start` to `stop` are one call and its one result: nearly every exchange there is."""
    if stop - start != 2:
        return False
    calls, results = views[start].calls, views[start + 1].results
    return len(calls) == 1 == len(results) and calls[0].id == results[0].id != ""


def pair(
    calls: Sequence[ToolCall], results: Sequence[tuple[int, ToolResult]], start: int, at_end: bool
) -> tuple[bool, list[Problem]]:
    """Match the ids of one exchange in both directions.

    Args:
        calls: the turn's calls.
        results: message index and result, in order.
        start: message index of the turn.
        at_end: the history ends with this exchange, so that results may still be on their way.

    Returns: whether every call is answered exactly once, and the problems (none for an exchange still in flight).
    """
    # Ids that could not be read are reported once, as `missing-id`; pairing them would only echo that.
    asked = Counter(c.id for c in calls if c.id)
    answered = Counter(r.id for _, r in results if r.id)
    problems = []
    for name, count in asked.items():
        if count > 1:
            text = f"{count} calls of one turn share an id"
            problems.append(problem("duplicate-call-id", text, "give each call its own id", name, start))
    for index, result in results:
        if result.id and result.id not in asked:
            problems.append(
                problem(
                    "orphan-result",
                    "a tool result answers no call of the turn before it",
                    "send the call it answers, or leave the result out",
                    result.id,
                    index,
                )
            )
    last = results[-1][0] if results else start
    for name, count in answered.items():
        if count > 1 and name in asked:
            problems.append(
                problem("duplicate-result", f"one call has {count} results", "send one result a call", name, last)
            )
    missing = [name for name in asked if name not in answered]
    if missing and not at_end:
        problems.extend(
            problem(
                "missing-result",
                "a tool call has no result directly after its turn",
                "send its result, or leave the call out",
                name,
                start,
            )
            for name in missing
        )
    unread = any(not c.id for c in calls) or any(not r.id for _, r in results)
    return not (missing or problems or unread), problems

"""Requests as they are: `{source, domain, goal, messages}` records, bodies of all three wire formats, bare lists."""

from typing import Any

from gemjax.evaluation.replay.readers.recording import Recording
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.history.formats import detect

NAME = "request JSON (chat completions, Responses, Anthropic Messages)"

_RECORD_KEYS = frozenset({"source", "domain", "goal", "messages", "id"})


def matches(recording: Recording) -> bool:
    data = recording.data
    if recording.lines:
        return all(_body(row) for row in data) or _conversation(data)
    return _body(data) or _conversation(data) or (isinstance(data, list) and bool(data) and all(map(_body, data)))


def read(recording: Recording) -> list[Trajectory]:
    data = recording.data
    if _body(data):
        return [_read_body(recording, data, recording.name)]
    if _conversation(data):
        return [Trajectory(recording.name, detect(data).name, {}, data, None, recording.source)]
    return [_read_body(recording, body, f"{recording.name}#{n}") for n, body in enumerate(data, 1)]


def _body(value: Any) -> bool:
    return isinstance(value, dict) and _conversation(value.get("messages") or value.get("input"))


def _conversation(value: Any) -> bool:
    """A list of messages or items. What is wrong inside one is the validity contract's business, not the reader's."""
    if not isinstance(value, list) or not value:
        return False
    rows = [m for m in value if isinstance(m, dict)]
    plain = [m for m in rows if isinstance(m.get("role"), str) or str(m.get("type")).endswith(("_call", "_output"))]
    # `toolResult` is pi's role, in rows that otherwise look like messages.
    return len(rows) == len(value) and 2 * len(plain) > len(rows) and "toolResult" not in [m.get("role") for m in rows]


def _read_body(recording: Recording, body: dict[str, Any], name: str) -> Trajectory:
    key = "messages" if body.get("messages") else "input"
    messages = body[key]
    wire = detect(body if key == "messages" else {"input": messages}).name
    if set(body) <= _RECORD_KEYS:
        goal = body.get("goal")
        goal = goal if isinstance(goal, str) and goal.strip() else None
        return Trajectory(name, wire, {}, messages, goal, recording.source)
    template = {k: v for k, v in body.items() if k != key}
    return Trajectory(name, wire, template, messages, None, recording.source, pending=True)

"""SWE-agent `.traj` files: `history` holds the messages; tool calls are real (function calling) or in the text."""

import json
from typing import Any

from gemjax.evaluation.replay.readers.recording import Recording, objects, synthetic_id, text_of
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.wording import counted

NAME = "SWE-agent"


def matches(recording: Recording) -> bool:
    data = recording.data
    if not isinstance(data, dict) or recording.lines:
        return False
    history = objects(data.get("history"))
    return bool(history) and all(isinstance(m.get("role"), str) for m in history) and ("agent" in history[0])


def read(recording: Recording) -> list[Trajectory]:
    history = objects(recording.data["history"])
    if any(m.get("tool_calls") for m in history):
        messages = [_as_sent(m) for m in history]
        return [Trajectory(recording.name, "chat", {}, messages, None, recording.source)]
    messages, turns = _with_calls(history)
    notes = (
        (f"text protocol: the calls of {counted(turns, 'turn')} were synthesised from their actions",) if turns else ()
    )
    return [Trajectory(recording.name, "chat", {}, messages, None, recording.source, notes)]


def _as_sent(row: dict[str, Any]) -> dict[str, Any]:
    """A history row without the agent's own bookkeeping (`thought`, `action`, `agent`, `message_type` ...)."""
    message: dict[str, Any] = {"role": row["role"], "content": row.get("content")}
    calls = objects(row.get("tool_calls"))
    if calls:
        message["tool_calls"] = [{"id": c.get("id"), "type": "function", "function": c.get("function")} for c in calls]
    answered = row.get("tool_call_ids")
    if row["role"] == "tool":
        message["tool_call_id"] = answered[0] if isinstance(answered, list) and answered else row.get("tool_call_id")
    return message


def _with_calls(history: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """The same conversation with each action as a call of `shell` and the observation after it as its result."""
    messages: list[dict[str, Any]] = []
    turns = 0
    answering = ""
    for row in history:
        role, content = row["role"], row.get("content")
        action = row.get("action")
        if role == "assistant" and isinstance(action, str) and action.strip():
            turns += 1
            answering = synthetic_id(turns)
            thought = row.get("thought")
            function = {"name": "shell", "arguments": json.dumps({"command": action.strip()}, ensure_ascii=False)}
            messages.append(
                {
                    "role": "assistant",
                    "content": thought.strip() if isinstance(thought, str) else text_of(content),
                    "tool_calls": [{"id": answering, "type": "function", "function": function}],
                }
            )
        elif role == "user" and answering:
            messages.append({"role": "tool", "tool_call_id": answering, "content": text_of(content)})
            answering = ""
        else:
            messages.append({"role": role, "content": content})
            answering = ""
    return messages, turns

"""mini-swe-agent trajectories. Version 1 talks a text protocol (one bash fence a turn), version 2 real tool calls."""

import json
import re
from typing import Any

from gemjax.evaluation.replay.readers.recording import Recording, objects, synthetic_id, text_of
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.wording import counted

NAME = "mini-swe-agent"

_ACTION = re.compile(r"```bash\s*\n(.*?)\n```", re.DOTALL)
_WIRE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def matches(recording: Recording) -> bool:
    data = recording.data
    if not isinstance(data, dict) or not objects(data.get("messages")):
        return False
    info = data.get("info")
    version = str(data.get("trajectory_format", ""))
    return version.startswith("mini-swe-agent") or (isinstance(info, dict) and "mini_version" in info)


def read(recording: Recording) -> list[Trajectory]:
    rows = [m for m in objects(recording.data["messages"]) if m.get("role") != "exit"]
    if any(m.get("tool_calls") for m in rows):
        messages = [{k: m[k] for k in _WIRE_KEYS if k in m} for m in rows]
        return [Trajectory(recording.name, "chat", {}, messages, None, recording.source)]
    messages, turns = _with_calls(rows)
    notes = (
        (f"text protocol: the calls of {counted(turns, 'turn')} were synthesised from their bash fences",)
        if turns
        else ()
    )
    return [Trajectory(recording.name, "chat", {}, messages, None, recording.source, notes)]


def _with_calls(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """The same conversation with each action as a tool call and the user message after it as its result."""
    messages: list[dict[str, Any]] = []
    turns = 0
    answering = ""
    for row in rows:
        role, text = row.get("role"), text_of(row.get("content"))
        if role == "assistant":
            actions = _ACTION.findall(text)
            answering = ""
            message: dict[str, Any] = {"role": "assistant", "content": text}
            # The agent itself refuses a turn without exactly one fence; what follows is then a complaint, no result.
            if len(actions) == 1:
                turns += 1
                answering = synthetic_id(turns)
                function = {"name": "bash", "arguments": json.dumps({"command": actions[0]}, ensure_ascii=False)}
                call = {"id": answering, "type": "function", "function": function}
                message = {"role": "assistant", "content": _ACTION.sub("", text).strip(), "tool_calls": [call]}
            messages.append(message)
        elif role == "user" and answering:
            messages.append({"role": "tool", "tool_call_id": answering, "content": text})
            answering = ""
        else:
            messages.append({"role": role, "content": row.get("content")})
    return messages, turns

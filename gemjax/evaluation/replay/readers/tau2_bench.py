"""tau2-bench simulations to chat completions: one object, or `{"simulations": [...]}`.

Calls that the simulated user makes of tools of its own are no part of the agent's conversation.
"""

from typing import Any

from gemjax.evaluation.replay.readers.conversation import RecordedConversation, seconds
from gemjax.evaluation.replay.readers.recording import Recording, objects
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "tau2-bench"


def matches(recording: Recording) -> bool:
    data = recording.data
    return not recording.lines and isinstance(data, dict) and ("termination_reason" in data or "simulations" in data)


def read(recording: Recording) -> list[Trajectory]:
    data = recording.data
    runs = objects(data["simulations"]) if "simulations" in data else [data]
    found = []
    for n, run in enumerate(runs):
        talk = RecordedConversation()
        policy = run.get("policy")
        talk.say("system", policy if isinstance(policy, str) else "")
        for row in objects(run.get("messages")):
            _row(talk, row)
        if len(talk):
            name = recording.name if len(runs) == 1 else f"{recording.name}#task{run.get('task_id')}-{n}"
            found.append(talk.trajectory(recording, name))
    return found


def _row(talk: RecordedConversation, row: dict[str, Any]) -> None:
    role, time = row.get("role"), seconds(row.get("timestamp"))
    content = row.get("content")
    text = content if isinstance(content, str) else ""
    if role == "assistant":
        calls = [c for c in objects(row.get("tool_calls")) if c.get("requestor", "assistant") == "assistant"]
        talk.turn(text, [(c.get("id"), c.get("name"), c.get("arguments")) for c in calls], time=time)
    elif role == "user":
        talk.say("user", text, time)
    elif role == "tool" and row.get("requestor", "assistant") == "assistant":
        talk.result(row.get("id"), text, time)

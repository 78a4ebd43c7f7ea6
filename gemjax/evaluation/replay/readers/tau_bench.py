"""tau-bench results: `{"task_id", "reward", "traj": [messages]}`, one object or a list of them."""

from typing import Any

from gemjax.evaluation.replay.readers.recording import Recording, objects, synthetic_id
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.wording import counted

NAME = "tau-bench"


def matches(recording: Recording) -> bool:
    data = recording.data
    if isinstance(data, list):
        return bool(data) and all(_result(row) for row in data)
    return _result(data)


def read(recording: Recording) -> list[Trajectory]:
    data = recording.data
    if isinstance(data, dict):
        return _trajectory(recording, data, recording.name)
    return [t for n, row in enumerate(data) for t in _trajectory(recording, row, f"{recording.name}#{_label(row, n)}")]


def _result(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("traj"), list)


def _label(row: dict[str, Any], position: int) -> str:
    task = row.get("task_id")
    return str(position) if task is None else f"task{task}-{position}"


def _trajectory(recording: Recording, row: dict[str, Any], name: str) -> list[Trajectory]:
    messages = objects(row["traj"])
    if not messages:
        return []
    given = _give_ids(messages)
    notes = (f"{counted(given, 'call')} without an id, given one",) if given else ()
    return [Trajectory(name, "chat", {}, messages, None, recording.source, notes)]


def _give_ids(messages: list[dict[str, Any]]) -> int:
    """Some forks leave ids out, which no provider accepts. Results answer the calls before them in order."""
    given = 0
    unanswered: list[str] = []
    for message in messages:
        calls = objects(message.get("tool_calls"))
        if calls:
            unanswered = []
        for call in calls:
            if not call.get("id"):
                given += 1
                call["id"] = synthetic_id(given)
                unanswered.append(call["id"])
        if message.get("role") == "tool" and not message.get("tool_call_id") and unanswered:
            message["tool_call_id"] = unanswered.pop(0)
    return given

"""cochise event logs (JSONL) to chat completions: what each agent appended to its history, one trajectory an agent."""

from typing import Any

from gemjax.evaluation.replay.readers.conversation import seconds
from gemjax.evaluation.replay.readers.recording import Recording
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "cochise events"


def matches(recording: Recording) -> bool:
    return recording.lines and any(_appended(row) is not None for row in recording.data)


def read(recording: Recording) -> list[Trajectory]:
    agents: dict[str, tuple[list[dict[str, Any]], list[float | None]]] = {}
    for row in recording.data:
        message = _appended(row)
        if message is None or _says_nothing(message):
            continue
        messages, times = agents.setdefault(str(row.get("agent")), ([], []))
        messages.append(message)
        times.append(seconds(row.get("timestamp")))
    return [
        Trajectory(
            recording.name if len(agents) == 1 else f"{recording.name}#{agent}",
            "chat",
            {},
            messages,
            None,
            recording.source,
            times=tuple(times),
        )
        for agent, (messages, times) in agents.items()
    ]


def _appended(row: dict[str, Any]) -> dict[str, Any] | None:
    message = row.get("content")
    is_message = isinstance(message, dict) and isinstance(message.get("role"), str)
    return message if row.get("event") == "history_append" and is_message else None


def _says_nothing(message: dict[str, Any]) -> bool:
    """A turn of the model without text and call, which no provider takes back."""
    return message["role"] == "assistant" and not message.get("content") and not message.get("tool_calls")

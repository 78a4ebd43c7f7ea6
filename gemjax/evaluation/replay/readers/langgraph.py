"""LangGraph thread states (`values.messages` of LangChain messages) to chat completions."""

from typing import Any

from gemjax.evaluation.replay.readers.conversation import RecordedConversation
from gemjax.evaluation.replay.readers.recording import Recording, objects, text_of
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "LangGraph thread"

_ROLES = {"human": "user", "system": "system"}


def matches(recording: Recording) -> bool:
    return not recording.lines and any(m.get("type") in ("human", "ai") for m in _messages(recording.data))


def read(recording: Recording) -> list[Trajectory]:
    talk = RecordedConversation()
    for row in _messages(recording.data):
        kind, text = row.get("type"), text_of(row.get("content"))
        if kind == "tool":
            talk.result(row.get("tool_call_id"), text)
        elif kind == "ai":
            more = row.get("additional_kwargs")
            thought = more.get("reasoning_content") if isinstance(more, dict) else None
            calls = [(c.get("id"), c.get("name"), c.get("args")) for c in objects(row.get("tool_calls"))]
            talk.turn(text, calls, reasoning=thought if isinstance(thought, str) else "")
        elif kind in _ROLES:
            talk.say(_ROLES[str(kind)], text)
    return [talk.trajectory(recording)] if len(talk) else []


def _messages(data: Any) -> list[dict[str, Any]]:
    values = data.get("values") if isinstance(data, dict) else None
    return objects(values.get("messages")) if isinstance(values, dict) else []

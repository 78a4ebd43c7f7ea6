"""opencode exports (`opencode export`) to chat completions: `{info, messages: [{info, parts}]}`."""

from typing import Any

from gemjax.evaluation.replay.readers.conversation import RecordedConversation, seconds
from gemjax.evaluation.replay.readers.recording import Recording, objects, synthetic_id
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "opencode export"

_ENDED = ("completed", "error")


def matches(recording: Recording) -> bool:
    data = recording.data
    if recording.lines or not isinstance(data, dict) or not isinstance(data.get("info"), dict):
        return False
    rows = objects(data.get("messages"))
    return any(isinstance(m.get("info"), dict) and isinstance(m.get("parts"), list) for m in rows)


def read(recording: Recording) -> list[Trajectory]:
    talk = RecordedConversation()
    model: str | None = None
    for row in objects(recording.data["messages"]):
        info = row["info"] if isinstance(row.get("info"), dict) else {}
        time = seconds(_times(info).get("created"))
        parts = objects(row.get("parts"))
        if info.get("role") == "user":
            talk.say("user", _text(parts, "text"), time)
            continue
        if isinstance(info.get("modelID"), str):
            model = model or info["modelID"]
        for step in _steps(parts):
            _turn(talk, step, time)
    if not len(talk):
        return []
    notes = ["system prompt and tool schemas are not in the recording"]
    return [talk.trajectory(recording, template={} if model is None else {"model": model}, notes=notes)]


def _steps(parts: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The parts of each answer of the model: a message may hold several steps, each of them a request of its own."""
    steps: list[list[dict[str, Any]]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        steps[-1].append(part)
    return [s for s in steps if s]


def _turn(talk: RecordedConversation, parts: list[dict[str, Any]], time: float | None) -> None:
    tools = [(p, state) for p in parts if p.get("type") == "tool" and isinstance(state := p.get("state"), dict)]
    seen: set[str] = set()
    calls = []
    for n, (part, state) in enumerate(tools):
        identity = part.get("callID")
        # An export that was cleaned of secrets may have lost ids with them: two calls must not share one.
        if not isinstance(identity, str) or identity in seen or identity == "REDACTED":
            identity = f"{synthetic_id(len(talk) + 1)}_{n}"
        seen.add(identity)
        calls.append((identity, part.get("tool"), state.get("input")))
    ids = talk.turn(_text(parts, "text"), calls, reasoning=_text(parts, "reasoning"), time=time)
    for identity, (_, state) in zip(ids, tools, strict=True):
        if state.get("status") in _ENDED:
            output = state.get("output", state.get("error", ""))
            ended = seconds(_times(state).get("end"))
            talk.result(identity, output if isinstance(output, str) else str(output), ended)


def _times(value: dict[str, Any]) -> dict[str, Any]:
    times = value.get("time")
    return times if isinstance(times, dict) else {}


def _text(parts: list[dict[str, Any]], kind: str) -> str:
    return "\n".join(t for p in parts if p.get("type") == kind and isinstance(t := p.get("text"), str) and t)

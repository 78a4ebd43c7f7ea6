"""Recording formats that are told by name in the error message, because people have them, and that no reader covers."""

from typing import Any

from gemjax.evaluation.replay.readers.recording import Recording, objects


def is_tau2(data: Any) -> bool:
    """tau2-bench results look like a plain request, and their calls are not in any provider's form."""
    return isinstance(data, dict) and ("termination_reason" in data or "simulations" in data)


def name_of_unsupported(recording: Recording) -> str | None:
    """The name of a known format without a reader, or None."""
    data = recording.data
    if recording.lines:
        rows = objects(data)
        if any(row.get("type") == "message" and isinstance(row.get("message"), dict) for row in rows):
            return "pi session"
        if sum(("event" in row and "timestamp" in row) or "agent" in row for row in rows) * 2 > len(rows):
            return "cochise event log"
        return None
    if not isinstance(data, dict):
        return None
    body = data.get("request") if isinstance(data.get("request"), dict) else data
    if isinstance(body, dict) and "contents" in body:
        return "Gemini contents"
    values = data.get("values")
    if isinstance(values, dict) and "messages" in values:
        return "LangGraph thread"
    if "samples" in data and "eval" in data:
        return "Inspect eval log"
    if is_tau2(data):
        return "tau2-bench"
    if any("observation" in event or "action" in event for event in objects(data.get("history"))):
        return "OpenHands event log"
    return None

"""Request bodies of the Gemini API (`contents`, `systemInstruction`) to chat completions."""

from typing import Any

from gemjax.evaluation.replay.readers.conversation import RecordedConversation
from gemjax.evaluation.replay.readers.gemini_cli import response_text, text_of_parts, thought_of_parts, user_content
from gemjax.evaluation.replay.readers.recording import Recording, objects
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "Gemini contents"


def matches(recording: Recording) -> bool:
    return not recording.lines and bool(objects(_body(recording.data).get("contents")))


def read(recording: Recording) -> list[Trajectory]:
    body = _body(recording.data)
    talk = RecordedConversation()
    system = body.get("systemInstruction")
    if isinstance(system, dict):
        talk.say("system", text_of_parts(objects(system.get("parts"))))
    unanswered: list[str] = []
    for row in objects(body["contents"]):
        parts = objects(row.get("parts"))
        made = [p for p in parts if isinstance(p.get("functionCall"), dict)]
        answers = [p["functionResponse"] for p in parts if isinstance(p.get("functionResponse"), dict)]
        if row.get("role") == "model":
            calls = [(c.get("id"), c.get("name"), c.get("args")) for c in (p["functionCall"] for p in made)]
            signatures = [p.get("thoughtSignature") for p in made]
            thought = thought_of_parts(parts)
            unanswered = talk.turn(text_of_parts(parts), calls, reasoning=thought, signatures=signatures)
        for answer in answers:
            # Calls carry no id here, and responses answer them in order.
            identity = answer.get("id")
            if identity not in unanswered and unanswered:
                identity = unanswered[0]
            if identity in unanswered:
                unanswered.remove(identity)
            talk.result(identity, response_text(answer))
        if row.get("role") != "model" and not answers:
            talk.say("user", user_content(parts))
    return [talk.trajectory(recording)] if len(talk) else []


def _body(data: Any) -> dict[str, Any]:
    body = data.get("request") if isinstance(data, dict) and isinstance(data.get("request"), dict) else data
    return body if isinstance(body, dict) else {}

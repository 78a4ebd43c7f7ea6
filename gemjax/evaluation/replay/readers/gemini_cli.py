"""Gemini CLI sessions (`~/.gemini/tmp/*/chats/*.json`) and their `/export-session` form, to chat completions.

A session keeps the calls of a turn with their results in `toolCalls`. An export keeps the API's own parts instead
(`functionCall`, `functionResponse`) and repeats responses and images; the first of each counts.
"""

import json
from typing import Any

from gemjax.evaluation.replay.readers.conversation import RecordedConversation, seconds
from gemjax.evaluation.replay.readers.recording import Recording, objects
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "Gemini CLI session"

_TALK = ("user", "gemini")


def matches(recording: Recording) -> bool:
    data = recording.data
    if recording.lines or not isinstance(data, dict) or not isinstance(data.get("sessionId"), str):
        return False
    return any(m.get("type") in _TALK and "content" in m for m in objects(data.get("messages")))


def read(recording: Recording) -> list[Trajectory]:
    talk = RecordedConversation()
    before: Any = None
    for row in objects(recording.data["messages"]):
        if row.get("type") not in _TALK:
            continue  # notices of the program to its user
        content, time = row.get("content"), seconds(row.get("timestamp"))
        parts: list[dict[str, Any]] = [{"text": content}] if isinstance(content, str) else objects(content)
        responses = [p["functionResponse"] for p in parts if isinstance(p.get("functionResponse"), dict)]
        for response in responses:
            talk.result(response.get("id"), response_text(response), time)
        if row["type"] == "gemini":
            _turn(talk, row, parts, time)
        elif not responses and parts != before:
            talk.say("user", user_content(parts), time)
        before = parts
    if not len(talk):
        return []
    models = [row.get("model") for row in objects(recording.data["messages"])]
    model = next((m for m in models if isinstance(m, str)), None)
    notes = ["system prompt and tool schemas are not in the recording"]
    return [talk.trajectory(recording, template={} if model is None else {"model": model}, notes=notes)]


def _turn(talk: RecordedConversation, row: dict[str, Any], parts: list[dict[str, Any]], time: float | None) -> None:
    thoughts = [f"{t.get('subject', '')}: {t.get('description', '')}" for t in objects(row.get("thoughts"))]
    made = [p for p in parts if isinstance(p.get("functionCall"), dict)]
    kept = [c for c in objects(row.get("toolCalls")) if not made]
    calls = [(c.get("id"), c.get("name"), c.get("args")) for c in [p["functionCall"] for p in made] + kept]
    ids = talk.turn(
        text_of_parts(parts),
        calls,
        reasoning="\n".join(thoughts) or thought_of_parts(parts),
        time=time,
        signatures=[p.get("thoughtSignature") for p in made],
    )
    for identity, call in zip(ids, kept, strict=False):
        answers = [r["functionResponse"] for r in objects(call.get("result")) if "functionResponse" in r]
        if answers:
            text = "\n".join(map(response_text, answers))
            talk.result(identity, text, seconds(call.get("timestamp")) or time)


def text_of_parts(parts: list[dict[str, Any]]) -> str:
    """The text that the model or the user wrote, without thoughts."""
    return "\n".join(t for p in parts if not p.get("thought") and isinstance(t := p.get("text"), str))


def thought_of_parts(parts: list[dict[str, Any]]) -> str:
    return "\n".join(t for p in parts if p.get("thought") and isinstance(t := p.get("text"), str))


def user_content(parts: list[dict[str, Any]]) -> Any:
    """Text alone as a string; with images the list of parts that chat completions take."""
    if not any("inlineData" in p for p in parts):
        return text_of_parts(parts)
    content: list[dict[str, Any]] = []
    for part in parts:
        data = part.get("inlineData")
        if isinstance(data, dict):
            url = f"data:{data.get('mimeType', 'image/png')};base64,{data.get('data', '')}"
            content.append({"type": "image_url", "image_url": {"url": url}})
        elif isinstance(part.get("text"), str):
            content.append({"type": "text", "text": part["text"]})
    return content


def response_text(response: dict[str, Any]) -> str:
    """What a function answered: its `output` or `error` alone, or all of it as JSON."""
    value = response.get("response")
    if isinstance(value, dict) and len(value) == 1:
        value = value.get("output", value.get("error", value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

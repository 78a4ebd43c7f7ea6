"""pi sessions (`~/.pi/agent/sessions/**/*.jsonl`) to Anthropic Messages where they were that, else chat completions."""

import json
from typing import Any

from gemjax.evaluation.replay.readers.conversation import RecordedConversation, seconds
from gemjax.evaluation.replay.readers.recording import Recording, objects, text_of
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "pi session"

Row = dict[str, Any]


def matches(recording: Recording) -> bool:
    return recording.lines and any(_message(r).get("role") in ("assistant", "toolResult") for r in recording.data)


def read(recording: Recording) -> list[Trajectory]:
    segments = _segments(_branch(recording.data))
    notes = ["system prompt and tool schemas are not in the recording"]
    if len(segments) > 1:
        notes.append("compacted by the agent: one trajectory for each part that it sent")
    found: list[Trajectory] = []
    for rows in segments:
        apis = [api for r in rows if isinstance(api := _message(r).get("api"), str)]
        signed = bool(apis) and sum(api == "anthropic-messages" for api in apis) * 2 > len(apis)
        name = recording.name if not found else f"{recording.name}#{len(found) + 1}"
        t = (_anthropic if signed else _chat)(recording, name, rows, notes)
        if t.messages:
            found.append(t)
    return found


def _message(row: Row) -> Row:
    message = row.get("message")
    return message if row.get("type") == "message" and isinstance(message, dict) else {}


def _branch(rows: list[Row]) -> list[Row]:
    """The rows that lead to the last one, where rows name their parents; a repeated prompt leaves others behind."""
    place = {r["id"]: n for n, r in enumerate(rows) if isinstance(r.get("id"), str)}
    if not rows or not isinstance(rows[-1].get("parentId"), str):
        return rows
    chain: set[int] = set()
    n = len(rows) - 1
    while n >= 0 and n not in chain:
        chain.add(n)
        parent = rows[n].get("parentId")
        # A parent that is not there, in a damaged line perhaps: the row before is the best guess.
        n = place.get(parent, n - 1) if isinstance(parent, str) else -1
    return [r for n, r in enumerate(rows) if n in chain]


def _segments(rows: list[Row]) -> list[list[Row]]:
    """What was sent before, between and after compactions: a summary, and the rows that were kept."""
    segments: list[list[Row]] = [[]]
    for row in rows:
        if row.get("type") != "compaction":
            segments[-1].append(row)
            continue
        first = row.get("firstKeptEntryIndex")
        if isinstance(first, int) and not isinstance(first, bool) and first >= 0:
            kept = rows[first : rows.index(row)]
        else:
            ids = [r.get("id") for r in segments[-1]]
            kept = segments[-1][ids.index(first) :] if (first := row.get("firstKeptEntryId")) in ids and first else []
        summary = {"role": "user", "content": str(row.get("summary") or "")}
        head = {"type": "message", "timestamp": row.get("timestamp"), "message": summary}
        segments.append([head, *(r for r in kept if r.get("type") != "compaction")])
    return [s for s in segments if any(_message(r) for r in s)]


def _user_text(row: Row) -> str:
    """What a row tells the model in the user's place: a message, a command that the user ran, an extension's text."""
    message = _message(row)
    if message.get("role") == "bashExecution":
        return f"Ran `{message.get('command', '')}`\n{message.get('output', '')}"
    if row.get("type") == "custom_message":
        return text_of(row.get("content"))
    return text_of(message.get("content")) if message.get("role") == "user" else ""


def _chat(recording: Recording, name: str, rows: list[Row], notes: list[str]) -> Trajectory:
    talk = RecordedConversation()
    for row in rows:
        message, time = _message(row), seconds(row.get("timestamp"))
        parts = objects(message.get("content"))
        if message.get("role") == "assistant":
            calls = [(p.get("id"), p.get("name"), p.get("arguments")) for p in parts if p.get("type") == "toolCall"]
            thought = "\n".join(str(p.get("thinking") or "") for p in parts if p.get("type") == "thinking")
            talk.turn(text_of(message.get("content")), calls, reasoning=thought, time=time)
        elif message.get("role") == "toolResult":
            talk.result(message.get("toolCallId"), _result_text(message), time)
        else:
            talk.say("user", _user_text(row), time)
    return talk.trajectory(recording, name, template=_model(rows), notes=notes)


def _anthropic(recording: Recording, name: str, rows: list[Row], notes: list[str]) -> Trajectory:
    """Signed thinking stays as it was; thinking without a signature goes as text, as pi sends it."""
    results: dict[str, tuple[Row, float | None]] = {}
    for row in rows:
        message = _message(row)
        if message.get("role") == "toolResult":
            results.setdefault(str(message.get("toolCallId")), (message, seconds(row.get("timestamp"))))
    messages: list[Row] = []
    times: list[float | None] = []
    for row in rows:
        message, time = _message(row), seconds(row.get("timestamp"))
        if message.get("role") != "assistant":
            if text := _user_text(row):
                messages.append({"role": "user", "content": text})
                times.append(time)
            continue
        parts = [p for part in objects(message.get("content")) if (p := _part(part)) is not None]
        if not parts:
            continue
        messages.append({"role": "assistant", "content": parts})
        times.append(time)
        answers = [results[p["id"]] for p in parts if p["type"] == "tool_use" and p["id"] in results]
        if answers:
            content = [_tool_result(m) for m, _ in answers]
            messages.append({"role": "user", "content": content})
            times.append(answers[-1][1])
    return Trajectory(
        name, "anthropic", _model(rows), messages, None, recording.source, tuple(notes), times=tuple(times)
    )


def _part(part: Row) -> Row | None:
    kind = part.get("type")
    if kind == "toolCall":
        arguments = part.get("arguments")
        return {"type": "tool_use", "id": str(part.get("id")), "name": part.get("name"), "input": arguments or {}}
    if kind == "thinking":
        thinking, signature = part.get("thinking"), part.get("thinkingSignature")
        if signature:
            return {"type": "thinking", "thinking": thinking, "signature": signature}
        return {"type": "text", "text": thinking} if thinking else None
    return {"type": "text", "text": part["text"]} if kind == "text" and part.get("text") else None


def _tool_result(message: Row) -> Row:
    content: list[Row] = []
    for part in objects(message.get("content")):
        if part.get("type") == "text":
            content.append({"type": "text", "text": part.get("text", "")})
        elif part.get("type") == "image":
            source = {"type": "base64", "media_type": part.get("mimeType"), "data": part.get("data")}
            content.append({"type": "image", "source": source})
    result = {"type": "tool_result", "tool_use_id": message.get("toolCallId"), "content": content}
    return {**result, "is_error": True} if message.get("isError") is True else result


def _result_text(message: Row) -> str:
    content = message.get("content")
    texts = [text_of(content)] if isinstance(content, str) else []
    texts += [str(p.get("text", "")) if p.get("type") == "text" else f"[{p.get('type')}]" for p in objects(content)]
    return "\n".join(texts) or (json.dumps(content) if content else "")


def _model(rows: list[Row]) -> dict[str, Any]:
    model = next((m for r in rows if isinstance(m := _message(r).get("model"), str)), None)
    return {} if model is None else {"model": model}

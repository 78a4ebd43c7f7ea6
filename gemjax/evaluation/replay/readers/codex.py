"""Codex rollouts (`~/.codex/sessions/**/rollout-*.jsonl`) to Responses items."""

from typing import Any

from gemjax.evaluation.replay.readers.conversation import seconds
from gemjax.evaluation.replay.readers.recording import Recording, objects
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "Codex rollout"

_ITEMS = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "web_search_call",
    }
)


def matches(recording: Recording) -> bool:
    if not recording.lines:
        return False
    return any(
        row.get("type") in ("response_item", "session_meta") and isinstance(row.get("payload"), dict)
        for row in recording.data
    ) or _old_style(recording.data)


def read(recording: Recording) -> list[Trajectory]:
    segments: list[list[dict[str, Any]]] = [[]]
    times: list[list[float | None]] = [[]]
    template: dict[str, Any] = {}
    for row in recording.data:
        payload = row.get("payload")
        kind = row.get("type")
        if kind == "session_meta" and isinstance(payload, dict):
            template |= _instructions(payload)
        elif kind == "turn_context" and isinstance(payload, dict) and isinstance(payload.get("model"), str):
            template.setdefault("model", payload["model"])
        elif kind == "compacted" and isinstance(payload, dict):
            segments.append(_after_compaction(payload, segments[-1]))
            times.append([seconds(row.get("timestamp"))] * len(segments[-1]))
        elif kind == "response_item" and isinstance(payload, dict) and payload.get("type") in _ITEMS:
            segments[-1].append(payload)
            times[-1].append(seconds(row.get("timestamp")))
        elif payload is None and kind in _ITEMS:
            segments[-1].append(row)
            times[-1].append(None)
        elif payload is None and "instructions" in row:
            template |= _instructions(row)
    full = [_results_behind_calls(s, w) for s, w in zip(segments, times, strict=True) if s]
    notes = ["the tool schemas are not in the recording"]
    if len(full) > 1:
        notes.append("compacted by the agent: one trajectory for each part that it sent")
    return [
        Trajectory(
            recording.name if n == 1 else f"{recording.name}#{n}",
            "responses",
            template,
            items,
            None,
            recording.source,
            tuple(notes),
            times=tuple(when) if any(t is not None for t in when) else (),
        )
        for n, (items, when) in enumerate(full, 1)
    ]


def _old_style(rows: list[dict[str, Any]]) -> bool:
    """Rollouts before the `payload` envelope: a head with `instructions`, then bare items."""
    return bool(rows) and "instructions" in rows[0] and any(r.get("type") in _ITEMS for r in rows[1:])


def _instructions(head: dict[str, Any]) -> dict[str, Any]:
    base = head.get("base_instructions")
    text = base.get("text") if isinstance(base, dict) else head.get("instructions")
    return {"instructions": text} if isinstance(text, str) and text else {}


def _after_compaction(payload: dict[str, Any], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the agent went on with: the recorded replacement, else its summary after the user's own messages."""
    replacement = objects(payload.get("replacement_history"))
    if replacement:
        return replacement
    users = [item for item in before if item.get("type") == "message" and item.get("role") == "user"]
    summary = payload.get("message")
    if not isinstance(summary, str) or not summary:
        return users
    return [*users, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": summary}]}]


def _results_behind_calls(
    items: list[dict[str, Any]], times: list[float | None]
) -> tuple[list[dict[str, Any]], list[float | None]]:
    """The items with each late result, one that was recorded after the next turn or message, behind its own turn.

    A program that runs long writes its result late, while the model was asked again only when all results were there.
    """
    places: list[tuple[int, int]] = []
    turns: dict[str, int] = {}
    turn, fresh = 0, False
    for item in items:
        kind = str(item.get("type"))
        result, by_user = kind.endswith("_output"), kind == "message" and item.get("role") != "assistant"
        if not result and not by_user and not fresh:
            turn += 1
        own = turns.get(str(item.get("call_id")), turn) if result else turn
        if kind.endswith("_call"):
            turns[str(item.get("call_id"))] = turn
        # Within a turn: what the model wrote, its results, what came between it and the next turn.
        places.append((own, 1 if result else 2 if by_user else 0))
        fresh = not result and not by_user
    order = sorted(range(len(items)), key=lambda n: places[n])
    return [items[n] for n in order], [times[n] for n in order]

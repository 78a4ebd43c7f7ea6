"""OpenHands event logs (`history` of an evaluation's output) to chat completions.

Events since version 0.9 carry the model's call in `tool_call_metadata`, and that is what is read. Older ones have an
action and the observation after it: the call is made of the action.
"""

from typing import Any

from gemjax.evaluation.replay.readers.conversation import RecordedConversation, seconds
from gemjax.evaluation.replay.readers.recording import Recording, objects, text_of
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "OpenHands events"

_SILENT = frozenset({"system", "recall", "change_agent_state", "null", "message", "finish"})
_BOOKKEEPING = frozenset(
    {"action", "thought", "action_risk", "is_confirmed", "confirmation_state", "kernel_init_code", "keep_prompt", "id"}
    | {"timestamp", "source", "message", "args", "images_urls", "wait_for_response", "llm_metrics"}
)


def matches(recording: Recording) -> bool:
    # SWE-agent's rows have an `action` as well, and a role.
    return any(("observation" in e or "action" in e) and "role" not in e for e in _events(recording)[:20])


def read(recording: Recording) -> list[Trajectory]:
    talk = RecordedConversation()
    template: dict[str, Any] = {}
    waiting: str | None = None
    begun: set[str] = set()
    for event in _events(recording):
        action, time = event.get("action"), seconds(event.get("timestamp"))
        args = event["args"] if isinstance(event.get("args"), dict) else event
        metadata = event.get("tool_call_metadata")
        if action == "system":
            talk.say("system", str(args.get("content") or ""), time)
            if objects(args.get("tools")):
                template["tools"] = objects(args["tools"])
        elif isinstance(metadata, dict):
            if "observation" in event:
                talk.result(metadata.get("tool_call_id"), str(event.get("content") or ""), time)
            elif (answer := _answer(metadata)) is not None and answer[0] not in begun:
                begun.add(answer[0])
                talk.turn(answer[1], answer[2], time=time)
        elif action == "message":
            _message(talk, event, str(args.get("content") or ""), time)
        elif isinstance(action, str) and action not in _SILENT:
            arguments = {k: v for k, v in args.items() if k not in _BOOKKEEPING}
            (waiting,) = talk.turn(str(args.get("thought") or ""), [(None, action, arguments)], time=time)
        elif action == "finish":
            talk.turn(str(args.get("thought") or ""), time=time)
        elif waiting is not None and "observation" in event and event.get("source") != "environment":
            talk.result(waiting, str(event.get("content") or ""), time)
            waiting = None
    goal = recording.data.get("instruction") if isinstance(recording.data, dict) else None
    goal = goal if isinstance(goal, str) and goal.strip() else None
    return [talk.trajectory(recording, template=template, goal=goal)] if len(talk) else []


def _events(recording: Recording) -> list[dict[str, Any]]:
    data = recording.data
    return objects(data.get("history")) if not recording.lines and isinstance(data, dict) else []


def _message(talk: RecordedConversation, event: dict[str, Any], text: str, time: float | None) -> None:
    if event.get("source") == "agent":
        talk.turn(text, time=time)
    else:
        talk.say("user", text, time)


def _answer(metadata: dict[str, Any]) -> tuple[str, str, list[tuple[Any, Any, Any]]] | None:
    """Identity, text and calls of the model's answer. Several events share one answer with parallel calls."""
    answer = metadata.get("model_response")
    if not isinstance(answer, dict):
        return None
    choice = next(iter(objects(answer.get("choices"))), {})
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    functions = [(c.get("id"), c["function"]) for c in objects(message.get("tool_calls")) if "function" in c]
    calls = [(identity, f.get("name"), f.get("arguments")) for identity, f in functions]
    return str(answer.get("id") or metadata.get("tool_call_id")), text_of(message.get("content")), calls

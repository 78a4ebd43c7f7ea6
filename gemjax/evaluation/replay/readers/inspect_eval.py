"""Inspect evaluation logs (`.json`) to chat completions: one trajectory a sample."""

from gemjax.evaluation.replay.readers.conversation import RecordedConversation
from gemjax.evaluation.replay.readers.recording import Recording, objects, text_of
from gemjax.evaluation.replay.trajectory import Trajectory

NAME = "Inspect eval log"


def matches(recording: Recording) -> bool:
    data = recording.data
    return not recording.lines and isinstance(data, dict) and "eval" in data and bool(objects(data.get("samples")))


def read(recording: Recording) -> list[Trajectory]:
    samples = objects(recording.data["samples"])
    found = []
    for sample in samples:
        talk = RecordedConversation()
        for row in objects(sample.get("messages")):
            role, text = row.get("role"), text_of(row.get("content"))
            if role == "tool":
                talk.result(row.get("tool_call_id"), text)
            elif role == "assistant":
                calls = [(c.get("id"), c.get("function"), c.get("arguments")) for c in objects(row.get("tool_calls"))]
                talk.turn(text, calls)
            elif role in ("user", "system"):
                talk.say(role, text)
        if len(talk):
            name = f"{recording.name}#{sample.get('id')}-{sample.get('epoch', 1)}"
            found.append(talk.trajectory(recording, recording.name if len(samples) == 1 else name))
    return found

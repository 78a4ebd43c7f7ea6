"""Chat messages from recordings that keep turns, calls and results in forms of their own."""

import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from gemjax.evaluation.replay.readers.recording import Recording, synthetic_id
from gemjax.evaluation.replay.trajectory import Trajectory
from gemjax.wording import counted


def seconds(value: Any) -> float | None:
    """A recorded time as seconds since the epoch: an ISO 8601 text (UTC where it names no zone), or a number, which
    counts milliseconds if it is too large for seconds. None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value / 1000 if value > 1e11 else float(value)) if 0 < value < 1e15 else None
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclasses.dataclass
class _Entry:
    """One message, when it was recorded, and for a turn with calls the results that belong right behind it."""

    message: dict[str, Any]
    time: float | None
    results: dict[str, tuple[str, float | None]] = dataclasses.field(default_factory=dict)


class RecordedConversation:
    """Collects a conversation in recorded order; results go right behind the turn that called, in order of its calls.

    Attributes:
        orphans: results without a call, left out.
        repeats: second results of one call, left out.
    """

    def __init__(self) -> None:
        self.orphans = 0
        self.repeats = 0
        self._entries: list[_Entry] = []
        self._owners: dict[str, _Entry] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._entries)

    def say(self, role: str, content: Any, time: float | None = None) -> None:
        """A system or user message; one without content is no message."""
        if content:
            self._entries.append(_Entry({"role": role, "content": content}, time))

    def turn(
        self,
        text: str,
        calls: Sequence[tuple[Any, Any, Any]] = (),
        *,
        reasoning: str = "",
        time: float | None = None,
        signatures: Sequence[str | None] = (),
    ) -> list[str]:
        """One turn of the model. Each call is (id, name, arguments); a call without an id is given one.

        Args:
            signatures: of each call's thinking, where the provider signs it (Gemini).

        Returns: the ids of the calls.
        """
        if not text and not calls:
            return []
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reasoning:
            message["reasoning_content"] = reasoning
        entry = _Entry(message, time)
        made = []
        for n, (identity, name, arguments) in enumerate(calls):
            id_ = identity if isinstance(identity, str) and identity else self._new_id()
            written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
            call: dict[str, Any] = {"id": id_, "type": "function", "function": {"name": name, "arguments": written}}
            if n < len(signatures) and signatures[n]:
                call["extra_content"] = {"google": {"thought_signature": signatures[n]}}
            made.append(call)
            self._owners[id_] = entry
        if made:
            message["tool_calls"] = made
        self._entries.append(entry)
        return [call["id"] for call in made]

    def result(self, identity: Any, text: str, time: float | None = None) -> bool:
        """The result of a call made before; the first one counts. Whether it was taken."""
        owner = self._owners.get(str(identity))
        if owner is None:
            self.orphans += 1
        elif str(identity) in owner.results:
            self.repeats += 1
        else:
            owner.results[str(identity)] = (text, time)
            return True
        return False

    def trajectory(
        self,
        recording: Recording,
        name: str | None = None,
        *,
        template: dict[str, Any] | None = None,
        goal: str | None = None,
        notes: Sequence[str] = (),
    ) -> Trajectory:
        """What was collected, in chat form."""
        messages: list[dict[str, Any]] = []
        times: list[float | None] = []
        for entry in self._entries:
            messages.append(entry.message)
            times.append(entry.time)
            for call in entry.message.get("tool_calls", ()):
                if call["id"] in entry.results:
                    text, time = entry.results[call["id"]]
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
                    times.append(time)
        notes = list(notes)
        if self._made:
            notes.append(f"{counted(self._made, 'call')} without an id, given one")
        if self.orphans:
            notes.append(f"{counted(self.orphans, 'result')} without a call left out")
        if self.repeats:
            notes.append(f"{counted(self.repeats, 'repeated result')} left out")
        return Trajectory(
            name or recording.name,
            "chat",
            template or {},
            messages,
            goal,
            recording.source,
            tuple(notes),
            times=tuple(times) if any(t is not None for t in times) else (),
        )

    def _new_id(self) -> str:
        self._made += 1
        return synthetic_id(self._made)

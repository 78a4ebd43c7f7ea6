"""What a reader gets, and what it has to offer."""

import dataclasses
from typing import Any, Protocol

from gemjax.evaluation.replay.trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Recording:
    """One file, parsed: any JSON value, or with `lines` the list of the objects of a JSONL file."""

    name: str
    source: str
    data: Any
    lines: bool
    broken: int = 0


class RecordingReader(Protocol):
    """A module that reads one recording format. `read` is only called on what `matches` accepted, and never raises."""

    NAME: str

    def matches(self, recording: Recording) -> bool: ...

    def read(self, recording: Recording) -> list[Trajectory]: ...


def synthetic_id(number: int) -> str:
    """The id of a call that the recording gives no id: `call_synth_0001`, `call_synth_0002`, ..."""
    return f"call_synth_{number:04d}"


def objects(value: Any) -> list[dict[str, Any]]:
    """The dicts of a list, or nothing."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(content: Any) -> str:
    """The text of string or list-of-parts content."""
    if isinstance(content, str):
        return content
    return "\n".join(t for part in objects(content) if isinstance(t := part.get("text"), str))

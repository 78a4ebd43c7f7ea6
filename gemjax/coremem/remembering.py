"""How turns become memories: names that the same turns always get, and what is kept with each."""

import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gemjax.coremem.utterances import Utterance
from gemjax.memory.record import Id, Scope


@dataclasses.dataclass(frozen=True, slots=True)
class Remembered:
    """What `CoreMem.remember` did.

    Args:
        ids: of the memory of every turn with a text, in order.
        added: turns that are new.
        known: turns that were remembered already.
    """

    ids: tuple[Id, ...]
    added: int
    known: int


def turn_ids(
    said: Sequence[Utterance], scope: Scope, sessions: Sequence[str | None], times: Sequence[dt.datetime | None]
) -> list[Id]:
    """Names of turns that the same turns always get."""
    seen: dict[str, int] = {}
    out: list[Id] = []
    for turn, session, when in zip(said, sessions, times, strict=True):
        key = json.dumps([scope, session, None if when is None else when.isoformat(), turn.speaker, turn.text])
        seen[key] = number = seen.get(key, 0) + 1
        digest = hashlib.blake2b(f"{number} {key}".encode("utf-8", "surrogatepass"), digest_size=8)
        out.append(digest.hexdigest())
    return out


def kept_with(turn: Utterance, place: int, more: Mapping[str, Any] | None) -> dict[str, Any]:
    """A turn's metadata."""
    out: dict[str, Any] = {**(more or {}), "place": place}
    if turn.speaker:
        out["speaker"] = turn.speaker
    if turn.id is not None:
        out["turn"] = turn.id
    return out

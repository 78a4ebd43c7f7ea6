"""Files of dialogues: lines of JSON, chat messages, and the three benchmarks' own formats."""

import dataclasses
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from gemjax.coremem.dates import read_time
from gemjax.coremem.utterances import Utterance, as_utterances
from gemjax.errors import MemoryBankError, RequestError

FORMATS = ("turns", "sessions", "LoCoMo", "LongMemEval", "MemoryBank")


@dataclasses.dataclass(frozen=True, slots=True)
class Dialogue:
    """One dialogue, or all that one person said over time.

    Args:
        name: what the file calls it; empty where it holds only one.
        utterances: in the file's order, with their sessions.
    """

    name: str
    utterances: tuple[Utterance, ...]


def read_dialogues(data: bytes, name: str) -> tuple[str, list[Dialogue]]:
    """The format (one of `FORMATS`) and the dialogues of a file's content; gzip is unpacked.

    Lines of JSON, an array, or an object's `messages`: turns as `as_utterances` takes them. An object with `sessions`,
    each `{"id", "date", "turns": [...]}`, or a list of such: a dialogue each. LoCoMo: a session's turns at its time.
    LongMemEval: both sides' turns, a dialogue a question (labels are not read). MemoryBank: a dialogue a user, a
    session a day.

    Args:
        data: the content.
        name: of the file, for messages.

    Raises: RequestError naming what is wrong, and where.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise RequestError(f"{name}: cannot be unpacked: {error}") from None
    value = _json(data, name)
    try:
        kind, dialogues = _read(value, name)
    except MemoryBankError as error:
        raise RequestError(f"{name}: {error}") from None
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RequestError(f"{name}: not in the expected schema ({type(error).__name__}: {error})") from None
    if not any(dialogue.utterances for dialogue in dialogues):
        raise RequestError(f"{name} holds no turn with a text")
    return kind, dialogues


def _json(data: bytes, name: str) -> Any:
    """The value of the whole, or a list of those of its lines."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"{name} is not UTF-8 text") from None
    if not text.strip():
        raise RequestError(f"{name} is empty")
    try:
        return json.loads(text)
    except RecursionError:
        raise RequestError(f"{name} is nested too deeply") from None
    except ValueError as error:
        if "\n" not in text.strip():
            raise RequestError(f"{name} is not JSON ({error})") from None
    out = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                out.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise RequestError(f"{name}, line {number} is not JSON ({error})") from None
    return out


def _read(value: Any, name: str) -> tuple[str, list[Dialogue]]:
    items = value if isinstance(value, list) else [value]
    first = items[0] if items else None
    if isinstance(first, dict):
        if isinstance(first.get("conversation"), dict):
            return "LoCoMo", [_locomo(item, number) for number, item in enumerate(items)]
        if isinstance(first.get("haystack_sessions"), list):
            return "LongMemEval", [_longmemeval(item) for item in items]
        if isinstance(first.get("sessions"), list):
            return "sessions", [_sessions(item, number) for number, item in enumerate(items)]
    if isinstance(value, dict):
        if isinstance(value.get("messages"), list):
            return "turns", [Dialogue("", tuple(as_utterances(value["messages"])))]
        if value and all(isinstance(user, dict) and isinstance(user.get("history"), dict) for user in value.values()):
            return "MemoryBank", [_memorybank(key, user) for key, user in value.items()]
        if not any(key in value for key in ("text", "content")):
            raise RequestError(
                f"{name}: expected turns (a line of JSON each, an array, or an object with `messages`), LoCoMo, "
                "LongMemEval or MemoryBank"
            )
    return "turns", [Dialogue("", tuple(as_utterances(items)))]


def _sessions(item: Mapping[str, Any], number: int) -> Dialogue:
    def turns() -> Iterator[Utterance]:
        for n, session in enumerate(item["sessions"]):
            when = read_time(session.get("date"), f"dialogue {number}, session {n}")
            for turn in as_utterances(session["turns"]):
                yield dataclasses.replace(turn, time=turn.time or when, session=str(session.get("id", n)))

    return Dialogue(str(item.get("id", number)), tuple(turns()))


def _locomo(item: Mapping[str, Any], number: int) -> Dialogue:
    sessions = item["conversation"]
    numbers = sorted(int(match[1]) for key in sessions if (match := re.fullmatch(r"session_(\d+)", key)))

    def turns() -> Iterator[Utterance]:
        for n in numbers:
            where = f"conversation {number}, session_{n}"
            when = read_time(sessions.get(f"session_{n}_date_time"), where)
            for turn in as_utterances(sessions[f"session_{n}"]):
                yield dataclasses.replace(turn, time=when, session=f"session_{n}")

    return Dialogue(str(item.get("sample_id", number)), tuple(turns()))


def _longmemeval(item: Mapping[str, Any]) -> Dialogue:
    id = str(item["question_id"])

    def turns() -> Iterator[Utterance]:
        # A session's own id says whether it holds the answer.
        for n, (date, session) in enumerate(zip(item["haystack_dates"], item["haystack_sessions"], strict=True)):
            when = read_time(date, f"question {id}, session {n}")
            for turn in session:
                for said in as_utterances([{"role": turn["role"], "content": turn["content"]}]):
                    yield dataclasses.replace(said, time=when, session=f"session_{n}")

    return Dialogue(id, tuple(turns()))


def _memorybank(key: str, user: Mapping[str, Any]) -> Dialogue:
    name = key.strip()

    def turns() -> Iterator[Utterance]:
        for day, exchanges in user["history"].items():
            when = read_time(day, f"{name}, {day}")
            for exchange in exchanges:
                for speaker, text in ((name, exchange["query"]), ("assistant", exchange["response"])):
                    yield from as_utterances([Utterance(text, speaker, when, day)])

    return Dialogue(name, tuple(turns()))

"""What retrieval is measured on: LoCoMo, LongMemEval, or JSON of one's own, all read into one shape."""

import dataclasses
import datetime as dt
import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Any

from gemjax.coremem.dates import read_time
from gemjax.errors import MemoryBankError, RequestError
from gemjax.evaluation.locomo import CATEGORIES, load_locomo


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One question. `gold` are the turns (places in the haystack) that its answer rests on; never empty."""

    text: str
    kind: str
    gold: frozenset[int]
    asked: dt.datetime | None = None
    """When it is asked, where that is known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Haystack:
    """One dialogue: turns in order, the session of each, and its questions."""

    id: str
    texts: tuple[str, ...]
    sessions: tuple[str, ...]
    probes: tuple[Probe, ...]
    times: tuple[dt.datetime | None, ...] = ()
    """When each turn was said; empty where that is not known."""


def thinned(haystack: Haystack, most: int) -> Haystack:
    """With at most `most` of its questions, spread evenly."""
    step = max(-(-len(haystack.probes) // most), 1)
    return dataclasses.replace(haystack, probes=haystack.probes[::step])


def load_haystacks(path: str | os.PathLike[str]) -> tuple[str, list[Haystack]]:
    """The format's name and its haystacks; a name that ends in `.gz` is unpacked.

    LoCoMo: all turns; the questions that carry an answer and have evidence. LongMemEval: the user's turns, as its own
    retrieval protocol has it; without the abstention questions and those with evidence in the assistant's turns only.
    One's own: a list of `{"sessions": [{"turns": [{"id", "text"}]}], "questions": [{"question", "evidence": [ids]}]}`;
    a session may have a `time` and a question a `date`. LoCoMo's questions are asked a day after the last session.

    Raises: RequestError naming what is wrong.
    """
    name = str(path)
    try:
        raw = Path(path).read_bytes()
        data = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as exc:
        raise RequestError(f"cannot read {name}: {exc}") from exc
    first = data[0] if isinstance(data, list) and data else data
    if isinstance(first, dict) and "conversation" in first:
        return "LoCoMo", _locomo(path)
    try:
        if isinstance(first, dict) and "haystack_sessions" in first:
            kind, out = "LongMemEval", [_longmemeval(item) for item in data]
        elif isinstance(first, dict) and "sessions" in first:
            items = data if isinstance(data, list) else [data]
            kind, out = "own", [_own(item, number) for number, item in enumerate(items)]
        else:
            raise RequestError(f"{name}: neither LoCoMo, nor LongMemEval, nor a list of objects with `sessions`")
    except MemoryBankError as exc:
        raise RequestError(f"{name}: {exc}") from exc
    except (KeyError, TypeError, AttributeError, IndexError) as exc:
        raise RequestError(f"{name}: not in the expected schema ({type(exc).__name__}: {exc})") from exc
    kept = [haystack for haystack in out if haystack.probes]
    if not kept:
        raise RequestError(f"{name}: no question has evidence in it")
    return kind, kept


def _locomo(path: str | os.PathLike[str]) -> list[Haystack]:
    out = []
    for conversation in load_locomo(path):
        probes = tuple(
            Probe(q.text, f"{q.category} {CATEGORIES[q.category]}", frozenset(q.gold), conversation.asked)
            for q in conversation.questions
            if q.gold and q.answered
        )
        sessions = tuple(id.split(":")[0] for id in conversation.turn_ids)
        out.append(Haystack(conversation.id, conversation.texts, sessions, probes, conversation.times))
    return out


def _longmemeval(item: dict[str, Any]) -> Haystack:
    texts: list[str] = []
    sessions: list[str] = []
    times: list[dt.datetime | None] = []
    gold: set[int] = set()
    dates = item.get("haystack_dates") or [None] * len(item["haystack_sessions"])
    for number, session in enumerate(item["haystack_sessions"]):
        for turn in session:
            if turn["role"] == "user" and turn["content"].strip():
                if turn.get("has_answer"):
                    gold.add(len(texts))
                texts.append(turn["content"])
                times.append(read_time(dates[number], "haystack_dates"))
                sessions.append(str(number))  # not its id: that names the sessions with the answer
    asked = gold and not str(item["question_id"]).endswith("_abs")
    when = read_time(item.get("question_date"), "question_date")
    probes = (Probe(item["question"], item["question_type"], frozenset(gold), when),) if asked else ()
    return Haystack(str(item["question_id"]), tuple(texts), tuple(sessions), probes, tuple(times))


def _own(item: dict[str, Any], number: int) -> Haystack:
    texts: list[str] = []
    sessions: list[str] = []
    times: list[dt.datetime | None] = []
    place: dict[Any, int] = {}
    for n, session in enumerate(item["sessions"]):
        for turn in session["turns"]:
            text = turn["text"]
            if not isinstance(text, str) or not text.strip():
                raise RequestError(f"haystack {number}, session {n}: a turn's `text` must be a non-empty string")
            place[turn["id"]] = len(texts)
            texts.append(text)
            sessions.append(str(session.get("id", n)))
            times.append(read_time(turn.get("time", session.get("time")), f"haystack {number}, session {n}"))
    probes = []
    for question in item["questions"]:
        unknown = [id for id in question["evidence"] if id not in place]
        if unknown:
            raise RequestError(f"haystack {number}: evidence names the unknown turn {unknown[0]!r}")
        if question["evidence"]:
            gold = frozenset(place[id] for id in question["evidence"])
            when = read_time(question.get("date"), f"haystack {number}, date")
            probes.append(Probe(str(question["question"]), str(question.get("type", "question")), gold, when))
    return Haystack(str(item.get("id", number)), tuple(texts), tuple(sessions), tuple(probes), tuple(times))

"""LoCoMo retrieval: which method finds the turns that a question's answer rests on (CoreMem, tables 2 and 11)."""

import dataclasses
import datetime as dt
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gemjax.coremem.dates import read_time
from gemjax.errors import ConfigError, MemoryBankError, RequestError
from gemjax.evaluation.hubness import hubness, occurrences
from gemjax.evaluation.rankings import METHODS, Corpus, Method
from gemjax.evaluation.statistics import bootstrap_intervals, mcnemar
from gemjax.wording import counted

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
KS = (1, 5, 10, 50)
BASELINE = "cosine"
MEASURES = tuple(f"{measure}@{k}" for measure in ("hit", "recall", "all") for k in KS)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One question. `literal` is the evidence as written; `gold` the turns it names after cleaning; `answer` the gold
    answer, empty where there is none."""

    text: str
    category: int
    answered: bool
    """Carries the field `answer`, and not null: the paper's 1,542 questions are those."""
    literal: tuple[str, ...]
    gold: tuple[int, ...]
    answer: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: turns in order, and its questions."""

    id: str
    turn_ids: tuple[str, ...]
    texts: tuple[str, ...]
    questions: tuple[Question, ...]
    times: tuple[dt.datetime | None, ...] = ()
    """When each turn's session was; None where the file does not say, or not so that it can be read."""

    @property
    def asked(self) -> dt.datetime | None:
        """When its questions are asked, which the file does not say: a day after the last session."""
        known = [when for when in self.times if when is not None]
        return max(known) + dt.timedelta(days=1) if known else None


def load_locomo(path: str | os.PathLike[str]) -> list[Talk]:
    """Read conversations in LoCoMo's original schema. Raises RequestError naming what is wrong, and where."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
    except RecursionError:
        raise RequestError(f"cannot read {path}: it is nested too deeply") from None
    except (OSError, ValueError) as exc:
        raise RequestError(f"cannot read {path}: {exc}") from exc
    if not isinstance(data, list) or not data:
        raise RequestError(f"{path}: expected a non-empty list of conversations")
    out = []
    for number, sample in enumerate(data):
        try:
            out.append(_conversation(sample, number))
        except _SchemaError as exc:
            raise RequestError(f"{path}: conversation {number} is not in LoCoMo's schema ({exc})") from exc
    return out


class _SchemaError(Exception):
    """What is wrong in a conversation, and where in it."""


def _field(holder: dict[str, Any], key: str, kind: type, what: str, where: str) -> Any:
    """`holder[key]`, which must be there and of its kind; a bool is no number."""
    if key not in holder:
        raise _SchemaError(f"{where}has no {key!r}")
    value = holder[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _SchemaError(f"{where}{key!r} must be {what}, got {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def turn_text(turn: dict[str, Any]) -> str:
    """`Speaker: text [caption of the shared picture]`."""
    text = f"{turn['speaker']}: {turn['text']}"
    return f"{text} [{turn['blip_caption']}]" if turn.get("blip_caption") else text


def _conversation(sample: Any, number: int) -> Talk:
    if not isinstance(sample, dict):
        raise _SchemaError(f"expected an object, got {_short(sample)}")
    sessions = _field(sample, "conversation", dict, "an object", "")
    numbers = sorted(int(m[1]) for key in sessions if (m := re.fullmatch(r"session_(\d+)", key)))
    ids: list[str] = []
    texts: list[str] = []
    times: list[dt.datetime | None] = []
    for n in numbers:
        when = _time(sessions.get(f"session_{n}_date_time"))
        for at, turn in enumerate(_field(sessions, f"session_{n}", list, "a list of turns", "")):
            where = f"session_{n}, turn {at}: "
            ids.append(_turn_id(turn, where))
            texts.append(turn_text(turn))
            times.append(when)
    if not ids:
        raise _SchemaError("it has no turns: no session_1, session_2, ... with a turn in it")
    place = {_normal(id): i for i, id in enumerate(ids)}
    questions = [
        _question(qa, f"question {at}: ", place)
        for at, qa in enumerate(_field(sample, "qa", list, "a list of questions", ""))
    ]
    return Talk(str(sample.get("sample_id", number)), tuple(ids), tuple(texts), tuple(questions), tuple(times))


def _time(value: Any) -> dt.datetime | None:
    try:
        return read_time(value)
    except MemoryBankError:
        return None


def _turn_id(turn: Any, where: str) -> str:
    """The id of a turn whose fields are all of their kinds."""
    if not isinstance(turn, dict):
        raise _SchemaError(f"{where}expected an object, got {_short(turn)}")
    for key in ("speaker", "text"):
        _field(turn, key, str, "a string", where)
    if turn.get("blip_caption") is not None:
        _field(turn, "blip_caption", str, "a string", where)
    id = _field(turn, "dia_id", str, "a string", where)
    if len(re.findall(r"\d+", id)) != 2:
        raise _SchemaError(f"{where}'dia_id' must name session and turn, such as 'D1:3', got {_short(id)}")
    return str(id)


def _question(qa: Any, where: str, place: dict[tuple[int, int], int]) -> Question:
    if not isinstance(qa, dict):
        raise _SchemaError(f"{where}expected an object, got {_short(qa)}")
    text = _field(qa, "question", str, "a string", where)
    category = _field(qa, "category", int, "a number from 1 to 5", where)
    if category not in CATEGORIES:
        raise _SchemaError(f"{where}'category' must be a number from 1 to 5, got {category}")
    evidence = qa.get("evidence")
    if isinstance(evidence, str):
        evidence = [evidence]
    if evidence is not None and not (isinstance(evidence, list) and all(isinstance(e, str) for e in evidence)):
        raise _SchemaError(f"{where}'evidence' must be a list of strings, got {_short(evidence)}")
    answer = qa.get("answer")
    # Years and counts stand as bare numbers in the original file.
    if isinstance(answer, bool) or not isinstance(answer, str | int | float | None):
        raise _SchemaError(f"{where}'answer' must be a string or a number, got {_short(answer)}")
    literal = tuple(evidence or ())
    named = (_normal(id) for entry in literal for id in re.findall(r"D:?\d+:\d+", entry))
    gold = sorted({place[id] for id in named if id in place})
    answered = answer is not None
    return Question(text, category, answered, literal, tuple(gold), str(answer) if answered else "")


def _normal(id: str) -> tuple[int, int]:
    """`D30:05` and `D:30:5` are (30, 5)."""
    session, turn = re.findall(r"\d+", id)
    return int(session), int(turn)


def encode(
    conversations: Sequence[Talk], encoder: Any = None, progress: Callable[[str], None] | None = None
) -> list[Corpus]:
    """Encode turns and questions with `encoder` (None: the default one)."""
    from gemjax.encoders import as_encoder

    encoder = as_encoder(encoder)
    out = []
    for conversation in conversations:
        if progress:
            progress(f"encoding {conversation.id}: {counted(len(conversation.texts), 'turn')}")
        questions = [question.text for question in conversation.questions]
        texts = list(conversation.texts)
        sessions = tuple(str(_normal(id)[0]) for id in conversation.turn_ids)
        vectors = encoder.encode(texts), encoder.encode(questions)
        asked = (conversation.asked,) * len(questions)
        out.append(Corpus(texts, questions, *vectors, sessions, conversation.times, asked))
    return out


def outcomes(conversation: Talk, ranking: Int[np.ndarray, "q k"], *, literal: bool = False) -> Float[np.ndarray, "q m"]:
    """One row a question, one column a measure of `MEASURES`; NaN where the cleaned evidence names no turn.

    Literal follows the benchmark's own script: string equality, and 1.0 for a question without evidence.
    """
    out = np.full((len(conversation.questions), len(MEASURES)), math.nan)
    for row, question, found in zip(out, conversation.questions, ranking.tolist(), strict=True):
        gold: set[Any] = set(question.literal) if literal else set(question.gold)
        ranked = [conversation.turn_ids[i] for i in found] if literal else found
        if gold:
            seen = np.array([len(gold.intersection(ranked[:k])) for k in KS])
            row[:] = np.concatenate([seen > 0, seen / len(gold), seen == len(gold)])
        elif literal:
            row[:] = 1.0
    return out


def _summaries(
    conversations: Sequence[Talk], parts: Sequence[Float[np.ndarray, "q m"]], resamples: int
) -> dict[str, dict[str, Any]]:
    """By measure. Micro and macro are over the questions that carry an answer; macro is the mean of the categories 1 to
    4 (a handful of category-5 questions carry an answer: they must not make up a fifth of a number)."""
    questions = [q for c in conversations for q in c.questions]
    rows = np.concatenate(parts)
    category = np.array([q.category for q in questions])
    known = ~np.isnan(rows[:, 0])
    answered = known & np.array([q.answered for q in questions], bool)
    group = np.repeat(np.arange(len(conversations)), [len(c.questions) for c in conversations])
    # Category 5 stands apart, over all of its questions: they have evidence though (nearly) none has an answer.
    chosen = {c: (known if c == 5 else answered) & (category == c) for c in CATEGORIES}
    means = {c: rows[mask].mean(0) if mask.any() else np.full(len(MEASURES), math.nan) for c, mask in chosen.items()}
    used = rows[answered]
    micro = used.mean(0) if len(used) else np.full(len(MEASURES), math.nan)
    present = [means[c] for c in (1, 2, 3, 4) if chosen[c].any()]
    macro = np.mean(present, axis=0) if present else np.full(len(MEASURES), math.nan)
    intervals = {}
    if resamples:
        intervals["interval_questions"] = bootstrap_intervals(used, resamples=resamples)
        intervals["interval_conversations"] = bootstrap_intervals(used, group[answered], resamples=resamples)
    return {
        measure: {
            "micro": float(micro[i]),
            "macro": float(macro[i]),
            "n": len(used),
            **{name: [float(x) for x in interval[i]] for name, interval in intervals.items()},
            "categories": {
                str(c): {"name": name, "value": float(means[c][i]), "n": int(chosen[c].sum())}
                for c, name in CATEGORIES.items()
            },
        }
        for i, measure in enumerate(MEASURES)
    }


def evaluate(
    conversations: Sequence[Talk],
    corpora: Sequence[Corpus],
    methods: dict[str, tuple[str, Method]] | Sequence[str] | None = None,
    *,
    resamples: int = 2000,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Rank every question with every method. Returns a JSON-ready report; see docs/locomo.md for its fields.

    Raises: ConfigError for an unknown method.
    """
    chosen = _chosen(methods)
    report: dict[str, Any] = {"data": describe(conversations), "k": list(KS), "methods": {}}
    answered = np.array([q.answered for c in conversations for q in c.questions], bool)
    hits: dict[str, np.ndarray] = {}
    for name, (about, method) in chosen.items():
        if progress:
            progress(f"ranking with {name}")
        rankings = [method(corpus, max(KS)) for corpus in corpora]
        pairs = list(zip(conversations, rankings, strict=True))
        literal = [outcomes(c, ranking, literal=True) for c, ranking in pairs]
        cleaned = [outcomes(c, ranking) for c, ranking in pairs]
        tables = {
            "literal": _summaries(conversations, literal, resamples),
            "cleaned": _summaries(conversations, cleaned, resamples),
        }
        entry: dict[str, Any] = {"about": about}
        entry |= {measure: {kind: table[measure] for kind, table in tables.items()} for measure in MEASURES}
        column = np.concatenate(cleaned)[:, MEASURES.index("hit@10")]
        hits[name] = column[answered & ~np.isnan(column)] > 0
        per = [hubness(occurrences(ranking[:, :10], len(c.texts))) for c, ranking in pairs]
        entry["hubness@10"] = {key: float(np.mean([p[key] for p in per])) for key in per[0]}
        report["methods"][name] = entry
    for name, entry in report["methods"].items():
        if name != BASELINE and BASELINE in hits:
            entry["mcnemar_vs_cosine"] = mcnemar(hits[name], hits[BASELINE])
    return report


def _chosen(methods: dict[str, tuple[str, Method]] | Sequence[str] | None) -> dict[str, tuple[str, Method]]:
    if methods is None:
        return METHODS
    if isinstance(methods, dict):
        return methods
    if unknown := [name for name in methods if name not in METHODS]:
        raise ConfigError(f"unknown methods {', '.join(map(repr, unknown))}; there are {', '.join(METHODS)}")
    return {name: METHODS[name] for name in methods}


def describe(conversations: Sequence[Talk]) -> dict[str, Any]:
    """Counts, and what cleaning the evidence had to mend."""
    questions = [q for c in conversations for q in c.questions]
    entries = [(c, e) for c in conversations for q in c.questions for e in q.literal]
    plain = re.compile(r"D[1-9]\d*:[1-9]\d*")
    return {
        "conversations": len(conversations),
        "turns": sum(len(c.texts) for c in conversations),
        "questions": len(questions),
        "answered": sum(q.answered for q in questions),
        "categories": {
            str(key): {"name": name, "n": sum(q.category == key for q in questions)} for key, name in CATEGORIES.items()
        },
        "evidence": {
            "entries": len(entries),
            "malformed": sum(plain.fullmatch(e) is None for _, e in entries),
            "pointing_nowhere": sum(plain.fullmatch(e) is not None and e not in c.turn_ids for c, e in entries),
            "questions_without": sum(not q.literal for q in questions),
        },
    }

"""What is asked, of which dialogue: LoCoMo, LongMemEval or JSON of one's own, with answers."""

import dataclasses
import datetime as dt
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemjax.coremem.dates import read_time
from gemjax.coremem.dialogues import read_dialogues
from gemjax.coremem.utterances import Utterance
from gemjax.errors import MemoryBankError, RequestError
from gemjax.evaluation.locomo import CATEGORIES, load_locomo


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """One question.

    Args:
        id: its name within the data.
        kind: its category.
        text: the question.
        answer: the gold answer; of a question that the dialogue does not answer: empty.
        asked_at: when it is asked; None: at the dialogue's last turn.
    """

    id: str
    kind: str
    text: str
    answer: str
    asked_at: dt.datetime | None = None

    @property
    def answerable(self) -> bool:
        """Whether the dialogue holds an answer."""
        return bool(self.answer)


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """A dialogue and the questions on it: the statistical unit."""

    name: str
    utterances: tuple[Utterance, ...]
    questions: tuple[Asked, ...]


def load_material(path: str) -> tuple[str, list[Material]]:
    """The format's name, and its dialogues with their questions.

    LoCoMo: categories 1 to 4 with their answers; 5 as not answerable. LongMemEval: `_abs` questions are not answerable;
    both sides' turns. One's own: `{"sessions": [{"id", "date", "turns": [...]}], "questions": [{"question", "answer",
    "type", "date"}]}`, one object or a list; a question without `answer` is not answerable.

    Raises: RequestError naming what is wrong.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None
    kind, dialogues = read_dialogues(data, path)
    if kind == "LoCoMo":
        asked = [
            [
                Asked(
                    f"{c.id}/{i}", f"{q.category} {CATEGORIES[q.category]}", q.text, "" if q.category == 5 else q.answer
                )
                for i, q in enumerate(c.questions)
                if q.category == 5 or q.answer
            ]
            for c in load_locomo(path)
        ]
    elif kind in ("LongMemEval", "sessions"):
        value = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        items = value if isinstance(value, list) else [value]
        read = _longmemeval if kind == "LongMemEval" else _own
        try:
            asked = [read(item, number) for number, item in enumerate(items)]
        except (KeyError, TypeError, AttributeError, MemoryBankError) as error:
            raise RequestError(f"{path}: questions are not in the expected schema ({error})") from None
    else:
        raise RequestError(f"{path} holds dialogues without questions: expected LoCoMo, LongMemEval or `sessions`")
    out = [
        Material(dialogue.name, dialogue.utterances, tuple(questions))
        for dialogue, questions in zip(dialogues, asked, strict=True)
        if questions
    ]
    if not out:
        raise RequestError(f"{path}: there is no question in it")
    return kind, out


def _longmemeval(item: Mapping[str, Any], number: int) -> list[Asked]:
    id = str(item["question_id"])
    answer = "" if id.endswith("_abs") else str(item["answer"])
    return [Asked(id, item["question_type"], item["question"], answer, read_time(item["question_date"], id))]


def _own(item: Mapping[str, Any], number: int) -> list[Asked]:
    name = str(item.get("id", number))
    return [
        Asked(
            f"{name}/{i}",
            str(question.get("type", "question")),
            question["question"],
            str(question.get("answer", "")),
            read_time(question.get("date"), f"question {i}"),
        )
        for i, question in enumerate(item["questions"])
    ]


def sample(materials: Sequence[Material], count: int | None, seed: int = 0) -> list[Material]:
    """`count` questions at random over all dialogues, in their order; None: all."""
    total = sum(len(material.questions) for material in materials)
    if count is None or count >= total:
        return list(materials)
    chosen = set(np.random.default_rng(seed).permutation(total)[:count].tolist())
    out, at = [], 0
    for material in materials:
        kept = tuple(q for i, q in enumerate(material.questions, at) if i in chosen)
        at += len(material.questions)
        if kept:
            out.append(dataclasses.replace(material, questions=kept))
    return out

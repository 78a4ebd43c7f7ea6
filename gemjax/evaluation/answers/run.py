"""Every method's answers by one generator, each kept with its prompt; an interrupted run goes on where it stopped."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemjax.coremem.generation import Generator, Sampling
from gemjax.errors import RequestError
from gemjax.evaluation.answers.material import Asked, Material
from gemjax.evaluation.answers.methods import AnswerMethod, Choice, Setting, asked_on
from gemjax.evaluation.answers.scoring import JUDGE_PROMPT, contained, f1, judged, rouge_l
from gemjax.evaluation.statistics import bootstrap_intervals, mcnemar

SCORES = ("f1", "rouge_l", "contained", "judged")
BASELINE = "cosine"
Progress = Callable[[str, int, int], None]


class Kept:
    """Answers by key, a line of JSON each; every answer is on disk before the next is asked for.

    Raises: RequestError for a file that holds something else. A last line that a kill cut short is asked again.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._path = None if path is None else Path(path)
        self.records: dict[str, dict[str, Any]] = {}
        if self._path is None or not self._path.exists():
            return
        lines = self._path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                if number < len(lines):
                    self.records[record["key"]] = record
            except (ValueError, TypeError, KeyError):
                if number < len(lines):
                    raise RequestError(f"{self._path}, line {number}: no answer of `gemjax eval answers`") from None
        if lines[-1]:  # a kill cut it short: it is asked again
            with self._path.open("r+b") as file:
                file.truncate(sum(len(line) + 1 for line in lines[:-1]))

    def add(self, record: dict[str, Any]) -> None:
        """Keep one answer."""
        self.records[record["key"]] = record
        self._append(json.dumps(record, ensure_ascii=True).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(line)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How a run asks.

    Args:
        setting: what the methods share.
        sampling: of the answers.
        budget: tokens of evidence.
        judge: asked whether an answer is right; None: nobody.
    """

    setting: Setting
    sampling: Sampling
    budget: int
    judge: Generator | None = None


def answer_all(
    materials: Sequence[Material],
    methods: dict[str, AnswerMethod],
    plan: Plan,
    kept: Kept,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """One record a method and question: prompt, answer, tokens, seconds, scores. Asks only for what is not kept.

    Raises: GenerationError; what was answered before is kept.
    """
    total = len(methods) * sum(len(material.questions) for material in materials)
    out: list[dict[str, Any]] = []
    for material in materials:
        for name, method in methods.items():
            choose = method.make(material, plan.setting)
            for record in _answers(material, name, choose, plan, kept):
                out.append(record)
                if progress:
                    progress(f"{material.name}: {name}", len(out), total)
    return out


def _answers(material: Material, name: str, choose: Choice, plan: Plan, kept: Kept) -> Iterator[dict[str, Any]]:
    setting = plan.setting
    for asked in material.questions:
        text = choose(asked, plan.budget)
        messages = setting.template.messages(text, asked.text, asked_on(asked, material))
        key = _key(name, asked.id, setting.generator.model, dataclasses.astuple(plan.sampling), messages)
        record: dict[str, Any] | None = kept.records.get(key)
        if record is None:
            made = setting.generator.generate(messages, plan.sampling)
            record = {
                "key": key,
                "method": name,
                "dialogue": material.name,
                "id": asked.id,
                "kind": asked.kind,
                "question": asked.text,
                "gold": asked.answer,
                "messages": messages,
                "evidence_tokens": setting.tokenizer.count(text),
                "answer": made.text,
                "finish_reason": made.finish_reason,
                "abstained": setting.template.says_unknown(made.text),
                "prompt_tokens": made.prompt_tokens,
                "completion_tokens": made.completion_tokens,
                "seconds": made.seconds,
                "model": made.model,
                "judged": None,
                **_scores(asked, made.text),
            }
            kept.add(record)
        verdict = record["judged"]
        if plan.judge is not None and asked.answerable and (verdict or {}).get("model") != plan.judge.model:
            said = judged(plan.judge, asked.text, asked.answer, record["answer"])
            record = {**record, "judged": dataclasses.asdict(said)}
            kept.add(record)
        yield record


def _scores(asked: Asked, answer: str) -> dict[str, float]:
    if not asked.answerable:
        return {}
    return {
        "f1": f1(answer, asked.answer),
        "rouge_l": rouge_l(answer, asked.answer),
        "contained": float(contained(answer, asked.answer)),
    }


def _key(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()


def summarise(records: Sequence[dict[str, Any]], *, resamples: int = 2000) -> dict[str, Any]:
    """JSON-ready, by method: means with 95 % intervals over dialogues, by kind, and McNemar's test against `cosine`.

    Scores are over the questions that have an answer; `refused` is the share of the others that the model refused, and
    `wrongly_refused` that of the answerable ones. McNemar's test is on the judge's verdicts, without a judge on
    containment.
    """
    methods: dict[str, Any] = {}
    by_method: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        by_method.setdefault(record["method"], []).append(record)
    has_judge = any(record["judged"] for record in records)
    scores = SCORES if has_judge else SCORES[:3]
    right = "judged" if has_judge else "contained"
    for name, own in by_method.items():
        asked = [record for record in own if record["gold"]]
        other = [record for record in own if not record["gold"]]
        values = np.array([[_value(record, score) for score in scores] for record in asked]).reshape(-1, len(scores))
        groups = np.unique([record["dialogue"] for record in asked], return_inverse=True)[1]
        several = resamples and len(set(groups.tolist())) > 1
        limits = bootstrap_intervals(values, groups, resamples=resamples) if several else None
        kinds = sorted({record["kind"] for record in asked})
        entry: dict[str, Any] = {"n": len(asked), "n_unanswerable": len(other)}
        for i, score in enumerate(scores):
            entry[score] = {
                "value": _mean(values[:, i]),
                "interval": None if limits is None else [float(x) for x in limits[i]],
                "kinds": {
                    kind: _mean(np.array([_value(r, score) for r in asked if r["kind"] == kind])) for kind in kinds
                },
            }
        entry["refused"] = _mean(np.array([float(record["abstained"]) for record in other]))
        entry["wrongly_refused"] = _mean(np.array([float(record["abstained"]) for record in asked]))
        for count in ("evidence_tokens", "prompt_tokens", "completion_tokens", "seconds"):
            entry[count] = _mean(np.array([float(record[count]) for record in own]))
        entry["cut"] = _mean(np.array([float(record["finish_reason"] == "length") for record in own]))
        methods[name] = entry
    if BASELINE in by_method:
        theirs = {record["id"]: bool(_value(record, right)) for record in by_method[BASELINE] if record["gold"]}
        for name, own in by_method.items():
            pairs = [
                (bool(_value(record, right)), theirs[record["id"]])
                for record in own
                if record["gold"] and record["id"] in theirs
            ]
            if name != BASELINE and pairs:
                ours, baseline = np.array(pairs, bool).T
                methods[name]["mcnemar_vs_cosine"] = {"of": right, **mcnemar(ours, baseline)}
    return {
        "methods": methods,
        "kinds": {
            kind: sum(r["kind"] == kind for r in next(iter(by_method.values()), []))
            for kind in sorted({record["kind"] for record in records})
        },
        "judge_prompt": JUDGE_PROMPT if has_judge else None,
        "judges": sorted({record["judged"]["model"] for record in records if record["judged"]}),
        "generators": sorted({record["model"] for record in records}),
    }


def _value(record: dict[str, Any], score: str) -> float:
    if score == "judged":
        return float((record["judged"] or {}).get("right", np.nan))
    return float(record[score])


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)] if len(values) else values
    return float(known.mean()) if len(known) else None

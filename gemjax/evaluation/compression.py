"""What compression keeps of LoCoMo's gold answers and evidence (paper, tables 4, 5, 7).

Every method gets the same retrieved turns, in the conversation's order and with their retrieval rank, and the same
budget. Conversations are the statistical units: the questions of one share its turns.
"""

import dataclasses
import functools
import importlib.metadata
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gemjax.distill import Compressor, Distillation, Turn
from gemjax.errors import ConfigError
from gemjax.evaluation.locomo import CATEGORIES, Question, Talk
from gemjax.evaluation.statistics import group_means, paired_by_group

BUDGETS = (250, 500, 1000)
BASELINE = "truncation-retrieved"
MEASURES = ("recall", "content_recall", "evidence", "rouge_l", "ratio")
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""
_ARTICLES = frozenset(("a", "an", "the", "and"))
_FUNCTION_WORDS = (
    "of to in on at for with from by about as is are was were be been do does did has have had he she it they "
    "we i you his her its their our my your this that these those or but not so"
)
_COMMON = _ARTICLES | frozenset(_FUNCTION_WORDS.split())
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def words(text: str) -> list[str]:
    """LoCoMo's own normalisation without its stemmer: lower case, no punctuation, no articles, no "and"."""
    return [word for word in text.lower().translate(_PUNCTUATION).split() if word not in _ARTICLES]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One question with its retrieved turns."""

    conversation: int
    question: Question
    turns: tuple[Turn, ...]
    evidence: tuple[int, ...]
    """Places in `turns` of the gold turns that were retrieved."""


def measurable(question: Question) -> bool:
    """Whether the question carries an answer with words."""
    return question.answered and bool(words(question.answer))


def cases(
    conversations: Sequence[Talk],
    rankings: Sequence[Int[np.ndarray, "q k"]],
    *,
    sample: int | None = None,
    seed: int = 0,
) -> list[Case]:
    """The questions that carry an answer, each with its retrieved turns in the conversation's order.

    Args:
        conversations, rankings: the ranked turn indices of each conversation's questions, best first.
        sample: how many questions; drawn in equal shares from every conversation and category; None: all.
        seed: of the sample.

    Raises: ConfigError for a sample below 1.
    """
    if sample is not None and sample < 1:
        raise ConfigError(f"sample = {sample}; expected a whole number of at least 1")
    out: list[Case] = []
    for number, (conversation, ranking) in enumerate(zip(conversations, rankings, strict=True)):
        for question, found in zip(conversation.questions, ranking.tolist(), strict=True):
            if not measurable(question):
                continue
            order = sorted(range(len(found)), key=lambda place: found[place])
            turns = tuple(
                Turn(text := conversation.texts[found[place]], header=header_length(text), score=-float(place))
                for place in order
            )
            here = {found[place]: i for i, place in enumerate(order)}
            out.append(Case(number, question, turns, tuple(here[g] for g in question.gold if g in here)))
    return out if sample is None else [out[i] for i in stratified(out, sample, seed)]


def stratified(chosen: Sequence[Case], sample: int, seed: int = 0) -> list[int]:
    """Places of at most `sample` of the questions, in order, in equal shares of every conversation and category."""
    if sample >= len(chosen):
        return list(range(len(chosen)))
    rng = np.random.default_rng(seed)
    strata: dict[tuple[int, int], list[int]] = {}
    for i, case in enumerate(chosen):
        strata.setdefault((case.conversation, case.question.category), []).append(i)
    shuffled = {key: list(rng.permutation(members)) for key, members in sorted(strata.items())}
    kinds = sorted({category for _, category in strata})
    # Along the diagonals: even a small sample has questions of each conversation and of each category.
    diagonal = {key: (kinds.index(key[1]) - key[0]) % len(kinds) for key in strata}
    queues = [shuffled[key] for key in sorted(strata, key=lambda key: (diagonal[key], key[0]))]
    drawn: list[int] = []
    while len(drawn) < sample:
        for queue in queues:
            if queue and len(drawn) < sample:
                drawn.append(int(queue.pop()))
    return sorted(drawn)


def header_length(text: str) -> int:
    """Characters of `Speaker: ` at a turn's start; 0 without one."""
    return text.index(": ") + 2 if ": " in text else 0


def measures(case: Case, out: Distillation) -> dict[str, float]:
    """What of one question's gold survives.

    `recall`: share of the answer's distinct words that the text holds; `content_recall`: of those that are no function
    words; `evidence`: share of all gold turns of which at least half of the characters survive; `rouge_l`: recall of
    the answer in the text by the package rouge-score with its stemmer (0 for scripts it does not know); `ratio`:
    tokens left / tokens before. NaN where the question has no such gold, or the package is not installed.
    """
    held = frozenset(words(out.text))
    gold = frozenset(words(case.question.answer))
    content = gold - _COMMON
    left = np.zeros(len(case.turns))
    for turn, start, stop in out.spans:
        left[turn] += stop - start
    survive = sum(left[i] >= 0.5 * len(case.turns[i].text) for i in case.evidence)
    # A text that another tool wrote anew is made of no turn's characters.
    traced = bool(case.question.gold) and bool(out.spans or not out.text)
    return {
        "recall": len(gold & held) / len(gold),
        "content_recall": len(content & held) / len(content) if content else math.nan,
        # Gold turns that retrieval missed count as lost: no compressor can bring them back, and all miss the same.
        "evidence": survive / len(case.question.gold) if traced else math.nan,
        "rouge_l": rouge_l(case.question.answer, out.text),
        "ratio": out.ratio,
    }


def rouge_l(reference: str, text: str) -> float:
    """ROUGE-L recall of the reference, package rouge-score, stemmer on. NaN when the package is not installed."""
    scorer = _scorer()
    return math.nan if scorer is None else float(scorer.score(reference, text)["rougeL"].recall)


@functools.cache
def _scorer() -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        return None
    return RougeScorer(["rougeL"], use_stemmer=True)


def rouge_package() -> str | None:
    """The package that computes ROUGE-L and its version; None: not installed."""
    return None if _scorer() is None else f"rouge-score {importlib.metadata.version('rouge-score')}"


@dataclasses.dataclass(frozen=True, slots=True)
class BudgetMeasures:
    """One method: by budget, a row of `MEASURES` a question, `[questions, measures]`, and the texts that were left."""

    rows: dict[int, Float[np.ndarray, "q m"]]
    texts: dict[int, list[str]]


def measure(
    name: str,
    method: Compressor,
    chosen: Sequence[Case],
    budgets: Sequence[int] = BUDGETS,
    progress: Progress | None = None,
) -> BudgetMeasures:
    """Shorten every question's turns to every budget. Question by question: budgets share what the model reads."""
    rows: dict[int, list[list[float]]] = {budget: [] for budget in budgets}
    texts: dict[int, list[str]] = {budget: [] for budget in budgets}
    for done, case in enumerate(chosen):
        if progress:
            progress(name, done, len(chosen))
        for budget in budgets:
            out = method.distill(case.turns, budget, case.question.text)
            found = measures(case, out)
            rows[budget].append([found[key] for key in MEASURES])
            texts[budget].append(out.text)
    return BudgetMeasures({budget: np.array(part) for budget, part in rows.items()}, texts)


def summarise(
    chosen: Sequence[Case], measured: Mapping[str, BudgetMeasures], parents: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`{method: {budget: {measure: summary}}}`, JSON-ready.

    A summary has the mean over questions (`micro`), the mean over conversations (`macro`), these by the conversation's
    place in the file, `n`, `categories`, and against `truncation-retrieved`, when that was measured, `difference` (see
    `statistics.paired_by_group`). `parents` names for a variant the method that it changes one part of: `change` is the
    difference to that one.
    """
    group = np.array([case.conversation for case in chosen])
    category = np.array([case.question.category for case in chosen])
    out: dict[str, Any] = {}
    for name, own in measured.items():
        against = {"difference": measured.get(BASELINE), "change": measured.get((parents or {}).get(name, ""))}
        out[name] = {
            str(budget): {
                key: _summary(rows[:, m], group, category)
                | {
                    label: paired_by_group(rows[:, m], other.rows[budget][:, m], group)
                    for label, other in against.items()
                    if other is not None
                }
                for m, key in enumerate(MEASURES)
            }
            for budget, rows in own.rows.items()
        }
    return out


def compare(
    chosen: Sequence[Case],
    methods: Mapping[str, Compressor],
    *,
    budgets: Sequence[int] = BUDGETS,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """`measure` every method, then `summarise`."""
    return summarise(
        chosen, {name: measure(name, method, chosen, budgets, progress) for name, method in methods.items()}
    )


def _summary(values: np.ndarray, group: np.ndarray, category: np.ndarray) -> dict[str, Any]:
    per = group_means(values, group)
    known = values[~np.isnan(values)]
    known_in = np.unique(group[~np.isnan(values)])
    return {
        "micro": float(known.mean()) if len(known) else None,
        "macro": float(np.mean(per)) if len(per) else None,
        "n": len(known),
        "by_conversation": {str(g): float(mean) for g, mean in zip(known_in, per, strict=True)},
        "categories": {
            str(c): {"name": name, "value": float(np.nanmean(part)), "n": int((~np.isnan(part)).sum())}
            for c, name in CATEGORIES.items()
            if (~np.isnan(part := values[category == c])).any()
        },
    }

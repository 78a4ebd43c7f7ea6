"""What compression keeps on LoCoMo: gold answers, evidence, the model's own loss (paper, tables 4, 5, 7).

Every method gets the same retrieved turns, in the conversation's order and with their retrieval rank, and the same
budget. Conversations are the statistical units: the questions of one share its turns.
"""

import dataclasses
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from gemjax.distill import Compressor, Distillation, DistillConfig, Distiller, Filler, Turn
from gemjax.distill.baselines import RandomDrop, Truncation, self_information
from gemjax.evaluation.locomo import CATEGORIES, Conversation, Question
from gemjax.evaluation.statistics import bootstrap_intervals
from gemjax.models.language import LanguageModel

BUDGETS = (250, 500, 1000)
BASELINE = "truncation-retrieved"
MEASURES = ("recall", "content_recall", "evidence", "rouge_l", "ratio")
_ARTICLES = frozenset(("a", "an", "the", "and"))
_FUNCTION_WORDS = (
    "of to in on at for with from by about as is are was were be been do does did has have had he she it they "
    "we i you his  her its their our my your this that these those or but not so"
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


def cases(
    conversations: Sequence[Conversation],
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
    """
    out: list[Case] = []
    for number, (conversation, ranking) in enumerate(zip(conversations, rankings, strict=True)):
        for question, found in zip(conversation.questions, ranking.tolist(), strict=True):
            if not question.answered or not words(question.answer):
                continue
            order = sorted(range(len(found)), key=lambda place: found[place])
            turns = tuple(
                Turn(text := conversation.texts[found[place]], header=_header(text), score=-float(place))
                for place in order
            )
            here = {found[place]: i for i, place in enumerate(order)}
            out.append(Case(number, question, turns, tuple(here[g] for g in question.gold if g in here)))
    if sample is None or sample >= len(out):
        return out
    rng = np.random.default_rng(seed)
    strata: dict[tuple[int, int], list[int]] = {}
    for i, case in enumerate(out):
        strata.setdefault((case.conversation, case.question.category), []).append(i)
    queues = [list(rng.permutation(members)) for _, members in sorted(strata.items())]
    chosen: list[int] = []
    while len(chosen) < sample:
        for queue in queues:
            if queue and len(chosen) < sample:
                chosen.append(int(queue.pop()))
    return [out[i] for i in sorted(chosen)]


def _header(text: str) -> int:
    """`Speaker: ` at a turn's start."""
    return text.index(": ") + 2 if ": " in text else 0


def measures(case: Case, out: Distillation) -> dict[str, float]:
    """What of one question's gold survives.

    `recall`: share of the answer's distinct words that the text holds; `content_recall`: of those that are no function
    words; `evidence`: share of all gold turns of which at least half of the characters survive; `rouge_l`: recall of
    the answer in the text by the package rouge-score with its stemmer (0 for scripts it does not know); `ratio`:
    tokens left / tokens before. NaN where the question has no such gold.
    """
    held = frozenset(words(out.text))
    gold = frozenset(words(case.question.answer))
    content = gold - _COMMON
    left = np.zeros(len(case.turns))
    for turn, start, stop in out.spans:
        left[turn] += stop - start
    survive = sum(left[i] >= 0.5 * len(case.turns[i].text) for i in case.evidence)
    return {
        "recall": len(gold & held) / len(gold),
        "content_recall": len(content & held) / len(content) if content else math.nan,
        # Gold turns that retrieval missed count as lost: no compressor can bring them back, and all miss the same.
        "evidence": survive / len(case.question.gold) if case.question.gold else math.nan,
        "rouge_l": rouge_l(case.question.answer, out.text),
        "ratio": out.ratio,
    }


def rouge_l(reference: str, text: str) -> float:
    """ROUGE-L recall of the reference, package rouge-score, stemmer on. NaN when the package is not installed."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        return math.nan
    scorer = _SCORERS.setdefault("rougeL", RougeScorer(["rougeL"], use_stemmer=True))
    return float(scorer.score(reference, text)["rougeL"].recall)


_SCORERS: dict[str, Any] = {}


def compare(
    chosen: Sequence[Case],
    methods: Mapping[str, Compressor],
    *,
    budgets: Sequence[int] = BUDGETS,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Every method at every budget. Returns `{method: {budget: {measure: summary}}}`, JSON-ready.

    A summary has the mean over questions, the mean over conversations, and for every method but the baseline the mean
    difference to `truncation-retrieved` over conversations with a 95 % t interval and the number of conversations in
    which it is positive.
    """
    group = np.array([case.conversation for case in chosen])
    table: dict[str, dict[int, np.ndarray]] = {}
    for name, method in methods.items():
        for budget in budgets:
            rows = []
            for i, case in enumerate(chosen):
                if progress and i % 20 == 0:
                    progress(f"{name}, budget {budget}: question {i} of {len(chosen)}")
                found = measures(case, method.distill(case.turns, budget, case.question.text))
                rows.append([found[measure] for measure in MEASURES])
            table.setdefault(name, {})[budget] = np.array(rows)
    baseline = table.get(BASELINE)
    category = np.array([case.question.category for case in chosen])
    return {
        name: {
            str(budget): {
                measure: _summary(rows[:, m], group, category, None if baseline is None else baseline[budget][:, m])
                for m, measure in enumerate(MEASURES)
            }
            for budget, rows in by_budget.items()
        }
        for name, by_budget in table.items()
    }


def _summary(
    values: np.ndarray, group: np.ndarray, category: np.ndarray, baseline: np.ndarray | None
) -> dict[str, Any]:
    per = _by_group(values, group)
    known = values[~np.isnan(values)]
    out: dict[str, Any] = {
        "micro": float(known.mean()) if len(known) else None,
        "macro": float(np.mean(per)) if len(per) else None,
        "n": len(known),
        "categories": {
            str(c): {"name": name, "value": float(np.nanmean(part)), "n": int((~np.isnan(part)).sum())}
            for c, name in CATEGORIES.items()
            if (~np.isnan(part := values[category == c])).any()
        },
    }
    if baseline is not None:
        out["difference"] = paired(values, baseline, group)
    return out


def _by_group(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    parts = [values[(group == g) & ~np.isnan(values)] for g in np.unique(group)]
    return np.array([part.mean() for part in parts if len(part)])


def paired(values: np.ndarray, baseline: np.ndarray, group: np.ndarray) -> dict[str, Any]:
    """Mean difference over conversations, its 95 % intervals (t, and bootstrap over conversations), and its signs."""
    difference = values - baseline
    known = ~np.isnan(difference)
    per = _by_group(difference, group)
    n = len(per)
    if n == 0:
        return {"mean": None, "t_interval": None, "bootstrap": None, "positive": 0, "of": 0}
    half = _T95[min(n - 2, len(_T95) - 1)] * float(per.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    low, high = bootstrap_intervals(difference[known, None], group[known])[0]
    mean = float(per.mean())
    return {
        "mean": mean,
        "t_interval": [mean - half, mean + half],
        "bootstrap": [float(low), float(high)],
        "positive": int((per > 0).sum()),
        "of": n,
        "by_conversation": [float(x) for x in per],
    }


# 97.5 % points of Student's t for 1, 2, ... degrees of freedom; beyond the table the normal one.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 1.96)


def standard_methods(model: LanguageModel, encoder: Any = None) -> dict[str, Compressor]:
    """What the tables compare."""
    rivals = (
        Truncation(model, "retrieved"),
        Truncation(model, "last"),
        RandomDrop(model),
        self_information(model, encoder=encoder),
        Distiller(model, DistillConfig.paper(), encoder=encoder, name="fdtd-paper"),
        Distiller(model, encoder=encoder, name="fdtd"),
    )
    return {method.name: method for method in rivals}


def ablations(model: LanguageModel) -> dict[str, Compressor]:
    """The default method with one part changed or left out, and the printed one taken apart (paper, table 5)."""
    default, paper = DistillConfig(), DistillConfig.paper()
    multipliers = paper.multipliers
    assert multipliers is not None
    filler = Filler()
    turn_paper = dataclasses.replace(paper, context="turn")
    variants = {
        "fdtd": default,
        "fdtd, no model pass": dataclasses.replace(default, loss="none"),
        "fdtd, 10 % pruned": dataclasses.replace(default, keep=0.9),
        "fdtd, 10 % by self-information": dataclasses.replace(default, loss="surprisal", keep=0.9),
        "fdtd, 10 %, no multipliers": dataclasses.replace(default, multipliers=None, keep=0.9),
        "fdtd, 10 %, smoothed": dataclasses.replace(default, smoothing=5, keep=0.9),
        "fdtd, 10 % of tokens": dataclasses.replace(default, unit="token", keep=0.9),
        "fdtd, no filler rules": dataclasses.replace(default, filler=None),
        "fdtd, filler words stay": dataclasses.replace(default, filler=dataclasses.replace(filler, words=frozenset())),
        "fdtd, questions stay": dataclasses.replace(default, filler=dataclasses.replace(filler, questions=False)),
        "fdtd, short ones stay": dataclasses.replace(default, filler=dataclasses.replace(filler, short=0)),
        "fdtd, product": dataclasses.replace(default, value="product", rank=True),
        "fdtd, knapsack": dataclasses.replace(default, value="knapsack", rank=True),
        "fdtd, mean": dataclasses.replace(default, value="mean", rank=True),
        "paper, by turn": turn_paper,
        "paper, retrieval order": dataclasses.replace(turn_paper, value="turn"),
        "paper, no boosts": dataclasses.replace(turn_paper, multipliers=None),
        "paper, no connectors": dataclasses.replace(
            turn_paper, multipliers=dataclasses.replace(multipliers, connector=1.0)
        ),
        "paper, no punctuation": dataclasses.replace(
            turn_paper, multipliers=dataclasses.replace(multipliers, heavy=1.0, boundary=1.0)
        ),
        "paper, no content": dataclasses.replace(
            turn_paper, multipliers=dataclasses.replace(multipliers, digit=1.0, capital=1.0)
        ),
        "paper, no decay": dataclasses.replace(turn_paper, oldest=1.0),
        "paper, no smoothing": dataclasses.replace(turn_paper, smoothing=1),
        "paper, no gap filling": dataclasses.replace(turn_paper, gap=0),
        "paper, skip": dataclasses.replace(turn_paper, fit="skip"),
        "fdtd, skip": dataclasses.replace(default, fit="skip"),
    }
    out: dict[str, Compressor] = {BASELINE: Truncation(model, "retrieved")}
    cache = None
    for name, config in variants.items():
        distiller = Distiller(model, config, name=name)
        # One reading of the turns serves all variants.
        cache = distiller.cache if cache is None else cache
        distiller.cache = cache
        out[name] = distiller
    return out


def answer_losses(
    chosen: Sequence[Case],
    methods: Mapping[str, Compressor],
    model: LanguageModel,
    *,
    budgets: Sequence[int] = BUDGETS,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The model's own loss of the gold answer, nats a token, given the text and the question.

    Beside each method: the mean difference to the full text's loss and to the baseline's, over conversations, and the
    share of questions whose loss is at most 0.1 nats a token above the full text's (a conditional accuracy without a
    judge). The method "nothing" has no text at all: what a difference is worth.
    """
    group = np.array([case.conversation for case in chosen])

    def losses(texts: Sequence[str]) -> np.ndarray:
        out = np.zeros(len(texts))
        for i, (text, case) in enumerate(zip(texts, chosen, strict=True)):
            prompt = model.tokenize(f"{text}\n\nQuestion: {case.question.text}\nAnswer:").ids
            answer = model.tokenize(f" {case.question.answer}").ids
            room = model.config.max_position_embeddings - len(answer)
            ids = np.concatenate([prompt[-room:], answer])
            out[i] = model.surprisals([ids])[0][-len(answer) :].mean()
        return out

    def note(text: str) -> None:
        if progress:
            progress(text)

    note("answers given the full text")
    full = losses(["\n".join(turn.text for turn in case.turns) for case in chosen])
    note("answers given nothing")
    nothing = losses(["" for _ in chosen])
    report: dict[str, Any] = {
        "full": float(full.mean()),
        "nothing": float(nothing.mean()),
        "n": len(chosen),
        "methods": {},
    }
    base: dict[int, np.ndarray] = {}
    ordered = sorted(methods.items(), key=lambda item: item[0] != BASELINE)
    for name, method in ordered:
        for budget in budgets:
            note(f"answers given {name} at {budget}")
            texts = [method.distill(case.turns, budget, case.question.text).text for case in chosen]
            loss = losses(texts)
            base.setdefault(budget, loss if name == BASELINE else full)
            report["methods"].setdefault(name, {})[str(budget)] = {
                "loss": float(loss.mean()),
                "conditional": float((loss <= full + 0.1).mean()),
                "above_full": paired(loss, full, group),
                "above_baseline": paired(loss, base[budget], group) if name != BASELINE else None,
            }
    return report


def bounds(
    chosen: Sequence[Case], model: LanguageModel, *, shares: Sequence[float] = (0.01, 0.1, 1.0), budget: int = 250
) -> list[dict[str, float]]:
    """The first-order bound beside what really happens when the dropped tokens' embeddings shrink by each share.

    One row a question and share: `bound` and `first_order` (both times the share), and the measured `change` of the
    loss, nats. The printed method on the question's ten best turns, read as one text.
    """
    distiller = Distiller(model, DistillConfig.paper(), name="fdtd-paper")
    rows = []
    for case in chosen:
        best = sorted(case.turns, key=lambda turn: -(turn.score or 0.0))[:10]
        text = "\n".join(turn.text for turn in best)
        out = distiller.distill(text, budget)
        if out.status != "compressed":
            continue
        ids = model.tokenize(text).ids
        before = model.ablated_loss(ids, ~out.kept, 0.0)
        for share in shares:
            change = model.ablated_loss(ids, ~out.kept, share) - before
            rows.append(
                {"share": share, "bound": share * out.bound, "first_order": share * out.change, "change": change}
            )
    return rows

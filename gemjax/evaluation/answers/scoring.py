"""Scores of an answer: word overlap, containment, and a judge whose prompt is stated."""

import dataclasses
import unicodedata
from collections import Counter

from gemjax.coremem.generation import ChatMessage, Generator, Sampling
from gemjax.coremem.prompts import folded
from gemjax.evaluation.compression import words
from gemjax.memory.words import words as pieces

JUDGE_PROMPT = (
    "I will give you a question, a correct answer, and a response from a model. Please answer yes if the response "
    "contains the correct answer. Otherwise, answer no. If the response is equivalent to the correct answer or "
    "contains all the intermediate steps, answer yes.\n"
    "Question: {question}\nCorrect Answer: {answer}\nModel Response: {response}\n"
    "Is the model response correct? Answer yes or no only."
)
"""The paper's strict judge (Appendix E, figure 5)."""
JUDGE_SAMPLING = Sampling(max_tokens=2)
"""As the paper has it: two tokens, temperature 0."""


def normal(text: str) -> list[str]:
    """Words as LoCoMo's own script compares them, in any script: those without blanks by pairs of characters."""
    text = unicodedata.normalize("NFKC", text)
    return words(text) if text.isascii() else pieces(text, 0)


def f1(answer: str, gold: str) -> float:
    """Harmonic mean of precision and recall of the words, repetitions counted; two texts without words agree."""
    ours, theirs = Counter(normal(answer)), Counter(normal(gold))
    if not ours or not theirs:
        return float(ours == theirs)
    shared = (ours & theirs).total()
    return 2 * shared / (ours.total() + theirs.total())


def rouge_l(answer: str, gold: str) -> float:
    """ROUGE-L: the F-measure of the longest common subsequence of the words, without a stemmer."""
    ours, theirs = normal(answer), normal(gold)
    if not ours or not theirs:
        return float(ours == theirs)
    return 2 * _common(ours, theirs) / (len(ours) + len(theirs))


def _common(a: list[str], b: list[str]) -> int:
    row = [0] * (len(b) + 1)
    for word in a:
        before = 0
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], before + 1 if word == other else max(row[j], row[j - 1])
    return row[-1]


def contained(answer: str, gold: str) -> bool:
    """Whether the gold answer's words stand in the answer, one after the other."""
    ours, theirs = normal(answer), normal(gold)
    return bool(theirs) and any(ours[i : i + len(theirs)] == theirs for i in range(len(ours) - len(theirs) + 1))


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge said: right where it began with "yes"."""

    right: bool
    said: str
    model: str


def judge_messages(question: str, gold: str, answer: str) -> list[ChatMessage]:
    """The judge's prompt. What fills a place is never read as one, and stays one item."""
    parts = JUDGE_PROMPT.replace("{question}", "\0").replace("{answer}", "\0").replace("{response}", "\0").split("\0")
    values = [folded(value.strip()) for value in (question, gold, answer)]
    content = parts[0] + "".join(value + literal for value, literal in zip(values, parts[1:], strict=True))
    return [{"role": "user", "content": content}]


def judged(judge: Generator, question: str, gold: str, answer: str) -> Verdict:
    """Ask the judge. An empty answer is wrong without asking. Raises GenerationError."""
    if not answer.strip():
        return Verdict(False, "", judge.model)
    said = judge.generate(judge_messages(question, gold, answer), JUDGE_SAMPLING).text
    return Verdict(said.strip().lower().startswith("yes"), said, judge.model)

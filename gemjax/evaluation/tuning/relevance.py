"""Weights of the question's words and of neighbours, chosen by leaving conversations of LoCoMo out.

    python -m gemjax.evaluation.tuning.relevance locomo10.json [--vectors DIR]

Judges orders of turns alone: whole turns enter until the budget is full, and the share of the gold answer's words that
they hold is compared with retrieval order. For each conversation the weights are chosen on the others. Prints the grid
(mean difference over conversations at each budget) and the differences on the conversations that were left out.
"""

import argparse
import functools
import itertools
import sys

import numpy as np
from rich.console import Console
from rich.table import Table

from gemjax.distill.relevance import fused_relevance
from gemjax.encoders import CachedEncoder, default_encoder
from gemjax.evaluation import locomo
from gemjax.evaluation.compression import BUDGETS, Case, cases, words
from gemjax.evaluation.rankings import method_named
from gemjax.evaluation.statistics import student_quantile
from gemjax.models.language import default_language_model

LEXICAL = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
NEIGHBOURS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.6)


def recalls(case: Case, costs: list[int], held: list[frozenset[str]], order: np.ndarray) -> list[float]:
    """Share of the answer's words in the whole turns that fit each budget, taken in this order."""
    gold = frozenset(words(case.question.answer))
    out = []
    for budget in BUDGETS:
        left = budget
        found: set[str] = set()
        for turn in order:
            if costs[turn] > left:
                break
            left -= costs[turn]
            found |= held[turn]
        out.append(len(gold & found) / len(gold))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--vectors", metavar="DIR", help="keep vectors here, so that the next run encodes nothing")
    parser.add_argument("--ranking", default="cosine")
    arguments = parser.parse_args()
    conversations = locomo.load_locomo(arguments.path)
    corpora = locomo.encode(conversations, CachedEncoder(default_encoder(), disk=arguments.vectors))
    retrieve = method_named(arguments.ranking)
    chosen = cases(conversations, [retrieve(corpus, 50) for corpus in corpora])
    model = default_language_model()
    groups = np.array([case.conversation for case in chosen])
    grid = list(itertools.product(LEXICAL, NEIGHBOURS))
    values = np.zeros((len(grid), len(chosen), len(BUDGETS)))

    @functools.cache
    def count(text: str) -> int:
        return model.count("\n" + text)

    for i, case in enumerate(chosen):
        texts = [turn.text for turn in case.turns]
        costs = [count(text) for text in texts]
        held = [frozenset(words(text)) for text in texts]
        scores = np.array([turn.score for turn in case.turns], float)
        for s, (lexical, neighbours) in enumerate(grid):
            fused = fused_relevance(scores, texts, case.question.text, lexical=lexical, neighbours=neighbours)
            values[s, i] = recalls(case, costs, held, np.argsort(-fused, kind="stable"))
    base = values[grid.index((0.0, 0.0))]
    names = np.unique(groups)
    gains = np.stack([(values - base)[:, groups == g].mean(axis=1) for g in names], axis=1)
    console = Console(width=100)
    title = f"{len(chosen)} questions, {len(names)} conversations"
    table = Table("words", "neighbours", *map(str, BUDGETS), box=None, title=title)
    for (lexical, neighbours), row in zip(grid, gains, strict=True):
        table.add_row(str(lexical), str(neighbours), *(f"{x:+.3f}" for x in row.mean(axis=0)))
    console.print(table)
    held_out = []
    for k in range(len(names)):
        rest = np.delete(np.arange(len(names)), k)
        best = int(gains[:, rest].mean(axis=(1, 2)).argmax())
        held_out.append(gains[best, k])
        console.print(f"without {conversations[names[k]].id}: {grid[best]} -> {np.round(gains[best, k], 3)} on it")
    left = np.array(held_out)
    half = student_quantile(len(left) - 1) * left.std(axis=0, ddof=1) / len(left) ** 0.5
    for budget, mean, width in zip(BUDGETS, left.mean(axis=0), half, strict=True):
        console.print(f"on left-out conversations at {budget}: {mean:+.3f} [{mean - width:+.3f}, {mean + width:+.3f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The language model's own view of compression: its loss of the gold answer, and the bound beside the change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gemjax.distill import DistillConfig, Distiller
from gemjax.evaluation.compression import BASELINE, Case, Progress
from gemjax.evaluation.statistics import paired_by_group
from gemjax.models.language import LanguageModel

CLOSE = 0.1
"""Nats a token: an answer whose loss is at most this much above the full text's counts as still known."""
SHARES = (0.01, 0.1, 1.0)


def full_text(case: Case) -> str:
    """All retrieved turns."""
    return "\n".join(turn.text for turn in case.turns)


def answer_losses(
    chosen: Sequence[Case],
    texts: Sequence[str],
    model: LanguageModel,
    what: str = "answers",
    progress: Progress | None = None,
) -> Float[np.ndarray, "q"]:
    """The mean surprisal of each gold answer's tokens given its text and the question, nats a token.

    A text beyond the model's positions loses its beginning.
    """
    out = np.zeros(len(texts))
    for i, (text, case) in enumerate(zip(texts, chosen, strict=True)):
        if progress:
            progress(what, i, len(texts))
        prompt = model.tokenize(f"{text}\n\nQuestion: {case.question.text}\nAnswer:").ids
        answer = model.tokenize(f" {case.question.answer}").ids
        room = model.config.max_position_embeddings - len(answer)
        ids = np.concatenate([prompt[-room:], answer])
        out[i] = model.surprisals([ids])[0][-len(answer) :].mean()
    return out


def summarise_losses(
    chosen: Sequence[Case],
    full: Float[np.ndarray, "q"],
    nothing: Float[np.ndarray, "q"],
    methods: Mapping[str, Mapping[int, Float[np.ndarray, "q"]]],
) -> dict[str, Any]:
    """JSON-ready: `full`, `nothing` (no text at all: what a difference is worth), and by method and budget

    `loss`; `above_full` and `above_baseline`, the differences to the full text's and to truncation's loss over
    conversations; `conditional`, the share of questions whose loss is at most `CLOSE` above the full text's: a
    conditional accuracy without a judge.
    """
    group = np.array([case.conversation for case in chosen])
    baseline = methods.get(BASELINE, {})
    return {
        "n": len(chosen),
        "unit": "nats a token of the gold answer",
        "full": float(full.mean()),
        "nothing": float(nothing.mean()),
        "nothing_above_full": paired_by_group(nothing, full, group),
        "nothing_conditional": float((nothing <= full + CLOSE).mean()),
        "methods": {
            name: {
                str(budget): {
                    "loss": float(loss.mean()),
                    "conditional": float((loss <= full + CLOSE).mean()),
                    "above_full": paired_by_group(loss, full, group),
                    "above_baseline": paired_by_group(loss, baseline[budget], group) if budget in baseline else None,
                }
                for budget, loss in by_budget.items()
            }
            for name, by_budget in methods.items()
        },
    }


def bound_rows(
    chosen: Sequence[Case], model: LanguageModel, *, budget: int = 250, progress: Progress | None = None
) -> Iterator[dict[str, float]]:
    """The first-order bound beside what really happens when the dropped tokens' embeddings shrink by each share.

    One row a question and share: `bound` and `first_order` (both times the share), and the measured `change` of the
    loss, nats. The printed method on the question's ten best turns, read as one text; a question whose ten turns fit
    the budget gives no row.
    """
    distiller = Distiller(model, DistillConfig.paper(), name="fdtd-paper")
    for done, case in enumerate(chosen):
        if progress:
            progress("bounds", done, len(chosen))
        best = sorted(case.turns, key=lambda turn: -(turn.score or 0.0))[:10]
        text = "\n".join(turn.text for turn in best)
        out = distiller.distill(text, budget)
        ids = model.tokenize(text).ids
        # Beyond one window the scores come from several passes, which no single loss has.
        if out.status != "compressed" or len(ids) > distiller.config.window:
            continue
        before = model.ablated_loss(ids, ~out.kept, 0.0)
        for share in SHARES:
            change = model.ablated_loss(ids, ~out.kept, share) - before
            yield {"share": share, "bound": share * out.bound, "first_order": share * out.change, "change": change}


def summarise_bounds(rows: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """By share: means of the bound and of the sizes of both changes, and in how many rows the bound held."""
    out = []
    for share in SHARES:
        part = [row for row in rows if row["share"] == share]
        if not part:
            continue
        bound, first, change = (np.array([row[key] for row in part]) for key in ("bound", "first_order", "change"))
        out.append(
            {
                "share": share,
                "n": len(part),
                "bound": float(bound.mean()),
                "first_order": float(np.abs(first).mean()),
                "change": float(np.abs(change).mean()),
                "held": int((np.abs(change) <= bound).sum()),
            }
        )
    return out

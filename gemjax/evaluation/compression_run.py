"""The whole compression evaluation, as `gemjax eval compression` runs it; an interruption keeps what is finished."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gemjax.errors import ConfigError, RequestError
from gemjax.evaluation.answer_loss import (
    answer_losses,
    bound_rows,
    full_text,
    summarise_bounds,
    summarise_losses,
)
from gemjax.evaluation.compression import (
    BASELINE,
    BUDGETS,
    BudgetMeasures,
    Case,
    Progress,
    measurable,
    measure,
    rouge_package,
    stratified,
    summarise,
)
from gemjax.evaluation.compressors import Contender, Variant
from gemjax.evaluation.locomo import CATEGORIES, Talk, describe
from gemjax.evaluation.remembering import RememberingModel
from gemjax.models.language import LanguageModel


def require_answers(conversations: Sequence[Talk]) -> None:
    """Raises RequestError when no question carries an answer."""
    if not any(measurable(question) for conversation in conversations for question in conversation.questions):
        raise RequestError("no question carries an answer: nothing to measure")


@dataclasses.dataclass(slots=True)
class _Findings:
    methods: dict[str, BudgetMeasures] = dataclasses.field(default_factory=dict)
    variants: dict[str, BudgetMeasures] = dataclasses.field(default_factory=dict)
    losses: dict[str, dict[int, np.ndarray]] = dataclasses.field(default_factory=dict)
    full: np.ndarray | None = None
    nothing: np.ndarray | None = None
    bounds: list[dict[str, float]] = dataclasses.field(default_factory=list)
    interrupted: bool = False


def evaluate(
    conversations: Sequence[Talk],
    chosen: Sequence[Case],
    model: RememberingModel,
    methods: Mapping[str, Contender],
    *,
    variants: Mapping[str, Variant] | None = None,
    budgets: Sequence[int] = BUDGETS,
    losses: int = 0,
    bounds: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Every table at once. Returns a JSON-ready report; docs/compression.md says its fields.

    `KeyboardInterrupt` ends the work, and the report has the methods that were finished.

    Args:
        conversations: for the counts that the report states.
        chosen: the questions with their turns.
        model: methods and variants share what it reads.
        methods: by name, see `compressors.chosen_methods`.
        variants: of the ablation table.
        budgets: tokens of the model's tokenizer.
        losses, bounds: on how many of the questions to take the model's loss of the gold answer, and the bound.
        seed: of these two samples.
        progress: see `compression.Progress`.

    Raises: ConfigError for a number that is too small, or a method whose package is missing.
    """
    for i, budget in enumerate(budgets):
        _check(f"budgets[{i}]", budget, 1)
    _check("losses", losses, 0)
    _check("bounds", bounds, 0)
    made = {name: method.make(model) for name, method in methods.items()}
    found = _Findings()
    asked = stratified(chosen, losses, seed)
    try:
        if "turns" in {method.reads for method in methods.values()} | {v.reads for v in (variants or {}).values()}:
            model.read_turns([turn.text for case in chosen for turn in case.turns], progress)
        for name, method in made.items():
            found.methods[name] = measure(name, method, chosen, budgets, progress)
        for name, variant in (variants or {}).items():
            found.variants[name] = found.methods.get(name) or measure(
                name, variant.make(model, name), chosen, budgets, progress
            )
        if asked:
            _take_losses(found, chosen, asked, model, progress)
        for row in bound_rows([chosen[i] for i in stratified(chosen, bounds, seed)], model, progress=progress):
            found.bounds.append(row)
    except KeyboardInterrupt:
        found.interrupted = True
    report: dict[str, Any] = {
        "data": describe(conversations),
        "conversations": {str(i): conversation.id for i, conversation in enumerate(conversations)},
        "questions": len(chosen),
        "categories": {
            str(c): {"name": name, "n": sum(case.question.category == c for case in chosen)}
            for c, name in CATEGORIES.items()
        },
        "budgets": list(budgets),
        "model": model.name,
        "rouge": rouge_package(),
        "interrupted": found.interrupted,
        "about": {name: methods[name].about for name in found.methods},
        "methods": summarise(chosen, found.methods),
    }
    if found.variants:
        parents = {name: variant.parent for name, variant in (variants or {}).items() if variant.parent}
        first = {name: own for name, own in found.methods.items() if name == BASELINE}
        report["parents"] = parents
        report["ablations"] = summarise(chosen, {**first, **found.variants}, parents)
    if found.full is not None and found.nothing is not None:
        some = [chosen[i] for i in asked]
        report["answer_loss"] = summarise_losses(some, found.full, found.nothing, found.losses)
    if found.bounds:
        report["bounds"] = {"by_share": summarise_bounds(found.bounds), "rows": found.bounds}
    return report


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError(f"{name} = {value}; expected a whole number of at least {least}")


def _take_losses(
    found: _Findings, chosen: Sequence[Case], asked: Sequence[int], model: LanguageModel, progress: Progress | None
) -> None:
    some = [chosen[i] for i in asked]
    found.full = answer_losses(some, [full_text(case) for case in some], model, "answers given everything", progress)
    found.nothing = answer_losses(some, [""] * len(some), model, "answers given nothing", progress)
    for name, own in found.methods.items():
        by_budget = {
            budget: answer_losses(some, [texts[i] for i in asked], model, f"answers given {name}, {budget}", progress)
            for budget, texts in own.texts.items()
        }
        found.losses[name] = by_budget

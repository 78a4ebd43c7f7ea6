"""How a result is made of the units that are kept."""

import numpy as np

from gemjax.distill.render import kept_spans, render
from gemjax.distill.result import Distillation
from gemjax.distill.scoring import Scored, ablation_bound
from gemjax.distill.selection import UnitPlan
from gemjax.distill.turns import ReadTurn, TokenReader
from gemjax.distill.units import Units
from gemjax.errors import ConfigError
from gemjax.models.language import LanguageModel


def check_budget(budget: object) -> None:
    """Raises `ConfigError` unless the budget is an integer of at least 1."""
    if isinstance(budget, bool) or not isinstance(budget, (int, np.integer)) or budget < 1:
        raise ConfigError(f"budget = {budget!r}; expected an integer of at least 1 (tokens)")


def whole(
    read: list[ReadTurn], units: Units, text: str, before: int, budget: int, tokenizer: TokenReader, name: str
) -> Distillation:
    """Everything, as it came; an empty or blank text gives an empty one when it does not fit."""
    turns = [turn.turn for turn in read]
    fits = before <= budget
    spans = kept_spans(units, np.ones(len(units), bool), turns) if fits else []
    tokens = len(units.first) and int(units.first[-1])
    zeros = np.zeros(tokens, np.float32)
    return Distillation(
        text=text if fits else "",
        status="unchanged" if fits and text else "empty",
        spans=tuple(spans),
        kept=np.full(tokens, fits),
        sensitivity=zeros,
        scores=zeros,
        **_places(read),
        budget=budget,
        tokens_before=before,
        tokens_after=before if fits else 0,
        bound=0.0,
        change=0.0,
        report={"method": name, "turns": len(read), "tokenizer": tokenizer.name},
    )


def finish(
    read: list[ReadTurn],
    units: Units,
    kept: np.ndarray,
    before: int,
    budget: int,
    tokenizer: TokenReader,
    *,
    name: str,
    model: LanguageModel | None = None,
    scored: Scored | None = None,
    planned: UnitPlan | None = None,
) -> Distillation:
    """The result for the units that are kept."""
    turns = [turn.turn for turn in read]
    spans = kept_spans(units, kept, turns)
    text = render(spans, turns)
    tokens = np.repeat(kept, units.cost)
    raw = np.zeros(len(tokens), np.float32) if scored is None else scored.raw
    products = np.zeros(len(tokens), np.float32) if scored is None else scored.products
    scores = raw if planned is None else np.repeat(planned.scores, units.cost).astype(np.float32)
    sentences = np.unique(units.sentence[kept])
    return Distillation(
        text=text,
        status="compressed" if text else "empty",
        spans=tuple(spans),
        kept=tokens,
        sensitivity=raw,
        scores=scores,
        **_places(read),
        budget=budget,
        tokens_before=before,
        tokens_after=tokenizer.count(text),
        bound=0.0 if model is None else ablation_bound(raw, ~tokens, model.config.hidden_size),
        change=float(-products[~tokens].sum(dtype=np.float64)),
        report={
            "method": name,
            "turns": len(read),
            "turns_kept": len({span.turn for span in spans}),
            "sentences": sum(len(turn.spans) for turn in read),
            "sentences_kept": len(sentences),
            "tokenizer": tokenizer.name,
            "model": None if model is None else model.name,
            "loss": None if model is None or scored is None else scored.loss,
        },
    )


def _places(read: list[ReadTurn]) -> dict[str, np.ndarray]:
    counts = [len(turn.tokens.ids) for turn in read]
    empty = np.zeros(0, np.int64)
    return {
        "starts": np.concatenate([empty, *(turn.tokens.starts for turn in read)]),
        "stops": np.concatenate([empty, *(turn.tokens.stops for turn in read)]),
        "turn": np.repeat(np.arange(len(read)), counts),
    }

"""Every part of how text is shortened: what the two public configurations stand for, and what ablations change."""

import dataclasses
from typing import Literal

import numpy as np

from gemjax.distill.filler import Filler
from gemjax.distill.structure import Multipliers
from gemjax.distill.units import UnitKind
from gemjax.errors import ConfigError

_LARGEST_WEIGHT = 1e6
_NUMBER = (int, float, np.integer, np.floating)
Loss = Literal["text", "query", "surprisal", "none"]
Context = Literal["joint", "turn"]
Fit = Literal["trim", "prefix", "skip"]
Value = Literal["mean", "turn", "product", "knapsack"]


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """Every part of the method, each of which can be changed or switched off by itself.

    Not what a user sets (`SelectorConfig`, `DistillConfig`): evaluation takes methods apart with it.

    Attributes:
        loss: what a token's score is its sensitivity to: "text", the text's own cross-entropy; "query", that of the
            query given the text; "surprisal", no sensitivity but self-information; "none", all alike: no model pass.
        context: "joint" scores all turns in one text (windows of `window`), "turn" each by itself, which is faster and
            makes a turn's scores independent of its neighbours. "query" always reads as much as fits in a window.
        window: tokens read at once.
        impute: replace the artefacts at both ends of what was read by the median of the rest.
        smoothing: width of the average pooling over tokens, odd; 1: none.
        rank: replace scores by their rank within the turn before anything is compared between turns.
        multipliers: structural factors; None: none.
        oldest: weight of the oldest turn, the newest having 1; 1: no decay.
        unit: what pruning drops: tokens, or whole words.
        keep: share of a long sentence's unprotected units that survive pruning.
        head, tail: tokens at a long sentence's ends that pruning leaves alone.
        longer_than: sentences of at most this many tokens are not pruned.
        gap: gaps of at most this many tokens are filled; 0: none.
        filler: what is set aside before anything of worth; None: nothing.
        value: what orders the sentences: "mean", their mean score after pruning; "turn", their turn's score, or without
            score and query the words that are new in them (`coverage`); "product", mean and turn's score; "knapsack",
            the choice of greatest total score that fits.
        lexical: weight of the query's words (BM25 over the turns) beside the turns' scores, both standardised; 0: none.
        neighbours: share of the relevance of the turns before and after that is added to a turn's own; 0: none.
        fit: what happens at the first sentence that does not fit: "trim" puts its best units into the room that is left
            and stops, "prefix" stops, "skip" goes on with the next ones.
        headers: keep a turn's header while anything of the turn is kept.
    """

    loss: Loss = "text"
    context: Context = "turn"
    window: int = 1024
    impute: bool = True
    smoothing: int = 1
    rank: bool = False
    multipliers: Multipliers | None = dataclasses.field(default_factory=Multipliers)
    oldest: float = 1.0
    unit: UnitKind = "word"
    keep: float = 1.0
    head: int = 1
    tail: int = 1
    longer_than: int = 8
    gap: int = 0
    filler: Filler | None = dataclasses.field(default_factory=Filler)
    value: Value = "turn"
    lexical: float = 1.0
    neighbours: float = 0.3
    fit: Fit = "trim"
    headers: bool = True

    def __post_init__(self) -> None:
        for name, allowed in (
            ("loss", ("text", "query", "surprisal", "none")),
            ("context", ("joint", "turn")),
            ("unit", ("token", "word")),
            ("value", ("mean", "turn", "product", "knapsack")),
            ("fit", ("trim", "prefix", "skip")),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} = {getattr(self, name)!r}; expected one of {', '.join(allowed)}")
        for name in ("keep", "oldest"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, _NUMBER) or not 0 <= value <= 1:
                raise ConfigError(f"{name} = {value!r}; expected a number from 0 to 1")
        for name in ("lexical", "neighbours"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, _NUMBER) or not 0 <= value <= _LARGEST_WEIGHT:
                raise ConfigError(f"{name} = {value!r}; expected a number of at least 0, at most {_LARGEST_WEIGHT:g}")
        for name in ("impute", "rank", "headers"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} = {getattr(self, name)!r}; expected True or False")
        for name, kind in (("filler", Filler), ("multipliers", Multipliers)):
            if not isinstance(getattr(self, name), (kind, type(None))):
                raise ConfigError(f"{name} = {getattr(self, name)!r}; expected {kind.__name__}(...) or None")
        for name, least in (("head", 0), ("tail", 0), ("longer_than", 0), ("gap", 0), ("smoothing", 1), ("window", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{name} = {value!r}; expected an integer of at least {least}")
        if self.smoothing % 2 == 0:
            raise ConfigError(f"smoothing = {self.smoothing}; expected an odd width")

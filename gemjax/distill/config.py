"""What a user sets: of the selection without a model, and of the paper's method."""

import dataclasses
from typing import Literal

from gemjax.distill.filler import Filler
from gemjax.distill.recipe import Context, Fit, Recipe
from gemjax.distill.structure import Multipliers
from gemjax.distill.units import UnitKind
from gemjax.errors import ConfigError

Order = Literal["product", "sensitivity"]


@dataclasses.dataclass(frozen=True, slots=True)
class SelectorConfig:
    """How `EvidenceSelector` orders sentences, and what it sets aside.

    Attributes:
        lexical: weight of the query's words (BM25 over the turns) beside the turns' scores, both standardised; 0: none.
        neighbours: share of the relevance of the turns before and after that is added to a turn's own; 0: none.
        filler: what is set aside before anything of worth; None: nothing.
        fit: what happens at the first sentence that does not fit: "trim" puts its best words into the room that is left
            and stops, "prefix" stops, "skip" goes on with the next ones.

    Raises:
        ConfigError: a value is out of its range.
    """

    lexical: float = 1.0
    neighbours: float = 0.3
    filler: Filler | None = dataclasses.field(default_factory=Filler)
    fit: Fit = "trim"

    def __post_init__(self) -> None:
        self.recipe()

    def recipe(self) -> Recipe:
        """The whole method that these settings stand for."""
        return Recipe(loss="none", lexical=self.lexical, neighbours=self.neighbours, filler=self.filler, fit=self.fit)


@dataclasses.dataclass(frozen=True, slots=True)
class DistillConfig:
    """The parameters of FDTD (CoreMem, section 3.3 and Algorithm 2).

    With words as units, sentences with a negation, limiter or condition are whole or absent, headers stay with their
    turn, filler goes last, and the last sentence is trimmed; with tokens, the method is the printed one.

    Attributes:
        order: what a sentence is worth: "sensitivity", its mean score, as printed; "product", that times its turn's
            retrieval score, where turns have scores or a query gives them some.
        unit: what pruning drops: whole words, or tokens.
        context: "joint" scores all turns in one text (windows of `window`), "turn" each by itself, which is faster and
            makes a turn's scores independent of its neighbours.
        window: tokens read at once.
        smoothing: width of the average pooling over tokens, odd; 1: none.
        multipliers: structural factors; None: none.
        oldest: weight of the oldest turn, the newest having 1; 1: no decay.
        keep: share of a long sentence's unprotected units that survive pruning.
        head, tail: tokens at a long sentence's ends that pruning leaves alone.
        longer_than: sentences of at most this many tokens are not pruned.
        gap: gaps of at most this many tokens are filled; 0: none.

    Raises:
        ConfigError: a value is out of its range.
    """

    order: Order = "product"
    unit: UnitKind = "word"
    context: Context = "turn"
    window: int = 1024
    smoothing: int = 1
    multipliers: Multipliers | None = dataclasses.field(default_factory=Multipliers)
    oldest: float = 1.0
    keep: float = 1.0
    head: int = 1
    tail: int = 1
    longer_than: int = 8
    gap: int = 0

    def __post_init__(self) -> None:
        if self.order not in ("product", "sensitivity"):
            raise ConfigError(f"order = {self.order!r}; expected one of product, sensitivity")
        self.recipe()

    @classmethod
    def paper(cls) -> "DistillConfig":
        """The method as printed (section 3.3, Algorithm 2), 60 % of each middle kept: the paper gives no number."""
        return cls(
            order="sensitivity",
            unit="token",
            context="joint",
            smoothing=5,
            oldest=0.6,
            keep=0.6,
            head=3,
            tail=3,
            gap=3,
        )

    def recipe(self) -> Recipe:
        """The whole method that these parameters stand for."""
        printed = self.unit == "token"
        product = self.order == "product"
        return Recipe(
            loss="text",
            context=self.context,
            window=self.window,
            smoothing=self.smoothing,
            # Scores of different turns are multiplied with relevance on one scale.
            rank=product,
            multipliers=self.multipliers,
            oldest=self.oldest,
            unit=self.unit,
            keep=self.keep,
            head=self.head,
            tail=self.tail,
            longer_than=self.longer_than,
            gap=self.gap,
            filler=None if printed else Filler(),
            value="product" if product else "mean",
            lexical=0.0 if printed else 1.0,
            neighbours=0.0 if printed else 0.3,
            fit="prefix" if printed else "trim",
            headers=not printed,
        )

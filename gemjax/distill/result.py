"""What a distiller or one of its rivals returns."""

import dataclasses
from typing import Any, Literal

import numpy as np

from gemjax.distill.render import KeptSpan

Status = Literal["compressed", "unchanged", "empty"]


@dataclasses.dataclass(frozen=True, slots=True)
class Distillation:
    """A compressed text and why it looks as it does. Arrays have one entry a token, over all turns one after another.

    Attributes:
        text: what is left: pieces of the original text, turns on lines of their own.
        status: "compressed"; "unchanged": the text was within the budget; "empty": there was nothing to say, or not
            even the smallest unit fits.
        spans: which characters of which turn are left; the pieces of `text`, in order.
        kept: whether the token survives.
        sensitivity: $S_i$ as the model gave it; zeros where no model pass was needed.
        scores: after smoothing, ranking, multipliers and decay: what pruning went by.
        starts, stops, turn: the token's characters, and its turn.
        budget: as asked for, in tokens of the model's tokenizer.
        tokens_before, tokens_after: tokens of the whole text and of `text`, by the same tokenizer.
        bound: no first-order change of the loss is larger when the dropped tokens' embeddings are set to zero.
        change: the first-order change itself, nats.
        report: what was done, JSON-ready.
    """

    text: str
    status: Status
    spans: tuple[KeptSpan, ...]
    kept: np.ndarray
    sensitivity: np.ndarray
    scores: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    turn: np.ndarray
    budget: int
    tokens_before: int
    tokens_after: int
    bound: float
    change: float
    report: dict[str, Any]

    @property
    def ratio(self) -> float:
        """Tokens left / tokens before; 1 for an empty text."""
        return self.tokens_after / self.tokens_before if self.tokens_before else 1.0

    def __str__(self) -> str:
        return self.text

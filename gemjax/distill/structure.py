"""Structural multipliers of the scores (section 3.3, Eq. 4 and 7): connectors, punctuation, digits, proper nouns."""

# ruff: noqa: RUF001 - punctuation of many scripts is meant

import dataclasses
from collections.abc import Sequence

import numpy as np

from gemjax.errors import ConfigError

# Connectors that carry cause, contrast, condition, order in time or certainty.
_CONNECTORS = (
    "because since although though but however nevertheless yet unless if when while whereas despite instead "
    "therefore  thus hence so consequently as until before after then first next finally meanwhile during not "
    "never no cannot only  except without maybe perhaps probably possibly likely must should could might would "
    "actually really think believe  know suppose assume infer mean"
)
CONNECTORS = frozenset(_CONNECTORS.split())
_HEAVY = frozenset(":\n：")
_BOUNDARY = frozenset(".?。？؟।")


@dataclasses.dataclass(frozen=True, slots=True)
class Multipliers:
    """Factors of the scores; 1 switches one off. A unit's factor is `max(syntax, content)`, syntax itself a maximum.

    Attributes:
        connector: inference keywords (but, because, although, before, after, ...).
        heavy: a colon or a line end.
        boundary: a full stop or question mark.
        digit: a unit that holds a digit.
        capital: a word that begins with a capital letter.
    """

    connector: float = 1.2
    heavy: float = 1.5
    boundary: float = 1.3
    digit: float = 1.4
    capital: float = 1.3

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not (isinstance(value, (int, float)) and 0 < value < float("inf")):
                raise ConfigError(f"multiplier {field.name} = {value!r}; expected a positive number")

    def factors(self, units: Sequence[str]) -> np.ndarray:
        """The factor of each unit's text, float32 `[n]`."""
        return np.array([self._factor(text) for text in units], np.float32)

    def _factor(self, text: str) -> float:
        syntax = content = 1.0
        word = text.strip()
        if not _HEAVY.isdisjoint(text):
            syntax = max(syntax, self.heavy)
        if not _BOUNDARY.isdisjoint(text):
            syntax = max(syntax, self.boundary)
        if word.strip(".,;:!?\"'()").lower() in CONNECTORS:
            syntax = max(syntax, self.connector)
        if any(character.isdigit() for character in word):
            content = max(content, self.digit)
        if word[:1].isupper():
            content = max(content, self.capital)
        return max(syntax, content)

"""What goes in: turns of a dialogue, or plain text, and their tokens."""

import dataclasses
import math
from collections.abc import Sequence
from numbers import Real
from typing import Protocol

import numpy as np

from gemjax.distill.sentences import Span, sentences
from gemjax.models.text_tokenizer import Tokens


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the dialogue, or one retrieved memory.

    Args:
        text: what is compressed. Nothing is added to it.
        header: how many characters at its start say who speaks or when ("Anna: "): where the preset keeps headers,
            they stay as long as anything of the turn does.
        score: how well the turn matches the query, larger is better (a bank's fused score); None: not retrieved.
    """

    text: str
    header: int = 0
    score: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"a turn's text must be a string, got {type(self.text).__name__}")
        if isinstance(self.header, bool) or not isinstance(self.header, (int, np.integer)):
            raise TypeError(f"a turn's header must be an integer, got {type(self.header).__name__}")
        if not 0 <= self.header <= len(self.text):
            raise ValueError(f"header = {self.header}; the turn has {len(self.text)} characters")
        if self.score is not None and not _finite(self.score):
            raise ValueError(f"score = {str(self.score)[:40]}; expected a finite number or None")


def _finite(value: object) -> bool:
    try:
        return not isinstance(value, (bool, np.bool_)) and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an integer beyond the floats
        return False


Turns = str | Sequence[str] | Sequence[Turn]


def as_turns(turns: Turns) -> list[Turn]:
    """A text is a single turn; strings become turns. Raises `TypeError` for anything else."""
    if isinstance(turns, str):
        return [Turn(turns)]
    given: object = turns
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Sequence):
        raise TypeError(f"turns must be a string or a sequence of strings or turns, got {type(turns).__name__}")
    out = []
    for i, turn in enumerate(turns):
        if not isinstance(turn, (str, Turn)):
            raise TypeError(f"turn {i} must be a string or a Turn, got {type(turn).__name__}")
        out.append(turn if isinstance(turn, Turn) else Turn(turn))
    return out


class TokenReader(Protocol):
    """What counts a budget: a `TextTokenizer`, or a language model with its own."""

    name: str

    def tokenize(self, text: str) -> Tokens:
        """The text's tokens and their characters."""
        ...

    def count(self, text: str) -> int:
        """How many tokens the text has."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class ReadTurn:
    """A turn with its tokens and sentences."""

    turn: Turn
    tokens: Tokens
    spans: list[Span]
    """Sentences. A header is not one of its own: it belongs to the first."""


def read_turns(turns: Sequence[Turn], tokenizer: TokenReader) -> list[ReadTurn]:
    """Tokenise and split each turn by itself: what a turn becomes must not depend on its neighbours."""
    return [ReadTurn(turn, tokenizer.tokenize(turn.text), sentences(turn.text)) for turn in turns]

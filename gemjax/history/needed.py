"""Which blocks a coming call will probably copy from, without an encoder: a small hazard model (ours, not the paper's).

Whole blocks are kept or dropped, so each is a bet: keeping one costs reads at every request, dropping one costs a
look-up if a later call copies a value that no other block holds.
"""

import dataclasses
import math
from typing import ClassVar

import numpy as np

from gemjax.errors import ConfigError
from gemjax.history.values import values_of_content
from gemjax.history.view import EvidenceView

HORIZON = 16
"""Calls ahead of which `probabilities` speaks."""

_WEIGHTS = (-1.156, -0.571, 0.333, 0.228, -0.49)
_LOOKUP = 2_000.0
"""What the look-up itself costs, in characters of plain input: a call of some 300 characters at the price of output."""


def probabilities(view: EvidenceView) -> np.ndarray:
    r"""For each block, how probably one of the next 16 turns copies a value whose newest holder it is, `[n]`.

    A logistic model of four features, fitted on recorded sessions of 30 blocks and more, each with the same weight:
    $\log_2(1 + \text{age})$ in blocks; $\log_2(1 + u)$ for the $u$ specific values that no newer block holds;
    $\log_2(1 + \ell)$ for the $\ell$ of them that some call has used; and the share of what the block read that was
    read again later.
    """
    n = len(view)
    newest: dict[str, int] = {}
    used: set[str] = set()
    for index, block in enumerate(view.blocks):
        in_call, in_result = values_of_content(block.content)
        used |= in_call
        newest |= dict.fromkeys(in_call, index)
        newest |= dict.fromkeys(in_result, index)
    unique, live, again = np.zeros(n), np.zeros(n), np.zeros(n)
    for value, index in newest.items():
        unique[index] += 1
        live[index] += value in used
    read: set[str] = set()
    for index in range(n - 1, -1, -1):
        sources = view.signals[index].sources
        if sources:
            again[index] = sum(s in read for s in sources) / len(sources)
            read.update(sources)
    age = np.arange(n - 1, -1, -1)
    bias, by_age, by_unique, by_live, by_again = _WEIGHTS
    score = bias + by_age * np.log2(1 + age) + by_unique * np.log2(1 + unique) + by_live * np.log2(1 + live)
    chance: np.ndarray = 1 / (1 + np.exp(-(score + by_again * again)))
    return chance


@dataclasses.dataclass(frozen=True)
class Needed:
    r"""The blocks that cost more to look up again than to keep.

    A block of $c$ characters that one of the next $H = 16$ turns needs with probability $p$ stays if

    $$p\,(r F + w c + o) \ge \text{thrift} \cdot r\,c\,H:$$

    the look-up reads what is forwarded ($F$, taken as half of the history) and writes the block; keeping it is read at
    each of the $H$ requests. Short blocks therefore stay long, and a long one only while it is probably needed.

    Args:
        thrift: how dear keeping is taken to be; larger drops more.
        read: price of a cached character, in units of the plain input price.
        write: price of a new one.
    """

    thrift: float = 1.0
    read: float = 0.1
    write: float = 1.25
    name: str = dataclasses.field(default="needed", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"Needed(name=...) must be a non-empty string, got {self.name!r}")
        for field in ("thrift", "read", "write"):
            value = getattr(self, field)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ConfigError(f"Needed({field}=...) must be a positive number, got {value!r}")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        if not len(view):
            return {}
        chance = probabilities(view)
        chars = np.array([block.chars for block in view.blocks], dtype=np.float64)
        lookup = chance * (self.read * chars.sum() / 2 + self.write * chars + _LOOKUP)
        keep = np.flatnonzero(lookup >= self.thrift * self.read * chars * HORIZON)
        return {int(i): f"probably needed again ({chance[i]:.2f})" for i in keep}

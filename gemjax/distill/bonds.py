"""What belongs together: sentences that are taken whole or not at all, and those that come with others."""

import dataclasses

import numpy as np

from gemjax.distill.integrity import integrity
from gemjax.distill.turns import ReadTurn
from gemjax.distill.units import UnitKind


@dataclasses.dataclass(frozen=True, slots=True)
class Bonds:
    """What belongs together, over the sentences of all turns."""

    whole: np.ndarray
    needs: list[tuple[int, ...]]

    def with_needs(self, sentences: list[int]) -> list[int]:
        """The sentences, and those that must come with them."""
        return list(dict.fromkeys(i for sentence in sentences for i in (sentence, *self.needs[sentence])))


def bonds_of(read: list[ReadTurn], unit: UnitKind) -> Bonds:
    """The printed method drops tokens wherever they stand; whole words keep what they say."""
    total = sum(len(turn.spans) for turn in read)
    if unit != "word":
        return Bonds(np.zeros(total, bool), [()] * total)
    whole: list[bool] = []
    needs: list[tuple[int, ...]] = []
    for turn in read:
        found = integrity(turn.turn, turn.spans)
        needs += [tuple(len(whole) + i for i in line) for line in found.needs]
        whole += found.whole
    return Bonds(np.array(whole, bool), needs)


def sentence_texts(read: list[ReadTurn]) -> list[str]:
    """Every sentence, without its turn's header."""
    return [
        turn.turn.text[max(a, turn.turn.header if i == 0 else a) : b]
        for turn in read
        for i, (a, b) in enumerate(turn.spans)
    ]

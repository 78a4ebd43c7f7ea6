"""Showing memories that say the same once."""

import numpy as np
from jaxtyping import Int

from gemjax.memory.duplicates import same_words
from gemjax.memory.entries import Entries
from gemjax.memory.rows import Rows

ALIKE = 0.9
"""Least cosine between memories of the same words: the same text with another vector is another memory."""


class Folding:
    """Groups ranked memories of one bank."""

    def __init__(self, entries: Entries, rows: Rows) -> None:
        self._entries = entries
        self._rows = rows
        self._keys: dict[int, bytes] = {}

    def groups(self, ranked: Int[np.ndarray, "m"], k: int) -> list[list[int]]:
        """The first k groups of places in `ranked` (rows, best first); each group's first place is its best."""
        groups: list[list[int]] = []
        by_words: dict[bytes, list[list[int]]] = {}
        for place, row in enumerate(ranked.tolist()):
            key = self._keys.get(row)
            if key is None:
                key = self._keys[row] = same_words(self._entries.at(row))
            known = by_words.setdefault(key, [])
            group = next((g for g in known if self._alike(int(ranked[g[0]]), row)), None)
            if group is not None:
                group.append(place)
            elif len(groups) < k:
                groups.append([place])
                known.append(groups[-1])
        return groups

    def _alike(self, one: int, other: int) -> bool:
        a, b = self._rows.take(np.array([one, other]))
        return float(a @ b) >= ALIKE

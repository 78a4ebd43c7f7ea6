"""An index by letters: which texts hold these very names, paths, ids and numbers (BM25 over values and their parts)."""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np

K1 = 1.2
B = 0.3
"""BM25's saturation and length normalisation (Robertson and Zaragoza 2009, section 3.2). The length enters by its
logarithm, so that a rare name in a long result is not worth less than a common one in a short result."""

MOST_QUERY_TERMS = 64
"""Terms of a query that are looked up, rarest first, so that a long question costs no more than a short one."""

MOST_TEXT = 400_000
"""Characters of one text that are indexed; its beginning and its end."""

# A value: letters and digits, joined by the marks that join paths, versions, addresses and dotted names.
_VALUE = re.compile(r"\w+(?:[./:@#+\-]+\w+)*")
_PART = re.compile(r"[^\W_]+")
# Where camelCase and letters-then-digits fall apart.
_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
# Scripts that are written without spaces are matched by pairs of characters.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")


def terms(text: str) -> Counter[str]:
    """What a text is found by: its values as they stand, and their parts, in lower case.

    >>> sorted(terms("open src/appMain.py"))
    ['app', 'appmain', 'main', 'open', 'py', 'src', 'src/appmain.py']
    """
    if len(text) > MOST_TEXT:
        text = text[: MOST_TEXT // 2] + "\n" + text[-MOST_TEXT // 2 :]
    found: Counter[str] = Counter()
    for value, count in Counter(_VALUE.findall(text)).items():
        pieces = {value.lower()}
        for part in _PART.findall(value):
            pieces.add(part.lower())
            pieces.update(p.lower() for p in _CASE.split(part))
        for run in _UNSPACED.findall(value):
            pieces.update(run[i : i + 2] for i in range(len(run) - 1))
        for piece in pieces:
            found[piece] += count
    return found


class LetterIndex:
    """Texts by number, found by letters. Numbers ascend and are never used twice. Not thread-safe."""

    def __init__(self) -> None:
        self._postings: dict[str, array[int]] = {}
        self._lengths = array("f")
        self._alive = bytearray()
        self._base = 0
        self._total = 0.0

    def __len__(self) -> int:
        """How many texts can be found."""
        return sum(self._alive)

    def add(self, text: str) -> int:
        """Index a text; returns its number."""
        row = len(self._alive)
        found = terms(text)
        for term, count in found.items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = array("I")
            posting.append(row)
            posting.append(count)
        length = float(sum(found.values()))
        self._lengths.append(length)
        self._alive.append(1)
        self._total += length
        return self._base + row

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget texts. Their room is given back once they are as many as those that stay."""
        for number in numbers:
            row = number - self._base
            if 0 <= row < len(self._alive) and self._alive[row]:
                self._alive[row] = 0
                self._total -= self._lengths[row]
        if len(self._alive) > 64 and 2 * len(self) < len(self._alive):
            self._compact()

    def weight(self, term: str) -> float:
        """How telling a term is: BM25's inverse document frequency, 0 for one that no text holds."""
        posting = self._postings.get(term)
        if posting is None:
            return 0.0
        n = len(posting) // 2
        return math.log1p((max(len(self._alive), n) - n + 0.5) / (n + 0.5))

    def is_telling(self, term: str) -> bool:
        """Whether a match of this term says anything: it is known, and not in more than half of the texts."""
        posting = self._postings.get(term)
        return posting is not None and len(posting) // 2 <= max(1, len(self._alive) // 2)

    def search(self, query: str, most: int) -> list[tuple[int, float]]:
        """The best texts and their scores, best first, ties by the higher number (the newer text).

        Args:
            query: what to look for.
            most: the longest list that is wanted.

        Returns: only texts that hold a telling term of the query.
        """
        wanted = {t: w for t in terms(query) if (w := self.weight(t)) > 0}
        if not wanted:
            return []
        rarest = sorted(wanted, key=lambda t: (-wanted[t], t))[:MOST_QUERY_TERMS]
        n = len(self._alive)
        lengths = np.frombuffer(self._lengths, np.float32)
        scale = max(self._total, 1.0) / max(len(self), 1)
        norms = K1 * (1 - B + B * np.log2(1 + lengths / scale))
        scores = np.zeros(n, np.float64)
        told = np.zeros(n, bool)
        for term in rarest:
            rows, counts = np.frombuffer(self._postings[term], np.uint32).reshape(-1, 2).T
            scores[rows] += wanted[term] * counts * (K1 + 1) / (counts + norms[rows])
            if self.is_telling(term):
                told[rows] = True
        found = np.flatnonzero(told & np.frombuffer(self._alive, np.uint8).astype(bool))
        best = found[np.lexsort((-found, -scores[found]))][:most]
        return [(self._base + int(row), float(scores[row])) for row in best]

    def _compact(self) -> None:
        """Drop the rows of forgotten texts from the front, where they are: the oldest are forgotten first."""
        first = next((row for row, alive in enumerate(self._alive) if alive), len(self._alive))
        if not first:
            return
        for term in list(self._postings):
            pairs = np.frombuffer(self._postings[term], np.uint32).reshape(-1, 2)
            kept = pairs[pairs[:, 0] >= first].copy()
            if len(kept):
                kept[:, 0] -= first
                self._postings[term] = array("I", kept.tobytes())
            else:
                del self._postings[term]
        self._base += first
        self._lengths = self._lengths[first:]
        self._alive = self._alive[first:]

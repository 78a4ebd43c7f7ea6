"""How well turns match a query: their retrieval scores, the query's words in them, and their neighbours."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import regex
from jaxtyping import Float

from gemjax.distill.units import UNSPACED, is_unspaced

# Marks belong to the letters before them: without them words of Indic scripts would fall apart.
_WORD = regex.compile(rf"{UNSPACED}+|(?:(?!{UNSPACED})[\w\p{{M}}])+")
_FUNCTION_WORDS = """
a an the and or but not so if than then just of to in on at for with from by about as is are was were be been do does
did has have had can could will would should he she it they we i you me him us them his her its their our my your this
that these those there here what when where who which how why s t m re ve ll d
"""
_STOP = frozenset(_FUNCTION_WORDS.split())


def words(text: str) -> list[str]:
    """Words to compare: casefolded, English function words left out, English inflection taken off."""
    out: list[str] = []
    for word in _WORD.findall(text.casefold()):
        if is_unspaced(word):
            # Nothing says where a word ends: each two neighbouring characters count as one.
            out += [word] if len(word) == 1 else [word[i : i + 2] for i in range(len(word) - 1)]
        elif word not in _STOP:
            out.append(_stem(word) if word.isascii() else word)
    return out


def _stem(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s") and word[-2:] not in ("ss", "us") and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    return word.rstrip("e") if len(word) > 3 else word


def bm25(texts: Sequence[str], query: str, *, k1: float = 1.2, b: float = 0.75) -> Float[np.ndarray, "n"]:
    """Okapi BM25 of each text for the query, the texts themselves being the collection; float64 `[n]`, at least 0.

    Args:
        texts: what is compared.
        query: the question; a word that it repeats counts once.
        k1, b: saturation of repeated words, and normalisation by length.
    """
    counts = [Counter(words(text)) for text in texts]
    lengths = np.array([count.total() for count in counts], float)
    n, out = len(texts), np.zeros(len(texts))
    if not lengths.any():
        return out
    weight = k1 * (1 - b + b * lengths / lengths.mean())
    for word in dict.fromkeys(words(query)):
        often = np.array([count[word] for count in counts], float)
        holding = int((often > 0).sum())
        if holding:
            # A text without the word has 0 above and, with k1 = 0, below.
            saturated = often * (k1 + 1) / np.maximum(often + weight, 1e-300)
            out += math.log(1 + (n - holding + 0.5) / (holding + 0.5)) * saturated
    return out


def fused_relevance(
    scores: Float[np.ndarray, "n"], texts: Sequence[str], query: str | None, *, lexical: float, neighbours: float
) -> Float[np.ndarray, "n"]:
    """What orders the turns: standardised scores, plus the query's words, plus what stands beside what matches.

    A memory's vector says what a turn is about; a name or a number in the question is found by its letters. And in a
    dialogue what answers stands beside what asks, in other words than the question's.

    Args:
        scores: of each text, larger is better; NaN: unknown, which comes after all known ones.
        texts: in their order in the dialogue.
        query: None or blank: no words are compared.
        lexical: weight of the standardised BM25 score.
        neighbours: share of the positive relevance of the text before and the text after that is added.

    Returns: float64 `[n]`; only differences matter.
    """
    known = ~np.isnan(scores)
    total = np.zeros(len(scores))
    total[known] = _standard(scores[known])
    if lexical and query is not None and query.strip():
        total += lexical * _standard(bm25(texts, query))
    if neighbours:
        beside = np.pad(np.maximum(total, 0.0), 1)
        total = total + neighbours * (beside[:-2] + beside[2:])
    if known.any():
        total[~known] -= np.ptp(total) + 1.0
    return total


def _standard(values: np.ndarray) -> np.ndarray:
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0.0:
        return np.zeros(len(values))
    scaled = values / largest  # squares of large values would overflow
    centred: np.ndarray = scaled - scaled.mean()
    spread = float(np.sqrt(np.mean(centred**2)))
    # What differs only by rounding says nothing.
    return centred / spread if spread > 1e-9 else np.zeros(len(values))

"""Vectors of a history's blocks and of what they are compared with."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from gemjax.history.evidence import Rule
from gemjax.history.queries import query_directions, query_texts
from gemjax.history.reading import History
from gemjax.history.result import EncoderUsage
from gemjax.history.vectors import BlockVectors, SharedEncoder


@dataclasses.dataclass(frozen=True, slots=True)
class Embedded:
    """A history's vectors.

    Attributes:
        vectors: one unit or zero row a block, `[bucket(n), d]`; zero rows after the last block.
        queries: unit or zero directions `[d]` by query name.
        usage: what they cost.
    """

    vectors: np.ndarray
    queries: Mapping[str, np.ndarray]
    usage: EncoderUsage


def embed(history: History, rules: Sequence[Rule], vectors: BlockVectors, encoder: SharedEncoder) -> Embedded:
    """Encode what is new, blocks and queries, in one call of the encoder.

    Raises: `EncoderError` and the other `GemjaxError`s of the encoder.
    """
    blocks = history.parsed.blocks
    new = vectors.missing(blocks)
    asked = query_texts(rules, history.goal, history.latest, blocks)
    texts = list(dict.fromkeys(text for parts in asked.values() for text in parts))
    wanted = [b.content.selection_text for b in new] + texts
    usage = EncoderUsage()
    known: dict[str, np.ndarray] = {}
    if wanted:
        rows, usage = encoder.encode(wanted)
        vectors.extend(new, rows[: len(new)])
        known = dict(zip(texts, rows[len(new) :], strict=True))
    return Embedded(vectors.padded(), query_directions(asked, known), usage)

"""Vectors of a history's blocks and of what they are compared with."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from gemjax.history.config import GEMConfig
from gemjax.history.deadline import Deadline
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


def embed(
    history: History, config: GEMConfig, vectors: BlockVectors, encoder: SharedEncoder, deadline: Deadline
) -> Embedded:
    """Encode what is new, blocks and queries.

    Without a limit all of it in one call of the encoder, so that a replay always gets the same bits. Else the queries
    and the newest blocks first, in the background.

    Args:
        history: what came.
        config: its rules say which queries there are, and how long the request waits.
        vectors: the session's; gets the new ones once all of them are there.
        encoder: makes them.
        deadline: of the request.

    Raises: `EncoderError` and the other `GemjaxError`s of the encoder; `OutOfTime`.
    """
    blocks = history.parsed.blocks
    new = vectors.missing(blocks)
    asked = query_texts(config.rules, history.goal, history.latest, blocks)
    texts = list(dict.fromkeys(text for parts in asked.values() for text in parts))
    of_blocks = [b.content.selection_text for b in new]
    usage = EncoderUsage()
    known: dict[str, np.ndarray] = {}
    if texts or of_blocks:
        limits = (config.waits_for_vectors, deadline.left())
        if limits == (None, None) or not isinstance(encoder, SharedEncoder):
            rows, usage = encoder.encode(of_blocks + texts)
            new_rows, asked_rows = rows[: len(new)], rows[len(new) :]
        else:
            rows, usage = encoder.encode_within(texts + of_blocks[::-1], config.waits_for_vectors, deadline, vectors)
            new_rows, asked_rows = rows[len(texts) :][::-1], rows[: len(texts)]
        vectors.extend(new, new_rows)
        known = dict(zip(texts, asked_rows, strict=True))
    return Embedded(vectors.padded(), query_directions(asked, known), usage)

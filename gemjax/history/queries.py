"""What blocks are compared with: the goal, and what the agent did last."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gemjax.history.records import Block, BlockContent

Query = Callable[[str, BlockContent, Sequence[Block]], tuple[str, ...]]
"""From the goal text, the latest exchange and the blocks to the texts of a query.

The vector of a query is the direction of the sum of its texts' unit vectors. So a query of several parts costs no
encoding of its own: its parts are texts that are encoded anyway.
"""


def _turn(goal: str, latest: BlockContent, blocks: Sequence[Block]) -> tuple[str, ...]:
    return ("\n\n".join(part for part in (latest.reasoning.strip(), latest.text.strip(), latest.action_text) if part),)


def _trail(goal: str, latest: BlockContent, blocks: Sequence[Block]) -> tuple[str, ...]:
    before = [block.content for block in blocks[-3:] if block.content != latest][-2:]
    return tuple(content.action_text for content in (*before, latest))


QUERIES: Mapping[str, Query] = MappingProxyType(
    {
        "goal": lambda goal, latest, blocks: (goal,),
        "state": lambda goal, latest, blocks: (goal, latest.action_text),
        "action": lambda goal, latest, blocks: (latest.action_text,),
        "turn": _turn,
        "trail": _trail,
    }
)
"""By name: the goal; goal and latest ACTION; latest ACTION; latest reasoning, text and ACTION; last three ACTIONs."""


def queries_of(rules: Iterable[object]) -> tuple[str, ...]:
    """The queries that rules may ask for, so that no text is encoded in vain: their `queries` attribute.

    A rule without one may ask for `goal`, `state` and `action`.

    >>> from gemjax.history.evidence import Affinity, Goal, Recent
    >>> queries_of((Recent(), Goal(), Affinity(query="turn")))
    ('goal', 'turn')
    """
    asked = {query for rule in rules for query in getattr(rule, "queries", ("goal", "state", "action"))}
    return tuple(query for query in QUERIES if query in asked)


def query_texts(
    rules: Iterable[object], goal: str, latest: BlockContent, blocks: Sequence[Block]
) -> dict[str, tuple[str, ...]]:
    """The texts of every query that the rules may ask for, by name."""
    return {name: QUERIES[name](goal, latest, blocks) for name in queries_of(rules)}


def query_directions(texts: Mapping[str, tuple[str, ...]], vectors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The direction of each query, float32 `[d]`: that of the sum of its texts' vectors; zero if they cancel.

    Args:
        texts: what `query_texts` returned.
        vectors: a unit or zero row `[d]` for each of these texts.
    """
    return {name: _direction([vectors[text] for text in parts]) for name, parts in texts.items()}


def _direction(parts: Sequence[np.ndarray]) -> np.ndarray:
    total = np.sum(parts, axis=0)
    length = float(np.linalg.norm(total))
    return np.asarray(total / length if length > 0 else total, np.float32)

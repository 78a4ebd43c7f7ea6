"""Which blocks a history keeps: evidence first, then geometry, then the guard (5.1-5.3, Algorithm 1).

Pure functions. The request path and the tables of the evaluation both call them, so what is measured is what runs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from gemjax.errors import ConfigError
from gemjax.history.artifacts import Artifacts
from gemjax.history.config import GEMConfig
from gemjax.history.evidence import Rule
from gemjax.history.records import Block, BlockContent
from gemjax.history.selector import Selection, complete, removable
from gemjax.history.signals import BlockSignals
from gemjax.history.vectors import bucket
from gemjax.history.view import EvidenceView, apply_rules
from gemjax.kernels.host import matvec

Protected = Mapping[str, Mapping[int, str]]
"""Rule name -> block index -> reason; `latest` and `pinned` stand beside the rules."""


@dataclasses.dataclass(frozen=True)
class SelectionInput:
    """What a selection is made from: `n` blocks, vectors of dimension `d`.

    Args:
        blocks: the complete removable blocks, oldest first.
        vectors: their unit or zero rows `[n, d]`, or the same padded with zero rows to `[bucket(n), d]`.
        queries: unit directions `[d]` by query name, at least those that the rules ask for (`query_directions`).
        goal: the goal text.
        latest: content of the latest exchange, complete or in flight.
        signals: what each block wrote, touched, read and reported, `n` of them.
        chars: characters of the whole request.
        last_block: index of the block that ends the request, if one does: the model is about to answer it.
        pinned: blocks that the caller keeps.
        artifacts: the session's index of names; None to make one.
    """

    blocks: Sequence[Block]
    vectors: np.ndarray
    queries: Mapping[str, np.ndarray]
    goal: str
    latest: BlockContent
    signals: Sequence[BlockSignals]
    chars: int
    last_block: int | None = None
    pinned: frozenset[int] = frozenset()
    artifacts: Artifacts | None = None

    @cached_property
    def view(self) -> EvidenceView:
        """What the rules may look at, before any of them named anything."""
        n = len(self.blocks)
        return EvidenceView(
            blocks=tuple(self.blocks),
            signals=tuple(self.signals),
            goal=self.goal,
            latest=self.latest,
            similarity=self._similarity,
            vectors=lambda: self.vectors[:n],
            artifacts=self.artifacts,
        )

    def _similarity(self, query: str) -> np.ndarray:
        """Cosine of every block with a query, `[n]`; 0 where either has no direction."""
        if query not in self.queries:
            known = ", ".join(self.queries) or "none"
            raise ConfigError(f"a rule asked for the query {query!r}; the rules announced: {known}")
        return matvec(self.vectors[: len(self.blocks)], self.queries[query])


@dataclasses.dataclass(frozen=True, slots=True)
class SelectionPlan:
    """What a reselection would do.

    Attributes:
        protected: P of Eq. B.1 with its reasons, what is pinned, and what the model is about to answer.
        selection: the core, residuals and coverage.
        dropped: the blocks outside the core that the deletion guard lets go.
    """

    protected: Protected
    selection: Selection
    dropped: frozenset[int]


def protect(given: SelectionInput, rules: Sequence[Rule]) -> Protected:
    """The protected blocks, each with the reason of every rule that names it.

    Args:
        given: the history.
        rules: run in order.

    Raises: `ConfigError`, `CallbackError` for what a rule does wrong.
    """
    found = apply_rules(rules, given.view.fresh())
    if given.last_block is not None:
        found["latest"] = {given.last_block: "the model is about to answer it"}
    if given.pinned:
        found["pinned"] = {i: "the caller keeps it" for i in sorted(given.pinned)}
    return found


def plan_selection(given: SelectionInput, config: GEMConfig, protected: Protected | None = None) -> SelectionPlan:
    """The core of a history under `config`, and what may go without it (Algorithm 1 lines 8-19).

    Args:
        given: the history.
        config: rules, capacity, coverage and the guard's share.
        protected: `protect(given, config.rules)`, if the caller has it.
    """
    named = protect(given, config.rules) if protected is None else protected
    seeds = {i for blocks in named.values() for i in blocks}
    n = len(given.blocks)
    selection = complete(_padded(given.vectors, n), n, seeds, config.capacity, config.coverage)
    dropped, _ = removable(given.blocks, selection.core, selection.residual, given.chars, config.effective_delta)
    return SelectionPlan(named, selection, dropped)


def _padded(vectors: np.ndarray, n: int) -> np.ndarray:
    rows = bucket(n)
    if len(vectors) == rows:
        return vectors
    padded = np.zeros((rows, vectors.shape[1]), np.float32)
    padded[:n] = vectors[:n]
    return padded

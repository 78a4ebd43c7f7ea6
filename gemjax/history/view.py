"""What a rule may look at, what a rule is, and how rules are run one after the other."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from gemjax.errors import CallbackError, ConfigError, EncoderError, GemjaxError
from gemjax.history.artifacts import Artifacts
from gemjax.history.records import Block, BlockContent
from gemjax.history.signals import BlockSignals, signals

Similarity = Callable[[str], np.ndarray]
"""From the name of a query ("goal", "state", "action") to the cosine of every block with it, `[n]`."""

_NO_ENCODER = "pass an encoder, or leave out the rules goal, state, affinity and balance"


class EvidenceView:
    """What a rule may look at. Everything that costs something is computed when it is first asked for.

    Args:
        blocks: the complete removable blocks, oldest first.
        signals: what each of them wrote, touched, read and reported, `len(blocks)`.
        goal: the goal text.
        latest: content of the latest exchange, whether complete (then it is the last block) or still in flight.
        similarity: cosines of all blocks with a query; called at most once a query. None when there is no encoder:
            rules that need no similarity then still work.
        vectors: unit rows of all blocks, `[n, d]`; called when a rule asks. None when there is no encoder.
        artifacts: the session's index of names, brought up to date here; None to make one.
    """

    def __init__(
        self,
        *,
        blocks: Sequence[Block],
        signals: Sequence[BlockSignals],
        goal: str,
        latest: BlockContent,
        similarity: Similarity | None = None,
        vectors: Callable[[], np.ndarray] | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:
        if len(signals) != len(blocks):
            raise ValueError(f"signals must have one entry a block, got {len(signals)} for {len(blocks)} blocks")
        self.blocks = blocks
        self.signals = signals
        self.goal = goal
        self.latest = latest
        self._similarity = similarity
        self._vectors = vectors
        self._artifacts = artifacts
        self._similarities: dict[str, np.ndarray] = {}
        self._named: dict[str, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self.blocks)

    def similarity(self, query: str) -> np.ndarray:
        """Cosine of every block with a query text, float `[n]`, read-only; 0 for a block or query without direction.

        Args:
            query: a name in `QUERIES`: `"goal"`, `"state"` (goal and latest ACTION), `"action"` (latest ACTION) ...

        Raises: `EncoderError` without an encoder, or for vectors of a wrong shape.
        """
        if query not in self._similarities:
            if self._similarity is None:
                raise EncoderError(
                    f"a rule asked for the similarity to the {query!r} query and there is no encoder; {_NO_ENCODER}"
                )
            values = np.asarray(self._similarity(query), dtype=np.float64)
            if values.shape != (len(self.blocks),):
                raise EncoderError(f"similarity({query!r}) must be [{len(self.blocks)}], got {list(values.shape)}")
            values = np.where(np.isfinite(values), values, 0.0)
            values.flags.writeable = False
            self._similarities[query] = values
        return self._similarities[query]

    def vectors(self) -> np.ndarray:
        """Unit rows of all blocks, float `[n, d]`, read-only; a zero row is a block without direction.

        Raises: `EncoderError` without an encoder, or for a wrong shape.
        """
        if self._vectors is None:
            raise EncoderError(f"a rule asked for the blocks' vectors and there is no encoder; {_NO_ENCODER}")
        rows = np.asarray(self._vectors())
        if rows.ndim != 2 or len(rows) != len(self.blocks):
            raise EncoderError(f"vectors() must be [{len(self.blocks)}, d], got {list(rows.shape)}")
        # The caller's own array stays writable: only what a rule holds must not change what the next rule sees.
        rows = rows.view()
        rows.flags.writeable = False
        return rows

    @property
    def taken(self) -> frozenset[int]:
        """Every block that the rules before this one named."""
        return frozenset().union(*self._named.values())

    def named(self, rule: str) -> frozenset[int]:
        """The blocks that an earlier rule of this name named; empty if none of that name ran before."""
        return self._named.get(rule, frozenset())

    def record(self, rule: str, named: Mapping[int, str]) -> dict[int, str]:
        """Remember what a rule named, for the rules after it; returns it in block order."""
        self._named[rule] = frozenset(named)
        return {index: named[index] for index in sorted(named)}

    def fresh(self) -> "EvidenceView":
        """The same history before any rule named anything, for another set of rules; shares what was computed."""
        other = copy.copy(self)
        other._named = {}
        return other

    @cached_property
    def latest_signals(self) -> BlockSignals:
        """Signals of the latest exchange; an exchange in flight has calls but no results."""
        return self.signals[-1] if self.latest_is_complete else signals(self.latest)

    @cached_property
    def latest_is_complete(self) -> bool:
        """Whether the latest exchange is the last block itself."""
        return bool(self.blocks) and self.latest == self.blocks[-1].content

    @cached_property
    def _names(self) -> Artifacts:
        flying = () if self.latest_is_complete else self.latest_signals.touches
        return (self._artifacts or Artifacts()).update(self.signals, flying)

    @property
    def alias(self) -> dict[str, str]:
        """For a relative path that ends exactly one absolute path of the history: that path. `app.py` and
        `/repo/app.py` are then one artifact, whichever directory the agent was in."""
        return self._names.aliases()

    def artifact(self, path: str) -> str:
        """The one name under which an artifact is known in this history."""
        return self._names.name(path)


@runtime_checkable
class Rule(Protocol):
    """What `GEMConfig(rules=...)` holds."""

    @property
    def name(self) -> str:
        """Short name, unique in a configuration; shown in the table of a result."""
        ...

    def __call__(self, view: EvidenceView) -> Mapping[int, str]:
        """Block indices to protect, each with a one-line reason. Must not change the view."""
        ...


def named_by(rule: Rule, view: EvidenceView) -> dict[int, str]:
    """Run one rule on a view, which remembers it for later rules: block index -> reason, as the rule orders them.

    Raises: `ConfigError` when the rule names something that is no block; `CallbackError` when it raises or returns no
        mapping.
    """
    try:
        returned = rule(view)
    except GemjaxError:
        raise
    except Exception as error:
        raise CallbackError(f"rule {rule.name!r} raised {type(error).__name__}: {error}") from error
    try:
        named = {int(index): str(reason) for index, reason in returned.items()}
    except Exception as error:
        came = f"{type(error).__name__}: {error}"
        raise CallbackError(f"rule {rule.name!r} must return block indices with reasons; {came}") from error
    if bad := [i for i in named if not 0 <= i < len(view)]:
        raise ConfigError(f"rule {rule.name!r} names blocks {bad}, there are {len(view)}")
    view.record(rule.name, named)
    return named


def apply_rules(rules: Iterable[Rule], view: EvidenceView) -> dict[str, dict[int, str]]:
    """Run rules in order on one view: rule name -> block index -> reason, in block order; P of Eq. B.1.

    Raises: `ConfigError`, `CallbackError` as `named_by` does.
    """
    return {rule.name: dict(sorted(named_by(rule, view).items())) for rule in rules}

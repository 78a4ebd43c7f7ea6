"""Which blocks are protected before geometry speaks: P = recent U goal U state U error U source (paper 5.2, B.2).

A rule is a small pure object: it has a `name`, and called with an `EvidenceView` it returns block indices, each with
one line that says why. A user adds a rule by adding an object to `GEMConfig(rules=...)`, and switches one off by
leaving it out; nothing is registered globally.
"""

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from gemjax.errors import CallbackError, ConfigError, EncoderError, GemjaxError
from gemjax.history.queries import QUERIES
from gemjax.history.records import Block, BlockContent
from gemjax.history.signals import BlockSignals, signals

Similarity = Callable[[str], np.ndarray]
"""From the name of a query ("goal", "state", "action") to the cosine of every block with it, `[n]`."""

_GOAL_CHARS = 50_000
"""As much of a goal is searched for the names of artifacts."""
_PATH_WORD = re.compile(r"[\w@+~#$./-][\w./@+~#$=-]{0,300}")


class EvidenceView:
    """What a rule may look at. Everything that costs something is computed when it is first asked for.

    Args:
        blocks: the complete removable blocks, oldest first.
        signals: what each of them wrote, touched, read and reported, `len(blocks)`.
        goal: the goal text.
        latest: content of the latest exchange, whether complete (then it is the last block) or still in flight.
        similarity: cosines of all blocks with a query; called at most once a query. None when there is no encoder:
            rules that need no similarity then still work.
    """

    def __init__(
        self,
        *,
        blocks: Sequence[Block],
        signals: Sequence[BlockSignals],
        goal: str,
        latest: BlockContent,
        similarity: Similarity | None = None,
    ) -> None:
        if len(signals) != len(blocks):
            raise ValueError(f"signals must have one entry a block, got {len(signals)} for {len(blocks)} blocks")
        self.blocks = blocks
        self.signals = signals
        self.goal = goal
        self.latest = latest
        self._similarity = similarity
        self._similarities: dict[str, np.ndarray] = {}
        self._named: dict[str, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self.blocks)

    def similarity(self, query: str) -> np.ndarray:
        """Cosine of every block with a query text, float `[n]`; 0 for a block or query without direction.

        Args:
            query: a name in `QUERIES`: `"goal"`, `"state"` (goal and latest ACTION), `"action"` (latest ACTION) ...

        Raises: `EncoderError` without an encoder, or for vectors of a wrong shape.
        """
        if query not in self._similarities:
            if self._similarity is None:
                raise EncoderError(
                    f"a rule asked for the similarity to the {query!r} query and there is no encoder; "
                    "pass an encoder, or leave out the rules goal, state and affinity"
                )
            values = np.asarray(self._similarity(query), dtype=np.float64)
            if values.shape != (len(self.blocks),):
                raise EncoderError(f"similarity({query!r}) must be [{len(self.blocks)}], got {list(values.shape)}")
            self._similarities[query] = np.where(np.isfinite(values), values, 0.0)
        return self._similarities[query]

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
    def alias(self) -> dict[str, str]:
        """For a relative path that ends exactly one absolute path of the history: that path. `app.py` and
        `/repo/app.py` are then one artifact, whichever directory the agent was in."""
        absolute: dict[str, set[str]] = {}
        relative: set[str] = set()
        for found in (*self.signals, self.latest_signals):
            for path in found.touches:
                if path[:1] == "/":
                    absolute.setdefault(path[path.rfind("/") + 1 :], set()).add(path)
                else:
                    relative.add(path)
        out = {}
        for path in relative:
            ends = [a for a in absolute.get(path[path.rfind("/") + 1 :], ()) if a.endswith("/" + path)]
            if len(ends) == 1:
                out[path] = ends[0]
        return out

    def artifact(self, path: str) -> str:
        """The one name under which an artifact is known in this history."""
        return self.alias.get(path, path)


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


def apply_rules(rules: Iterable[Rule], view: EvidenceView) -> dict[str, dict[int, str]]:
    """Run rules in order on one view: rule name -> block index -> reason, P of Eq. B.1.

    Raises: `ConfigError` when a rule names something that is no block; `CallbackError` when it raises or returns no
        mapping.
    """
    found: dict[str, dict[int, str]] = {}
    for rule in rules:
        try:
            named = {int(index): str(reason) for index, reason in rule(view).items()}
        except GemjaxError:
            raise
        except Exception as error:
            came = f"{type(error).__name__}: {error}"
            raise CallbackError(f"rule {rule.name!r} must return block indices with reasons; {came}") from error
        if bad := [i for i in named if not 0 <= i < len(view)]:
            raise ConfigError(f"rule {rule.name!r} names blocks {bad}, there are {len(view)}")
        found[rule.name] = view.record(rule.name, named)
    return found


def _count(rule: object, field: str, least: int = 1) -> None:
    value = getattr(rule, field)
    if type(value) is not int or value < least:
        kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ConfigError(
            f"{type(rule).__name__}({field}=...) must be {kind}, got {value!r}; leave the rule out instead"
        )


def _ago(view: EvidenceView, index: int) -> str:
    back = len(view) - 1 - index
    return "in the latest block" if back == 0 else f"{back} block{'s' * (back > 1)} ago"


def _most_similar(view: EvidenceView, values: np.ndarray, keep: int, similar: np.ndarray) -> list[int]:
    """The `keep` blocks outside `recent` of largest value, ties to the older block, among those that are `similar`."""
    allowed = similar.copy()
    allowed[list(view.named("recent"))] = False
    order = np.argsort(-values, kind="stable")
    return [int(i) for i in order[allowed[order]][:keep]]


@dataclasses.dataclass(frozen=True)
class Recent:
    """The last `keep` complete blocks: the immediate working context."""

    keep: int = 4
    name: str = dataclasses.field(default="recent", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _count(self, "keep")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        first = max(len(view) - self.keep, 0)
        return {i: f"one of the last {len(view) - first} blocks" for i in range(first, len(view))}


@dataclasses.dataclass(frozen=True)
class Goal:
    """The `keep` blocks outside `recent` that are most similar to the goal text."""

    keep: int = 1
    name: str = dataclasses.field(default="goal", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ("goal",)

    def __post_init__(self) -> None:
        _count(self, "keep")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        values = view.similarity("goal")
        return {
            i: f"close to the goal ({values[i]:.2f})" for i in _most_similar(view, values, self.keep, values != 0.0)
        }


@dataclasses.dataclass(frozen=True)
class State:
    """Up to `keep` blocks that show the current state of artifacts.

    Candidates, one an artifact: its latest write; for an artifact that the latest exchange touches and nothing wrote,
    its latest touch before that exchange. Artifacts named in the goal, in `recent` or in the latest exchange come
    first, then the similarity of the block to the state query (goal and latest ACTION), then the older block.

    Args:
        keep: most blocks kept.
        outside_recent: take only blocks that `recent` does not keep anyway. The paper does not ask for it; it spends
            the `keep` places on older state.
    """

    keep: int = 3
    outside_recent: bool = False
    name: str = dataclasses.field(default="state", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ("state",)

    def __post_init__(self) -> None:
        _count(self, "keep")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        candidates = self._candidates(view)
        if not candidates:
            return {}
        named = self._named_artifacts(view)
        last_parts = frozenset(name[name.rfind("/") + 1 :] for name in named)
        values = view.similarity("state")
        best: dict[int, tuple[bool, str]] = {}
        for artifact, (index, reason) in candidates.items():
            first = _is_named(artifact, named, last_parts)
            if index not in best or (first and not best[index][0]):
                best[index] = (first, reason)
        order = sorted(best, key=lambda i: (not best[i][0], -values[i], i))
        return {i: best[i][1] for i in order[: self.keep]}

    def _candidates(self, view: EvidenceView) -> dict[str, tuple[int, str]]:
        skip = view.named("recent") if self.outside_recent else frozenset()
        artifact = view.artifact
        out: dict[str, tuple[int, str]] = {}
        for i, found in enumerate(view.signals):
            if i not in skip:
                for path in found.writes:
                    out[artifact(path)] = (i, f"latest write of {path}")
        wanted = {artifact(p) for p in view.latest_signals.touches} - out.keys()
        end = len(view) - 1 if view.latest_is_complete else len(view)
        for i in range(end - 1, -1, -1):
            if not wanted:
                break
            if i in skip:
                continue
            for path in view.signals[i].touches:
                name = artifact(path)
                if name in wanted:
                    wanted.discard(name)
                    out[name] = (i, f"latest touch of {path}, which the latest exchange touches")
        return out

    def _named_artifacts(self, view: EvidenceView) -> frozenset[str]:
        names: set[str] = set()
        for word in _PATH_WORD.findall(view.goal[:_GOAL_CHARS]):
            word = word.rstrip(".:")
            names.update((word, word.removeprefix("./")))
        for i in view.named("recent"):
            names.update(map(view.artifact, view.signals[i].touches))
        names.update(map(view.artifact, view.latest_signals.touches))
        return frozenset(names)


def _is_named(artifact: str, names: frozenset[str], last_parts: frozenset[str]) -> bool:
    """Whether one of the spellings of an artifact is among `names`: `/repo/src/app.py` also as `src/app.py` and
    `app.py`, `order_id=7` also as `7`. A bare word such as `src` names no artifact; a name with a dot does."""
    if artifact in names:
        return True
    key, equals, value = artifact.partition("=")
    if equals and "/" not in key:
        return value in names or value.lstrip("#") in names
    if artifact[artifact.rfind("/") + 1 :] not in last_parts:
        return False
    at = artifact.find("/")
    while at >= 0:
        tail = artifact[at + 1 :]
        if tail in names and ("/" in tail or "." in tail[1:]):
            return True
        at = artifact.find("/", at + 1)
    return False


@dataclasses.dataclass(frozen=True)
class Errors:
    """The `keep` most recent error records among the last `window` blocks; the more recent one first."""

    keep: int = 2
    window: int = 8
    name: str = dataclasses.field(default="error", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _count(self, "keep")
        _count(self, "window")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        first = max(len(view) - self.window, 0)
        failed = [i for i in range(len(view) - 1, first - 1, -1) if view.signals[i].error is not None]
        return {i: f"error {_ago(view, i)}: {view.signals[i].error}" for i in failed[: self.keep]}


@dataclasses.dataclass(frozen=True)
class Sources:
    """The latest block of each of the most recently read distinct sources, up to `keep` blocks.

    Active only when at least `share` of the blocks read something: a page, a document, a file or search hits. A block
    counts when it read a source that no newer block read again; all its sources then count as kept.
    """

    keep: int = 4
    share: float = 0.5
    name: str = dataclasses.field(default="source", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _count(self, "keep")
        if not isinstance(self.share, int | float) or isinstance(self.share, bool) or not 0 <= self.share <= 1:
            raise ConfigError(f"Sources(share=...) must be a number from 0 to 1, got {self.share!r}")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        reading = sum(bool(found.sources) for found in view.signals)
        if reading == 0 or reading < self.share * len(view):
            return {}
        out: dict[int, str] = {}
        seen: set[str] = set()
        for i in range(len(view) - 1, -1, -1):
            new = [source for source in view.signals[i].sources if view.artifact(source) not in seen]
            if new:
                out[i] = f"latest read of {new[0]}" + (f" and {len(new) - 1} more" if len(new) > 1 else "")
                if len(out) == self.keep:
                    break
                seen.update(map(view.artifact, new))
        return out


@dataclasses.dataclass(frozen=True)
class Affinity:
    """The `keep` blocks outside `recent` that are most similar to what the agent did last (ours, not the paper's).

    Args:
        keep: most blocks kept.
        query: what to compare with, a name in `QUERIES`; `"action"` is the latest ACTION.
        path_bonus: added to the similarity of a block in proportion to the share of the latest exchange's artifacts
            that it touches; 0 leaves the cosine alone.
        length_penalty: taken off the similarity for every doubling of a block's length over the median; 0 for none.
        distinct: of blocks with the same ACTION only the latest counts, `recent` included.
    """

    keep: int = 9
    query: str = "action"
    path_bonus: float = 0.0
    length_penalty: float = 0.0
    distinct: bool = False
    name: str = dataclasses.field(default="affinity", kw_only=True)

    def __post_init__(self) -> None:
        _count(self, "keep")
        if self.query not in QUERIES:
            raise ConfigError(f"Affinity(query=...) must be one of {', '.join(QUERIES)}, got {self.query!r}")
        for field in ("path_bonus", "length_penalty"):
            value = getattr(self, field)
            if not isinstance(value, int | float) or not np.isfinite(value) or value < 0:
                raise ConfigError(f"Affinity({field}=...) must be a number of at least 0, got {value!r}")

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        cosine = values = view.similarity(self.query)
        similar = cosine != 0.0
        if self.path_bonus:
            overlap = self._overlap(view)
            values = values + self.path_bonus * overlap
            similar |= overlap > 0.0
        if self.length_penalty and len(view):
            chars = np.array([max(block.chars, 1) for block in view.blocks], dtype=np.float64)
            values = values - self.length_penalty * np.log2(chars / np.median(chars))
        if self.distinct:
            similar &= self._latest_of_their_action(view)
        return {
            i: f"close to the latest action ({cosine[i]:.2f})" for i in _most_similar(view, values, self.keep, similar)
        }

    @staticmethod
    def _latest_of_their_action(view: EvidenceView) -> np.ndarray:
        latest = {block.content.action_text: i for i, block in enumerate(view.blocks)}
        out = np.zeros(len(view), bool)
        out[list(latest.values())] = True
        return out

    @staticmethod
    def _overlap(view: EvidenceView) -> np.ndarray:
        wanted = {view.artifact(p) for p in view.latest_signals.touches}
        if not wanted:
            return np.zeros(len(view))
        shared = [len(wanted.intersection(map(view.artifact, found.touches))) for found in view.signals]
        return np.asarray(shared, dtype=np.float64) / len(wanted)


PAPER_RULES: tuple[Rule, ...] = (Recent(), Goal(), State(), Errors(), Sources())
"""The paper's five rules with its limits (Table B.1)."""
DEFAULT_RULES: tuple[Rule, ...] = (Recent(), Goal(), State(outside_recent=True), Errors(), Sources(), Affinity())
"""The paper's five, with `state` spending its places on blocks that `recent` does not keep anyway, and `affinity`."""
RULES: Mapping[str, Callable[..., Rule]] = MappingProxyType(
    {"recent": Recent, "goal": Goal, "state": State, "error": Errors, "source": Sources, "affinity": Affinity}
)
"""The rules that come with gemjax, by name."""

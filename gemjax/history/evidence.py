"""Which blocks are protected before geometry speaks: P = recent U goal U state U error U source (paper 5.2, B.2).

A rule is a small pure object: it has a `name`, and called with an `EvidenceView` it returns block indices, each with
one line that says why. A user adds a rule by adding an object to `GEMConfig(rules=...)`, and switches one off by
leaving it out; nothing is registered globally.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from gemjax.errors import ConfigError
from gemjax.history.queries import QUERIES
from gemjax.history.view import EvidenceView, Rule, apply_rules
from gemjax.kernels.host import matvec

__all__ = [
    "DEFAULT_RULES",
    "PAPER_RULES",
    "RULES",
    "Affinity",
    "Balance",
    "Errors",
    "EvidenceView",
    "Goal",
    "Recent",
    "Rule",
    "Sources",
    "State",
    "UserWords",
    "apply_rules",
]

_GOAL_CHARS = 50_000
"""As much of a goal is searched for the names of artifacts."""
_PATH_WORD = re.compile(r"[\w@+~#$./-][\w./@+~#$=-]{0,300}")


def _count(rule: object, field: str, least: int = 1) -> None:
    value = getattr(rule, field)
    if type(value) is not int or value < least:
        kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ConfigError(
            f"{type(rule).__name__}({field}=...) must be {kind}, got {value!r}; leave the rule out instead"
        )


def _check_name(rule: object, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{type(rule).__name__}(name=...) must be a non-empty string, got {name!r}")


def _check_switch(rule: object, field: str) -> None:
    value = getattr(rule, field)
    if not isinstance(value, bool):
        raise ConfigError(f"{type(rule).__name__}({field}=...) must be True or False, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ago(view: EvidenceView, index: int) -> str:
    back = len(view) - 1 - index
    return "in the latest block" if back == 0 else f"{back} block{'s' * (back > 1)} ago"


def _most_similar(
    view: EvidenceView, values: np.ndarray, keep: int, similar: np.ndarray, outside: tuple[str, ...] = ("recent",)
) -> list[int]:
    """The `keep` blocks of largest value that the rules `outside` did not name, ties to the older block, among those
    that are `similar`."""
    allowed = similar.copy()
    for rule in outside:
        allowed[list(view.named(rule))] = False
    order = np.argsort(-values, kind="stable")
    return [int(i) for i in order[allowed[order]][:keep]]


@dataclasses.dataclass(frozen=True)
class Recent:
    """The last `keep` complete blocks: the immediate working context."""

    keep: int = 4
    name: str = dataclasses.field(default="recent", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _check_name(self, self.name)
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
        _check_name(self, self.name)
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
        _check_name(self, self.name)
        _count(self, "keep")
        _check_switch(self, "outside_recent")

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
        _check_name(self, self.name)
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
        _check_name(self, self.name)
        _count(self, "keep")
        if not _is_number(self.share) or not 0 <= self.share <= 1:
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
    """The `keep` blocks that are most similar to what the agent did last (ours, not the paper's).

    Args:
        keep: most blocks kept.
        query: what to compare with, a name in `QUERIES`; `"action"` is the latest ACTION.
        path_bonus: added to the similarity of a block in proportion to the share of the latest exchange's artifacts
            that it touches; 0 leaves the cosine alone.
        length_penalty: taken off the similarity for every doubling of a block's length over the median; 0 for none.
        distinct: of blocks with the same ACTION only the latest counts, `recent` included.
        outside: rules whose blocks are passed over, so that the `keep` places go to others.
    """

    keep: int = 3
    query: str = "action"
    path_bonus: float = 0.0
    length_penalty: float = 0.0
    distinct: bool = False
    outside: tuple[str, ...] = ("recent",)
    name: str = dataclasses.field(default="affinity", kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self, self.name)
        _count(self, "keep")
        if not isinstance(self.query, str) or self.query not in QUERIES:
            raise ConfigError(f"Affinity(query=...) must be one of {', '.join(QUERIES)}, got {self.query!r}")
        for field in ("path_bonus", "length_penalty"):
            value = getattr(self, field)
            if not _is_number(value) or not np.isfinite(value) or value < 0:
                raise ConfigError(f"Affinity({field}=...) must be a number of at least 0, got {value!r}")
        _check_switch(self, "distinct")
        if not isinstance(self.outside, tuple) or not all(isinstance(rule, str) for rule in self.outside):
            raise ConfigError(f"Affinity(outside=...) must be a tuple of names of rules, got {self.outside!r}")

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
        chosen = _most_similar(view, values, self.keep, similar, self.outside)
        return {i: f"close to the latest action ({cosine[i]:.2f})" for i in chosen}

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


@dataclasses.dataclass(frozen=True)
class Balance:
    r"""Up to `keep` blocks that bring the mean of what is named closer to the mean of all (ours, not the paper's).

    Rules name what is unusual: the latest, the failed, what resembles one action. What remains is then a biased sample
    of the history. One block at a time, this takes the one with which the named blocks' sum comes closest in direction
    to the sum of all, $\cos(\sum_{i \in P} x_i, \sum_i x_i)$, and stops when none improves it (greedy herding, after
    Welling 2009). Ties go to the older block; differences below 1e-6 are ties.
    """

    keep: int = 3
    name: str = dataclasses.field(default="balance", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _check_name(self, self.name)
        _count(self, "keep")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        rows = view.vectors()
        whole = rows.sum(axis=0, dtype=np.float64)
        length = float(np.linalg.norm(whole))
        if length == 0.0:
            return {}
        wide = rows.astype(np.float64)
        along = matvec(wide, whole / length)
        squares = np.einsum("nd,nd->n", rows, rows)
        free = squares > 0.0
        free[list(view.taken)] = False
        total = rows[list(view.taken)].sum(axis=0, dtype=np.float64)
        now = _cosine(total, whole / length)
        out: dict[int, str] = {}
        while len(out) < self.keep and free.any():
            with_it = total @ total + 2 * matvec(wide, total) + squares
            values = (total @ whole / length + along) / np.sqrt(np.maximum(with_it, 1e-12))
            best = int(np.argmax(np.where(free, np.round(values, 6), -np.inf)))
            total = total + rows[best]
            before, now = now, _cosine(total, whole / length)
            if now <= before:
                break
            free[best] = False
            out[best] = f"brings the mean of the kept closer to that of all ({before:.2f} to {now:.2f})"
        return out


def _cosine(total: np.ndarray, direction: np.ndarray) -> float:
    """Cosine with a unit vector; -1 for a sum without direction, which any block improves."""
    length = float(np.linalg.norm(total))
    return float(total @ direction) / length if length > 0.0 else -1.0


@dataclasses.dataclass(frozen=True)
class UserWords:
    """Every block in which the user speaks: an answer to a tool that asks, or the refusal of a call (ours).

    What a user says in a message of its own is never dropped; what arrives as a tool's result weighs as much.

    Args:
        keep: most blocks kept, the most recent first; None for all of them.
    """

    keep: int | None = None
    name: str = dataclasses.field(default="user", kw_only=True)
    queries: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _check_name(self, self.name)
        if self.keep is not None:
            _count(self, "keep")

    def __call__(self, view: EvidenceView) -> dict[int, str]:
        said = [(i, block.content.user_said) for i, block in enumerate(view.blocks) if block.content.user_said]
        return dict(said if self.keep is None else said[-self.keep :])


PAPER_RULES: tuple[Rule, ...] = (Recent(), Goal(), State(), Errors(), Sources())
"""The paper's five rules with its limits (Table B.1)."""
DEFAULT_RULES: tuple[Rule, ...] = (
    UserWords(),
    Recent(3),
    Affinity(),
    Balance(),
    Goal(),
    State(2, outside_recent=True),
    Errors(),
    Sources(),
    Affinity(3, outside=("recent", "affinity"), name="affinity-wide"),
)
"""Ours: what the user said, room for what resembles the latest action and for what stands for the rest, beside the
paper's five.

The order matters where fewer blocks may be kept than are named: what stands first stays.
"""
RULES: Mapping[str, Callable[..., Rule]] = MappingProxyType(
    {
        "recent": Recent,
        "goal": Goal,
        "state": State,
        "error": Errors,
        "source": Sources,
        "affinity": Affinity,
        "balance": Balance,
        "user": UserWords,
    }
)
"""The rules that come with gemjax, by name."""

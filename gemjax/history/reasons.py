"""Why each block stays or goes, in one line: what a result's `blocks` and `explain` show."""

import dataclasses
from collections.abc import Mapping

from gemjax.history.blocks import Parsed
from gemjax.history.config import GEMConfig
from gemjax.history.planning import Protected
from gemjax.history.result import BlockRecord
from gemjax.history.selector import Selection

_UNREAD = " (not known what it did: reading it would cost too much work)"


@dataclasses.dataclass(frozen=True, slots=True)
class Fates:
    """Everything that the reasons are told from.

    Attributes:
        parsed, config: the request and the settings.
        dropped: the blocks that do not go out.
        core: the core at the last reselection.
        event: a reselection happened now.
        protected: what the rules name; empty where none ran.
        selection: what was selected now, if anything was.
        unread: the blocks of which it is not known what they did (`BlockSignals.unknown`).
    """

    parsed: Parsed
    config: GEMConfig
    dropped: frozenset[int]
    core: tuple[int, ...]
    event: bool = False
    protected: Protected = dataclasses.field(default_factory=dict)
    selection: Selection | None = None
    unread: frozenset[int] = frozenset()

    def records(self) -> list[BlockRecord]:
        """One record a block, oldest first."""
        core = frozenset(self.core)
        return [self._record(index, core) for index in range(len(self.parsed.blocks))]

    def _record(self, i: int, core: frozenset[int]) -> BlockRecord:
        block = self.parsed.blocks[i]
        rules = {name: named[i] for name, named in self.protected.items() if i in named}
        return BlockRecord(
            index=i,
            label=block.content.label,
            messages=block.messages,
            chars=block.chars,
            protected=rules,
            residual=None if self.selection is None else float(self.selection.residual[i]),
            in_core=i in core,
            kept=i not in self.dropped,
            why=(self._why_dropped(i, rules) if i in self.dropped else self._why_kept(i, rules, core))
            + (_UNREAD if i in self.unread else ""),
            unknown=i in self.unread,
        )

    def _why_dropped(self, i: int, rules: Mapping[str, str]) -> str:
        if rules:
            return "dropped at the last selection; comes back at the next: " + _listed(rules)
        if self.selection is None:
            return "no rule names it"
        return f"no rule names it, and the core covers {1 - self.selection.residual[i]:.0%} of its direction"

    def _why_kept(self, i: int, rules: Mapping[str, str], core: frozenset[int]) -> str:
        if rules:
            return _listed(rules)
        if self.selection.core[i] if self.selection is not None else i in core:
            return "adds a direction that the core lacks"
        if self.selection is None:
            short = len(self.parsed.blocks) < self.config.min_blocks
            return "kept" if short else "kept since the last selection"
        if self.event:
            return f"the guard removes at most {self.config.effective_delta:.0%} at a time"
        return "could go; not worth rewriting yet"


def _listed(rules: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in rules.items())

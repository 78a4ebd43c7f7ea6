"""Whether the forwarded set is chosen anew at this request, and which blocks do not go out."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gemjax.errors import CallbackError
from gemjax.history.config import GEMConfig
from gemjax.history.planning import Protected, SelectionPlan
from gemjax.history.policy import Decision, Plan, Policy, Situation
from gemjax.history.reading import History
from gemjax.history.records import Block
from gemjax.history.selector import Selection, footprint


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided.

    Attributes:
        decision: the policy's.
        dropped: the blocks that do not go out.
        plan: what a reselection does or would do; None where nobody asked.
    """

    decision: Decision
    dropped: frozenset[int]
    plan: SelectionPlan | None

    @property
    def selection(self) -> Selection | None:
        """The core that was computed, if one was."""
        return None if self.plan is None else self.plan.selection


def decide(
    history: History, protected: Protected, pinned: Iterable[int], plan: Callable[[], SelectionPlan], config: GEMConfig
) -> Verdict:
    """Ask the policy; keep the saved set with what has to come back, or take the planned one.

    Args:
        history: the request beside what its session remembers.
        protected: what the rules name now.
        pinned: what the caller keeps.
        plan: computes a reselection; called at most once, and only if the policy or the decision needs it.
        config: policy and guard.

    Raises: `CallbackError` for what the policy does wrong.
    """
    made: list[SelectionPlan] = []

    def planned() -> SelectionPlan:
        if not made:
            made.append(plan())
        return made[0]

    parsed, policy = history.parsed, config.chosen_policy
    saved = _saved(history, protected, pinned, policy)
    situation = Situation(
        blocks=len(parsed.blocks),
        new_blocks=len(parsed.blocks) - history.previous.at,
        first=history.previous.events == 0,
        cold=history.cold,
        rewritten=history.rewritten,
        goal_changed=history.goal_changed,
        plan=lambda: _prices(history, saved, planned().dropped),
    )
    decision = _asked(policy, situation, history.previous.memory)
    if not decision.reselect and gone(parsed.blocks, saved) > config.effective_delta * parsed.chars:
        # The rest of the conversation shrank under a set that was chosen for a longer one.
        decision = dataclasses.replace(decision, reselect=True, reason="the saved set would break the deletion guard")
    dropped = planned().dropped if decision.reselect else saved
    return Verdict(decision, dropped, made[0] if made else None)


def gone(blocks: Sequence[Block], dropped: Iterable[int]) -> int:
    """Characters by which the request shrinks without `dropped`."""
    return sum(footprint(blocks[i]) for i in dropped)


def _saved(history: History, protected: Protected, pinned: Iterable[int], policy: Policy) -> frozenset[int]:
    """What stays dropped without a reselection."""
    must_stay = set(pinned)
    if history.parsed.last_block is not None:
        must_stay.add(history.parsed.last_block)
    # A history that was taken back uncovers blocks that were dropped when newer ones stood for them.
    if policy.appends_evidence or history.rewritten:
        must_stay.update(i for named in protected.values() for i in named)
    return history.previous.dropped - must_stay


def _prices(history: History, saved: frozenset[int], planned: frozenset[int]) -> Plan:
    """What going from the saved set to the planned one would drop, restore, and have the provider read anew."""
    changed = planned ^ saved
    if not changed:
        return Plan(0, 0, 0)
    blocks, records = history.parsed.blocks, history.parsed.records
    first = blocks[min(changed)].messages[0]
    # Where the caller rewrote the history the cache ends, whatever is decided here.
    stop = blocks[history.shared].messages[0] if history.rewritten and history.shared < len(blocks) else len(records)
    after = sum([r.chars + 1 for r in records[first:stop]])
    rewritten = after - sum(footprint(blocks[i]) for i in planned if first <= blocks[i].messages[0] < stop)
    return Plan(gone(blocks, planned - saved), gone(blocks, saved - planned), rewritten)


def _asked(policy: Policy, situation: Situation, memory: Mapping[str, Any]) -> Decision:
    try:
        made = policy.decide(situation, memory)
        decision = Decision(bool(made.reselect), str(made.reason), json.loads(json.dumps(dict(made.memory))))
    except Exception as error:
        what = "returned no usable Decision" if isinstance(error, AttributeError | TypeError) else "raised"
        raise CallbackError(f"policy {policy.name!r} {what}: {type(error).__name__}: {error}") from error
    return decision

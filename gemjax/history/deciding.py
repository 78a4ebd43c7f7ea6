"""Whether the forwarded set is chosen anew at this request, and which blocks do not go out."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gemjax.errors import CallbackError, StateError
from gemjax.history.binding import Binding, Outgoing
from gemjax.history.config import GEMConfig
from gemjax.history.lookback import out_of_reach
from gemjax.history.planning import Protected, SelectionPlan
from gemjax.history.policy import Decision, Plan, Policy, Situation
from gemjax.history.reading import History
from gemjax.history.records import Block
from gemjax.history.selector import Selection, footprint
from gemjax.history.state import check_numbers


@dataclasses.dataclass(frozen=True, slots=True)
class Ruling:
    """What was decided.

    Attributes:
        decision: the policy's.
        outgoing: what goes out.
        plan: what a reselection does or would do; None where nobody asked.
    """

    decision: Decision
    outgoing: Outgoing
    plan: SelectionPlan | None = None

    @property
    def dropped(self) -> frozenset[int]:
        """The blocks that do not go out."""
        return self.outgoing.dropped

    @property
    def selection(self) -> Selection | None:
        """The core that was computed, if one was."""
        return None if self.plan is None else self.plan.selection


def decide(
    history: History, protected: Protected, pinned: Iterable[int], plan: Callable[[], SelectionPlan], config: GEMConfig
) -> Ruling:
    """Ask the policy; keep the saved set with what has to come back, or take the planned one if thinking allows it.

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
    binding = Binding(history, config)
    situation = Situation(
        blocks=len(parsed.blocks),
        new_blocks=len(parsed.blocks) - history.previous.at,
        first=history.previous.events == 0,
        cold=history.cold,
        rewritten=history.rewritten,
        goal_changed=history.goal_changed,
        idle=history.idle,
        plan=lambda: _prices(binding, saved, planned().dropped),
    )
    decision = _asked(policy, situation, history.previous.memory)
    if not decision.reselect and gone(parsed.blocks, saved) > config.effective_delta * parsed.chars:
        # The rest of the conversation shrank under a set that was chosen for a longer one.
        decision = dataclasses.replace(decision, reselect=True, reason="the saved set would break the deletion guard")
    outgoing = binding.outgoing(planned().dropped if decision.reselect else saved)
    if outgoing.held:
        decision = Decision(False, f"no rewrite: {outgoing.held}", history.previous.memory)
    return Ruling(decision, outgoing, made[0] if made else None)


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


def _prices(binding: Binding, saved: frozenset[int], planned: frozenset[int]) -> Plan:
    """What going from the saved set to the planned one would drop, restore, and have the provider read anew."""
    if planned == saved:
        return Plan(0, 0, 0)
    history, out = binding.history, binding.outgoing(planned)
    blocks, records = history.parsed.blocks, history.parsed.records
    first = blocks[min(planned ^ saved)].messages[0]
    if out.first is not None:
        first = min(first, out.first)
    # Where the caller rewrote the history the cache ends, whatever is decided here.
    stop = blocks[history.shared].messages[0] if history.rewritten and history.shared < len(blocks) else len(records)
    after = sum([r.chars + 1 for r in records[first:stop]])
    rewritten = after - sum(footprint(blocks[i]) for i in planned if first <= blocks[i].messages[0] < stop)
    if out.stripped > history.previous.stripped:
        rewritten = max(rewritten - out.lost, 0)
    if not history.rewritten:
        rewritten += out_of_reach(history.request, history.parsed, planned, first)
    return Plan(gone(blocks, planned - saved), gone(blocks, saved - planned), rewritten, out.lost)


def _asked(policy: Policy, situation: Situation, memory: Mapping[str, Any]) -> Decision:
    try:
        made = policy.decide(situation, memory)
        decision = Decision(bool(made.reselect), str(made.reason), _saveable(made.memory))
    except Exception as error:
        unusable = isinstance(error, AttributeError | TypeError | StateError)
        what = "returned no usable Decision" if unusable else "raised"
        raise CallbackError(f"policy {policy.name!r} {what}: {type(error).__name__}: {error}") from error
    return decision


def _saveable(memory: Mapping[str, Any]) -> dict[str, Any]:
    """What a policy wants to remember, as the JSON values that it will be after a restart."""
    check_numbers(dict(memory))
    saved: dict[str, Any] = json.loads(json.dumps(dict(memory)))
    return saved

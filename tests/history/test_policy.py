"""The forwarding policies: decisions one by one, and the cost-aware rule's guarantee on arbitrary histories."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.errors import ConfigError, StateError
from gemjax.history.policy import CostAwarePolicy, PaperPolicy, Plan, Policy, Situation, policy_named
from gemjax.history.state import SessionState


def situation(plan=None, **changes):
    values = {"blocks": 20, "new_blocks": 1, "first": False, "cold": False, "rewritten": False, "goal_changed": False}
    return Situation(**{**values, **changes}, plan=lambda: plan or Plan(0, 0, 0))


@pytest.mark.parametrize(
    ("changes", "reselect", "reason"),
    [
        ({}, False, "no reselection is due"),
        ({"first": True}, True, "first eligible request"),
        ({"rewritten": True}, True, "the history was rewritten"),
        ({"goal_changed": True}, True, "the goal changed"),
        ({"new_blocks": 255}, False, "no reselection is due"),
        ({"new_blocks": 256}, True, "256 new blocks since the last selection"),
    ],
)
def test_paper_schedule(changes, reselect, reason):
    decision = PaperPolicy().decide(situation(**changes), {"kept": 1})
    assert (decision.reselect, decision.reason, decision.memory) == (reselect, reason, {"kept": 1})


def test_rent_accumulates_until_it_pays_for_the_rewrite():
    policy = CostAwarePolicy(read=0.1, write=1.25, beta=1.0)
    memory = {}
    decisions = []
    for _ in range(12):
        # rent 100 a request, price 1,150: the twelfth request is the first whose rent reaches it
        decision = policy.decide(situation(Plan(1000, 0, 1000)), memory)
        memory = decision.memory
        decisions.append(decision.reselect)
    assert decisions == [False] * 11 + [True]
    assert memory == {"rent": 0.0}


def test_nothing_droppable_costs_no_rent():
    decision = CostAwarePolicy().decide(situation(Plan(0, 500, 1000)), {"rent": 7.0})
    assert not decision.reselect and decision.memory == {"rent": 7.0}


def test_without_a_cache_everything_goes_at_once():
    policy = CostAwarePolicy(read=1.0, write=1.0)
    assert policy.decide(situation(Plan(1, 0, 10**9)), {}).reselect
    assert not policy.decide(situation(Plan(0, 0, 0)), {}).reselect


def test_a_cold_history_is_selected_at_once_and_its_rent_forgotten():
    decision = CostAwarePolicy().decide(situation(cold=True), {"rent": 50.0})
    assert decision.reselect and decision.memory == {}


def test_every_policy_has_the_interface():
    for name in ("paper", "cost-aware"):
        assert isinstance(policy_named(name), Policy) and policy_named(name).name == name
    with pytest.raises(ConfigError, match="policy must be one of paper, cost-aware, got 'weekly'"):
        policy_named("weekly")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: PaperPolicy(every=0), "every must be a positive number of blocks, got 0"),
        (lambda: PaperPolicy(delta=1.5), "delta must be a share between 0 .* got 1.5"),
        (lambda: CostAwarePolicy(delta=float("nan")), "delta must be a share"),
        (lambda: CostAwarePolicy(read=-1), "read must be a finite number >= 0, got -1"),
        (lambda: CostAwarePolicy(write=float("inf")), "write must be a finite number"),
        (lambda: CostAwarePolicy(beta="1"), "beta must be a finite number"),
        (lambda: CostAwarePolicy(ttl=0), "ttl must be a positive number of seconds or None, got 0"),
        (lambda: CostAwarePolicy(read=2.0), "write must be at least read"),
    ],
)
def test_bad_settings_are_refused(make, text):
    with pytest.raises(ConfigError, match=text):
        make()


TTL = 300.0


def bill(sent: list[list[str]], read: float, write: float, pauses=None) -> float:
    """What successive requests cost: the longest common prefix is read from the cache, the rest is written.

    `pauses`: seconds before each request; the cache is gone after more than `TTL` of them.
    """
    total, before = 0.0, []
    for i, now in enumerate(sent):
        if pauses is not None and pauses[i] > TTL:
            before = []
        same = 0
        while same < min(len(before), len(now)) and before[same] == now[same]:
            same += 1
        total += read * sum(map(len, now[:same])) + write * sum(map(len, now[same:]))
        before = now
    return total


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.25, 1.0, 3.0]),
    st.sampled_from([(0.1, 1.25), (0.0, 1.0), (0.5, 0.5)]),
    st.sampled_from([0.0, 0.1, 0.5]),
)
def test_bill_is_at_most_one_plus_one_over_beta_of_sending_everything(seed, beta, prices, breaks):
    """docs/policies.md, the claim: for any growing history, any sequence of cores and any pauses."""
    read, write = prices
    rng = np.random.default_rng(seed)
    policy = CostAwarePolicy(read=read, write=write, beta=beta)
    blocks: list[str] = []
    dropped: set[int] = set()
    memory = {}
    everything, forwarded, pauses = [], [], []
    for step in range(int(rng.integers(5, 60))):
        blocks += [chr(97 + step % 26) * int(rng.geometric(0.02)) for _ in range(int(rng.integers(1, 3)))]
        # An adversary: any core whatsoever, changing with every request.
        core = {i for i in range(len(blocks)) if rng.random() < rng.choice([0.1, 0.5, 0.9])} | {len(blocks) - 1}
        planned = set(range(len(blocks))) - core

        def plan(planned=planned, dropped=frozenset(dropped), blocks=tuple(blocks)):
            changed = planned ^ dropped
            after = [i for i in range(min(changed), len(blocks)) if i not in planned] if changed else []
            return Plan(
                sum(len(blocks[i]) for i in planned - dropped),
                sum(len(blocks[i]) for i in dropped - planned),
                sum(len(blocks[i]) for i in after),
            )

        pauses.append(float(rng.uniform(301, 9999) if rng.random() < breaks else rng.uniform(0, 300)))
        decision = policy.decide(situation(plan(), cold=step == 0, idle=pauses[-1] if step else None), memory)
        memory = decision.memory
        if decision.reselect:
            dropped = planned
        everything.append(list(blocks))
        forwarded.append([b for i, b in enumerate(blocks) if i not in dropped])
    whole = bill(everything, read, write, pauses)
    assert bill(forwarded, read, write, pauses) <= (1 + 1 / beta) * whole * (1 + 1e-9)


@pytest.mark.parametrize(
    ("plan", "idle", "ttl", "reselect"),
    [
        (Plan(10, 0, 10**6), 301.0, 300.0, True),
        (Plan(10, 0, 10**6), 300.0, 300.0, False),
        (Plan(10, 0, 10**6), None, 300.0, False),
        (Plan(10, 0, 10**6), 10**9, None, False),
        (Plan(0, 5, 10**6), 301.0, 300.0, False),
        (Plan(10, 5, 10**6, 4), 301.0, 300.0, True),
        (Plan(10, 5, 10**6, 6), 301.0, 300.0, False),
    ],
)
def test_a_rewrite_is_free_once_the_cache_has_expired(plan, idle, ttl, reselect):
    decision = CostAwarePolicy(ttl=ttl).decide(situation(plan, idle=idle), {"rent": 1.0})
    assert decision.reselect == reselect
    assert ("expired" in decision.reason) == reselect


@pytest.mark.parametrize("rent", [10**400, float("nan"), float("inf"), -float("inf"), [1, {"deep": float("nan")}]])
def test_a_state_is_strict_json(rent):
    state = {**SessionState().to_json(), "memory": {"rent": rent}}
    with pytest.raises(StateError, match=r"memory\.rent"):
        SessionState.from_json(state)
    with pytest.raises(StateError, match="'requests'"):
        SessionState.from_json({**SessionState().to_json(), "requests": 10**400})

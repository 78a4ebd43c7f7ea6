"""Proposition A.3 and the façade's state, over arbitrary sequences of what happens to an agent's history.

After every step the forwarded request is valid, ordered, made of the same message objects and within the guard;
protected blocks are in the core and the core is forwarded; between reselections the append rule (A.10) holds exactly;
and a process restarted from `state_dict` forwards the same set.
"""

import copy
import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gemjax import GEMConfig, HistoryCompressor
from gemjax.history import CostAwarePolicy, PaperPolicy
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES
from tests.conftest import HashingEncoder
from tests.history.contract import chat_faults, compact, dropped_indices, exchanges

COMMANDS = ["cat a.py", "sed -i s/x/y/ a.py", "pytest -q", "curl https://example.org/doc", "echo hi > out/b.txt", "ls"]
OUTPUTS = ["", "ok", "Traceback (most recent call last):\nValueError: x", "line\n" * 200, "\ud800 lone", "1 failed"]


class Conversation(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(
            [PaperPolicy(every=6), CostAwarePolicy(), CostAwarePolicy(read=1.0, write=1.0), CostAwarePolicy(beta=0.1)]
        ),
        delta=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
        rules=st.sampled_from([PAPER_RULES, DEFAULT_RULES, ()]),
    )
    def start(self, policy, delta, rules):
        self.config = GEMConfig(rules=rules, policy=policy, delta=delta, min_blocks=5, capacity=3, encoder_timeout=None)
        self.encoder = HashingEncoder()
        self.gem = HistoryCompressor(self.encoder, self.config)
        self.messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "repair a.py"}]
        self.number = 0
        self.goal = None
        self.pins = frozenset()
        self.before = None  # (messages, dropped message indices) of the last request
        self.continues = False
        self.result = None

    def turn(self, command, output, calls, ids):
        self.number += 1
        names = [f"call_{k}" if ids == "restart" else f"call_{self.number}_{k}" for k in range(calls)]
        self.messages.append(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        "id": n,
                        "type": "function",
                        "function": {"name": "bash", "arguments": json.dumps({"command": command})},
                    }
                    for n in names
                ],
            }
        )
        return [{"role": "tool", "tool_call_id": n, "content": output} for n in names]

    @rule(
        command=st.sampled_from(COMMANDS),
        output=st.sampled_from(OUTPUTS),
        calls=st.integers(1, 3),
        ids=st.sampled_from(["restart", "fresh"]),
        turned=st.booleans(),
        times=st.integers(1, 4),
    )
    def block(self, command, output, calls, ids, turned, times):
        for _ in range(times):
            results = self.turn(command, output, calls, ids)
            self.messages += reversed(results) if turned else results
        self.send()

    @rule(command=st.sampled_from(COMMANDS), arrived=st.integers(0, 2))
    def in_flight(self, command, arrived):
        results = self.turn(command, "late", 3, "fresh")
        self.messages += results[:arrived]
        self.send()
        self.messages += results[arrived:]
        self.send()

    @rule(text=st.sampled_from(["go on", "now write out/b.txt", "repair a.py"]))
    def user_speaks(self, text):
        self.messages.append({"role": "user", "content": text})
        self.send()

    @rule(goal=st.sampled_from([None, "repair a.py", "read https://example.org/doc"]))
    def goal_changes(self, goal):
        self.goal = goal
        self.send()

    @rule(pins=st.frozensets(st.integers(0, 12), max_size=3))
    def caller_pins(self, pins):
        self.pins = pins
        self.send()

    @rule(data=st.data())
    def history_is_rewritten(self, data):
        found = exchanges(self.messages)
        if not found:
            return
        members = data.draw(st.sampled_from(found))
        if data.draw(st.booleans()):
            self.messages = [m for i, m in enumerate(self.messages) if i not in members]
        else:
            self.messages[members[-1]] = {**self.messages[members[-1]], "content": f"edited {self.number}"}
        self.continues = False
        self.send()

    @rule()
    def process_restarts(self):
        state = json.loads(json.dumps(self.gem.state_dict("s")))
        other = HistoryCompressor(HashingEncoder(), self.config)
        other.load_state_dict("s", state)
        assert other.state_dict("s") == state
        twin = copy.copy(self)
        twin.gem = other
        here, there = self.compress(self.gem), self.compress(other)
        assert (here.forwarded, here.status, here.event) == (there.forwarded, there.status, there.event)
        self.gem = other
        self.check(there)

    @rule()
    def session_is_reset(self):
        self.gem.reset("s")
        self.continues = False
        self.before = None
        self.send()

    def compress(self, gem):
        self.request = {"model": "m", "tools": [{"name": "bash"}], "messages": list(self.messages)}
        return gem.compress(self.request, self.goal, "s", lambda b: b.index in self.pins)

    def send(self):
        snapshot = compact(self.messages)
        self.check(self.compress(self.gem))
        assert compact(self.messages) == snapshot, "the input was changed"

    def check(self, result):
        self.result = result
        assert result.status in ("compressed", "unchanged"), result.reason
        blocks = exchanges(self.messages)
        kept = result.request["messages"]
        dropped = dropped_indices(self.messages, kept)
        # whole blocks only, and exactly those that the result names
        assert sorted(i for b, members in enumerate(blocks) if b not in result.forwarded for i in members) == dropped
        assert chat_faults(kept) == chat_faults(self.messages)
        assert (result.request is self.request) == (not dropped) == (result.status == "unchanged")
        assert {k: v for k, v in result.request.items() if k != "messages"} == {
            k: v for k, v in self.request.items() if k != "messages"
        }
        # Eq. 8, by serialising both again
        full, sent = len(compact(self.request)), len(compact(result.request))
        assert (result.chars_before, result.chars_after) == (full, sent)
        assert sent >= (1 - self.config.effective_delta) * full - 1e-6
        # P in B in S
        eligible = len(blocks) >= 5
        records = result.blocks
        assert len(records) == len(blocks)
        if eligible:
            for record in records:
                if record.protected and result.event:
                    assert record.in_core
                if record.in_core and result.event:
                    assert record.kept
                if "pinned" in record.protected or "latest" in record.protected:
                    assert record.kept
            assert self.messages[-1]["role"] != "tool" or kept[-1] is self.messages[-1]
        # A.10: between reselections nothing that was forwarded goes, and only what may come back does
        if self.before is not None and self.continues and not result.event:
            earlier_messages, earlier_dropped = self.before
            gone = [i for i in dropped if i < earlier_messages]
            assert set(gone) <= set(earlier_dropped), "a forwarded block went without a reselection"
            assert not [i for i in dropped if i >= earlier_messages]
            back = {b for b, members in enumerate(blocks) if members[0] in set(earlier_dropped) - set(gone)}
            allowed = {r.index for r in records if self.config.policy.appends_evidence and r.protected}
            if eligible:
                assert back <= allowed | self.pins
        self.before = (len(self.messages), dropped)
        self.continues = True

    @invariant()
    def the_result_can_be_read(self):
        if getattr(self, "result", None) is not None:
            assert self.result.reason
            assert json.loads(json.dumps(self.result.report()))["status"] == self.result.status
            assert all(r.why for r in self.result.blocks)


Conversation.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestConversation = Conversation.TestCase

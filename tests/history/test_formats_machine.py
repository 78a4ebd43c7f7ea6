"""The façade's state in the other two formats: signed thinking (Anthropic) and reasoning items (Responses).

The oracle for signed thinking is a provider that remembers what stood before each block it signed and refuses what does
not fit (`signing_provider.Provider`); pairing and torn responses are judged by `contract`.
"""

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gemjax import GEMConfig, HistoryCompressor
from gemjax.history import CostAwarePolicy, PaperPolicy
from gemjax.history.evidence import DEFAULT_RULES
from tests.conftest import HashingEncoder
from tests.history.contract import compact, faults, torn
from tests.history.signing_provider import BOUND, Provider, signatures, turn

POLICIES = [PaperPolicy(every=5), CostAwarePolicy(), CostAwarePolicy(read=1.0, write=1.0), CostAwarePolicy(beta=0.1)]


class Machine(RuleBasedStateMachine):
    """What happens to any agent's history; a format says how its messages look."""

    key = "messages"

    @initialize(
        policy=st.sampled_from(POLICIES),
        delta=st.sampled_from([0.05, 0.5, 1.0]),
        rules=st.sampled_from([DEFAULT_RULES, ()]),
    )
    def start(self, policy, delta, rules):
        self.config = GEMConfig(policy=policy, delta=delta, rules=rules, min_blocks=4, capacity=2, encoder_timeout=None)
        self.gem = HistoryCompressor(HashingEncoder(), self.config)
        self.number = 0
        self.messages = [{"role": "user", "content": "Find the fault."}]
        self.result = None
        self.began()

    def began(self):
        """A format's own state."""

    def request(self):
        return {"model": BOUND, self.key: list(self.messages)}

    def send(self):
        request = self.request()
        before = compact(request)
        self.result = result = self.gem.compress(request, session="s")
        assert compact(request) == before, "the input was changed"
        assert result.status in ("compressed", "unchanged"), result.reason
        assert result.chars_before == len(before) and result.chars_after == len(compact(result.request))
        if result.status == "unchanged":
            assert result.request is request
        assert set(faults(result.request)) <= {f for f in faults(request) if "unanswered" in f}
        for index, message in enumerate(request[self.key]):
            if index not in result.stripped and message in result.request[self.key]:
                assert any(message is sent for sent in result.request[self.key])
        return result.request

    @rule()
    def process_restarts(self):
        state = json.loads(json.dumps(self.gem.state_dict("s")))
        self.gem = HistoryCompressor(HashingEncoder(), self.config)
        self.gem.load_state_dict("s", state)

    @invariant()
    def the_report_is_json(self):
        if getattr(self, "result", None) is not None:
            assert json.loads(json.dumps(self.result.report()))["status"] == self.result.status


class SignedThinking(Machine):
    """Newer Claude models: every request goes to a provider that checks what stands before signed thinking."""

    def began(self):
        self.provider = Provider()

    def request(self):
        return {**super().request(), "thinking": {"type": "adaptive"}}

    def answered(self, thought, size, text):
        """One turn: the request goes out, the answer is bound to it, and the tool runs."""
        self.number += 1
        message, result = turn(self.number, thought, size, text)
        refused = self.provider.answer(self.send(), signatures(message))
        assert refused is None, refused
        self.messages += [message, result]

    @rule(
        thought=st.sampled_from([0, 1, 1, 2, -1]),
        size=st.sampled_from([10, 400, 3000]),
        text=st.sampled_from(["", "step"]),
        times=st.integers(1, 4),
    )
    def turns(self, thought, size, text, times):
        for _ in range(times):
            self.answered(thought, size, text)

    @rule(text=st.sampled_from(["go on", "and now the tests"]))
    def user_speaks(self, text):
        done = {"role": "assistant", "content": f"done {self.number}"}
        assert self.provider.answer(self.send(), []) is None
        self.messages += [done, {"role": "user", "content": text}]

    @precondition(lambda self: self.number > 6)
    @rule(data=st.data())
    def caller_rewinds(self, data):
        """What comes later was made behind what is still there."""
        starts = [i for i, m in enumerate(self.messages) if m["role"] == "assistant"]
        if not starts:
            return
        del self.messages[data.draw(st.sampled_from(starts)) :]
        if self.messages[-1]["role"] == "assistant":
            self.messages.append({"role": "user", "content": "once more"})

    @precondition(lambda self: self.number > 6)
    @rule(data=st.data())
    def caller_edits(self, data):
        """A caller who edits history leaves out the thinking, or the provider refuses him anyway."""
        results = [i for i, m in enumerate(self.messages) if isinstance(m["content"], list) and m["role"] == "user"]
        if not results:
            return
        at = data.draw(st.sampled_from(results))
        part = {**self.messages[at]["content"][0], "content": f"edited {self.number}"}
        self.messages[at] = {**self.messages[at], "content": [part]}
        for i, message in enumerate(self.messages):
            if message["role"] == "assistant" and isinstance(message["content"], list):
                bare = [p for p in message["content"] if p["type"] not in ("thinking", "redacted_thinking")]
                self.messages[i] = {**message, "content": bare}


class Responses(Machine):
    """Reasoning items with ids that go with the calls of their response."""

    key = "input"

    def began(self):
        self.of = [None]

    def add(self, item, response):
        self.messages.append(item)
        self.of.append(response)

    @rule(
        named=st.booleans(),
        calls=st.integers(1, 3),
        size=st.sampled_from([10, 400, 3000]),
        note=st.booleans(),
        times=st.integers(1, 4),
    )
    def turns(self, named, calls, size, note, times):
        for _ in range(times):
            self.number += 1
            identity = {"id": f"rs_{self.number}"} if named else {}
            thought = {"type": "reasoning", "summary": [], "encrypted_content": f"x{self.number}"}
            self.add(thought | identity, self.number)
            names = [f"call_{self.number}_{k}" for k in range(calls)]
            for name in names:
                call = {"type": "function_call", "call_id": name, "name": "f", "arguments": json.dumps({"n": name})}
                self.add(call, self.number)
            if note:
                self.add({"type": "message", "role": "developer", "content": f"note {self.number}"}, None)
            for name in names:
                output = {"type": "function_call_output", "call_id": name, "output": name + "x" * size}
                self.add(output, self.number)
            self.check()

    @rule(text=st.sampled_from(["go on", "and now the tests"]))
    def user_speaks(self, text):
        self.add({"type": "message", "role": "assistant", "content": f"done {self.number}"}, None)
        self.add({"role": "user", "content": text}, None)
        self.check()

    @precondition(lambda self: self.number > 6)
    @rule(data=st.data())
    def caller_rewinds(self, data):
        starts = [i for i, m in enumerate(self.messages) if m.get("type") == "reasoning"]
        if not starts:
            return
        at = data.draw(st.sampled_from(starts[1:] or starts))
        del self.messages[at:], self.of[at:]
        self.check()

    @precondition(lambda self: self.number > 2)
    @rule(data=st.data())
    def caller_edits(self, data):
        outputs = [i for i, m in enumerate(self.messages) if m.get("type") == "function_call_output"]
        if outputs:
            at = data.draw(st.sampled_from(outputs))
            self.messages[at] = {**self.messages[at], "output": f"edited {self.number}"}
            self.check()

    def check(self):
        sent = {id(item) for item in self.send()[self.key]}
        dropped = [i for i, item in enumerate(self.messages) if id(item) not in sent]
        assert torn(self.of, self.messages, dropped) == []
        assert not [i for i in dropped if self.of[i] is None], "conversation was dropped"


for machine in (SignedThinking, Responses):
    machine.TestCase.settings = settings(
        max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
    )
TestSignedThinking = SignedThinking.TestCase
TestResponses = Responses.TestCase

"""CoreMem through any history of remembering, recalling, asking and restarting, beside a list of what was said."""

import datetime as dt
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gemjax.coremem import CoreMem, CoreMemConfig, Sampling, UnansweredError
from tests.conftest import HashingEncoder
from tests.coremem.scripted import ScriptedGenerator

NOW = dt.datetime(2024, 2, 1, tzinfo=dt.UTC)
WORDS = st.sampled_from(["dog", "river", "Oslo", "sings", "rex", "blue", "三月", "жёлтый"])
SENTENCE = st.lists(WORDS, min_size=1, max_size=4).map(lambda words: " ".join(words) + ".")
TURN = st.tuples(
    st.sampled_from(["Ann", "Bob"]), st.lists(SENTENCE, min_size=1, max_size=3).map(" ".join), st.integers(1, 28)
)


class Directed(HashingEncoder):
    """No text is without direction, whatever its words' hashes add up to."""

    name = "hashing-65"
    dim = 65

    def encode(self, texts):
        return np.column_stack([super().encode(texts), np.full(len(texts), 0.1, np.float32)])


SCOPES = st.sampled_from([(), ("ann",), ("ann", "desk"), ("bob",)])


class Memory(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "bank"
        self.said: dict[tuple, str] = {}  # (scope, day, speaker, text, how many before it) -> id
        self.saved: dict[tuple, str] = {}
        self.open()

    def open(self):
        self.memory = CoreMem(
            self.path,
            encoder=Directed(),
            generator=ScriptedGenerator(lambda prompt: f"{len(prompt)}"),
            config=CoreMemConfig(budget=40, retrieve=6),
            clock=lambda: NOW,
        )

    @rule(turns=st.lists(TURN, max_size=4), scope=SCOPES)
    def remember(self, turns, scope):
        keys = []
        for speaker, text, day in turns:
            key = (scope, day, speaker, text)
            keys.append((*key, sum(other[:4] == key for other in keys)))
        out = self.memory.remember(
            [{"speaker": s, "text": t, "time": dt.date(2024, 1, d)} for s, t, d in turns], scope=scope
        )
        assert out.added == sum(key not in self.said for key in keys) and out.added + out.known == len(turns)
        assert all(self.said.get(key, id) == id for key, id in zip(keys, out.ids, strict=True))
        self.said |= dict(zip(keys, out.ids, strict=True))

    @rule(question=SENTENCE, scope=SCOPES, budget=st.integers(1, 60))
    def recall(self, question, scope, budget):
        found = self.memory.recall(question, budget, scope=scope)
        inside = {id for key, id in self.said.items() if key[0][: len(scope)] == scope}
        ids = [part.id for part in (*found.evidence, *found.left_out)]
        # Distinct memories of the scope; as many as were asked for, but for those that say the same.
        assert set(ids) <= inside and len(set(ids)) == len(ids) <= 6
        assert bool(ids) == bool(inside) == found.supported
        assert found.ledger.tokens_kept == self.memory.distiller.tokenizer.count(found.text) <= budget
        assert [part.happened_at for part in found.evidence] == sorted(part.happened_at for part in found.evidence)
        assert all(part.kept and part.kept in part.text for part in found.evidence if len(part.spans) == 1)
        again = self.memory.recall(question, budget, scope=scope)
        assert again.text == found.text and again.evidence == found.evidence

    @rule(question=SENTENCE, scope=SCOPES)
    def ask(self, question, scope):
        answer = self.memory.ask(question, scope=scope)
        if not any(key[0][: len(scope)] == scope for key in self.said):
            assert answer.abstained and not answer.messages
            return
        assert answer.text == str(len(answer.messages[-1]["content"])) and not answer.abstained
        assert answer.ledger.tokens_prompted == self.memory.generator.count_tokens(answer.messages)
        assert self.memory.recall(question, scope=scope).text == answer.recollection.text

    @precondition(lambda self: self.said)
    @rule(question=SENTENCE, window=st.integers(60, 120))
    def ask_in_little_room(self, question, window):
        self.memory.generator.context_window = window
        before = self.memory.recall(question)
        try:
            answer = self.memory.ask(question, sampling=Sampling(max_tokens=5))
        except UnansweredError as error:
            assert error.recollection.text == before.text
        else:
            assert answer.ledger.tokens_prompted + 5 <= window
            assert answer.ledger.memories_kept + answer.ledger.memories_cut == before.ledger.memories_kept
        self.memory.generator.context_window = 4000

    @rule(question=SENTENCE)
    def a_generator_that_fails(self, question):
        self.memory.generator.fails = "away"
        if self.said:
            with pytest.raises(UnansweredError):
                self.memory.ask(question)
        self.memory.generator.fails = ""

    @rule()
    def save(self):
        if self.said:
            self.memory.save()
            self.saved = dict(self.said)

    @rule()
    def restart(self):
        self.said = dict(self.saved)
        self.open()

    @invariant()
    def all_is_there(self):
        assert len(self.memory) == len(self.said)
        for (scope, day, speaker, text, _), id in self.said.items():
            kept = self.memory.bank.get(id)
            assert kept.text == f"{speaker}: {text}" and kept.scope == scope
            assert kept.happened_at == dt.datetime(2024, 1, day, tzinfo=dt.UTC)

    def teardown(self):
        self.folder.cleanup()


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)

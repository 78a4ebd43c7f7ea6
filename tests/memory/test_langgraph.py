"""A bank as a LangGraph store, beside LangGraph's own `InMemoryStore`."""

import asyncio
import datetime as dt
import json

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

pytest.importorskip("langgraph.store.memory", reason="install langgraph-checkpoint")

from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from gemjax.errors import MemoryBankError, StateError
from gemjax.memory import MemoryBank
from gemjax.memory.langgraph import BankStore

WORDS = ["red", "green", "blue", "cat", "dog", "bird", "sea", "hill"]


def encoder(texts):
    return np.array([[0.01 + text.count(word) * (1 + i / 7) for i, word in enumerate(WORDS)] for text in texts])


def embed(texts):
    return encoder(texts).tolist()


class Clock:
    def __init__(self):
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def __call__(self):
        return self.now

    def forward(self, minutes):
        self.now += dt.timedelta(minutes=minutes)


def store(**named):
    return BankStore(MemoryBank(encoder), **named)


def seen(items):
    return [(item.namespace, item.key, item.value) for item in items]


def by_space(items):
    """Items by namespace, each in its order: two stores may order namespaces otherwise once one was emptied."""
    found = {}
    for item in items:
        found.setdefault(item.namespace, []).append((item.key, item.value))
    return found


labels = st.sampled_from(["a", "b", "c"])
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["k1", "k2", "k3", "é\n"])
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 2.0]), texts)
values = st.fixed_dictionaries(
    {"text": texts},
    optional={
        "n": st.integers(-3, 3),
        "x": scalars,
        "deep": st.fixed_dictionaries({"y": scalars}),
        "list": st.lists(scalars, max_size=2),
    },
)
numbers = st.sampled_from(["$gt", "$gte", "$lt", "$lte"])
filters = st.one_of(
    st.none(),
    st.fixed_dictionaries({}, optional={"text": texts, "x": scalars, "list": st.lists(scalars, max_size=2)}),
    st.fixed_dictionaries({"x": st.dictionaries(st.sampled_from(["$eq", "$ne"]), scalars, min_size=1)}),
    st.fixed_dictionaries({"deep": st.fixed_dictionaries({"y": scalars})}),
)
ordered = st.dictionaries(numbers, st.integers(-3, 3), min_size=1, max_size=2)


class AsInMemory(RuleBasedStateMachine):
    """What the two stores answer, for any sequence of operations."""

    @initialize()
    def begin(self):
        self.ours = store(fields=["text"], metric="cosine")
        self.theirs = InMemoryStore(index={"dims": len(WORDS), "embed": embed, "fields": ["text"]})

    @rule(ns=namespaces, key=keys, value=values, index=st.sampled_from([None, None, False, ["x"]]))
    def put(self, ns, key, value, index):
        self.theirs._vectors[ns].pop(key, None)  # it would keep those that a former value of the key had
        for each in (self.ours, self.theirs):
            each.put(ns, key, value, index)

    @rule(ns=namespaces, key=keys)
    def delete(self, ns, key):
        for each in (self.ours, self.theirs):
            each.delete(ns, key)

    @rule(ns=namespaces, key=keys, value=values, other=keys)
    def in_one_batch(self, ns, key, value, other):
        ops = [PutOp(ns, other, {"text": "sea"}), GetOp(ns, key), PutOp(ns, key, value), PutOp(ns, other, None)]
        ops += [SearchOp(ns, None, 50)]
        ours, theirs = self.ours.batch(ops), self.theirs.batch(ops)
        assert [r and r.value for r in ours[:4]] == [r and r.value for r in theirs[:4]]
        assert by_space(ours[4]) == by_space(theirs[4])

    @rule(ns=namespaces, key=keys)
    def get(self, ns, key):
        ours, theirs = self.ours.get(ns, key), self.theirs.get(ns, key)
        assert (ours and ours.value) == (theirs and theirs.value)

    @rule(prefix=st.lists(labels, max_size=2).map(tuple), wanted=filters)
    def search(self, prefix, wanted):
        ours = self.ours.search(prefix, filter=wanted, limit=100)
        assert by_space(ours) == by_space(self.theirs.search(prefix, filter=wanted, limit=100))
        paged = [self.ours.search(prefix, filter=wanted, limit=2, offset=at) for at in range(0, len(ours) + 2, 2)]
        assert seen(ours) == [one for page in paged for one in seen(page)]

    @rule(prefix=st.lists(labels, max_size=1).map(tuple), condition=ordered)
    def compare(self, prefix, condition):
        # InMemoryStore raises for a value without an order; ours leaves it out.
        ours = self.ours.search(prefix, filter={"n": condition}, limit=100)
        with_n = [item for item in self.theirs.search(prefix, limit=100) if "n" in item.value]
        oracle = InMemoryStore()
        for item in with_n:
            oracle.put(item.namespace, item.key, item.value)
        assert by_space(ours) == by_space(oracle.search(prefix, filter={"n": condition}, limit=100))

    @rule(prefix=st.lists(labels, max_size=1).map(tuple), query=texts, limit=st.integers(1, 4), wanted=filters)
    def ask(self, prefix, query, limit, wanted):
        ours = self.ours.search(prefix, query=query, limit=limit, filter=wanted)
        theirs = self.theirs.search(prefix, query=query, limit=limit, filter=wanted)
        assert [item.score is None for item in ours] == [item.score is None for item in theirs]
        np.testing.assert_allclose(
            [item.score for item in ours if item.score is not None],
            [item.score for item in theirs if item.score is not None],
            atol=1e-5,
        )
        # Equal scores may come in another order.
        scored = {
            (i.namespace, i.key): i.score for i in self.theirs.search(prefix, query=query, limit=99, filter=wanted)
        }
        for item in ours:
            if item.score is not None:
                assert abs(scored[item.namespace, item.key] - item.score) < 1e-5

    @rule(
        prefix=st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "*"]), max_size=2).map(tuple)),
        suffix=st.one_of(st.none(), st.lists(st.sampled_from(["a", "c", "*"]), max_size=2).map(tuple)),
        max_depth=st.one_of(st.none(), st.integers(1, 3)),
        limit=st.integers(1, 5),
        offset=st.integers(0, 2),
    )
    def list_namespaces(self, prefix, suffix, max_depth, limit, offset):
        # InMemoryStore goes on listing a namespace that was emptied, or only asked for.
        oracle = InMemoryStore()
        for item in self.theirs.search((), limit=1000):
            oracle.put(item.namespace, item.key, {})
        named = {"prefix": prefix, "suffix": suffix, "max_depth": max_depth, "limit": limit, "offset": offset}
        assert self.ours.list_namespaces(**named) == oracle.list_namespaces(**named)

    @invariant()
    def the_bank_holds_what_is_indexed(self):
        if hasattr(self, "ours"):
            wanted = {id for record in self.ours._items for id in record.memories}
            assert set(self.ours.bank.ids) == wanted


AsInMemory.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestAsInMemory = AsInMemory.TestCase


def test_a_put_in_the_place_of_another_keeps_the_first_moment_and_none_of_the_old_words():
    clock = Clock()
    ours = store(fields=["a", "b"], clock=clock, metric="cosine")
    ours.put(("u",), "k", {"a": "red cat", "b": "sea"})
    clock.forward(5)
    ours.put(("u",), "k", {"a": "blue dog"})
    item = ours.get(("u",), "k")
    assert item.updated_at - item.created_at == dt.timedelta(minutes=5)
    assert [m.text for m in ours.bank.contents()[0]] == ["blue dog"]
    assert ours.search(("u",), query="red cat")[0].score < 0.2


def test_an_item_is_found_by_the_best_of_its_texts_and_once():
    ours = store(fields=["parts[*].said"], metric="cosine")
    ours.put(("u",), "many", {"parts": [{"said": "red cat"}, {"said": "blue sea"}, {"said": "hill"}]})
    ours.put(("u",), "one", {"parts": [{"said": "green dog"}]})
    found = ours.search(("u",), query="blue sea", limit=5)
    assert [item.key for item in found] == ["many", "one"] and found[0].score == pytest.approx(1.0, abs=1e-5)


def test_expiry_is_renewed_by_reading_and_nothing_shows_what_has_expired():
    clock = Clock()
    ours = store(fields=["t"], clock=clock, ttl={"default_ttl": 10.0, "refresh_on_read": True})
    ours.put(("u",), "short", {"t": "red"})
    ours.put(("u",), "long", {"t": "red"}, ttl=None)
    clock.forward(9)
    assert ours.get(("u",), "short") is not None
    clock.forward(9)
    assert [item.key for item in ours.search(("u",), query="red", refresh_ttl=False)] == ["short", "long"]
    clock.forward(1)
    assert ours.get(("u",), "short") is None
    assert [item.key for item in ours.search(("u",), query="red")] == ["long"]
    assert len(ours.bank) == 1
    ours.put(("v",), "other", {"t": "sea"}, ttl=1)
    clock.forward(2)
    assert ours.list_namespaces() == [("u",)] and ours.sweep_ttl() == 0
    with pytest.raises(ValueError, match="ttl"):
        ours.put(("u",), "bad", {"t": "sea"}, ttl=float("nan"))
    ours.put(("u",), "ever", {"t": "sea"}, ttl=1e300)
    clock.forward(1e6)
    assert ours.get(("u",), "ever") is not None


def test_a_shorter_ttl_takes_the_place_of_a_longer_one():
    clock = Clock()
    ours = store(fields=None, clock=clock)
    for ttl in (100, 1):
        ours.put(("u",), "k", {"a": 1}, ttl=ttl)
    clock.forward(2)
    assert ours.get(("u",), "k") is None


def test_values_are_the_stores_own():
    value = {"list": [1], "t": "red"}
    ours = store(fields=["t"])
    ours.put(("u",), "k", value)
    value["list"].append(2)
    ours.get(("u",), "k").value["list"].append(3)
    ours.search(("u",), query="red")[0].value["list"].append(4)
    assert ours.get(("u",), "k").value == {"list": [1], "t": "red"}


def test_a_batch_that_fails_changes_nothing():
    ours = store(fields=["t"])
    ours.put(("u",), "k", {"t": "red"})
    before = seen(ours.search(()))
    for bad, error in (
        (PutOp(("u",), "x", {"t": {1, 2}}), MemoryBankError),
        (PutOp(("u", 3), "x", {"t": "sea"}), InvalidNamespaceError),
        (PutOp(("u.v",), "x", {"t": "sea"}), InvalidNamespaceError),
        (SearchOp(("u",), {"t": {"$near": 1}}), ValueError),
        (SearchOp(("u",), None, -1), ValueError),
        ("no operation", ValueError),
    ):
        with pytest.raises(error):
            ours.batch([PutOp(("u",), "k", {"t": "blue"}), bad, PutOp(("u",), "y", {"t": "sea"})])
        assert seen(ours.search(())) == before and len(ours.bank) == 1


def test_values_of_other_kinds_are_left_out_of_comparisons():
    ours = store(fields=None)
    for key, value in (("a", 3), ("b", None), ("c", [1]), ("d", "2024-05-01"), ("e", {"x": 1}), ("f", "7")):
        ours.put(("u",), key, {"v": value})
    ours.put(("u",), "g", {})
    assert [i.key for i in ours.search(("u",), filter={"v": {"$gt": 2}})] == ["a", "f"]
    assert [i.key for i in ours.search(("u",), filter={"v": {"$gte": "2024-01-01"}})] == ["d", "f"]


def test_async_calls_are_the_same_calls():
    async def talk():
        ours = store(fields=["t"])
        await asyncio.gather(*(ours.aput(("u", str(i)), "k", {"t": WORDS[i]}) for i in range(8)))
        found = await ours.asearch(("u",), query="dog", limit=1)
        await ours.adelete(("u", "0"), "k")
        return found[0].value, await ours.aget(("u", "0"), "k"), len(await ours.alist_namespaces(prefix=("u",)))

    assert asyncio.run(talk()) == ({"t": "dog"}, None, 7)


def test_a_saved_store_comes_back(tmp_path):
    clock = Clock()
    ours = store(fields=["t"], clock=clock)
    ours.put(("u",), "a", {"t": "red cat", "n": [1, {"é": None}]})
    ours.put(("u",), "b", {"t": "sea"}, index=False)
    ours.put(("v",), "c", {"t": "hill"}, ttl=5)
    ours.bank.add(["not an item"])
    ours.save(tmp_path / "store")
    back = BankStore.load(tmp_path / "store", encoder, fields=["t"], clock=clock)
    assert [i.dict() for i in back.search(())] == [i.dict() for i in ours.search(())]
    assert set(back.bank.ids) == set(ours.bank.ids)
    clock.forward(6)
    assert back.get(("v",), "c") is None

    # Another save was killed between items and bank: the items hold, the bank follows.
    newer = store(fields=["t"], clock=clock)
    newer.put(("u",), "a", {"t": "blue dog"})
    newer.put(("w",), "d", {"t": "bird"})
    newer.save(tmp_path / "newer")
    (tmp_path / "newer" / "items.jsonl").replace(tmp_path / "store" / "items.jsonl")
    mixed = BankStore.load(tmp_path / "store", encoder, fields=["t"])
    assert seen(mixed.search(())) == seen(newer.search(()))
    assert sorted(m.text for m in mixed.bank.contents()[0]) == ["bird", "blue dog", "not an item"]
    assert mixed.search((), query="bird", limit=1)[0].key == "d"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: [],
        lambda lines: [json.dumps({"gemjax_store": 99}), *lines[1:]],
        lambda lines: [lines[0], lines[1][:-9]],
        lambda lines: [lines[0], "3"],
        lambda lines: [lines[0], lines[1].replace('"k"', "3")],
        lambda lines: [lines[0], lines[1].replace("2026", "abc")],
    ],
)
def test_a_damaged_store_is_refused(tmp_path, spoil):
    ours = store(clock=Clock())
    ours.put(("u",), "k", {"t": "red"})
    ours.save(tmp_path)
    file = tmp_path / "items.jsonl"
    file.write_text("".join(line + "\n" for line in spoil(file.read_text().splitlines())))
    with pytest.raises(StateError, match=r"items\.jsonl"):
        BankStore.load(tmp_path, encoder)

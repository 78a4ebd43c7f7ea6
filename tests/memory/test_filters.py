"""Conditions, scopes, times and expiry."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemjax.errors import MemoryBankError
from gemjax.memory import Memory, MemoryBank
from gemjax.memory.filters import compiled

VALUES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.text(max_size=3))
UTC = dt.UTC


def passes(where, metadata=None, **fields):
    return compiled(where)(Memory(1, "text", metadata, **fields))


def test_operators():
    data = {"n": 3, "name": "Anna", "tags": ["tea", 1], "flag": True, "none": None}
    good = [
        {"n": 3}, {"n": 3.0}, {"n": {"gt": 2, "lte": 3}}, {"n": {"ne": 4}}, {"absent": {"ne": 4}},
        {"n": {"in": [1, 3]}},
        {"n": {"nin": [1]}}, {"absent": {"nin": [1]}}, {"name": {"contains": "nn"}}, {"name": {"icontains": "ANN"}},
        {"tags": {"contains": "tea"}}, {"tags": {"icontains": "TEA"}}, {"tags": ["tea", 1]}, {"name": {"gt": "Ann"}},
        {"or": [{"n": 9}, {"flag": True}]}, {"and": [{"n": 3}, {"not": {"n": 4}}]}, {"none": None}, {}, {"and": []},
        {"id": 1}, {"text": {"contains": "ex"}}, {"flag": {"ne": 1}},
    ]  # fmt: skip
    bad = [
        {"n": 4}, {"n": {"gt": 3}}, {"n": {"gt": "a"}}, {"flag": 1}, {"flag": {"gt": 0}}, {"absent": None},
        {"absent": {"lt": 5}}, {"name": {"contains": "NN"}}, {"tags": {"contains": True}}, {"or": []},
        {"not": {"n": 3}}, {"n": 3, "name": "Bob"}, {"n": {"in": []}},
    ]  # fmt: skip
    assert [w for w in good if not passes(w, data)] == [] and [w for w in bad if passes(w, data)] == []


@given(VALUES, VALUES)
def test_an_operator_and_its_opposite(value, operand):
    for yes, no in (("eq", "ne"),):
        assert passes({"x": {yes: operand}}, {"x": value}) != passes({"x": {no: operand}}, {"x": value})
    assert passes({"x": {"in": [operand]}}, {"x": value}) == passes({"x": operand}, {"x": value})
    three = [passes({"x": {op: operand}}, {"x": value}) for op in ("lt", "gt")]
    if passes({"x": {"gte": operand}}, {"x": value}) and passes({"x": {"lte": operand}}, {"x": value}):
        assert not any(three)


def test_times_are_compared_as_moments():
    when = {"happened_at": dt.datetime(2023, 5, 8, 12, tzinfo=UTC)}
    assert passes({"happened_at": {"gte": "2023-05-08", "lt": "2023-05-09"}}, **when)
    assert passes({"happened_at": "2023-05-08T14:00:00+02:00"}, **when)
    assert passes({"happened_at": {"gt": dt.date(2023, 5, 1)}}, **when)
    assert not passes({"happened_at": {"gt": "soon"}}, **when) and not passes({"happened_at": {"gt": "2023"}})


@pytest.mark.parametrize("where", [{"n": {"in": 3}}, {"and": [1]}, {1: 2}, {"n": {"icontains": 3}}, "x", 5], ids=str)
def test_conditions_without_meaning_are_refused(where):
    with pytest.raises(MemoryBankError, match="where"):
        compiled(where)
    deep = {"n": 1}
    for _ in range(2000):
        deep = {"not": deep}
    with pytest.raises(MemoryBankError, match="nested"):
        compiled(deep)


def test_scopes_hold_what_lies_within_them(tmp_path):
    bank = MemoryBank()
    for i, scope in enumerate(["ann", ("ann", "planner"), ("bob", "planner"), ()]):
        bank.add([f"t{i}"], vectors=np.ones((1, 3)), scope=scope, sessions="s")
    bank.save(tmp_path / "b")
    for b in (bank, MemoryBank.load(tmp_path / "b")):
        assert [h.id for h in b.search(np.ones(3), scope="ann")] == [0, 1]
        assert [h.id for h in b.search(np.ones(3), scope=("ann", "planner"))] == [1]
        assert [h.id for h in b.search(np.ones(3))] == [0, 1, 2, 3] and b.search(np.ones(3), scope="planner") == []
        assert b.search(np.ones(3), scope="ann")[1].scope == ("ann", "planner")
    for bad in (5, ["a", ""], [1]):
        with pytest.raises(MemoryBankError, match="scope"):
            bank.search(np.ones(3), scope=bad)


def test_duplicates_are_counted_in_their_scope_only():
    bank = MemoryBank()
    one, other = ({"vectors": np.ones((1, 3)), "scope": s, "on_duplicate": "skip"} for s in ("ann", "bob"))
    assert [bank.add(["x"], **one), bank.add(["x"], **other), bank.add(["x"], **one)] == [[0], [1], [0]]


def test_expiry_and_times(tmp_path):
    now = [dt.datetime(2024, 1, 1, tzinfo=UTC)]
    bank = MemoryBank(clock=lambda: now[0])
    bank.add(
        ["old", "new"], vectors=np.eye(2), expires_at=["2024-02-01", None], happened_at=["2023-12-31T23:00-02:00", None]
    )
    assert len(bank.search(np.ones(2))) == 2
    assert [h.id for h in bank.search(np.ones(2), at="2024-02-01")] == [1]
    now[0] = dt.datetime(2024, 3, 1, tzinfo=UTC)
    assert [h.id for h in bank.search(np.ones(2))] == [1] and len(bank) == 2
    bank.add(["old"], vectors=np.eye(2)[:1], on_duplicate="replace")
    memory = bank.contents()[0][0]
    assert (memory.created_at.year, memory.updated_at, memory.expires_at) == (2024, now[0], None)
    assert len(bank.search(np.ones(2))) == 2
    bank.save(tmp_path / "b")
    assert MemoryBank.load(tmp_path / "b").contents()[0] == bank.contents()[0]
    for bad in ("tomorrow", 5, ["2024-01-01"] * 3):
        with pytest.raises(MemoryBankError, match="happened_at"):
            bank.add(["x"], vectors=np.eye(2)[:1], happened_at=bad)


def test_get_and_pages():
    bank = MemoryBank()
    bank.add([f"t{i}" for i in range(7)], vectors=np.eye(7), metadata=[{"even": i % 2 == 0} for i in range(7)])
    bank.remove([2])
    assert bank.get(3).text == "t3" and bank.get(2) is None and bank.get("x") is None
    assert [m.id for m in bank.page(offset=1, limit=3)] == [1, 3, 4]
    assert [m.id for m in bank.page({"even": True})] == [0, 4, 6] and bank.page(offset=9) == []
    bank.get(3).metadata["even"] = "changed"
    assert bank.get(3).metadata == {"even": False}
    with pytest.raises(MemoryBankError, match="limit"):
        bank.page(limit=0)

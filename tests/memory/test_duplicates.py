"""Duplicates: kept, skipped, replaced, folded; a contradiction never. What the caller holds is not the bank's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemjax.errors import MemoryBankError
from gemjax.memory import Memory, MemoryBank
from gemjax.memory.duplicates import same_words

SAME = ["Ann prefers tea.", "ann prefers  tea", "Ann prefers tea!", '"Ann prefers tea"', "ANN PREFERS TEA "]
OTHER = ["Ann does not prefer tea.", "Ann prefers tea?", "Ann prefers 2 teas.", "Ann prefers -tea", "Ann, not Bob: tea"]


def words(text, **more):
    return same_words(Memory(0, text, **more))


def test_what_says_the_same_and_what_does_not():
    assert len({words(text) for text in SAME}) == 1
    assert len({words(text) for text in [SAME[0], *OTHER]}) == 1 + len(OTHER)
    assert words("5") != words("-5") != words(".5")
    assert words("a.b") != words("ab") and words("!ready") != words("ready")
    assert words("...") != words("!") and words("x", scope=("a",)) != words("x") != words("x", metadata={"n": 1})
    assert words("e\u0301t\xe9") == words("\xe9te\u0301")


@given(st.text(min_size=1).filter(str.strip), st.integers(0, 9))
def test_another_number_is_another_memory(text, number):
    assert words(f"{text} {number}") != words(f"{text} {number + 1}")
    assert words(f"{text} {number}") != words(f"not {text} {number}")


def near(count, seed=0):
    """Unit vectors that nearly point one way."""
    return np.ones((count, 6)) + 0.01 * np.random.default_rng(seed).standard_normal((count, 6))


def test_a_search_shows_each_fact_once_and_names_the_others():
    bank = MemoryBank()
    bank.add(SAME * 8, vectors=near(40))
    bank.add(OTHER, ids=[f"o{i}" for i in range(5)], vectors=-near(5, 1))
    hits = bank.search(np.ones(6), k=6, metric="cosine", fold=True)
    assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5, 6]
    assert {hit.id for hit in hits[1:]} == {f"o{i}" for i in range(5)}
    assert sorted([hits[0].id, *hits[0].duplicates]) == list(range(40))
    plain = bank.search(np.ones(6), k=6, metric="cosine")
    assert plain[0].id == hits[0].id and {hit.id for hit in plain} <= set(range(40)) and not plain[0].duplicates


def test_the_same_words_with_another_vector_or_metadata_are_not_folded():
    bank = MemoryBank()
    bank.add(["x"] * 3, vectors=np.eye(3), metadata=[None] * 3)
    bank.add(["x"], vectors=np.eye(3)[:1], metadata=[{"n": 1}])
    assert len(bank.search(np.ones(3), k=9, fold=True)) == 4


def test_skip_keeps_the_first_and_returns_its_id():
    bank = MemoryBank()
    assert bank.add(["a b", "c", "a  b"], vectors=np.eye(3), on_duplicate="skip") == [0, 1, 0]
    assert bank.add(["c", "d", "A b"], vectors=np.eye(3), ids=["x", "y", "z"], on_duplicate="skip") == [1, "y", "z"]
    assert bank.ids == [0, 1, "y", "z"]
    bank.remove([0])
    assert bank.add(["a b"], vectors=np.eye(3)[:1], on_duplicate="skip") == [bank.ids[-1]]
    assert len(bank) == 4


def test_replace_writes_in_the_place_of_the_old_one():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((60, 6))
    bank = MemoryBank()
    bank.add([f"t{i}" for i in range(60)], vectors=vectors)
    new = rng.standard_normal((3, 6))
    got = bank.add(["t5", "n", "t7"], vectors=new, metadata=[{"v": 2}, None, {"v": 3}], on_duplicate="replace")
    assert got == [5, got[1], 7] and bank.ids == [*range(60), got[1]]
    vectors[[5, 7]] = new[[0, 2]]
    vectors = np.concatenate([vectors, new[1:2]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(bank.vectors(), vectors, atol=1e-6)
    np.testing.assert_allclose(bank.moments.mean, vectors.mean(0), atol=1e-5)
    scatter = (vectors - vectors.mean(0)).T @ (vectors - vectors.mean(0))
    np.testing.assert_allclose(bank.moments.scatter, scatter, atol=1e-4)
    assert bank.search(new[0], k=1, metric="cosine")[0].metadata == {"v": 2}


def test_keep_is_the_default_and_other_words_are_refused():
    bank = MemoryBank()
    assert bank.add(["a", "a"], vectors=np.eye(2)) == [0, 1]
    with pytest.raises(MemoryBankError, match="on_duplicate must be one of keep, skip, replace"):
        bank.add(["a"], vectors=np.eye(2)[:1], on_duplicate="merge")
    with pytest.raises(MemoryBankError, match="5 dimensions"):
        bank.add(["a"], vectors=np.ones((1, 5)), on_duplicate="replace")
    assert len(bank) == 2


def test_metadata_is_copied_in_and_out(tmp_path):
    bank = MemoryBank()
    given = {"tags": ["tea", {"deep": 1}]}
    bank.add(["a"], vectors=np.ones((1, 3)), metadata=[given])
    given["tags"][1]["deep"] = object()
    hit = bank.search(np.ones(3))[0]
    hit.metadata["tags"].append("mine")
    hit.to_dict()["metadata"]["tags"].append("mine")
    bank.contents()[0][0].metadata["tags"].clear()
    assert bank.search(np.ones(3))[0].metadata == {"tags": ["tea", {"deep": 1}]}
    with pytest.raises(AttributeError):
        bank.search(np.ones(3), where=lambda data: data.update(x=1))
    bank.save(tmp_path / "b")
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(MemoryBankError, match="nested too deeply"):
        bank.add(["b"], vectors=np.ones((1, 3)), metadata=[{"x": deep}])


def test_texts_that_the_encoder_cannot_read_are_told_once(hashing_encoder):
    class Blind(type(hashing_encoder)):
        def unread(self, texts):
            return [not any(c.isascii() and c.isalpha() for c in text) for text in texts]

    bank = MemoryBank(Blind())
    with pytest.warns(UserWarning, match="knows no part of '😀'") as told:
        bank.add(["hello", "😀", "ชา"])
        bank.add(["😀😀"])
    assert len(told) == 1 and bank.unread == 3

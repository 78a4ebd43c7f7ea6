"""Upserts and histories, recall by a budget, sessions, lines of JSON, and twins for asyncio."""

import asyncio
import datetime as dt
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemjax.errors import MemoryBankError, StateError
from gemjax.memory import MemoryBank, MemoryConfig

WORDS = ["ann", "bob", "paints", "climbs", "mountains", "sunsets", "rivers", "dawn", "tea", "opera"]


def encoder(texts):
    return np.array([[1e-3 + text.lower().split().count(word) for word in WORDS] for text in texts])


class Clock:
    def __init__(self):
        self.now = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)

    def __call__(self):
        self.now += dt.timedelta(days=1)
        return self.now


def bank(**settings):
    return MemoryBank(encoder, MemoryConfig(min_memories=2, **settings), Clock())


TEXTS = ["ann paints sunsets", "bob climbs mountains", "ann climbs mountains", "bob paints rivers"]


def test_an_upsert_replaces_in_place_and_adds_what_is_new():
    made = bank()
    made.add(TEXTS, ids=["a", "b", "c", "d"], metadata=[{"n": i} for i in range(4)])
    before = made.get("b")
    assert made.upsert(["b", "e"], ["bob loves opera", "ann at dawn"], [{"n": 9}, None]) == ["b", "e"]
    assert made.ids == ["a", "b", "c", "d", "e"]
    after = made.get("b")
    assert (after.text, after.metadata, after.created_at) == ("bob loves opera", {"n": 9}, before.created_at)
    assert after.updated_at > before.created_at and made.get("e").updated_at is None
    assert made.search("opera", k=1, metric="cosine")[0].id == "b"
    (old,) = made.history("b")
    assert (old.text, old.metadata, old.until) == ("bob climbs mountains", {"n": 1}, after.updated_at)
    assert made.history("a") == []
    # As a bank that was made of the present texts alone.
    fresh = bank()
    fresh.add([m.text for m in made.contents()[0]], ids=made.ids)
    np.testing.assert_allclose(made.moments.mean, fresh.moments.mean, atol=1e-6)
    np.testing.assert_allclose(made.moments.scatter, fresh.moments.scatter, atol=1e-5)


def test_a_history_is_bounded_and_survives(tmp_path):
    made = bank()
    for i in range(20):
        made.upsert(["x"], [f"ann paints {i} sunsets"])
    kept = [old.text for old in made.history("x")]
    assert kept == [f"ann paints {i} sunsets" for i in range(3, 19)]
    made.save(tmp_path / "bank")
    again = MemoryBank.load(tmp_path / "bank", encoder)
    assert again.history("x") == made.history("x")
    made.add(["ann   paints 19 sunsets"], on_duplicate="replace")
    assert made.history("x")[-1].text == "ann paints 19 sunsets"
    with pytest.raises(MemoryBankError, match="unknown ids: 'y'"):
        made.history("y")


@pytest.mark.parametrize(
    ("ids", "texts", "message"),
    [
        (["a", "a"], ["x", "y"], "given twice"),
        (["a"], ["x", "y"], "2 texts but 1 ids"),
        ([True], ["x"], "string or an integer"),
        (["a"], [" "], "non-empty string"),
        ("a", ["x"], "must be lists"),
    ],
)
def test_a_bad_upsert_changes_nothing(ids, texts, message):
    made = bank()
    made.add(TEXTS, ids=["a", "b", "c", "d"])
    before = made.contents()[0]
    with pytest.raises(MemoryBankError, match=message):
        made.upsert(ids, texts)
    assert made.contents()[0] == before


def test_recall_fits_a_budget_with_whole_memories():
    made = bank()
    made.add([*TEXTS, "mountains " * 50])
    ranked = [hit.text for hit in made.search("ann climbs mountains", k=50)]
    for budget in (1, 5, 9, 14, 1000):
        hits = made.recall("ann climbs mountains", budget, count=lambda text: len(text.split()))
        left, want = budget, []
        for text in ranked:
            if len(text.split()) <= left:
                want.append(text)
                left -= len(text.split())
        assert [hit.text for hit in hits] == want
    assert sum(-(-len(hit.text) // 4) for hit in made.recall("bob", 12)) <= 12
    for bad in (0, -1, 2.5, True, "many"):
        with pytest.raises(MemoryBankError, match="max_tokens"):
            made.recall("bob", bad)


def test_sessions_stand_where_their_best_turns_do():
    made = bank()
    made.add(TEXTS, sessions=["one", "two", "one", "two"])
    made.add(["ann ann paints sunsets"], scope="ann", sessions="one")
    made.add(["no session: paints sunsets"])
    hits = made.search("ann paints sunsets", k=50, fold=False)
    found = made.search_sessions("ann paints sunsets", k=10, turns=2)
    order = list(dict.fromkeys((h.scope, h.session) for h in hits if h.session))
    assert [(s.scope, s.session) for s in found] == order and [s.rank for s in found] == [1, 2, 3]
    for one in found:
        turns = [h.text for h in hits if (h.scope, h.session) == (one.scope, one.session)][:2]
        assert [turn.text for turn in one.turns] == turns and one.score == one.turns[0].score
    assert [s.session for s in made.search_sessions("bob", k=1, scope="ann")] == ["one"]
    with pytest.raises(MemoryBankError, match="turns must be"):
        made.search_sessions("bob", turns=0)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.text(min_size=1).filter(str.strip),
            st.none() | st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=3),
        ),
        max_size=6,
        unique_by=lambda pair: pair[0],
    )
)
def test_lines_bring_every_memory_back(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("lines") / "bank.jsonl"
    made = bank()
    rng = np.random.default_rng(len(pairs))
    for i, (text, metadata) in enumerate(pairs):
        when = dt.datetime(2024, 1, 1 + i, tzinfo=dt.UTC)
        made.add(
            [text],
            metadata=[metadata],
            vectors=rng.standard_normal((1, len(WORDS))),
            scope=("ann", "x") if i % 2 else (),
            sessions=f"s{i}",
            happened_at=when,
            expires_at=None if i % 3 else dt.datetime(2099, 1, 1),
        )
    if pairs:
        made.upsert([0], [pairs[0][0] + "!"], vectors=rng.standard_normal((1, len(WORDS))))
    assert made.export_jsonl(path) == len(pairs)
    other = bank()
    assert other.import_jsonl(path) == made.ids
    memories, vectors = made.contents()
    again, same = other.contents()
    assert again == memories
    np.testing.assert_allclose(same, vectors.reshape(same.shape), atol=1e-7)


def test_lines_of_other_tools_and_known_ids(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "ann paints sunsets"}\n\n{"id": "b", "text": "bob climbs", "metadata": {"k": 1}}\n')
    made = bank()
    made.add(["bob was there"], ids=["b"])
    with pytest.raises(MemoryBankError, match="id 'b' is already in the bank"):
        made.import_jsonl(path)
    assert len(made) == 1
    assert made.import_jsonl(path, on_known="skip") == [0] and made.get("b").text == "bob was there"
    assert made.import_jsonl(path, on_known="replace") == [1, "b"]
    assert made.get("b").text == "bob climbs" and made.history("b")[0].text == "bob was there"
    assert made.search("paints", k=1, metric="cosine")[0].text == "ann paints sunsets"
    assert made.encoder_name is not None
    with pytest.raises(MemoryBankError, match="on_known"):
        made.import_jsonl(path, on_known="keep")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no JSON"),
        ("[1]", "line 2: expected an object, got list"),
        ('{"text": " "}', "line 2: `text` must be"),
        ('{"text": "x", "id": true}', "line 2: `id` must be"),
        ('{"text": "x", "user": "ann"}', "line 2: unknown fields .'user'."),
        ('{"text": "x", "vector": [0, 0]}', "line 2: `vector` must be"),
        ('{"text": "x", "vector": [1, "a"]}', "line 2: `vector` must be"),
        ('{"text": "x", "created_at": "soon"}', "line 2: created_at must be a date"),
        ('{"text": "x", "history": [1]}', "line 2: a version in history"),
        ("[" * 100_000, "line 2: no JSON"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_taken(tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"text": "ann"}) + "\n" + line + "\n")
    made = bank()
    with pytest.raises(MemoryBankError, match=message):
        made.import_jsonl(path)
    assert len(made) == 0


def test_files_that_cannot_be_read_or_written(tmp_path):
    made = bank()
    made.add(TEXTS)
    with pytest.raises(MemoryBankError, match="cannot be read"):
        made.import_jsonl(tmp_path / "absent.jsonl")
    with pytest.raises(StateError, match="what was there is unchanged"):
        made.export_jsonl(tmp_path / "no" / "folder.jsonl")
    path = tmp_path / "small.jsonl"
    assert made.export_jsonl(path, vectors=False) == 4
    assert "vector" not in json.loads(path.read_text().splitlines()[0])
    assert [p.name for p in tmp_path.iterdir()] == ["small.jsonl"]


def test_the_twins_give_what_the_calls_give(tmp_path):
    made, other = bank(), bank()

    async def all_of_it():
        await made.aadd(TEXTS, sessions="one")
        await made.aupsert([0], ["ann paints rivers"])
        await made.aremove([3])
        await made.asave(tmp_path / "bank")
        asked = ("rivers",)
        together = await asyncio.gather(*(made.asearch("rivers", k=2) for _ in range(8)))
        assert all(hits == together[0] for hits in together)
        return (
            together[0],
            await made.asearch_batch(list(asked), 2),
            await made.arecall("rivers", 20),
            await made.asearch_sessions("rivers"),
        )

    hits, batch, recalled, sessions = asyncio.run(all_of_it())
    other.add(TEXTS, sessions="one")
    other.upsert([0], ["ann paints rivers"])
    other.remove([3])
    assert hits == other.search("rivers", k=2) and batch == other.search_batch(["rivers"], 2)
    assert recalled == other.recall("rivers", 20) and sessions == other.search_sessions("rivers")
    assert MemoryBank.load(tmp_path / "bank", encoder).ids == other.ids


class Letters:
    """A reranker: how many of the question's letters a text has; counts what it was asked."""

    name = "letters"

    def __init__(self):
        self.asked = []

    def scores(self, query, texts):
        self.asked.append(list(texts))
        return np.array([sum(c in text for c in query) for text in texts], float)


def test_a_reranker_judges_the_best_candidates():
    made, judge = bank(), Letters()
    made.add(TEXTS)
    query = "who paints rivers at dawn"
    hits = made.search(query, k=2, rerank=judge, candidates=3)
    (asked,) = judge.asked
    first = [hit.text for hit in made.search(query, k=3)]
    beside = [hit.text for hit in made.search(query, k=3, metric="cosine")]
    assert asked == list(dict.fromkeys([*first, *beside]))
    want = sorted(asked, key=lambda text: -sum(c in text for c in query))[:2]
    assert [hit.text for hit in hits] == want and [hit.rank for hit in hits] == [1, 2]
    assert hits[0].score == sum(c in hits[0].text for c in query) and "ranked by letters" in hits[0].note
    assert [h.text for h in made.search(query, rerank=judge, min_score=hits[0].score)] == [hits[0].text]
    assert made.search(query, rerank=judge, where={"none": 1}) == []


@pytest.mark.parametrize("found", [[1.0], [float("nan")] * 4, [[1.0]] * 4])
def test_a_reranker_that_gives_no_scores_is_named(found):
    made, judge = bank(), Letters()
    made.add(TEXTS)
    judge.scores = lambda query, texts: found
    with pytest.raises(MemoryBankError, match="letters gave no finite score"):
        made.search("who paints", rerank=judge)
    with pytest.raises(MemoryBankError, match="the query must be a text"):
        made.search(np.ones(len(WORDS)), rerank=Letters())

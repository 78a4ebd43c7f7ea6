"""LanceDB and pgvector serve the bank's ranking from plain unit vectors; FAISS HNSW shows what approximation does."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gemjax.errors import ConfigError, MemoryBankError
from gemjax.memory import MemoryBank
from gemjax.memory.filters import compiled
from gemjax.memory.stores import LanceStore, PgVectorStore

DIM = 32


def clustered(n, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((12, DIM))
    return centres[rng.integers(0, 12, n)] + 0.7 * rng.standard_normal((n, DIM)) + 0.5


@pytest.fixture(scope="module")
def bank():
    bank = MemoryBank()
    rows = clustered(700)
    ids = [i if i % 2 else f"id-{i}" for i in range(700)]
    bank.add([f"text {i} 'é" for i in range(700)], ids=ids, vectors=rows, metadata=[{"n": i} for i in range(700)])
    bank.remove([1, "id-2"])
    return bank


def same_top(store, bank, queries):
    for query in queries:
        for metric in ("fused", "cosine", "riemannian"):
            want = bank.search(query, k=10, metric=metric)
            got = store.search(bank.query_vector(query, metric=metric), k=10)
            np.testing.assert_allclose(
                [h.score for h in got], [h.score for h in want], atol=2e-4 * (1 + abs(want[0].score))
            )
            # Neighbours closer than rounding may change places, and the last may swap with the eleventh.
            assert len({h.id for h in got} & {h.id for h in want}) >= 9
            assert got[0].id == want[0].id and got[0].text == want[0].text and got[0].metadata == want[0].metadata


@pytest.fixture
def lance(tmp_path):
    pytest.importorskip("lancedb", reason="install lancedb")
    return LanceStore(str(tmp_path / "lance"))


def test_lancedb_ranks_as_the_bank(bank, lance):
    assert lance.write(bank) == len(bank)
    same_top(lance, bank, clustered(5, seed=1))


def test_pgvector_ranks_as_the_bank(bank, postgres_url):
    with PgVectorStore(postgres_url) as store:
        assert store.write(bank) == len(bank)
        assert store.write(bank) == len(bank)  # replaces
        same_top(store, bank, clustered(5, seed=1))


def test_bad_input(bank, lance, postgres_url):
    with pytest.raises(MemoryBankError, match="empty"):
        lance.write(MemoryBank())
    with pytest.raises(ConfigError, match="plain identifier"):
        PgVectorStore(postgres_url, "x; DROP TABLE y")
    with pytest.raises(ConfigError, match="cannot use this PostgreSQL server"):
        PgVectorStore("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2")
    nul = MemoryBank()
    nul.add(["a\0b"], vectors=np.ones((1, DIM)))
    with PgVectorStore(postgres_url, "nul") as store, pytest.raises(MemoryBankError, match="NUL"):
        store.write(nul)


NASTY = [
    "",
    "x' OR '1'='1",
    'say "hi"; --',
    "back\\slash\\'",
    "100%_",
    "Straße",
    "STRASSE",
    "é\n\t",
    "2023-05-08",
    "10",
    "😀",
]
KEYS = [
    "n",
    "who",
    "k' ; DROP TABLE memories; --",
    'q"$1',
    "tags",
    "text",
    "id",
    "session",
    "happened_at",
    "created_at",
]
DATES = [dt.date(2023, 5, 8), dt.datetime(2023, 5, 8, 12, tzinfo=dt.UTC), "2023-05-08T14:00:00+02:00", "2024-01-01"]
SCALARS = [None, True, False, 0, 1, 1.0, -2.5, 3, 10**17, 1e300, *NASTY]
VALUES = [*SCALARS, [], ["Straße", 1], [["deep"], None], {}, {"x' --": 1, "y": [1.0]}, {"y": [1], "x' --": 1.0}]


def filled():
    """Every key with every kind of value somewhere, and rows that lack it."""
    bank = MemoryBank(clock=lambda: dt.datetime(2023, 5, 8, 12, tzinfo=dt.UTC))
    rng = np.random.default_rng(5)
    for i in range(150):
        keys = rng.choice(len(KEYS), rng.integers(0, 5), replace=False)
        data = {KEYS[key]: VALUES[rng.integers(len(VALUES))] for key in keys if rng.random() < 0.8}
        bank.add(
            [f"{NASTY[rng.integers(len(NASTY))]} {i}"],
            ids=[i if i % 3 else f"'{i}'"],
            metadata=[data if i % 7 else None],
            vectors=rng.standard_normal((1, DIM)),
            sessions=None if i % 4 else f"s{i % 3}",
            happened_at=DATES[i % 4] if i % 5 else None,
        )
    return bank


@pytest.fixture(scope="module")
def both(tmp_path_factory, postgres_url):
    pytest.importorskip("lancedb", reason="install lancedb")
    bank = filled()
    lance = LanceStore(str(tmp_path_factory.mktemp("lance")))
    with PgVectorStore(postgres_url, "conditions") as postgres:
        assert lance.write(bank) == postgres.write(bank) == len(bank)
        yield bank, lance, postgres


operands = st.sampled_from([*VALUES, *DATES, float("inf"), -float("inf"), float("nan"), np.float32(0.5), {1: 2}])
comparisons = st.one_of(
    st.tuples(st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "contains"]), operands),
    st.tuples(st.sampled_from(["in", "nin"]), st.lists(operands, max_size=3)),
    st.tuples(st.just("icontains"), st.sampled_from([*NASTY, "s", "SS", "\0", "a\ud800"])),
)
leaves = st.dictionaries(
    st.sampled_from([*KEYS, "absent", "nul\0", "half\ud800"]),
    st.one_of(operands, st.lists(comparisons, min_size=1, max_size=2).map(dict)),
    max_size=2,
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda parts, word: {word: parts}, st.lists(inner, max_size=3), st.sampled_from(["and", "or"])),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=conditions)
@example({"not": {"n": {"gt": 0}}})
@example({"not": {"or": [{"who": {"lt": "b"}}, {"tags": {"icontains": "ss"}}, {"happened_at": {"gte": "2024-01-01"}}]}})
@example({"not": {"tags": {"contains": "x"}}, "who": {"ne": "Straße"}})
def test_a_database_finds_what_the_conditions_mean(both, where):
    bank, *stores = both
    test = compiled(where)
    wanted = {memory.id for memory in bank.contents()[0] if test(memory)}
    query = bank.query_vector(np.ones(DIM), metric="cosine")
    for store in stores:
        assert {hit.id for hit in store.search(query, 1000, where)} == wanted, type(store).__name__


def test_a_few_among_many_are_all_found_by_an_index_too(postgres_url, lance):
    """The nearest rows are all filtered out: whoever filters after the search finds nothing."""
    rng = np.random.default_rng(0)
    bank = MemoryBank()
    near, far = 1 + 0.01 * rng.standard_normal((3000, DIM)), -1 + 0.5 * rng.standard_normal((12, DIM))
    rows = np.concatenate([near, far])
    bank.add([f"t{i}" for i in range(3012)], vectors=rows, metadata=[{"rare": i >= 3000} for i in range(3012)])
    where = {"rare": True}
    query = bank.query_vector(np.ones(DIM), metric="cosine", where=where)
    wanted = [hit.id for hit in bank.search(np.ones(DIM), 10, where, metric="cosine")]
    lance.write(bank)
    assert [hit.id for hit in lance.search(query, 10, where)] == wanted
    with PgVectorStore(postgres_url, "many") as store:
        store.write(bank)
        assert [hit.id for hit in store.search(query, 10, where)] == wanted
        store._connection.execute("CREATE INDEX ON many USING hnsw (vector vector_ip_ops)")
        store._connection.execute("ANALYZE many; SET enable_seqscan = off")
        assert [hit.id for hit in store.search(query, 10, where)] == wanted


def test_scopes_expiry_and_ranges_are_the_banks(postgres_url, lance):
    bank = MemoryBank()
    rows = clustered(60, seed=4)
    scopes = [("ann",), ("ann", "planner's"), ("annex",), ()]
    for i in range(60):
        expires = "2030-01-01" if i % 2 else None
        bank.add([f"t{i}"], vectors=rows[i : i + 1], scope=scopes[i % 4], expires_at=expires, sessions=f"s{i % 5}",
                 happened_at=f"2023-05-{1 + i % 28:02}", metadata=[{"n": i}])  # fmt: skip
    lance.write(bank)
    with PgVectorStore(postgres_url, "scoped") as postgres:
        postgres.write(bank)
        for named in (
            {"scope": "ann"},
            {"scope": ("ann", "planner's"), "at": "2031-01-01"},
            {"at": "2029-12-31T23:59:59"},
            {"at": "2030-01-01"},
            {"where": {"happened_at": {"lt": "2023-05-09"}, "n": {"nin": [0, 1]}}, "at": "2029-01-01"},
        ):
            wanted = bank.search(rows[3], 60, metric="fused", **named)
            query = bank.query_vector(rows[3], **named)
            for store in (lance, postgres):
                found = store.search(query, 60, **named)
                assert {(h.id, h.scope, h.session, h.happened_at) for h in found} == {
                    (h.id, h.scope, h.session, h.happened_at) for h in wanted
                }
                scores = {hit.id: hit.score for hit in wanted}
                np.testing.assert_allclose([hit.score for hit in found], [scores[h.id] for h in found], atol=2e-3)


def test_what_a_database_cannot_do_is_said(postgres_url, lance):
    import lancedb
    import psycopg

    bank = filled()
    lance.write(bank)
    query = bank.query_vector(np.ones(DIM))
    deep = {"n": 1}
    for i in range(49):
        deep = {"not": deep} if i % 2 else {"or": [deep, {"and": [{"who": 1}, {"tags": 2}]}]}
    with PgVectorStore(postgres_url, "refused") as postgres:
        postgres.write(bank)
        for store in (lance, postgres):
            with pytest.raises(MemoryBankError, match="predicate"):
                store.search(query, 3, lambda metadata: True)
            with pytest.raises(MemoryBankError, match="takes a list"):
                store.search(query, 3, {"n": {"in": 3}})
            test = compiled(deep)
            assert len(store.search(query, 999, deep)) == sum(map(test, bank.contents()[0]))
        for text, data in (("half \ud800", None), ("t", {"nul": "\0"})):
            odd = MemoryBank()
            odd.add([text], vectors=np.ones((1, DIM)), metadata=[data])
            with pytest.raises(MemoryBankError, match="PostgreSQL cannot store"):
                postgres.write(odd)
        assert len(postgres.search(query, 999)) == len(bank)  # as it was
    half = MemoryBank()
    half.add(["half \ud800"], vectors=np.ones((1, DIM)))
    with pytest.raises(MemoryBankError, match="LanceDB cannot store"):
        lance.write(half)
    lancedb.connect(lance._database.uri).create_table("old", [{"id": "1", "vector": [1.0] * DIM}])
    with pytest.raises(MemoryBankError, match="older gemjax"):
        LanceStore(lance._database.uri, "old").search(query, 3)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE IF NOT EXISTS old (id text, vector vector({DIM}))")
    with PgVectorStore(postgres_url, "old") as old, pytest.raises(MemoryBankError, match="older gemjax"):
        old.search(query, 3)


def test_the_distance_runs_on_an_l2_index():
    faiss = pytest.importorskip("faiss", reason="install faiss-cpu")
    from gemjax.memory import MemoryConfig

    bank = MemoryBank(config=MemoryConfig(form="distance", alpha=0.0))
    rows = clustered(500)
    bank.add([f"t{i}" for i in range(500)], vectors=rows)
    index = faiss.IndexFlatL2(DIM)
    index.add(np.ascontiguousarray(bank.whitened_vectors(), dtype=np.float32))
    for query in clustered(5, seed=2):
        distances, found = index.search(bank.whitened_query(query)[None], 10)
        hits = bank.search(query, k=10, metric="riemannian")
        np.testing.assert_allclose(-distances[0], [h.score for h in hits], rtol=1e-3, atol=1e-3)
        assert len(set(found[0].tolist()) & {h.id for h in hits}) >= 9


def test_an_exact_inner_product_index_ranks_as_the_bank(bank):
    faiss = pytest.importorskip("faiss", reason="install faiss-cpu")
    index = faiss.IndexFlatIP(DIM)
    index.add(bank.vectors())
    ids = bank.ids
    for query in clustered(5, seed=3):
        vector = bank.query_vector(query)
        similarity, found = index.search(vector.vector[None], 10)
        hits = bank.search(query, k=10)
        np.testing.assert_allclose(vector.scale * similarity[0] + vector.offset, [h.score for h in hits], atol=1e-4)
        assert len({ids[i] for i in found[0]} & {h.id for h in hits}) >= 9

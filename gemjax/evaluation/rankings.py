"""The retrieval methods that the LoCoMo table compares: each ranks a conversation's turns for its questions."""

import dataclasses
import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gemjax.encoders.cross import Reranker
from gemjax.errors import ConfigError
from gemjax.memory import MemoryBank, MemoryConfig


@dataclasses.dataclass(frozen=True, slots=True)
class Corpus:
    """One conversation, encoded. Rows are unit vectors."""

    texts: list[str]
    questions: list[str]
    memories: Float[np.ndarray, "n d"]
    queries: Float[np.ndarray, "q d"]
    sessions: tuple[str, ...] = ()
    """The session of each text; empty where there are none."""
    times: tuple[dt.datetime | None, ...] = ()
    """When each was said; empty where that is not known."""
    asked: tuple[dt.datetime | None, ...] = ()
    """When each question is asked; empty where that is not known."""


Ranking = Int[np.ndarray, "q k"]
Method = Callable[[Corpus, int], Ranking]


def by_score(scores: Float[np.ndarray, "q n"], k: int) -> Ranking:
    """The k best columns of each row, ties to the lower one."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def _filled(corpus: Corpus, bank: MemoryBank) -> MemoryBank:
    ids, sessions, times = list(range(len(corpus.texts))), list(corpus.sessions) or None, list(corpus.times) or None
    bank.add(corpus.texts, ids=ids, vectors=corpus.memories, sessions=sessions, happened_at=times)
    return bank


def bank_method(config: MemoryConfig, metric: str | None = None) -> Method:
    """A MemoryBank with these settings: what a user gets."""

    def rank(corpus: Corpus, k: int) -> Ranking:
        bank = _filled(corpus, MemoryBank(config=config))
        found: dict[int, list[Any]] = {}
        asked = corpus.asked or (None,) * len(corpus.questions)
        for at in dict.fromkeys(asked):
            own = [i for i, when in enumerate(asked) if when == at]
            questions = [corpus.questions[i] for i in own]
            hits = bank.search_batch(questions, k, metric=metric, vectors=corpus.queries[own], fold=False, at=at)
            found |= {i: [hit.id for hit in row] for i, row in zip(own, hits, strict=True)}
        return np.array([found[i] for i in range(len(corpus.questions))])

    return rank


class _Known:
    """An encoder that knows a corpus' questions, so that a search by text encodes nothing anew."""

    name = "known"

    def __init__(self, corpus: Corpus) -> None:
        self.dim = corpus.queries.shape[1]
        self._rows = dict(zip(corpus.questions, corpus.queries, strict=True))

    def encode(self, texts: list[str]) -> Float[np.ndarray, "n d"]:
        return np.stack([self._rows[text] for text in texts])


def reranked_method(reranker: Reranker, candidates: int = 50, progress: Callable[[str], None] | None = None) -> Method:
    """The hybrid search with a reranker over its best candidates, as a user has it; the others follow as they were."""

    def rank(corpus: Corpus, k: int) -> Ranking:
        bank = _filled(corpus, MemoryBank(_Known(corpus), MemoryConfig.hybrid()))
        out = []
        asked = corpus.asked or (None,) * len(corpus.questions)
        for number, (question, at) in enumerate(zip(corpus.questions, asked, strict=True), 1):
            if progress:
                progress(f"{reranker.name}: question {number} of {len(corpus.questions)}")
            plain = [hit.id for hit in bank.search(question, k, fold=False, at=at)]
            hits = bank.search(question, candidates, fold=False, rerank=reranker, candidates=candidates, at=at)
            best = [hit.id for hit in hits]
            out.append(list(dict.fromkeys([*best, *plain]))[:k])
        return np.array(out)

    return rank


def _centred_cosine(corpus: Corpus, k: int) -> Ranking:
    mean = corpus.memories.mean(0)
    memories = corpus.memories - mean
    memories /= np.maximum(np.linalg.norm(memories, axis=1, keepdims=True), 1e-12)
    return by_score((corpus.queries - mean) @ memories.T, k)


def _csls(corpus: Corpus, k: int) -> Ranking:
    """Cross-domain similarity local scaling (Conneau et al. 2018), `2 cos - r(memory)`. r is a memory's mean cosine to
    its 10 nearest other memories: a bank does not know tomorrow's questions. The query's own r changes no ranking."""
    among = corpus.memories @ corpus.memories.T
    np.fill_diagonal(among, -np.inf)
    near = min(10, len(among) - 1)
    local = np.sort(among, axis=1)[:, len(among) - near :].mean(1) if near else np.zeros(len(among))
    return by_score(2 * corpus.queries @ corpus.memories.T - local, k)


def _bm25(corpus: Corpus, k: int) -> Ranking:
    """BM25 of the package `bm25s` at its defaults, English stop words, no stemming: a baseline of words."""
    try:
        import bm25s
    except ImportError as exc:
        raise ConfigError("method 'bm25' needs the package bm25s: pip install 'gemjax[eval]'") from exc
    index = bm25s.BM25()
    index.index(bm25s.tokenize(corpus.texts, stopwords="en", show_progress=False), show_progress=False)
    words = bm25s.tokenize(corpus.questions, stopwords="en", show_progress=False, return_ids=False)
    return by_score(np.array([index.get_scores(question) for question in words]), k)


def _rrf(corpus: Corpus, k: int) -> Ranking:
    """Reciprocal-rank fusion (Cormack et al. 2009, constant 60) of cosine and BM25."""
    n = len(corpus.texts)
    total = np.zeros((len(corpus.questions), n))
    for ranking in (by_score(corpus.queries @ corpus.memories.T, n), _bm25(corpus, n)):
        np.put_along_axis(total, ranking, np.take_along_axis(total, ranking, 1) + 1 / (60 + np.arange(1, n + 1)), 1)
    return by_score(total, k)


def _simple(**settings: Any) -> Method:
    return bank_method(MemoryConfig(**settings))


METHODS: dict[str, tuple[str, Method]] = {
    "cosine": ("plain cosine: the baseline", bank_method(MemoryConfig(), "cosine")),
    "centred_cosine": ("cosine after subtracting the mean memory", _centred_cosine),
    "diagonal": ("diagonal Mahalanobis score", _simple(model="diagonal", alpha=0.0)),
    "riemannian": ("the paper, alpha = 0", _simple(alpha=0.0)),
    "fused": ("the paper, alpha = 0.5", _simple(alpha=0.5)),
    "fused_0.9": ("the paper, alpha = 0.9", _simple(alpha=0.9)),
    "tuned": ("MemoryConfig.tuned(), fitted to other conversations of LoCoMo", bank_method(MemoryConfig.tuned())),
    "hybrid": (
        "MemoryConfig.hybrid(): meaning, words, neighbours, sessions, times",
        bank_method(MemoryConfig.hybrid()),
    ),
    "forgetting": (
        "hybrid with MemoryBank's forgetting curve, 30 days",
        bank_method(MemoryConfig.hybrid(forgetting=30.0)),
    ),
    "rrf": ("reciprocal-rank fusion of cosine and BM25", _rrf),
    "distance": ("minus squared Mahalanobis distance, alpha = 0", _simple(form="distance", alpha=0.0)),
    "metric_cosine": ("cosine in the metric, alpha = 0", _simple(form="cosine", alpha=0.0)),
    "csls": ("cosine with local scaling", _csls),
    "bm25": ("BM25 on the words", _bm25),
}


def method_named(name: str) -> Method:
    """One of `METHODS`. Raises ConfigError for an unknown name."""
    if name not in METHODS:
        raise ConfigError(f"unknown ranking {name!r}; there are {', '.join(METHODS)}")
    return METHODS[name][1]

"""Retrieval measures by turn and by session, for rankings of `gemjax.evaluation.rankings`."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gemjax.encoders.cross import Reranker
from gemjax.errors import ConfigError
from gemjax.evaluation.memory.haystacks import Haystack
from gemjax.evaluation.rankings import METHODS, Corpus, Method, reranked_method
from gemjax.evaluation.statistics import bootstrap_intervals
from gemjax.wording import counted

KS = (1, 3, 5, 10)
DEFAULT_METHODS = ("cosine", "bm25", "rrf", "fused", "tuned", "hybrid")
MEASURES = (*(f"{name}@{k}" for name in ("recall_any", "recall_all", "ndcg") for k in KS), "mrr")
DEPTH = 100
"""Turns ranked at first; the whole haystack where they hold fewer than ten sessions."""


def measures(ranked: Sequence[Any], gold: frozenset[Any]) -> Float[np.ndarray, "m"]:
    """One row of `MEASURES`: of a ranking without repetitions, and the set of what is right.

    NDCG as LongMemEval's script has it: gains 0 or 1, no discount at the first two places, 1/log2(i) from the third on.
    MRR is over the ranking as far as it was asked for.
    """
    found = np.array([item in gold for item in ranked], np.float64)
    out: list[float] = [float(found[:k].any()) for k in KS]
    out += [float(found[:k].sum() == len(gold)) for k in KS]
    discount = 1 / np.maximum(1, np.log2(np.maximum(1, np.arange(1, max(KS) + 1))))
    for k in KS:
        top = found[:k]
        out.append(float((top * discount[: len(top)]).sum() / discount[: min(k, len(gold))].sum()))
    hits = np.flatnonzero(found)
    out.append(1 / (1 + int(hits[0])) if len(hits) else 0.0)
    return np.array(out)


def sessions_of(turns: Sequence[int], sessions: Sequence[str]) -> list[str]:
    """Sessions in the order in which the ranking first meets them: a session stands where its best turn does."""
    return list(dict.fromkeys(sessions[turn] for turn in turns))


def encode(haystacks: Sequence[Haystack], encoder: Any, progress: Callable[[str], None] | None = None) -> list[Corpus]:
    """Texts and questions of every haystack, encoded."""
    out = []
    for number, haystack in enumerate(haystacks, 1):
        if progress:
            progress(f"encoding haystack {number} of {len(haystacks)}: {counted(len(haystack.texts), 'turn')}")
        questions = [probe.text for probe in haystack.probes]
        texts = list(haystack.texts)
        asked = tuple(probe.asked for probe in haystack.probes)
        vectors = encoder.encode(texts), encoder.encode(questions)
        out.append(Corpus(texts, questions, *vectors, haystack.sessions, haystack.times, asked))
    return out


def evaluate(
    haystacks: Sequence[Haystack],
    corpora: Sequence[Corpus],
    methods: Sequence[str] = DEFAULT_METHODS,
    *,
    reranker: Reranker | None = None,
    resamples: int = 2000,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Every method's measures by turn and by session, over all questions and by kind of question; JSON-ready.

    With a reranker the method `reranked` comes on top: the hybrid search, its 50 best read with the question.

    Intervals are 95 % bootstrap intervals over haystacks.

    Raises: ConfigError for an unknown method.
    """
    if unknown := [name for name in methods if name not in METHODS]:
        raise ConfigError(f"unknown methods {', '.join(map(repr, unknown))}; there are {', '.join(METHODS)}")
    kinds = np.array([probe.kind for haystack in haystacks for probe in haystack.probes])
    group = np.repeat(np.arange(len(haystacks)), [len(haystack.probes) for haystack in haystacks])
    report: dict[str, Any] = {
        "haystacks": len(haystacks),
        "turns": sum(len(haystack.texts) for haystack in haystacks),
        "sessions": sum(len(set(haystack.sessions)) for haystack in haystacks),
        "questions": len(kinds),
        "methods": {},
    }
    chosen = {name: METHODS[name] for name in methods}
    if reranker is not None:
        about = f"hybrid, its best candidates read by {reranker.name}"
        chosen["reranked"] = (about, reranked_method(reranker, progress=progress))
    for name, (about, method) in chosen.items():
        if progress:
            progress(f"ranking with {name}")
        rows = [_outcomes(h, c, method) for h, c in zip(haystacks, corpora, strict=True)]
        entry: dict[str, Any] = {"about": about}
        for unit, values in zip(("turn", "session"), np.concatenate(rows, axis=1), strict=True):
            limits = bootstrap_intervals(values, group, resamples=resamples) if resamples else None
            entry[unit] = {
                measure: {
                    "value": float(values[:, i].mean()),
                    **({} if limits is None else {"interval": [float(x) for x in limits[i]]}),
                    "kinds": {kind: float(values[kinds == kind, i].mean()) for kind in sorted(set(kinds.tolist()))},
                }
                for i, measure in enumerate(MEASURES)
            }
        report["methods"][name] = entry
    report["kinds"] = {kind: int((kinds == kind).sum()) for kind in sorted(set(kinds.tolist()))}
    return report


def _outcomes(haystack: Haystack, corpus: Corpus, method: Method) -> Float[np.ndarray, "2 q m"]:
    depth = min(DEPTH, len(haystack.texts))
    ranking = method(corpus, depth)
    enough = min(max(KS), len(set(haystack.sessions)))
    if min(len(sessions_of(row, haystack.sessions)) for row in ranking.tolist()) < enough:
        ranking = method(corpus, len(haystack.texts))
    out = np.full((2, len(haystack.probes), len(MEASURES)), math.nan)
    for i, (probe, row) in enumerate(zip(haystack.probes, ranking.tolist(), strict=True)):
        right = frozenset(haystack.sessions[turn] for turn in probe.gold)
        out[0, i] = measures(row, probe.gold)
        out[1, i] = measures(sessions_of(row, haystack.sessions), right)
    return out

"""What a bank knows of its rows beside their vectors: word counts, speakers, sessions, times. Grows with the bank."""

import array
import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from gemjax.memory.record import Memory
from gemjax.memory.timing import closeness, spans_in
from gemjax.memory.words import speaker_of, words

K1, B = 1.2, 0.2
"""Okapi BM25's saturation of repeated words, and its normalisation by length: a long turn says more, and b = 0.2 lets
it (docs/locomo.md)."""


class _Postings:
    """Rows that hold a word, ascending, and how often each does."""

    __slots__ = ("counts", "rows")

    def __init__(self) -> None:
        self.rows = array.array("i")
        self.counts = array.array("f")


class Lexicon:
    """Rows in step with `Entries` and `Rows`. Not thread-safe. An addition costs its own words."""

    def __init__(self, memories: Iterable[tuple[int, Memory]] = ()) -> None:
        self._postings: dict[str, _Postings] = {}
        self._lengths = array.array("f")
        self._sessions = array.array("i")
        self._speakers = array.array("i")
        self._days = array.array("d")  # since 1970, NaN where unknown
        self._told = array.array("d")  # the same, else when the bank took it in
        self._session_numbers: dict[tuple[str, ...], int] = {}
        self._speaker_numbers: dict[tuple[str, ...], int] = {}
        self._named: dict[str, set[tuple[str, ...]]] = {}
        self._count = 0
        self._total = 0.0
        for row, memory in memories:
            self.put(row, memory)

    def put(self, row: int, memory: Memory) -> None:
        """Take in a memory whose row is new (rows ascend)."""
        while len(self._lengths) <= row:
            self._lengths.append(0.0)
            self._sessions.append(-1)
            self._speakers.append(-1)
            self._days.append(math.nan)
            self._told.append(math.nan)
        self._days[row] = _days(memory.happened_at)
        self._told[row] = _days(memory.happened_at or memory.updated_at or memory.created_at)
        counts = Counter(words(memory.text))
        for word, often in counts.items():
            posting = self._postings.get(word)
            if posting is None:
                posting = self._postings[word] = _Postings()
            posting.rows.append(row)
            posting.counts.append(often)
        length = counts.total()
        self._lengths[row] = length
        self._total += length
        self._count += 1
        if memory.session is not None:
            key = (*memory.scope, memory.session)
            self._sessions[row] = self._session_numbers.setdefault(key, len(self._session_numbers))
        if name := speaker_of(memory.text):
            self._speakers[row] = self._speaker(tuple(words(name, 0)))

    def _speaker(self, name: tuple[str, ...]) -> int:
        if not name:
            return -1
        if name not in self._speaker_numbers:
            self._speaker_numbers[name] = len(self._speaker_numbers)
            for word in name:
                self._named.setdefault(word, set()).add(name)
        return self._speaker_numbers[name]

    def drop(self, gone: Sequence[tuple[int, Memory]]) -> None:
        """Forget memories; their rows stay empty."""
        rows = np.array([row for row, _ in gone], np.int32)
        for word in {word for _, memory in gone for word in words(memory.text)}:
            old = self._postings.pop(word)
            held = np.array(old.rows, np.int32)
            self._keep(word, held, np.array(old.counts, np.float32), ~np.isin(held, rows))
        for row in rows.tolist():
            self._total -= self._lengths[row]
            self._count -= 1
            self._lengths[row], self._sessions[row], self._speakers[row] = 0.0, -1, -1

    def _keep(self, word: str, rows: np.ndarray, counts: np.ndarray, kept: np.ndarray) -> None:
        if kept.any():
            posting = self._postings[word] = _Postings()
            posting.rows.frombytes(rows[kept].tobytes())
            posting.counts.frombytes(counts[kept].tobytes())

    def compact(self, live: Int[np.ndarray, "n"]) -> None:
        """Close the gaps: `live` are the rows in use, in their new order; all others were dropped."""
        place = np.full(len(self._lengths), -1, np.int32)
        place[live] = np.arange(len(live), dtype=np.int32)
        for word, posting in list(self._postings.items()):
            rows = place[np.array(posting.rows, np.int32)]
            self._keep(word, rows, np.array(posting.counts, np.float32), rows >= 0)
        for column in (self._lengths, self._sessions, self._speakers, self._days, self._told):
            values = np.array(column)[live]
            del column[:]
            column.frombytes(values.tobytes())

    def scores(self, queries: Sequence[str | None], capacity: int) -> Float[np.ndarray, "n q"]:
        """BM25 of every row for every query (None: 0 throughout); a word that a query repeats counts once."""
        out = np.zeros((len(queries), capacity), np.float32)
        lengths = np.array(self._lengths, np.float32)
        weight = K1 * (1 - B + B * lengths / max(self._total / max(self._count, 1), 1e-9))
        for column, query in zip(out, queries, strict=True):
            for word in dict.fromkeys(words(query)) if query else ():
                if (posting := self._postings.get(word)) is None:
                    continue
                rows = np.array(posting.rows, np.int32)
                often = np.array(posting.counts, np.float32)
                rarity = math.log(1 + (self._count - len(rows) + 0.5) / (len(rows) + 0.5))
                column[rows] += np.float32(rarity * (K1 + 1)) * often / (often + weight[rows])
        return out.T

    def spoken_by(self, queries: Sequence[str | None], capacity: int) -> Bool[np.ndarray, "n q"]:
        """Rows of the one speaker whom a query names; none where it names no speaker or several."""
        out = np.zeros((len(queries), capacity), bool)
        speakers = np.array(self._speakers, np.int32)
        for column, query in zip(out, queries, strict=True):
            asked = set(words(query, 0)) if query else set()
            names = {name for word in asked for name in self._named.get(word, ()) if asked.issuperset(name)}
            if len(names) == 1:
                column[: len(speakers)] = speakers == self._speaker_numbers[names.pop()]
        return out.T

    def happened(
        self, queries: Sequence[str | None], capacity: int, today: dt.date | None
    ) -> Float[np.ndarray, "n q"] | None:
        """How well every row's moment fits the time that a query names, 0 to 1; None when no query names one."""
        spans = [spans_in(query, today) if query else () for query in queries]
        if not any(spans):
            return None
        out = np.zeros((len(queries), capacity), np.float32)
        days = np.array(self._days)
        for column, asked in zip(out, spans, strict=True):
            if asked:
                column[: len(days)] = closeness(days, asked)
        return out.T

    def retention(self, capacity: int, now: dt.datetime, days: float) -> Float[np.ndarray, "n"]:
        """exp(-age / days) of every row at a moment (MemoryBank, 2305.10250, section 2.2, strength in days)."""
        out = np.zeros(capacity, np.float32)
        age = np.maximum(_days(now) - np.array(self._told), 0)
        out[: len(age)] = np.exp(-np.where(np.isnan(age), np.inf, age) / days)
        return out

    def sessions(self, capacity: int) -> Int[np.ndarray, "n"]:
        """Number of every row's session, -1 where it has none."""
        out = np.full(capacity, -1, np.int32)
        out[: len(self._sessions)] = self._sessions
        return out


def _days(when: dt.datetime | None) -> float:
    return math.nan if when is None else when.timestamp() / 86400

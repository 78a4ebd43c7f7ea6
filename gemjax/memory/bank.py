"""MemoryBank: long-term memory as users have it."""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from gemjax.encoders.cross import Reranker
from gemjax.errors import MemoryBankError
from gemjax.memory.core import METRICS, BankCore
from gemjax.memory.filters import Where
from gemjax.memory.hits import Hit, SessionHit
from gemjax.memory.lines import read_lines, write_lines
from gemjax.memory.recalling import estimated_tokens, reranked, within
from gemjax.memory.record import Id, Version, When, copied
from gemjax.memory.sessions import by_session

__all__ = ["METRICS", "MemoryBank"]


class MemoryBank(BankCore):
    """Long-term memory: add texts, search them by meaning. Thread-safe; a call either succeeds or changes nothing.

    Args:
        encoder: an `Encoder`, any callable `list[str] -> array`, or None for the default encoder, which is loaded when
            the first text must be encoded (a bank that is given vectors never loads one).
        config: see `MemoryConfig`; default the paper's.
        clock: returns the present moment (for `created_at`, `updated_at` and expiry); None: the system's, in UTC.

    A bank made from vectors alone takes its dimension from the first of them. Vectors are scaled to unit length. Every
    call that may take long has a twin for asyncio (`aadd`, `asearch`, ...), which runs it in a thread.
    """

    def search(
        self,
        query: str | Float[np.ndarray, "d"],
        k: int = 10,
        where: Where | None = None,
        min_score: float | None = None,
        alpha: float | None = None,
        metric: str | None = None,
        fold: bool | None = None,
        *,
        scope: str | Sequence[str] = (),
        at: When = None,
        rerank: Reranker | None = None,
        candidates: int = 50,
    ) -> list[Hit]:
        """As `BankCore.search`; with a reranker the best candidates are read together with the question.

        Args:
            query, k, where, min_score, alpha, metric, fold, scope, at: see `BankCore.search`.
            rerank: a `gemjax.CrossEncoder` or anything with `name` and `scores(query, texts)`. It judges the
                `candidates` best by `metric` and the `candidates` best by the cosine alone; `Hit.score` is then its
                score, and `Hit.note` names it. `min_score` is a floor of that score.
            candidates: see `rerank`; at least `k` are taken.

        Raises: as `BankCore.search`; MemoryBankError for a reranker and a query that is no text, or scores that are not
        one finite number a text.
        """
        given: dict[str, Any] = {"alpha": alpha, "metric": metric, "fold": fold, "scope": scope, "at": at}
        if rerank is None:
            return super().search(query, k, where, min_score, **given)
        if not isinstance(query, str):
            raise MemoryBankError("rerank reads the question: the query must be a text")
        most = max(int(k), candidates)
        found = super().search(query, most, where, **given)
        beside = super().search(query, most, where, **{**given, "metric": "cosine"})
        return reranked(query, [*found, *beside], rerank, k, min_score)

    def history(self, id: Id) -> list[Version]:
        """What a memory said before it was replaced, oldest first, the last 16 of them.

        Raises: MemoryBankError for an id that is not in the bank.
        """
        memory = self.get(id)
        if memory is None:
            raise MemoryBankError(f"unknown ids: {id!r}")
        return [Version(old.text, copied(old.metadata), old.until) for old in memory.history]

    def recall(
        self,
        query: str,
        max_tokens: int = 2000,
        where: Where | None = None,
        *,
        k: int = 50,
        count: Callable[[str], int] | None = None,
        scope: str | Sequence[str] = (),
        at: When = None,
        min_score: float | None = None,
        metric: str | None = None,
    ) -> list[Hit]:
        """The best memories that fit a budget of tokens together, best first, each whole.

        One that does not fit is left out, and smaller ones after it may still come.

        Args:
            query: a text.
            max_tokens: the most tokens of all texts together, at least 1.
            where, scope, at, min_score, metric: as for `search`.
            k: memories that are looked at.
            count: counts the tokens of a text; None estimates them as UTF-8 bytes / 4, rounded up.

        Raises: as `search`; MemoryBankError for a budget below 1.
        """
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int | np.integer) or max_tokens < 1:
            raise MemoryBankError(f"max_tokens must be an integer >= 1, got {max_tokens!r}")
        hits = self.search(query, k, where, min_score, metric=metric, scope=scope, at=at)
        return within(hits, int(max_tokens), count or estimated_tokens)

    def search_sessions(
        self,
        query: str | Float[np.ndarray, "d"],
        k: int = 5,
        where: Where | None = None,
        *,
        turns: int = 3,
        candidates: int = 200,
        scope: str | Sequence[str] = (),
        at: When = None,
        metric: str | None = None,
    ) -> list[SessionHit]:
        """The k sessions whose best turns match best, each with its best turns.

        A session stands where its best turn does. Memories without a session are passed over.

        Args:
            query, where, scope, at, metric: as for `search`.
            k: at least 1.
            turns: how many turns of a session are returned, best first.
            candidates: turns that are ranked to find the sessions.

        Raises: as `search`; MemoryBankError for a number below 1.
        """
        for name, value in (("k", k), ("turns", turns), ("candidates", candidates)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise MemoryBankError(f"{name} must be an integer >= 1, got {value!r}")
        hits = self.search(query, candidates, where, metric=metric, fold=False, scope=scope, at=at)
        return by_session(hits, int(k), int(turns))

    def export_jsonl(self, path: str | os.PathLike[str], *, vectors: bool = True) -> int:
        """Write every memory as a line of JSON: all that the bank knows of it, with its vector unless told otherwise.

        The file is replaced as a whole or not at all.

        Returns: the number of lines.

        Raises: StateError when it cannot be written.
        """
        memories, rows = self.contents()
        return write_lines(path, memories, rows if vectors else None)

    def import_jsonl(self, path: str | os.PathLike[str], *, on_known: str = "refuse") -> list[Id]:
        """Take in the memories of a file of lines, as `export_jsonl` writes them; `text` a line is enough.

        Lines without a vector are encoded, lines without an id get a new one. Moments and histories come along.

        Args:
            path: the file.
            on_known: what to do with an id that the bank has: `"refuse"` the whole file, `"skip"` the line, or
                `"replace"` the bank's memory, whose words then stay in its history.

        Returns: the ids that were written.

        Raises: MemoryBankError naming the line that cannot be read, or an id that is refused; EncoderError. The bank is
        then unchanged.
        """
        if on_known not in ("refuse", "skip", "replace"):
            raise MemoryBankError(f"on_known must be one of refuse, skip, replace; got {on_known!r:.40}")
        lines = read_lines(path)
        if on_known == "skip":
            lines = [line for line in lines if line.memory.id not in self]
        bare = [i for i, line in enumerate(lines) if line.vector is None]
        found = [line.vector for line in lines]
        if bare:
            fresh = self.encode([lines[i].memory.text for i in bare])
            for i, row in zip(bare, fresh, strict=True):
                found[i] = row
        own = [line.memory for line in lines]
        return self.restore(own, found, encoded=bool(bare), replace=on_known == "replace")

    async def aadd(self, *given: Any, **named: Any) -> list[Id]:
        """`add` in a thread."""
        return await asyncio.to_thread(self.add, *given, **named)

    async def aupsert(self, *given: Any, **named: Any) -> list[Id]:
        """`upsert` in a thread."""
        return await asyncio.to_thread(self.upsert, *given, **named)

    async def aremove(self, *given: Any, **named: Any) -> None:
        """`remove` in a thread."""
        await asyncio.to_thread(self.remove, *given, **named)

    async def asearch(self, *given: Any, **named: Any) -> list[Hit]:
        """`search` in a thread."""
        return await asyncio.to_thread(self.search, *given, **named)

    async def asearch_batch(self, *given: Any, **named: Any) -> list[list[Hit]]:
        """`search_batch` in a thread."""
        return await asyncio.to_thread(self.search_batch, *given, **named)

    async def asearch_sessions(self, *given: Any, **named: Any) -> list[SessionHit]:
        """`search_sessions` in a thread."""
        return await asyncio.to_thread(self.search_sessions, *given, **named)

    async def arecall(self, *given: Any, **named: Any) -> list[Hit]:
        """`recall` in a thread."""
        return await asyncio.to_thread(self.recall, *given, **named)

    async def asave(self, *given: Any, **named: Any) -> None:
        """`save` in a thread."""
        await asyncio.to_thread(self.save, *given, **named)

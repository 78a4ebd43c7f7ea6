"""The archive of one session: every exchange that was dropped, found again by letters and by meaning."""

import base64
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from gemjax.errors import StateError
from gemjax.history.archive.excerpt import Counter, estimated_tokens, excerpt, shares
from gemjax.history.archive.letters import LetterIndex
from gemjax.history.archive.recall import Recall, Recalled
from gemjax.history.archive.tool import without_recalls
from gemjax.history.records import Block, BlockContent, ToolCall, ToolResult
from gemjax.history.signals import signals

By = Literal["both", "letters", "meaning"]
Shorten = Callable[[str, str, int], str]
"""From a text, a query and a budget of tokens to what of the text is kept."""

MOST_CHARS = 64_000_000
"""Characters of all archived exchanges; beyond that the oldest are forgotten."""

SAVED_CHARS = 500_000
"""Characters of exchanges that a saved state holds. Only what the caller's history no longer has needs saving."""

LEAST_COSINE = 0.25
"""Below this, an exchange that shares no telling letters with the query is not what was asked for."""

_POOL = 32
"""Candidates from each of the two rankings."""

_WEIGHTS = {"letters": 1.0, "meaning": 0.5}
"""Of the two scores, each as a share of its best: a name that stands there tells more than likeness."""

_SMALLEST_SHARE = 48
"""Tokens below which an excerpt says too little: then fewer exchanges are given."""


_Ranked = tuple[str, float, tuple[str, ...]]


@dataclasses.dataclass(slots=True)
class _Entry:
    """One archived exchange. `number` is its place in the index by letters; None until it is indexed."""

    position: int
    content: BlockContent
    chars: int
    vector: np.ndarray | None
    number: int | None = None
    paths: tuple[str, ...] = ()


class Archive:
    """Exchanges that were dropped from one session's requests. Not thread-safe; `Archives` locks it.

    Keeping an exchange costs a reference to it; it is indexed when the next recall comes, so that an agent that never
    recalls pays nothing.

    Args:
        most: exchanges that are kept; the oldest are forgotten first. 0 keeps none.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.broken = ""
        """Why the archive cannot be read; empty when it can."""
        self._entries: dict[str, _Entry] = {}
        self._waiting: list[str] = []
        self._seen: set[str] = set()
        self._chars = 0
        self._blocks: Sequence[Block] | None = None
        self._forwarded: Collection[int] = ()
        self._partly: set[str] = set()
        self._letters = LetterIndex()
        self._keys: dict[int, str] = {}
        self._bank: Any = None
        self._fitted_at = 0

    def __len__(self) -> int:
        return len(self._entries)

    # ---- keeping -------------------------------------------------------------------------------------------------

    def keep(
        self,
        blocks: Sequence[Block],
        forwarded: Collection[int],
        vectors: np.ndarray,
        names: Collection[str],
        originals: Mapping[int, Block] = MappingProxyType({}),
    ) -> None:
        """Remember what one request leaves out. Never raises: the request must go out.

        Args:
            blocks: all blocks of the request.
            forwarded: indices of those that are forwarded; the others are dropped.
            vectors: a row a block, as the compressor encoded them, `[>= len(blocks), d]`.
            names: of the recall tool, whose answers are no originals.
            originals: by index, blocks that are shorter in `blocks` than they came; kept whether forwarded or not.
        """
        if not self.most or self.broken:
            return
        try:
            self._blocks, self._forwarded = blocks, forwarded
            dropped = set(range(len(blocks))).difference(forwarded)
            self._partly = {blocks[i].key for i in originals if i < len(blocks)}
            gone = dropped.union(i for i in originals if i < len(blocks))
            for i in sorted([i for i in gone if blocks[i].key not in self._seen]):
                key, block = blocks[i].key, originals.get(i, blocks[i])
                self._seen.add(key)
                content = without_recalls(block.content, names)
                if content is not None:
                    row = np.array(vectors[i], np.float32) if i < len(vectors) else None
                    self._insert(key, _Entry(block.index, content, block.chars, row))
            if len(self._seen) > 2 * (len(blocks) + self.most):
                self._seen &= {b.key for b in blocks} | self._entries.keys()
        except Exception as error:
            self.broken = f"{type(error).__name__}: {error}"

    def _insert(self, key: str, entry: _Entry) -> None:
        self._entries[key] = entry
        self._waiting.append(key)
        self._chars += entry.chars
        gone = []
        while len(self._entries) > self.most or (self._chars > MOST_CHARS and len(self._entries) > 1):
            oldest = next(iter(self._entries))
            forgotten = self._entries.pop(oldest)
            self._chars -= forgotten.chars
            if forgotten.number is not None:
                gone.append((oldest, forgotten.number))
        if gone:
            self._letters.remove([number for _, number in gone])
            for key, number in gone:
                del self._keys[number]
                if self._bank is not None and key in self._bank:
                    self._bank.remove([key])

    def _index(self) -> None:
        """Bring both indexes up to what was kept."""
        new = [key for key in dict.fromkeys(self._waiting) if key in self._entries]
        self._waiting = []
        if not new:
            return
        for key in new:
            entry = self._entries[key]
            entry.paths = signals(entry.content).touches
            entry.number = self._letters.add(_text(entry.content))
            self._keys[entry.number] = key
        from gemjax.memory import MemoryBank, MemoryConfig

        if self._bank is None:
            # The metric is fitted anew whenever the archive has doubled: a fit takes longer than many searches.
            self._bank = MemoryBank(_no_encoder, MemoryConfig(auto_refit=False, min_memories=2))
        dim = self._bank.dim
        with_vector = [k for k in new if _has_direction(self._entries[k].vector, dim)]
        if dim is None and with_vector:
            first = self._entries[with_vector[0]].vector
            assert first is not None
            with_vector = [k for k in with_vector if _has_direction(self._entries[k].vector, len(first))]
        if with_vector:
            entries = [self._entries[k] for k in with_vector]
            self._bank.add(
                [e.content.selection_text or k for k, e in zip(with_vector, entries, strict=True)],
                ids=with_vector,
                metadata=[
                    {"block": k, "position": e.position, "tools": _tools(e.content)}
                    for k, e in zip(with_vector, entries, strict=True)
                ],
                vectors=np.stack([e.vector for e in entries if e.vector is not None]),
            )
            if len(self._bank) >= 2 * self._fitted_at:
                self._fitted_at = len(self._bank)
                self._bank.refit()

    # ---- finding -------------------------------------------------------------------------------------------------

    def find(
        self,
        query: str,
        vector: np.ndarray | None,
        k: int,
        budget: int,
        count: Counter = estimated_tokens,
        by: By = "both",
        shorten: Shorten | None = None,
        note: str = "",
    ) -> Recall:
        """The exchanges that fit a query best, within a budget; see `HistoryCompressor.recall`. Never raises.

        Args:
            query: text, for the ranking by letters and for excerpts.
            vector: its vector, for the ranking by meaning; None leaves that out.
            note: why there is no vector although one was wanted.
        """
        if self.broken:
            return said("failed", "the archive of this conversation cannot be read", count, self.broken)
        if not query.strip():
            return said("nothing", "The query is empty: say what to look for.", count, "an empty query")
        if not self._entries:
            reason = "no request has come since this session was loaded" if self._blocks is None else "nothing dropped"
            return said("nothing", "Nothing has been left out of this conversation.", count, reason)
        try:
            self._index()
            ranked = self._ranked(query, vector, by, k)
            if not ranked:
                what = f"Nothing that was left out matches {query[:200]!r}."
                return said("nothing", what, count, note or "nothing matches")
            return self._rendered(query, ranked[:k], budget, count, note, shorten)
        except Exception as error:
            return said(
                "failed", "the archive of this conversation cannot be read", count, f"{type(error).__name__}: {error}"
            )

    def _ranked(self, query: str, vector: np.ndarray | None, by: By, k: int) -> list[_Ranked]:
        """Keys, fused scores and what found them, best first."""
        shown = self._shown()
        most = _POOL + k + len(shown)
        rankings: dict[str, list[tuple[str, float]]] = {}
        if by != "meaning":
            rankings["letters"] = [(self._keys[n], score) for n, score in self._letters.search(query, most)]
        if by != "letters" and vector is not None and self._bank is not None and len(vector) == self._bank.dim:
            hits = self._bank.search(np.asarray(vector), k=most, metric="cosine")
            rankings["meaning"] = [(str(h.id), h.cosine) for h in hits if h.cosine >= LEAST_COSINE]
        scores: dict[str, float] = {}
        found: dict[str, tuple[str, ...]] = {}
        for name, ranking in rankings.items():
            best_score = max((score for _, score in ranking), default=1.0)
            for key, score in ranking:
                if key not in shown:
                    scores[key] = scores.get(key, 0.0) + _WEIGHTS[name] * score / best_score
                    found[key] = (*found.get(key, ()), name)
        # Of equally good exchanges the newer one is more likely to hold what is still true.
        best = sorted(scores, key=lambda key: (-scores[key], -self._entries[key].position))
        return [(key, scores[key], found[key]) for key in best]

    def _shown(self) -> set[str]:
        """Keys of archived exchanges that are forwarded now, and as they came."""
        if self._blocks is None:
            return set()
        return self._entries.keys() & {self._blocks[i].key for i in self._forwarded} - self._partly

    def _rendered(
        self,
        query: str,
        ranked: Sequence[_Ranked],
        budget: int,
        count: Counter,
        note: str,
        shorten: Shorten | None,
    ) -> Recall:
        entries = [self._entries[key] for key, _, _ in ranked]
        texts = [_text(e.content) for e in entries]
        heads = [f"[exchange {e.position}, {e.content.label}]" for e in entries]
        # One token more than both parts: where they join, a tokenizer may need it.
        sizes = [count(f"{head}\n{text}\n\n") + 1 for head, text in zip(heads, texts, strict=True)]
        fit = _how_many(sizes, [count(head) for head in heads], budget)
        given = shares(sizes[:fit], budget)
        out: list[Recalled] = []
        for (key, score, by), entry, head, text, size, share in zip(
            ranked, entries, heads, texts, sizes, given, strict=False
        ):
            room = share - count(head + "\n\n") - 1
            part = text if size <= share else ""
            if not part and room > 0:
                cut = shorten or (lambda t, q, n: excerpt(t, q, n, count, self._letters.weight))
                part = cut(text, query, room)
            if not part:
                continue
            content, paths = entry.content, entry.paths
            written = f"{head}\n{part}"
            tools = tuple(_tools(content))
            out.append(Recalled(entry.position, key, content.label, tools, paths, written, part == text, by, score))
        while out and count("\n\n".join(r.text for r in out)) > budget:
            out.pop()
        if not out:
            what = f"Found {len(ranked)} exchanges, and a budget of {budget} tokens holds none of them."
            return said("nothing", what, count, f"a budget of {budget} tokens is too small")
        text = "\n\n".join(r.text for r in out)
        return Recall(text, "found", note, tuple(out), count(text))

    # ---- surviving a restart -------------------------------------------------------------------------------------

    def to_json(self) -> list[dict[str, Any]]:
        """What the next request of the caller will not bring back, newest first within `SAVED_CHARS`; oldest first."""
        here = {b.key for b in self._blocks or ()}
        saved: list[dict[str, Any]] = []
        left = SAVED_CHARS
        for key, entry in reversed(self._entries.items()):
            left -= entry.chars
            if key in here or left < 0:
                left += entry.chars if key in here else 0
                continue
            content = entry.content
            saved.append(
                {
                    "key": key,
                    "position": entry.position,
                    "chars": entry.chars,
                    "reasoning": content.reasoning,
                    "text": content.text,
                    "calls": [[c.id, c.name, c.arguments] for c in content.calls],
                    "results": [[r.id, r.text, r.is_error] for r in content.results],
                    "vector": _packed(entry.vector),
                }
            )
        return saved[::-1]

    def load(self, data: Any) -> None:
        """Take what `to_json` wrote. Raises `StateError`, naming the field; the archive is then as before."""
        if not isinstance(data, list):
            raise StateError(f"state field 'archive' must be an array, got {type(data).__name__}")
        read = [_read(item, i) for i, item in enumerate(data)]
        for key, entry in read:
            if key not in self._seen:
                self._seen.add(key)
                self._insert(key, entry)


def said(status: Any, text: str, count: Counter, reason: str) -> Recall:
    """A recall that has no exchanges, and says why."""
    return Recall(text, status, reason, (), count(text))


def _no_encoder(texts: list[str]) -> np.ndarray:
    raise AssertionError("the archive's bank is given vectors")


def _text(content: BlockContent) -> str:
    return "\n\n".join(content.sections)


def _how_many(sizes: Sequence[int], heads: Sequence[int], budget: int) -> int:
    """How many of the exchanges, best first, get a share of the budget in which they still say something."""
    for n in range(len(sizes), 1, -1):
        given = shares(sizes[:n], budget)
        cut = [g - h for g, s, h in zip(given, sizes, heads, strict=False) if g < s]
        if not cut or min(cut) >= _SMALLEST_SHARE:
            return n
    return 1


def _tools(content: BlockContent) -> list[str]:
    return list(dict.fromkeys(call.name for call in content.calls))


def _has_direction(vector: np.ndarray | None, dim: int | None) -> bool:
    fits = vector is not None and (dim is None or len(vector) == dim)
    return fits and bool(np.isfinite(vector).all()) and bool(np.any(vector))  # type: ignore[arg-type]


def _packed(vector: np.ndarray | None) -> str | None:
    return None if vector is None else base64.b64encode(vector.astype("<f2").tobytes()).decode()


def _read(item: Any, index: int) -> tuple[str, _Entry]:
    where = f"state field 'archive', entry {index}"
    if not isinstance(item, Mapping):
        raise StateError(f"{where} must be an object, got {type(item).__name__}")
    try:
        calls = tuple(ToolCall(*map(_string, c)) for c in item["calls"])
        results = tuple(ToolResult(_string(a), _string(b), bool(e)) for a, b, e in item["results"])
        content = BlockContent(_string(item["reasoning"]), _string(item["text"]), calls, results)
        packed = item["vector"]
        vector = None if packed is None else np.frombuffer(base64.b64decode(packed, validate=True), "<f2")
        entry = _Entry(
            int(item["position"]),
            content,
            int(item["chars"]),
            None if vector is None else vector.astype(np.float32),
        )
        if not calls:
            raise ValueError("it has no calls")
        return _string(item["key"]), entry
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"{where} cannot be read ({type(error).__name__}: {error})") from None


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {type(value).__name__}")
    return value

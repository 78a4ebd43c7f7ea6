"""A language model that reads nothing twice: an evaluation asks it for the same texts again and again."""

import functools
import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gemjax.distill import DistillConfig
from gemjax.models.language import LanguageModel, TokenScores
from gemjax.models.text_tokenizer import Tokens

_PART = 64
_CHECK_BYTES = 8
# Characters up to which a text is likely a turn or a question, which come again; longer ones are prompts, which do not.
_SHORT = 2_000


class RememberingModel(LanguageModel):
    """The model, with everything that its passes gave kept in memory and, if wanted, on disk.

    One reading of a turn, or of a question's turns, so serves all methods, variants and budgets, and the next run. For
    one thread.

    Args:
        model: asked for what is not known yet.
        folder: where to keep readings across processes, one SQLite file a model; None: in memory only. A damaged file
            is replaced; one that cannot be written costs speed, not the result.
    """

    def __init__(self, model: LanguageModel, folder: Path | None = None) -> None:
        super().__init__(model.config, model.params, model.tokenizer, name=model.name, source=model.source)
        self._known: dict[bytes, np.ndarray] = {}
        self._store = None if folder is None else _Store(folder / f"readings-{model.fingerprint()[:16]}.sqlite")
        # Turns come back with every question, and a question's whole text with every method and budget.
        self._tokens = functools.lru_cache(20_000)(super().tokenize)
        self._counts = functools.lru_cache(2_000)(super().count)

    def tokenize(self, text: str) -> Tokens:
        """As `LanguageModel.tokenize`; do not write into the arrays."""
        return self._tokens(text) if len(text) <= _SHORT else super().tokenize(text)

    def count(self, text: str) -> int:
        """As `LanguageModel.count`."""
        return self._counts(text)

    def padded(self, n: int) -> int:
        """In steps of an eighth from 256 tokens on: thousands of long texts are worth some more compilations."""
        power = super().padded(n)
        step = power // 8
        return power if power <= 256 else -(-n // step) * step

    def scores(
        self,
        sequences: Sequence[np.ndarray],
        weights: Sequence[np.ndarray] | None = None,
        *,
        window: int | None = None,
        overlap: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[TokenScores]:
        """As `LanguageModel.scores`; `progress` counts what is really read."""
        window = self.window if window is None else window
        keys = []
        for i, ids in enumerate(sequences):
            # What fits into one window is read alike whatever the window.
            kind = f"scores {window} {overlap}" if len(ids) > window else "scores"
            keys.append(_key(kind.encode(), ids, *(() if weights is None else (weights[i],))))

        def read(missing: list[int]) -> list[np.ndarray]:
            chosen = None if weights is None else [weights[i] for i in missing]
            found = super(RememberingModel, self).scores(
                [sequences[i] for i in missing], chosen, window=window, overlap=overlap, progress=progress
            )
            return [np.stack(scores) for scores in found]

        return [TokenScores(*values.reshape(3, -1)) for values in self._remembered(keys, read)]

    def read_turns(self, texts: Sequence[str], progress: Callable[[str, int, int], None] | None = None) -> None:
        """Take the scores of these texts, each by itself, beforehand: together they fill the model's batches."""
        window = min(DistillConfig().window, self.config.max_position_embeddings)
        # Of one length together, and in parts, so that an interruption loses little.
        rows = sorted((self.tokenize(text).ids for text in dict.fromkeys(texts)), key=len)
        parts = [rows[i : i + _PART] for i in range(0, len(rows), _PART)]
        for done, part in enumerate(parts):
            if progress:
                progress("reading each turn once", done, len(parts))
            self.scores(part, window=window)

    def surprisals(
        self, sequences: Sequence[np.ndarray], *, progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """As `LanguageModel.surprisals`."""
        return self._remembered(
            [_key(b"surprisals", ids) for ids in sequences],
            lambda missing: super(RememberingModel, self).surprisals(
                [sequences[i] for i in missing], progress=progress
            ),
        )

    def ablated_loss(self, ids: np.ndarray, dropped: np.ndarray, share: float) -> float:
        """As `LanguageModel.ablated_loss`."""
        key = _key(f"ablated {share}".encode(), ids, dropped)
        (loss,) = self._remembered(
            [key],
            lambda _: [np.array([super(RememberingModel, self).ablated_loss(ids, dropped, share)], np.float32)],
        )
        return float(loss[0])

    def _remembered(self, keys: list[bytes], read: Callable[[list[int]], list[np.ndarray]]) -> list[np.ndarray]:
        for key in keys:
            if key not in self._known and self._store is not None:
                stored = self._store.get(key)
                if stored is not None:
                    self._known[key] = stored
        missing = list({key: i for i, key in enumerate(keys) if key not in self._known}.values())
        if missing:
            fresh = dict(zip((keys[i] for i in missing), read(missing), strict=True))
            self._known |= fresh
            if self._store is not None:
                self._store.put(fresh)
        return [self._known[key] for key in keys]


class _Store:
    """Arrays of float32 by key, each with a check value, in a file that any moment of interruption leaves whole."""

    def __init__(self, path: Path) -> None:
        self._connection: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = self._opened(path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    return
                path.unlink()
                self._connection = self._opened(path)
        except (OSError, sqlite3.Error):
            return

    @staticmethod
    def _opened(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=30)
        connection.execute("CREATE TABLE IF NOT EXISTS readings (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
        connection.commit()
        return connection

    def get(self, key: bytes) -> np.ndarray | None:
        if self._connection is None:
            return None
        try:
            row = self._connection.execute("SELECT value FROM readings WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error:
            return None
        if row is None or not isinstance(row[0], bytes):
            return None
        value, check = row[0][:-_CHECK_BYTES], row[0][-_CHECK_BYTES:]
        # SQLite does not check its pages: a row that is not the one that was written is read again, never believed.
        return np.frombuffer(value, np.float32) if _check(key, value) == check else None

    def put(self, values: dict[bytes, np.ndarray]) -> None:
        if self._connection is None:
            return
        plain = {key: np.ascontiguousarray(value, np.float32).tobytes() for key, value in values.items()}
        rows = [(key, value + _check(key, value)) for key, value in plain.items()]
        try:
            with self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?)", rows)
        except sqlite3.Error:
            self._connection = None


def _check(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, key=key, digest_size=_CHECK_BYTES).digest()


def _key(kind: bytes, *arrays: np.ndarray) -> bytes:
    digest = hashlib.blake2b(kind, digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()

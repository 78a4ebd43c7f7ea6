"""Keeps the vectors of texts that were encoded before, and checks what encoders return."""

import collections
import dataclasses
import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gemjax.encoders.ending import start
from gemjax.encoders.protocol import CallableEncoder, Encoder, checked_texts
from gemjax.encoders.vector_file import VectorFile
from gemjax.encoders.vectors import unit_vectors
from gemjax.errors import ConfigError, EncoderError, GemjaxError

# Texts given to the encoder at once: an interrupted call loses at most one slice, and every slice still fills batches.
_SLICE = 256


@dataclasses.dataclass(slots=True)
class CacheUsage:
    """What a `CachedEncoder` was asked and what that cost."""

    texts: int = 0  # asked for
    hits: int = 0  # answered from the cache, repetitions inside one call included
    misses: int = 0  # encoded
    tokens: int | None = None  # read by the encoder, special tokens included; None: it does not count
    seconds: float = 0.0  # inside the encoder


class CachedEncoder:
    """An encoder in front of which the vectors of known texts are kept, so that each text is encoded once.

    What the encoder returns is checked (shape, kind, finiteness, count) and brought to unit length; zero rows stay
    zero. Safe to use from several threads: calls of the encoder come one at a time, a text asked for by two threads is
    encoded once, and known texts are answered while another thread encodes.

    Args:
        encoder: the encoder that is asked for unknown texts.
        max_entries: vectors kept in memory, least recently used ones go first; also those kept on disk.
        disk: a folder to keep vectors in across processes: one file an encoder name, checked record by record. A
            damaged file or record is left out with a warning and made again.
        timeout: seconds the encoder may take for a call of up to 256 texts. After that `EncoderError` is raised, and at
            once on further calls while it still hangs; an answer that comes late is kept. None: no limit.

    Attributes:
        usage: an `CacheUsage`, counted since construction.

    Raises:
        ConfigError: an argument is out of range, the folder cannot be made, or vectors of a callable without a name are
            to be kept on disk.
    """

    def __init__(
        self,
        encoder: Encoder,
        max_entries: int = 100_000,
        disk: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        if max_entries < 1:
            raise ConfigError(f"max_entries = {max_entries}; expected a positive number")
        if timeout is not None and not timeout > 0:
            raise ConfigError(f"timeout = {timeout}; expected a positive number of seconds")
        if disk is not None and isinstance(encoder, CallableEncoder) and not encoder.named:
            raise ConfigError("a callable needs a name of its own before its vectors can be kept on disk")
        self.encoder = encoder
        self.usage = CacheUsage()
        self._max_entries = max_entries
        self._timeout = timeout
        self._known: collections.OrderedDict[bytes, np.ndarray] = collections.OrderedDict()
        self._dim: int | None = None  # learnt from the first answer, not asked: asking may cost a call
        self._disk = None if disk is None else VectorFile(disk, encoder.name, max_entries)
        self._lock = threading.Lock()  # the entries and the counters; never held while encoding
        self._turn = threading.Lock()  # whose turn it is to call the encoder
        self._hanging: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.encoder.name

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._dim or self.encoder.dim

    def unread(self, texts: list[str]) -> list[bool]:
        """Which texts the encoder cannot read; none where it cannot tell."""
        tell = getattr(self.encoder, "unread", None)
        return [False] * len(texts) if tell is None else list(tell(texts))

    def __len__(self) -> int:
        return len(self._known)

    def encode(self, texts: list[str], progress: Callable[[int, int], None] | None = None) -> np.ndarray:
        """Unit vectors of the texts, float32 `[len(texts), dim]`.

        Args:
            texts: the texts.
            progress: called with (encoded, to be encoded) after each slice of at most 256 texts.

        Raises:
            TypeError: `texts` is a string, or holds something that is none.
            EncoderError: the encoder raised, hangs, or returned something that is no finite vector a text. What it
                returned before that is kept.
        """
        texts = checked_texts(texts)
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        keys = [_key(text) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))
        found = self._look_up(by_key)
        encoded = 0
        if len(found) < len(by_key):
            if not self._turn.acquire(timeout=-1 if self._timeout is None else self._timeout):
                raise EncoderError(f"encoder {self.name!r} did not get to this call within {self._timeout} s")
            try:
                # Another thread may have encoded some of them while this one waited.
                found |= self._look_up({key: text for key, text in by_key.items() if key not in found})
                missing = [(key, text) for key, text in by_key.items() if key not in found]
                for start in range(0, len(missing), _SLICE):
                    part = missing[start : start + _SLICE]
                    found |= self._within_timeout(part)
                    encoded += len(part)
                    if progress is not None:
                        progress(encoded, len(missing))
            finally:
                self._turn.release()
        with self._lock:
            self.usage.texts += len(texts)
            self.usage.hits += len(texts) - encoded
        return np.stack([found[key] for key in keys])

    def known(self, texts: list[str]) -> dict[str, np.ndarray | None]:
        """The kept vector of each text, `[dim]`; None for one that would have to be encoded.

        Raises:
            TypeError: `texts` is a string, or holds something that is none.
        """
        keys = {text: _key(text) for text in checked_texts(texts)}
        found = self._look_up({key: text for text, key in keys.items()})
        with self._lock:
            self.usage.texts += len(found)
            self.usage.hits += len(found)
        return {text: found.get(key) for text, key in keys.items()}

    def _look_up(self, wanted: dict[bytes, str]) -> dict[bytes, np.ndarray]:
        with self._lock:
            found = {key: self._known[key] for key in wanted if key in self._known}
            for key in found:
                self._known.move_to_end(key)
            if self._disk is not None and len(found) < len(wanted):
                stored = self._disk.get([key for key in wanted if key not in found])
                self._remember(stored)
                found |= stored
            return found

    def _remember(self, vectors: dict[bytes, np.ndarray]) -> None:
        for key, vector in vectors.items():
            self._dim = len(vector)
            self._known[key] = vector
            self._known.move_to_end(key)
        while len(self._known) > self._max_entries:
            self._known.popitem(last=False)

    def _ask(self, part: list[tuple[bytes, str]]) -> dict[bytes, np.ndarray]:
        """Asks the encoder, checks its answer and keeps it."""
        before, started = getattr(self.encoder, "tokens", None), time.perf_counter()
        try:
            raw: Any = self.encoder.encode([text for _, text in part])
        except GemjaxError:
            raise
        except Exception as error:
            raise EncoderError(f"encoder {self.name!r} raised {type(error).__name__}: {error}") from error
        finally:
            seconds = time.perf_counter() - started
            with self._lock:
                self.usage.seconds += seconds
        rows = unit_vectors(raw, len(part), self.name, self._dim)
        # Copies: a row that is kept must not keep its whole batch alive.
        vectors = {key: row.copy() for (key, _), row in zip(part, rows, strict=True)}
        after = getattr(self.encoder, "tokens", None)
        with self._lock:
            self.usage.misses += len(part)
            if isinstance(before, int) and isinstance(after, int):
                self.usage.tokens = (self.usage.tokens or 0) + after - before
            self._remember(vectors)
            if self._disk is not None:
                self._disk.put(vectors)
        return vectors

    def _within_timeout(self, part: list[tuple[bytes, str]]) -> dict[bytes, np.ndarray]:
        if self._timeout is None:
            return self._ask(part)
        if self._hanging is not None and self._hanging.is_alive():
            raise EncoderError(f"encoder {self.name!r} still hangs in an earlier call")
        answer: list[dict[bytes, np.ndarray]] = []
        trouble: list[BaseException] = []

        def work() -> None:
            try:
                answer.append(self._ask(part))
            except BaseException as error:
                trouble.append(error)

        thread = start(work, "gemjax-encoder")
        thread.join(self._timeout)
        if thread.is_alive():
            self._hanging = thread
            raise EncoderError(f"encoder {self.name!r} did not answer within {self._timeout} s")
        if trouble:
            raise trouble[0]
        return answer[0]

    def __repr__(self) -> str:
        return f"CachedEncoder({self.encoder!r}, {len(self)} of at most {self._max_entries} vectors)"


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

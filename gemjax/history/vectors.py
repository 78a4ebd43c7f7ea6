"""Block vectors of one session, and the encoder that sessions share."""

import dataclasses
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemjax.encoders.background import BackgroundEncoder, Job, LateVectors
from gemjax.encoders.ending import start
from gemjax.errors import EncoderError
from gemjax.history.deadline import Deadline, OutOfTime
from gemjax.history.records import Block
from gemjax.history.result import EncoderUsage
from gemjax.kernels.host import power_of_two

SMALLEST_BUCKET = 32


def bucket(n: int) -> int:
    """The padded length for `n` rows: the next power of two, so that a growing history compiles a handful of times."""
    return power_of_two(n, SMALLEST_BUCKET)


class SharedEncoder:
    """The compressor's encoder with its cache; found on first use, so that building a compressor costs nothing.

    Args:
        encoder: as given to the compressor.
        timeout: seconds that one of its answers may take; None for ever.
        disk: folder to keep vectors in.
    """

    def __init__(self, encoder: Any, timeout: float | None, disk: str | os.PathLike[str] | None = None) -> None:
        self._given = encoder
        self._timeout = timeout
        self._disk = disk
        self._cached: Any = None
        self._background: Any = None
        self._lock = threading.Lock()

    def encode(self, texts: list[str]) -> tuple[np.ndarray, EncoderUsage]:
        """Unit rows `[n, d]` and what they cost. Raises `GemjaxError`s: `EncoderError`, `WeightsError`."""
        cached = self._resolve()
        before = dataclasses.replace(cached.usage)
        return cached.encode(texts), _since(before, cached.usage)

    def encode_within(
        self, texts: list[str], seconds: float | None, deadline: Deadline, vectors: "BlockVectors"
    ) -> tuple[np.ndarray, EncoderUsage]:
        """As `encode`, but waits no longer than that; what comes later is there for the next request.

        Args:
            texts: the most urgent first.
            seconds: how long to wait once the encoder is loaded; None until the deadline.
            deadline: of the request; loading is under it too.
            vectors: the session's, which remembers what is still being made for it.

        Raises: `OutOfTime` too.
        """
        cached = self._resolve_by(deadline)
        before = dataclasses.replace(cached.usage)
        job, vectors.job = vectors.job, None
        limits = [limit for limit in (seconds, deadline.left()) if limit is not None]
        try:
            rows = self._background.encode(texts, min(limits), job)
        except LateVectors as late:
            vectors.job = late.job
            deadline.check("vectors were made")
            n = len(set(texts))
            missing = f"{late.missing} of {n} texts are still being encoded, for later requests"
            raise OutOfTime(f"waited {min(limits):g} s for vectors: {missing}") from None
        return rows, _since(before, cached.usage)

    def _resolve_by(self, deadline: Deadline) -> Any:
        if self._cached is None and deadline.left() is not None:
            trouble: list[BaseException] = []

            def load() -> None:
                try:
                    self._resolve()
                except BaseException as error:
                    trouble.append(error)

            start(load, "gemjax-load").join(deadline.left())
            if trouble:
                raise trouble[0]
            if self._cached is None:
                deadline.check("the encoder was loaded")
        return self._resolve()

    def _resolve(self) -> Any:
        with self._lock:
            if self._cached is None:
                from gemjax.encoders import CachedEncoder, as_encoder

                encoder = as_encoder(self._given)
                cached = (
                    encoder
                    if isinstance(encoder, CachedEncoder)
                    else CachedEncoder(encoder, disk=self._disk, timeout=self._timeout)
                )
                self._background = BackgroundEncoder(cached)
                self._cached = cached
            return self._cached


def _since(before: Any, after: Any) -> EncoderUsage:
    tokens = None if after.tokens is None else after.tokens - (before.tokens or 0)
    return EncoderUsage(after.misses - before.misses, tokens, after.hits - before.hits, after.seconds - before.seconds)


class BlockVectors:
    """The vectors of a session's blocks as one padded matrix that grows with the history.

    Attributes:
        matrix: `[capacity, d]`.
        job: what is still being encoded for the session, after a request that did not wait for it.
    """

    def __init__(self) -> None:
        self.job: Job | None = None
        self._keys: list[str] = []
        self.matrix = np.zeros((0, 0), np.float32)

    def missing(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks whose vectors are not here: the tail of a history that grew, all of one that was rewritten."""
        keys = self._keys
        same = 0
        for key, block in zip(keys, blocks, strict=False):
            if key != block.key:
                break
            same += 1
        del keys[same:]
        return list(blocks[same:])

    def extend(self, blocks: Sequence[Block], rows: np.ndarray) -> None:
        """Append the vectors of `blocks`, `[len(blocks), d]`."""
        n = len(self._keys)
        total = n + len(blocks)
        if total > self.matrix.shape[0] or rows.shape[1] != self.matrix.shape[1]:
            if n and rows.shape[1] != self.matrix.shape[1]:
                self._keys.clear()
                before = self.matrix.shape[1]
                raise EncoderError(f"the encoder returned {rows.shape[1]} dimensions, earlier in the session {before}")
            grown = np.zeros((bucket(total), rows.shape[1]), np.float32)
            if n:
                grown[:n] = self.matrix[:n]
            self.matrix = grown
        self.matrix[n:total] = rows
        self._keys.extend(b.key for b in blocks)

    def padded(self) -> np.ndarray:
        """`[bucket(n), d]`, zero rows after the last block."""
        n = len(self._keys)
        view = self.matrix[: bucket(n)]
        view[n:] = 0.0  # a rewritten, shorter history leaves old rows behind
        return view

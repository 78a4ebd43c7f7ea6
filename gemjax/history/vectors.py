"""Block vectors of one session, and an encoder that can fail or hang without taking the request with it."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from gemjax.errors import EncoderError
from gemjax.history.records import Block
from gemjax.history.result import EncoderUsage

SMALLEST_BUCKET = 32


def bucket(n: int) -> int:
    """The padded length for `n` rows: the next power of two, so that a growing history compiles a handful of times."""
    return max(SMALLEST_BUCKET, 1 << max(n - 1, 0).bit_length())


class GuardedEncoder:
    """Runs an encoder off the request's thread, with a time limit; loads it on first use.

    A call that runs out of time goes on in the background and fills the cache, so that a later request finds its
    vectors; until then further calls fail at once instead of piling up threads.
    """

    def __init__(self, encoder: Any, timeout: float | None) -> None:
        self._given = encoder
        self._timeout = timeout
        self._cached: Any = None
        self._running = threading.Lock()
        self._late: threading.Event | None = None

    def encode(self, texts: list[str]) -> tuple[np.ndarray, EncoderUsage]:
        """Unit rows `[n, d]` and what they cost. Raises `EncoderError`, and nothing else."""
        if self._timeout is None:
            with self._running:
                return self._run(texts)
        deadline = time.monotonic() + self._timeout
        late = self._late is not None and not self._late.is_set()
        if late or not self._running.acquire(timeout=self._timeout):
            raise EncoderError("the encoder is still busy with an earlier request")
        done = threading.Event()
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append(self._run(texts))
            except BaseException as error:
                outcome.append(error)
            finally:
                self._running.release()
                done.set()

        threading.Thread(target=work, name="gemjax-encoder", daemon=True).start()
        if not done.wait(max(deadline - time.monotonic(), 0.0)):
            self._late = done
            raise EncoderError(
                f"the encoder took longer than {self._timeout:g} s; it works on in the background "
                "(set encoder_timeout to wait longer)"
            )
        result = outcome[0]
        if isinstance(result, BaseException):
            raise result
        return result  # type: ignore[no-any-return]

    def _run(self, texts: list[str]) -> tuple[np.ndarray, EncoderUsage]:
        try:
            if self._cached is None:
                from gemjax.encoders import CachedEncoder, as_encoder

                encoder = as_encoder(self._given)
                self._cached = encoder if isinstance(encoder, CachedEncoder) else CachedEncoder(encoder)
            before = self._cached.usage.snapshot()
            rows = self._cached.encode(texts)
            after = self._cached.usage.snapshot()
        except EncoderError:
            raise
        except Exception as error:
            raise EncoderError(f"the encoder failed: {type(error).__name__}: {error}") from error
        tokens = None if after.tokens is None else after.tokens - (before.tokens or 0)
        usage = EncoderUsage(
            after.texts - before.texts, tokens, after.hits - before.hits, after.seconds - before.seconds
        )
        return rows, usage


class BlockVectors:
    """The vectors of a session's blocks as one padded matrix that grows with the history."""

    def __init__(self) -> None:
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

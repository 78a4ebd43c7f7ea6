"""Losses of continuations under a language model, kept on disk: a run that was stopped goes on where it was."""

import hashlib
import os

import numpy as np

from gemjax.encoders.vector_file import KEY_BYTES, VectorFile
from gemjax.models.language import LanguageModel

_MOST_KEPT = 1_000_000


class Losses:
    """The loss of a continuation given a prompt, computed once.

    Args:
        model: the language model.
        disk: a folder where losses are kept for the next run; None: only for this one.

    Raises:
        ConfigError: the folder cannot be made.
    """

    def __init__(self, model: LanguageModel, disk: str | os.PathLike[str] | None = None) -> None:
        self.model = model
        self.computed = 0
        self._print = model.fingerprint()
        self._known: dict[bytes, float] = {}
        self._disk = None if disk is None else VectorFile(disk, f"loss:{model.name}:{self._print}", _MOST_KEPT)

    def known(self, prompt: np.ndarray, continuation: np.ndarray) -> bool:
        """Whether the loss is there without a pass through the model."""
        return self._find(self._key(prompt, continuation)) is not None

    def loss(self, prompt: np.ndarray, continuation: np.ndarray) -> float:
        """The sum of the surprisals of the continuation's tokens, nats.

        One pass at a time: prompts of some thousand tokens fill the processor by themselves, and each loss is on disk
        before the next begins.

        Args:
            prompt, continuation: int32 token ids.

        Raises:
            ConfigError: see `LanguageModel.continuation_surprisals`.
        """
        key = self._key(prompt, continuation)
        found = self._find(key)
        if found is None:
            (surprisals,) = self.model.continuation_surprisals([prompt], [continuation])
            # As the file keeps it, so that a run that goes on gives what one in a single piece gives.
            kept = np.array([surprisals.sum(dtype=np.float64)], np.float32)
            found = self._known[key] = float(kept[0])
            self.computed += 1
            if self._disk is not None:
                self._disk.put({key: kept})
        return found

    def _find(self, key: bytes) -> float | None:
        if key not in self._known and self._disk is not None and (found := self._disk.get([key])):
            self._known[key] = float(found[key][0])
        return self._known.get(key)

    def _key(self, prompt: np.ndarray, continuation: np.ndarray) -> bytes:
        digest = hashlib.blake2b(self._print.encode(), digest_size=KEY_BYTES)
        digest.update(len(prompt).to_bytes(8, "little"))
        for ids in (prompt, continuation):
            digest.update(np.ascontiguousarray(ids, "<i4").data)
        return digest.digest()

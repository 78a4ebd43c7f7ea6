"""Any sentence-transformers model as an encoder (torch; an extra)."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gemjax.encoders.protocol import checked_texts
from gemjax.encoders.vectors import mean_of_chunks, unit_vectors
from gemjax.errors import ConfigError, WeightsError
from gemjax.models.weights import PACKAGES, find_model

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_EXTRA = "sentence-transformers is not installed: pip install 'gemjax[sentence-transformers]'"


class SentenceTransformerEncoder:
    """A sentence-transformers model, for everything that `FlaxSentenceEncoder` does not implement.

    Texts longer than the model's window are cut between words into windows whose vectors are averaged by length; with
    `long_texts="truncate"` only the first window is seen, as in sentence-transformers itself.

    Args:
        model: a name, a folder, or a loaded `SentenceTransformer`.
        device: torch's name of a device; None: sentence-transformers chooses.
        batch_size: texts in a batch.
        long_texts: "pool" or "truncate".

    Raises:
        ConfigError: the extra is not installed, an argument is out of range, or the tokenizer cannot say where its
            tokens lie (use "truncate").
        WeightsError: the model cannot be loaded.
    """

    def __init__(
        self,
        model: "str | Path | SentenceTransformer",
        *,
        device: str | None = None,
        batch_size: int = 32,
        long_texts: Literal["pool", "truncate"] = "pool",
    ) -> None:
        if long_texts not in ("pool", "truncate"):
            raise ConfigError(f"long_texts = {long_texts!r}; expected 'pool' or 'truncate'")
        if batch_size < 1:
            raise ConfigError(f"batch_size = {batch_size}; expected a positive number")
        if isinstance(model, (str, os.PathLike)):
            name, loaded = str(model), _load(str(model), device)
        else:
            loaded = model
            name = str(getattr(model.model_card_data, "base_model", None) or type(model).__name__)
        self._model: Any = loaded
        self._batch_size = batch_size
        tokenizer: Any = getattr(loaded, "tokenizer", None)
        self._tokenizer = tokenizer
        window = loaded.max_seq_length
        self._room = None
        if long_texts == "pool" and window is not None:
            if not getattr(tokenizer, "is_fast", False):
                raise ConfigError(f"the tokenizer of {name} gives no offsets; use long_texts='truncate'")
            self._room = max(1, window - tokenizer.num_special_tokens_to_add())
        # Two sets of weights under one name must not share cached vectors; what they make of a text tells them apart.
        probe = self._raw(["gemjax"])
        mark = hashlib.blake2b(np.round(probe, 2).astype("<f4").tobytes(), digest_size=4).hexdigest()
        self.name = f"{name}:{window}:{long_texts}:sentence-transformers:{mark}"
        self.dim = int(probe.shape[1])

    def encode(self, texts: list[str]) -> np.ndarray:
        """Unit vectors of the texts, float32 `[len(texts), dim]`. Lone surrogates are read as U+FFFD.

        Raises:
            TypeError: `texts` is a string, or holds something that is none.
            EncoderError: the model returned something that is no finite vector a text.
        """
        from gemjax.models.tokenizer import readable

        texts = [readable(text) for text in checked_texts(texts)]
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        chunks = [(owner, *chunk) for owner, text in enumerate(texts) for chunk in self._chunks(text)]
        vectors = unit_vectors(self._raw([text for _, text, _ in chunks]), len(chunks), self.name, self.dim)
        owners, lengths = np.array([c[0] for c in chunks]), np.array([c[2] for c in chunks])
        return mean_of_chunks(vectors, lengths, owners, len(texts))

    def _raw(self, texts: list[str]) -> np.ndarray:
        out = self._model.encode(texts, batch_size=self._batch_size, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(out)

    def _chunks(self, text: str) -> list[tuple[str, int]]:
        """The text's windows, each with its number of tokens."""
        room = self._room
        # Every token covers at least one character.
        if room is None or len(text) <= room:
            return [(text, max(1, len(text)))]
        encoding = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets, words = encoding["offset_mapping"], encoding.word_ids(0)
        if len(offsets) <= room:
            return [(text, len(offsets))]
        chunks, start = [], 0
        while start < len(offsets):
            stop = min(start + room, len(offsets))
            # Inside a word the tokens would be others when it is read again; a huge word is cut all the same.
            while start + room // 2 < stop < len(offsets) and words[stop] == words[stop - 1]:
                stop -= 1
            chunks.append((text[offsets[start][0] : offsets[stop - 1][1]], stop - start))
            start = stop
        return chunks

    def __repr__(self) -> str:
        return f"SentenceTransformerEncoder({self.name!r}, dim={self.dim})"


def _load(name: str, device: str | None) -> "SentenceTransformer":
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(_EXTRA) from error
    full = name if "/" in name else f"sentence-transformers/{name}"
    where = str(find_model(name).folder) if full in PACKAGES and not Path(name).is_dir() else name
    try:
        return SentenceTransformer(where, device=device)
    except Exception as error:  # OSError, ValueError and the hub client's own
        raise WeightsError(f"sentence-transformers cannot load {name}: {error}") from error

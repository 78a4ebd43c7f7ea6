"""A decoder as an encoder: the hidden state of the last token, as Qwen3-Embedding wants it."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gemjax.encoders.protocol import checked_texts
from gemjax.encoders.vectors import mean_of_chunks, unit_vectors
from gemjax.errors import ConfigError

if TYPE_CHECKING:
    import jax


class LastTokenEncoder:
    """Sentence vectors from a Llama, Qwen2 or Qwen3 embedding model, without torch.

    The text's last token (the end-of-text token that the model's tokenizer appends) has seen all others; its hidden
    state is the vector. Models trained for it (Matryoshka) keep most of it in their first `dim` entries. A text longer
    than the window is cut into windows whose vectors are averaged by length. Safe to use from several threads.

    Args:
        model: a folder, a `.gguf` file, or a name (see `gemjax.models.weights.find_model`).
        dim: entries to keep; None: all.
        window: the most tokens read at once, special ones included; at most the model's positions.
        prompt: put in front of every text; Qwen3-Embedding wants "Instruct: ...\\nQuery:" in front of queries only.
        download: whether the Hugging Face hub may be asked; None: yes, unless `HF_HUB_OFFLINE` is set.
        device: a `jax.Device`; None: JAX's default device.
        cache_dir: the Hugging Face cache, when it is elsewhere than usual.

    Attributes:
        name: model, pooling, window, dimension and prompt.
        dim: length of a vector.

    Raises:
        WeightsError: no weights, damaged weights, or an architecture the decoder does not implement.
        ConfigError: an argument is out of range.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        dim: int | None = None,
        window: int = 1024,
        prompt: str = "",
        download: bool | None = None,
        device: "jax.Device | None" = None,
        cache_dir: str | Path | None = None,
    ) -> None:
        from gemjax.models.language import LanguageModel
        from gemjax.models.language_files import open_language_model

        opened = open_language_model(model, download=download, device=device, cache_dir=cache_dir, head=False)
        self._model = LanguageModel(opened.config, opened.params, opened.tokenizer, name=opened.name)
        size, positions = opened.config.hidden_size, opened.config.max_position_embeddings
        if dim is not None and not 1 <= dim <= size:
            raise ConfigError(f"dim = {dim}; the model's vectors have {size} entries")
        # What the tokenizer puts around a text.
        bare = opened.tokenizer.encode("a", add_special_tokens=False).ids
        full = opened.tokenizer.encode("a").ids
        starts = [i for i in range(len(full) - len(bare) + 1) if full[i : i + len(bare)] == bare]
        before = starts[0] if starts else 0
        self._prefix = np.asarray(full[:before], np.int32)
        self._suffix = np.asarray(full[before + len(bare) :], np.int32)
        around = len(self._prefix) + len(self._suffix)
        if not around < window <= positions:
            raise ConfigError(f"window = {window}; expected {around + 1} to {positions} tokens")
        self.window, self.source = window, opened.source
        self.dim = size if dim is None else dim
        self._prompt = prompt
        self._lock = threading.Lock()
        self.tokens = 0
        self.name = f"{opened.name.rsplit('/', 1)[-1]}:last:{window}:{self.dim}" + (f":{prompt!r}" if prompt else "")

    def encode(self, texts: list[str]) -> np.ndarray:
        """Unit vectors of the texts, float32 `[len(texts), dim]`; a text without any token gives a zero row.

        Raises:
            TypeError: `texts` is a string, or holds something that is none.
        """
        texts = checked_texts(texts)
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        room = self.window - len(self._prefix) - len(self._suffix)
        chunks, owners, lengths = [], [], []
        for owner, text in enumerate(texts):
            ids = self._model.tokenize(self._prompt + text).ids
            for start in range(0, max(len(ids), 1), room):
                part = ids[start : start + room]
                chunks.append(np.concatenate([self._prefix, part, self._suffix]))
                owners.append(owner)
                lengths.append(len(part))
        vectors = self._model.last_hidden(chunks)[:, : self.dim]
        vectors[[len(chunk) == 0 for chunk in chunks]] = 0
        vectors = unit_vectors(vectors, len(chunks), self.name, self.dim)
        with self._lock:
            self.tokens += sum(len(chunk) for chunk in chunks)
        return mean_of_chunks(vectors, np.array(lengths), np.array(owners), len(texts))

    def __repr__(self) -> str:
        return f"LastTokenEncoder({self.name!r}, dim={self.dim}, source={self.source!r})"

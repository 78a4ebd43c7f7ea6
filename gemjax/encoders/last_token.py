"""A decoder as an encoder: the hidden state of the last token, as Qwen3-Embedding and gte-Qwen2 want it."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gemjax.encoders.protocol import checked_texts
from gemjax.encoders.vectors import mean_of_chunks, unit_vectors
from gemjax.errors import ConfigError, WeightsError

if TYPE_CHECKING:
    import jax
    from tokenizers import Tokenizer

_WINDOW = 1024


class LastTokenEncoder:
    """Sentence vectors from a Llama, Qwen2 or Qwen3 embedding model, without torch.

    The text's last token (the end-of-text token that the model's tokenizer appends) has seen all others; its hidden
    state is the vector. Models trained for it (Matryoshka) keep most of it in their first `dim` entries. A text longer
    than the window is cut into windows whose vectors are averaged by length. Window, prompt and the kind of pooling are
    read from the model's folder when it is in sentence-transformers' layout. A lone surrogate is read as U+FFFD. Safe
    to use from several threads.

    Args:
        model: a folder, a `.gguf` file, or a name (see `gemjax.models.weights.find_model`).
        dim: entries to keep; None: all.
        window: the most tokens read at once, special ones included; None: 1,024, or less where the model says so.
        prompt: put in front of every text; Qwen3-Embedding wants "Instruct: ...\\nQuery:" in front of queries only.
            None: the model's default prompt.
        download: whether the Hugging Face hub may be asked; None: yes, unless `HF_HUB_OFFLINE` is set.
        device: a `jax.Device`; None: JAX's default device.
        cache_dir: the Hugging Face cache, when it is elsewhere than usual.

    Attributes:
        name: model, pooling, window, dimension, weights digest and prompt: two encoders of one name give the same
            vectors.
        dim: length of a vector.
        window: the most tokens read at once.
        source: where the weights were found.
        tokens: tokens read so far, special tokens included.

    Raises:
        WeightsError: no weights, damaged weights, another pooling, or an architecture the decoder does not implement.
        ConfigError: an argument is out of range.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        dim: int | None = None,
        window: int | None = None,
        prompt: str | None = None,
        download: bool | None = None,
        device: "jax.Device | None" = None,
        cache_dir: str | Path | None = None,
    ) -> None:
        from gemjax.models.language import LanguageModel
        from gemjax.models.language_files import find_language_model, load_model, weights_digest
        from gemjax.models.sentence import SentenceConfig, read_sentence_config
        from gemjax.models.tokenizer import SentenceTokenizer

        files, gguf = find_language_model(model, download=download, cache_dir=cache_dir)
        if gguf is None:
            sentence = read_sentence_config(files.folder, ("lasttoken",))
        else:
            sentence = SentenceConfig(gguf.parent, "lasttoken", None, False, "")
        opened = load_model(files, gguf, device=device, head=False)
        if opened.pooling not in ("none", "lasttoken"):
            raise WeightsError(f"{gguf}: pooling {opened.pooling!r} is not supported, only lasttoken")
        if gguf is None:
            _add_ends(opened.tokenizer, sentence.folder)
        self._tokenizer = SentenceTokenizer(
            opened.tokenizer, lowercase=sentence.lowercase, vocab_size=opened.config.vocab_size
        )
        self._model = LanguageModel(opened.config, opened.params, opened.tokenizer, name=opened.name)
        size, positions = opened.config.hidden_size, opened.config.max_position_embeddings
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= size):
            raise ConfigError(f"dim = {dim!r}; expected 1 to {size}, the length of the model's vectors")
        around = len(self._tokenizer.prefix) + len(self._tokenizer.suffix)
        if window is None:
            window = min(_WINDOW, positions, sentence.window or positions)
        if not around < window <= positions:
            raise ConfigError(f"window = {window}; expected {around + 1} to {positions} tokens")
        self.window, self.source = window, files.source
        self.dim = size if dim is None else dim
        self._prompt = sentence.prompt if prompt is None else prompt
        self._lock = threading.Lock()
        self.tokens = 0
        self.name = ":".join(
            [files.name.rsplit("/", 1)[-1], "last", str(window), str(self.dim), weights_digest(files, gguf)[:12]]
            + ([repr(self._prompt)] if self._prompt else [])
        )

    def encode(self, texts: list[str]) -> np.ndarray:
        """Unit vectors of the texts, float32 `[len(texts), dim]`; a text without any token gives a zero row.

        Raises:
            TypeError: `texts` is a string, or holds something that is none.
        """
        texts = checked_texts(texts)
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        prefix, suffix = self._tokenizer.prefix, self._tokenizer.suffix
        room = self.window - len(prefix) - len(suffix)
        chunks, owners, lengths = [], [], []
        for owner, ids in enumerate(self._tokenizer.ids([self._prompt + text for text in texts])):
            for start in range(0, max(len(ids), 1), room):
                part = ids[start : start + room]
                chunks.append(np.concatenate([prefix, part, suffix]))
                owners.append(owner)
                lengths.append(len(part))
        vectors = self._model.last_hidden(chunks)[:, : self.dim]
        vectors = unit_vectors(vectors, len(chunks), self.name, self.dim)
        with self._lock:
            self.tokens += sum(len(chunk) for chunk in chunks)
        return mean_of_chunks(vectors, np.array(lengths), np.array(owners), len(texts))

    def count_tokens(self, texts: list[str]) -> list[int]:
        """The number of tokens of each text, special tokens and prompt not counted. Texts of any length are allowed."""
        return self._tokenizer.count(checked_texts(texts))

    def __repr__(self) -> str:
        return f"LastTokenEncoder({self.name!r}, dim={self.dim}, source={self.source!r})"


def _add_ends(tokenizer: "Tokenizer", folder: Path) -> None:
    """The tokens that `tokenizer_config.json` wants around a text, where `tokenizer.json` itself leaves them out."""
    from gemjax.models.sentence import read_json
    from gemjax.models.tokenizer import add_ends

    path = folder / "tokenizer_config.json"
    config: dict[str, Any] = read_json(path) if path.is_file() else {}

    def token(end: str) -> str | None:
        # Only a flag that is set counts: many files say false beside a template that appends the token all the same.
        if config.get(f"add_{end}_token") is not True:
            return None
        given = config.get(f"{end}_token")
        text = given.get("content") if isinstance(given, dict) else given
        if not isinstance(text, str):
            raise WeightsError(f"{path}: add_{end}_token is true, and {end}_token is {given!r}")
        return text

    add_ends(tokenizer, token("bos"), token("eos"))

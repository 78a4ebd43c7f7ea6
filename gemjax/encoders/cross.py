"""CrossEncoder: how well each text answers a question, read together. Slower than vectors, better at the top."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from gemjax.errors import ConfigError
from gemjax.kernels.host import power_of_two
from gemjax.models.weights import find_model

if TYPE_CHECKING:
    import jax

# Tokens in a batch: on a CPU more only leaves the cache.
_BATCH_TOKENS = 4096
_SMALLEST = 32


@runtime_checkable
class Reranker(Protocol):
    """Anything that scores texts against a question; `MemoryBank.search(rerank=)` takes it."""

    @property
    def name(self) -> str:
        """Short name, for reports."""

    def scores(self, query: str, texts: Sequence[str]) -> Float[np.ndarray, "n"]:
        """A score a text, larger is better."""


class CrossEncoder:
    """A BERT cross-encoder in Flax, such as ms-marco-MiniLM-L-12-v2, from a folder in Hugging Face's layout.

    A question and a text are read as a pair; of one that is longer than the window the longer side is cut, token by
    token. Safe to use from several threads; few shapes are compiled (lengths and rows are powers of two).

    Args:
        model: a folder, or a name (see `gemjax.models.weights.find_model`).
        window: most tokens of a pair; None: the model's 512 or fewer positions.
        download: whether the Hugging Face hub may be asked; None: yes, unless `HF_HUB_OFFLINE` is set.
        device: a `jax.Device`; None: JAX's default device.

    Raises:
        WeightsError: no weights, damaged weights, or another architecture than BERT with one label.
        ConfigError: a window that is out of range.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        window: int | None = None,
        download: bool | None = None,
        device: "jax.Device | None" = None,
    ) -> None:
        from flax import nnx

        from gemjax.errors import WeightsError
        from gemjax.models.bert import BertConfig
        from gemjax.models.cross_encoder import load_pair_scorer
        from gemjax.models.opening import damage
        from gemjax.models.sentence import read_json
        from gemjax.models.tensorfile import open_tensors
        from gemjax.models.tokenizer import load_tokenizer

        files = find_model(model, download=download)
        with damage(files.folder / "config.json"):
            settings = read_json(files.folder / "config.json")
            if settings.get("model_type") != "bert":
                raise WeightsError(
                    f"{files.folder}: model_type {settings.get('model_type')!r}; only BERT cross-encoders are read"
                )
            config = BertConfig.from_json(settings)
        most = config.max_tokens
        if window is not None and (isinstance(window, bool) or not isinstance(window, int) or not 4 <= window <= most):
            raise ConfigError(f"window = {window!r}; expected an integer from 4 to the model's {most}")
        self.window = window or most
        self.name = files.name
        self._tokenizer = load_tokenizer(files.folder / "tokenizer.json")
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.window, strategy="longest_first")
        scorer = load_pair_scorer(config, open_tensors(files.folder), files.folder, device)
        self._graph, self._params = nnx.split(scorer)

    def scores(self, query: str, texts: Sequence[str]) -> Float[np.ndarray, "n"]:
        """How well each text answers: logits, larger is better, comparable for one query.

        Raises:
            TypeError: the query or a text is no string.
        """
        from gemjax.models.cross_encoder import score_rows
        from gemjax.models.opening import no_panic
        from gemjax.models.tokenizer import readable

        if isinstance(texts, str) or not all(isinstance(text, str) for text in (query, *texts)):
            raise TypeError("the query must be a string and texts a sequence of strings")
        if not texts:
            return np.zeros(0, np.float32)
        asked = readable(query)
        with no_panic("a pair of texts, with this tokenizer,"):
            pairs = self._tokenizer.encode_batch([(asked, readable(text)) for text in texts])
        out = np.zeros(len(pairs), np.float32)
        # Of one length together: padding is work for nothing.
        order = sorted(range(len(pairs)), key=lambda i: len(pairs[i].ids))
        while order:
            size = min(power_of_two(len(pairs[order[-1]].ids), _SMALLEST), power_of_two(self.window))
            rows = max(_BATCH_TOKENS // size, 1)
            chosen, order = order[-rows:], order[:-rows]
            height = min(power_of_two(len(chosen), 4), rows)
            ids, types = (np.zeros((height, size), np.int32) for _ in range(2))
            lengths = np.ones(height, np.int32)
            for row, i in enumerate(chosen):
                n = len(pairs[i].ids)
                ids[row, :n], types[row, :n], lengths[row] = pairs[i].ids, pairs[i].type_ids, n
            found = np.asarray(score_rows(self._params, ids, types, lengths, graph=self._graph))
            out[chosen] = found[: len(chosen)]
        return out

    def __repr__(self) -> str:
        return f"CrossEncoder({self.name!r}, window={self.window})"

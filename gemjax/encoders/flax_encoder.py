"""The default encoder: a BERT-family sentence encoder in Flax."""

import collections
import concurrent.futures
import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gemjax.encoders.packing import PackedRows, pack
from gemjax.encoders.protocol import checked_texts
from gemjax.encoders.vectors import mean_of_chunks
from gemjax.errors import ConfigError
from gemjax.models.weights import DEFAULT_ENCODER, find_model

if TYPE_CHECKING:
    import jax

LongTexts = Literal["pool", "truncate"]
# Tokens in a batch. On a CPU 4 rows of 256 already reach the speed of the matrix product; more only leaves the cache.
_CPU_TOKENS = 1024
_ACCELERATOR_TOKENS = 16384
# Batches computed ahead of the one being read: keeps the device busy and the results in memory few.
_AHEAD = 4


class FlaxSentenceEncoder:
    """Sentence vectors from a BERT, RoBERTa or XLM-RoBERTa checkpoint in sentence-transformers' layout, without torch.

    MiniLM, BGE and E5 models work. Pooling (mean or CLS), window and prompt are read from the model's folder. A text
    longer than the window is cut into windows of tokens whose vectors are averaged by length; an empty text is encoded
    as its special tokens alone, as sentence-transformers does. A lone surrogate is read as U+FFFD.

    The same list of texts always gives the same bits on one machine. A text's vector depends on the texts beside it
    only through float32 rounding: entries move by less than 1e-5.

    Safe to use from several threads. Compiles one program for each row shape it meets, at most 4 on a CPU for a window
    of 256 tokens.

    Args:
        model: a folder, or a name (see `gemjax.models.weights.find_model`).
        long_texts: "pool", or "truncate" to see only the first window, as sentence-transformers does.
        prompt: put in front of every text ("query: " for E5); None: the model's default prompt.
        download: whether the Hugging Face hub may be asked; None: yes, unless `HF_HUB_OFFLINE` is set.
        device: a `jax.Device`; None: JAX's default device.
        cache_dir: the Hugging Face cache, when it is elsewhere than usual.

    Attributes:
        name: model, pooling, window and weights digest: two encoders of one name give the same vectors.
        dim: length of a vector.
        window: the most tokens read at once, special tokens included.
        source: where the weights were found.
        tokens: tokens read so far, special tokens included.

    Raises:
        WeightsError: no weights, damaged weights, or an architecture this encoder does not implement.
        ConfigError: an argument is out of range.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_ENCODER,
        *,
        long_texts: LongTexts = "pool",
        prompt: str | None = None,
        download: bool | None = None,
        device: "jax.Device | None" = None,
        cache_dir: str | Path | None = None,
    ) -> None:
        if long_texts not in ("pool", "truncate"):
            raise ConfigError(f"long_texts = {long_texts!r}; expected 'pool' or 'truncate'")
        files = find_model(model, download=download, cache_dir=cache_dir)
        from gemjax.models.opening import damage
        from gemjax.models.sentence import read_json, read_sentence_config

        sentence = read_sentence_config(files.folder)
        # Hashing lets other threads run, so the imports and the loading below cost nothing more for it.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            digest = pool.submit(files.verify, sentence.folder)
            from flax import nnx

            from gemjax.models.bert import BertConfig, embed_rows, load_bert
            from gemjax.models.tensorfile import open_tensors
            from gemjax.models.tokenizer import SentenceTokenizer, load_tokenizer

            with damage(sentence.folder / "config.json"):
                config = BertConfig.from_json(read_json(sentence.folder / "config.json"))
            tokenizer = load_tokenizer(sentence.folder / "tokenizer.json")
            self._tokenizer = SentenceTokenizer(tokenizer, lowercase=sentence.lowercase, vocab_size=config.vocab_size)
            checked = digest.result()
            network = load_bert(config, open_tensors(sentence.folder), device)
        graph, self._params = nnx.split(network)
        self.window = min(sentence.window or config.max_tokens, config.max_tokens)
        self._specials = len(self._tokenizer.prefix) + len(self._tokenizer.suffix)
        if self.window <= self._specials:
            raise ConfigError(f"a window of {self.window} tokens leaves no room for text")
        self._prompt = sentence.prompt if prompt is None else prompt
        self._long_texts = long_texts
        self._budget = _CPU_TOKENS if self._platform() == "cpu" else _ACCELERATOR_TOKENS
        self._embed: Any = functools.partial(embed_rows, graph=graph, pooling=sentence.pooling)
        self._lock = threading.Lock()
        self.dim = config.hidden_size
        self.source = files.source
        self.tokens = 0
        self.name = ":".join(
            [files.name.rsplit("/", 1)[-1], sentence.pooling, str(self.window), long_texts, checked[:12]]
            + ([repr(self._prompt)] if self._prompt else [])
        )

    def encode(self, texts: list[str]) -> np.ndarray:
        """Unit vectors of the texts, float32 `[len(texts), dim]`.

        Raises:
            TypeError: `texts` is a string, or holds something that is none.
        """
        texts = checked_texts(texts)
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        prefix, suffix = self._tokenizer.prefix, self._tokenizer.suffix
        room = self.window - self._specials
        chunks: list[np.ndarray] = []
        owners: list[int] = []
        for owner, ids in enumerate(self._tokenizer.ids([self._prompt + text for text in texts])):
            stop = room if self._long_texts == "truncate" else max(len(ids), 1)
            for start in range(0, stop, room):
                chunks.append(np.concatenate([prefix, ids[start : start + room], suffix]))
                owners.append(owner)
        lengths = np.array([len(chunk) for chunk in chunks])
        vectors = np.zeros((len(chunks), self.dim), np.float32)
        pending: collections.deque[tuple[PackedRows, jax.Array]] = collections.deque()
        # A tokenizer without special tokens can leave a text with none at all: no direction.
        filled = np.flatnonzero(lengths)
        for rows in pack([chunks[i] for i in filled], window=self.window, token_budget=self._budget):
            slots = rows.ids.shape[1] // max(1, self._specials)
            pending.append((rows, self._embed(self._params, rows.ids, rows.positions, rows.segments, slots=slots)))
            if len(pending) > _AHEAD:
                _collect(vectors, filled, *pending.popleft())
        while pending:
            _collect(vectors, filled, *pending.popleft())
        with self._lock:
            self.tokens += int(lengths.sum())
        return mean_of_chunks(vectors, lengths - self._specials, np.array(owners), len(texts))

    def count_tokens(self, texts: list[str]) -> list[int]:
        """The number of tokens of each text, special tokens and prompt not counted. Texts of any length are allowed."""
        return self._tokenizer.count(checked_texts(texts))

    def unread(self, texts: list[str]) -> list[bool]:
        """Which texts hold nothing that the vocabulary knows (another script, emoji): all of them get one vector."""
        return self._tokenizer.unread(checked_texts(texts))

    def _platform(self) -> str:
        import jax

        leaf = jax.tree.leaves(self._params)[0]
        return str(next(iter(leaf.devices())).platform)

    def __repr__(self) -> str:
        return f"FlaxSentenceEncoder({self.name!r}, dim={self.dim}, source={self.source!r})"


def _collect(vectors: np.ndarray, filled: np.ndarray, rows: PackedRows, out: "jax.Array") -> None:
    vectors[filled[rows.members]] = np.asarray(out)[rows.places[:, 0], rows.places[:, 1]]

"""A language model ready for use: weights found by name, its tokenizer with character spans, batched passes."""

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int
from tokenizers import Tokenizer

from gemjax.errors import ConfigError, WeightsError
from gemjax.kernels.host import power_of_two
from gemjax.kernels.losses import cross_entropy
from gemjax.kernels.sensitivity import Sensitivity, token_sensitivity
from gemjax.models.checkpoint import merged
from gemjax.models.config import DecoderConfig
from gemjax.models.language_files import DEFAULT_LANGUAGE_MODEL, open_language_model
from gemjax.models.text_tokenizer import TextTokenizer, Tokens

# Tokens in a batch: enough for the matrix products to reach their speed, few enough to stay small in memory.
_BATCH_TOKENS = 1024
_SMALLEST = 32
_FINE = 256
_WINDOW = 1024


class TokenScores(NamedTuple):
    """What a pass says about each token of one text, float32 `[n]`.

    Attributes:
        sensitivity: $S_i$, raw: the first and the last one are artefacts (`kernels.sensitivity.impute_ends`).
        products: $\\langle g_i, h_i \\rangle$, the first-order change of the loss when the token is ablated.
        surprisal: $-\\log p(x_i \\mid x_{<i})$ in nats; 0 for the first token.
    """

    sensitivity: np.ndarray
    products: np.ndarray
    surprisal: np.ndarray


def token_loss(
    embeddings: Float[Array, "n d"],
    params: nnx.State,
    ids: Int[Array, "n"],
    weights: Float[Array, "n"],
    valid: Bool[Array, "n"],
    config: DecoderConfig,
) -> tuple[Float[Array, ""], Float[Array, "n"]]:
    """Weighted sum of the tokens' surprisals, in nats, and the surprisals.

    Args:
        embeddings: input embeddings of `ids`.
        params: the decoder's parameters.
        ids: the tokens that are predicted.
        weights: of each token's surprisal; that of a token without a valid token before it counts as 0.
        valid: False for padding.
        config: static.
    """
    decoder = merged(config, params)
    hidden = decoder(embeddings, valid)
    predicted = valid[1:] & valid[:-1]
    weight = jnp.where(predicted, weights[1:], 0.0)
    # The last position predicts nothing; its row keeps the shape a multiple of the block size.
    pad = functools.partial(jnp.pad, pad_width=(0, 1))
    total, losses = cross_entropy(hidden, decoder.head, pad(ids[1:]), pad(weight))
    return total, jnp.pad(jnp.where(predicted, losses[:-1], 0.0), (1, 0))


@functools.partial(jax.jit, static_argnames="config")
def _sensitivities(
    params: nnx.State, ids: Array, weights: Array, valid: Array, *, config: DecoderConfig
) -> Sensitivity:
    def one(ids: Array, weights: Array, valid: Array) -> Sensitivity:
        embeddings = merged(config, params).embed(ids)
        return token_sensitivity(functools.partial(token_loss, config=config), embeddings, params, ids, weights, valid)

    return jax.vmap(one)(ids, weights, valid)


@functools.partial(jax.jit, static_argnames="config")
def _surprisals(params: nnx.State, ids: Array, valid: Array, *, config: DecoderConfig) -> Array:
    def one(ids: Array, valid: Array) -> Array:
        embeddings = merged(config, params).embed(ids)
        weights = jnp.ones(ids.shape, embeddings.dtype)
        return token_loss(embeddings, params, ids, weights, valid, config)[1]

    return jax.vmap(one)(ids, valid)


@functools.partial(jax.jit, static_argnames=("config", "tail"))
def _tail_surprisals(
    params: nnx.State, ids: Array, valid: Array, first: Array, *, config: DecoderConfig, tail: int
) -> Array:
    """Surprisals of the `tail` tokens from `first` (at least 1) on; the head is computed for these only."""

    def one(ids: Array, valid: Array, first: Array) -> Array:
        decoder = merged(config, params)
        hidden = decoder(decoder.embed(ids), valid)
        before = jax.lax.dynamic_slice_in_dim(hidden, first - 1, tail)
        targets = jax.lax.dynamic_slice_in_dim(jnp.pad(ids, (0, 1)), first, tail)
        return cross_entropy(before, decoder.head, targets, jnp.ones(tail, hidden.dtype))[1]

    return jax.vmap(one)(ids, valid, first)


@functools.partial(jax.jit, static_argnames="config")
def _last_hidden(params: nnx.State, ids: Array, valid: Array, *, config: DecoderConfig) -> Array:
    def one(ids: Array, valid: Array) -> Array:
        decoder = merged(config, params)
        hidden = decoder(decoder.embed(ids), valid)
        return hidden[jnp.max(jnp.where(valid, jnp.arange(valid.shape[0]), 0))]

    return jax.vmap(one)(ids, valid)


@functools.partial(jax.jit, static_argnames="config")
def _ablated(params: nnx.State, ids: Array, scale: Array, valid: Array, *, config: DecoderConfig) -> Array:
    embeddings = merged(config, params).embed(ids) * scale[:, None]
    return token_loss(embeddings, params, ids, jnp.ones(ids.shape, embeddings.dtype), valid, config)[0]


@dataclasses.dataclass(frozen=True, slots=True)
class _Batch:
    members: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    valid: np.ndarray


class LanguageModel:
    """A Llama, Qwen2 or Qwen3 decoder with its tokenizer. Holds no state of a call; safe to use from several threads.

    Args:
        config, params, tokenizer: as `open_language_model` gives them.
        name: how to name the model in reports.
        source: where its weights were found.

    Raises:
        WeightsError: the tokenizer can give ids that the embedding table does not have.
    """

    def __init__(
        self, config: DecoderConfig, params: nnx.State, tokenizer: Tokenizer, *, name: str = "", source: str = ""
    ) -> None:
        self.text = TextTokenizer(tokenizer, name)
        top = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        if top >= config.vocab_size:
            raise WeightsError(f"the tokenizer knows ids up to {top}, the embedding table has {config.vocab_size} rows")
        self.config, self.params, self.tokenizer = config, params, tokenizer
        self.name, self.source = name, source
        self.tokens_read = 0
        self._lock = threading.Lock()

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path = DEFAULT_LANGUAGE_MODEL,
        *,
        download: bool | None = None,
        device: jax.Device | None = None,
        cache_dir: str | Path | None = None,
    ) -> "LanguageModel":
        """Load by a `.gguf` file, a folder, or a name: installed weights packages, Hugging Face cache, then the hub.

        Raises:
            WeightsError: no weights, damaged weights, or a model this decoder does not implement.
        """
        opened = open_language_model(model, download=download, device=device, cache_dir=cache_dir)
        return cls(opened.config, opened.params, opened.tokenizer, name=opened.name, source=opened.source)

    def fingerprint(self) -> str:
        """A digest of the sizes and all weights, 32 letters: a name may stand for other weights tomorrow."""
        digest = hashlib.blake2b(repr(self.config).encode(), digest_size=16)
        for leaf in jax.tree.leaves(self.params):
            digest.update(np.ascontiguousarray(leaf).data)
        return digest.hexdigest()

    def tokenize(self, text: str) -> Tokens:
        """See `TextTokenizer.tokenize`."""
        return self.text.tokenize(text)

    def count(self, text: str) -> int:
        """How many tokens the text has, special ones not counted."""
        return self.text.count(text)

    def padded(self, n: int) -> int:
        """The length at which `n` tokens are read: the next power of two, each of which is compiled once."""
        return power_of_two(n, _SMALLEST)

    @property
    def window(self) -> int:
        """Tokens that `scores` reads at once: 1,024, or the model's positions if they are fewer."""
        return min(_WINDOW, self.config.max_position_embeddings)

    def scores(
        self,
        sequences: Sequence[np.ndarray],
        weights: Sequence[np.ndarray] | None = None,
        *,
        window: int | None = None,
        overlap: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[TokenScores]:
        r"""Sensitivity, first-order products and surprisal of every token of every sequence.

        The loss is the sum (not the mean: that would shrink the scores of long texts) of the tokens' surprisals. A
        sequence longer than `window` is read in overlapping windows; a token's values come from the window whose edge
        is farther away from it, so the artefacts of a window's first and last token show only at the text's own ends.

        Args:
            sequences: int32 token ids, each `[n]`; empty ones give empty scores.
            weights: of each token's surprisal in the loss; 1 everywhere by default. A question's loss given a context
                is weight 1 on the question's tokens, 0 on the context's.
            window: the most tokens read at once; at most the model's positions. None: 1,024, or the positions if they
                are fewer.
            overlap: tokens that neighbouring windows share; even; a fourth of the window by default.
            progress: called with the number of tokens done since the last call.

        Raises:
            ConfigError: `window` or `overlap` is out of range, or weights are given for a sequence beyond the window
                (a loss on a part of a text is only meaningful when that part is seen together with the rest).
        """
        window = self.window if window is None else window
        overlap = window // 8 * 2 if overlap is None else overlap
        self._check_window(window, overlap)
        out = [TokenScores(*(np.zeros(len(ids), np.float32) for _ in range(3))) for ids in sequences]
        pieces = [(i, piece) for i, ids in enumerate(sequences) for piece in _windows(len(ids), window, overlap)]
        if weights is not None:
            longest = max((len(ids) for ids in sequences), default=0)
            if longest > window:
                raise ConfigError(f"weights need the whole sequence in one window of {window}, got {longest} tokens")
        rows = [sequences[i][p.start : p.stop] for i, p in pieces]
        parts = None if weights is None else [weights[i][p.start : p.stop] for i, p in pieces]
        for batch in _batches(rows, parts, self.padded):
            result = _sensitivities(self.params, batch.ids, batch.weights, batch.valid, config=self.config)
            values = [np.asarray(x) for x in (result.scores, result.products, result.detail)]
            for row, member in enumerate(batch.members):
                i, piece = pieces[member]
                for target, value in zip(out[i], values, strict=True):
                    target[piece.first : piece.last] = value[row, piece.first - piece.start : piece.last - piece.start]
            self._count(batch, progress)
        return out

    def surprisals(
        self, sequences: Sequence[np.ndarray], *, progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """Each token's surprisal given all before it, nats, without a backward pass; 0 for the first token.

        Raises:
            ConfigError: a sequence is longer than the model's positions.
        """
        if (longest := max((len(ids) for ids in sequences), default=0)) > self.config.max_position_embeddings:
            raise ConfigError(f"{longest} tokens; {self.name} has {self.config.max_position_embeddings} positions")
        out = [np.zeros(len(ids), np.float32) for ids in sequences]
        for batch in _batches(list(sequences), None, self.padded):
            values = np.asarray(_surprisals(self.params, batch.ids, batch.valid, config=self.config))
            for row, member in enumerate(batch.members):
                out[member][:] = values[row, : len(out[member])]
            self._count(batch, progress)
        return out

    def continuation_surprisals(
        self,
        prompts: Sequence[np.ndarray],
        continuations: Sequence[np.ndarray],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[np.ndarray]:
        """The surprisal of each continuation's tokens given its prompt and what came of it before, nats.

        What `surprisals` gives for the end of prompt and continuation together, without the vocabulary-wide head over
        the prompt: a small model spends a good part of its work there.

        Args:
            prompts: int32 token ids, each `[n]`, at least one token.
            continuations: one a prompt, `[m]`; an empty one gives an empty result.
            progress: called with the number of tokens done since the last call.

        Raises:
            ConfigError: a prompt is empty, or prompt and continuation are longer than the model's positions.
        """
        rows = [np.concatenate(pair) for pair in zip(prompts, continuations, strict=True)]
        if any(not len(prompt) for prompt in prompts):
            raise ConfigError("a prompt is empty; the first token has nothing to be predicted from")
        if (longest := max(map(len, rows), default=0)) > self.config.max_position_embeddings:
            raise ConfigError(f"{longest} tokens; {self.name} has {self.config.max_position_embeddings} positions")
        out = [np.zeros(len(ids), np.float32) for ids in continuations]
        wanted = [ids if len(out[i]) else ids[:0] for i, ids in enumerate(rows)]
        for batch in _batches(wanted, None, _fine_width):
            most = max(len(out[i]) for i in batch.members)
            tail = min(power_of_two(most, _SMALLEST), batch.ids.shape[1])
            first = np.ones(len(batch.ids), np.int32)
            first[: len(batch.members)] = [max(len(rows[i]) - tail, 1) for i in batch.members]
            values = np.asarray(
                _tail_surprisals(self.params, batch.ids, batch.valid, first, config=self.config, tail=tail)
            )
            for row, member in enumerate(batch.members):
                stop = len(rows[member]) - first[row]
                out[member][:] = values[row, stop - len(out[member]) : stop]
            self._count(batch, progress)
        return out

    def last_hidden(self, sequences: Sequence[np.ndarray]) -> np.ndarray:
        """The normalised hidden state of each sequence's last token, float32 `[sequences, hidden_size]`."""
        out = np.zeros((len(sequences), self.config.hidden_size), np.float32)
        for batch in _batches(list(sequences), None, self.padded):
            values = np.asarray(_last_hidden(self.params, batch.ids, batch.valid, config=self.config))
            out[batch.members] = values[: len(batch.members)]
            self._count(batch, None)
        return out

    def ablated_loss(self, ids: np.ndarray, dropped: np.ndarray, share: float) -> float:
        """The text's loss, nats, when the dropped tokens' embeddings are shrunk by `share` (1: to zero).

        Args:
            ids: int32 `[n]`, at most the model's positions.
            dropped: bool `[n]`.
            share: 0 to 1.

        Raises:
            ConfigError: the text is longer than the model's positions.
        """
        if len(ids) > self.config.max_position_embeddings:
            raise ConfigError(f"{len(ids)} tokens; {self.name} has {self.config.max_position_embeddings} positions")
        (batch,) = _batches([ids], None, self.padded)
        scale = np.ones(batch.ids.shape[1], np.float32)
        scale[: len(ids)][dropped] -= share
        return float(_ablated(self.params, batch.ids[0], scale, batch.valid[0], config=self.config))

    def _check_window(self, window: int, overlap: int) -> None:
        limit = self.config.max_position_embeddings
        if not 2 <= window <= limit:
            raise ConfigError(f"window = {window}; {self.name or 'this model'} reads 2 to {limit} tokens at once")
        if overlap % 2 or not 0 <= overlap <= window // 2:
            raise ConfigError(f"overlap = {overlap}; expected an even number up to half the window, {window // 2}")

    def _count(self, batch: _Batch, progress: Callable[[int], None] | None) -> None:
        done = int(batch.valid.sum())
        with self._lock:
            self.tokens_read += done
        if progress is not None:
            progress(done)

    def __repr__(self) -> str:
        c = self.config
        return f"LanguageModel({self.name!r}, layers={c.num_hidden_layers}, hidden={c.hidden_size}, {self.source!r})"


class _Window(NamedTuple):
    start: int
    stop: int
    first: int
    last: int


def _windows(n: int, window: int, overlap: int) -> Iterator[_Window]:
    """Windows over `n` tokens; the last one is moved back to be full. Token `first:last` take their values from it."""
    if n == 0:
        return
    starts = list(range(0, max(n - window, 0), window - overlap))
    if n > window:
        starts.append(n - window)
    else:
        starts = [0]
    for i, start in enumerate(starts):
        first = 0 if i == 0 else (starts[i - 1] + window + start) // 2
        last = n if i + 1 == len(starts) else (start + window + starts[i + 1]) // 2
        yield _Window(start, min(start + window, n), first, last)


def _fine_width(n: int) -> int:
    """Where rows of several thousand tokens go one by one, padding them to a power of two costs more than it saves."""
    return power_of_two(n, _SMALLEST) if n <= _BATCH_TOKENS else -(-n // _FINE) * _FINE


def _batches(
    rows: Sequence[np.ndarray], weights: Sequence[np.ndarray] | None, padded: Callable[[int], int]
) -> Iterator[_Batch]:
    """Rows of similar length together, padded alike; few shapes, so that few programs are compiled."""
    widths: dict[int, list[int]] = {}
    for i, ids in enumerate(rows):
        if len(ids):
            widths.setdefault(padded(len(ids)), []).append(i)
    for width, members in sorted(widths.items()):
        size = max(1, _BATCH_TOKENS // width)
        for start in range(0, len(members), size):
            chosen = members[start : start + size]
            height = 1 if len(chosen) == 1 else size
            ids = np.zeros((height, width), np.int32)
            weight = np.zeros((height, width), np.float32)
            valid = np.zeros((height, width), bool)
            for row, i in enumerate(chosen):
                n = len(rows[i])
                ids[row, :n], valid[row, :n] = rows[i], True
                weight[row, :n] = 1.0 if weights is None else weights[i]
            yield _Batch(np.asarray(chosen), ids, weight, valid)


def default_language_model() -> LanguageModel:
    """SmolLM2-135M-Instruct, loaded once a process and shared: 540 MB of weights.

    Raises:
        WeightsError: its weights are nowhere; the message says the ways to get them. The next call looks again.
    """
    return _shared(DEFAULT_LANGUAGE_MODEL)


_loading = threading.Lock()
_loaded: dict[str, Any] = {}


def _shared(name: str) -> LanguageModel:
    with _loading:
        if name not in _loaded:
            _loaded[name] = LanguageModel.from_pretrained(name)
        model: LanguageModel = _loaded[name]
        return model

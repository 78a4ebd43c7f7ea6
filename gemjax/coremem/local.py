"""Answers from a small language model on this machine: our decoder with kept keys and values."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gemjax.coremem.generation import GREEDY, ChatMessage, FinishReason, Generation, Sampling
from gemjax.coremem.pieces import TextPieces
from gemjax.errors import ConfigError, GenerationError
from gemjax.models.cached_decoder import Cache, CachedDecoder, Draw, Step
from gemjax.models.chat_template import PromptFormat
from gemjax.models.language_files import DEFAULT_LANGUAGE_MODEL, find_language_model, load_model
from gemjax.models.text_tokenizer import TextTokenizer

# New tokens a call of the compiled program: what lies between two calls costs about a tenth of a token.
_STEPS = 8
_MOST_ENDS = 8
_NO_TOKEN = -1


class LocalGenerator:
    """A Llama, Qwen2 or Qwen3 model that answers, greedily or by sampling; safe to use from several threads.

    The prompt is written by the model's own chat template, in a sandbox; a template's mark in a message is text there.
    The same prompt, sampling and seed give the same answer on one machine.

    Args:
        model: a `.gguf` file, a folder in Hugging Face's layout, or a name: installed weights packages, the Hugging
            Face cache, then the hub. Default SmolLM2-135M-Instruct, 540 MB in memory.
        context: most tokens of prompt and answer together; None: what the model was trained for.
        download: whether the hub may be asked. None: yes, unless `HF_HUB_OFFLINE` is set.
        device: where the weights go; JAX's default device otherwise.

    Raises:
        ConfigError: `context` is no positive integer, or more than the model knows.
        WeightsError: no weights, damaged weights, or a model that the decoder does not implement.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_LANGUAGE_MODEL,
        *,
        context: int | None = None,
        download: bool | None = None,
        device: jax.Device | None = None,
    ) -> None:
        files, gguf = find_language_model(model, download=download)
        opened = load_model(files, gguf, device=device)
        self._format = PromptFormat.of(files, gguf, opened.tokenizer, opened.gguf)
        self.tokenizer = TextTokenizer(opened.tokenizer, opened.name)
        """Counts a text as the model reads it."""
        self._tokenizer = opened.tokenizer
        self._name, config, params = opened.name, opened.config, opened.params
        # The stacked weights are taken apart: nobody else may hold them meanwhile.
        del opened
        self._decoder = CachedDecoder(config, params)
        most = config.max_position_embeddings
        whole = isinstance(context, int) and not isinstance(context, bool)
        if context is not None and not (whole and 0 < context <= most):
            raise ConfigError(f"context = {context!r}; expected an integer from 1 to the model's {most}")
        self._context = most if context is None else context
        ends = self._format.ends[:_MOST_ENDS]
        self._ends = jnp.asarray([*ends, *[-2] * (_MOST_ENDS - len(ends))], jnp.int32)

    @classmethod
    def from_pretrained(cls, model: str | Path = DEFAULT_LANGUAGE_MODEL, **settings: Any) -> "LocalGenerator":
        """`LocalGenerator(model, ...)`, by the name that loaders have here."""
        return cls(model, **settings)

    @property
    def model(self) -> str:
        return self._name

    @property
    def context_window(self) -> int:
        return self._context

    def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of the prompt as the chat template writes it.

        Raises:
            GenerationError: the template refuses the conversation.
        """
        return len(self._format.tokens(messages))

    def generate(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Generation:
        """The whole answer.

        Raises:
            GenerationError: the prompt is beyond the context, or the template refuses the conversation.
        """
        return self.generate_batch([messages], sampling)[0]

    def generate_batch(self, prompts: Sequence[Sequence[ChatMessage]], sampling: Sampling = GREEDY) -> list[Generation]:
        """Answers to several prompts at once: each new token of all of them costs about one pass over the weights.

        Greedy answers are those of `generate`, up to the rounding of other products. Sampled ones have random numbers
        of their own.

        Raises:
            GenerationError: a prompt is beyond the context, or the template refuses a conversation.
        """
        start = time.perf_counter()
        if not prompts:
            return []
        ids = [self._prompt(messages) for messages in prompts]
        answers = [_Answer(TextPieces(self._tokenizer, sampling.stop)) for _ in ids]
        for tokens in self._tokens(ids, sampling):
            for answer, own in zip(answers, tokens, strict=True):
                answer.take(own, self._format.ends)
            if all(answer.finish is not None for answer in answers):
                break
        seconds = time.perf_counter() - start
        return [answer.generation(len(own), seconds, self._name) for answer, own in zip(answers, ids, strict=True)]

    def stream(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Iterator[str]:
        """The answer piece by piece, whole characters only; the pieces joined are `generate(...).text`.

        Raises:
            GenerationError: before the first piece, as `generate`.
        """
        ids = self._prompt(messages)
        answer = _Answer(TextPieces(self._tokenizer, sampling.stop))
        return self._pieces(ids, sampling, answer)

    def _pieces(self, ids: np.ndarray, sampling: Sampling, answer: "_Answer") -> Iterator[str]:
        for (tokens,) in self._tokens([ids], sampling):
            if piece := answer.take(tokens, self._format.ends):
                yield piece
            if answer.finish is not None:
                return
        if piece := answer.pieces.finish():
            yield piece

    def _prompt(self, messages: Sequence[ChatMessage]) -> np.ndarray:
        ids = self._format.tokens(messages)
        if not len(ids):
            raise GenerationError("the prompt is empty: there is nothing to answer")
        if len(ids) >= self._context:
            raise GenerationError(
                f"the prompt has {len(ids)} tokens, the context of {self._name} {self._context}: "
                "recall less, or take a model with a longer context"
            )
        return ids

    def _tokens(self, ids: list[np.ndarray], sampling: Sampling) -> Iterator[list[list[int]]]:
        """New tokens of each row, some at a time, until all have ended or may not go on."""
        greedy = sampling.temperature == 0
        room = [min(sampling.max_tokens, self._context - len(own)) for own in ids]
        need = max(len(own) + most for own, most in zip(ids, room, strict=True)) + _STEPS
        rows = [self._decoder.prefill(own, self._decoder.empty(need)) for own in ids]
        seed = int.from_bytes(os.urandom(4), "big") if sampling.seed is None else sampling.seed
        choice = Draw(
            jnp.float32(sampling.temperature or 1.0),
            jnp.float32(sampling.top_p),
            jax.random.split(jax.random.key(seed), len(ids)),
        )
        token = self._decoder.first([hidden for hidden, _ in rows], choice, greedy=greedy)
        cache = _joined([own for _, own in rows])
        del rows
        first = np.asarray(token)
        given = np.ones(len(ids), int)
        limits = np.array(room)
        yield [[int(one)] for one in first]
        done = np.isin(first, self._format.ends) | (given >= limits)
        lengths = jnp.asarray([len(own) for own in ids], jnp.int32)
        step = Step(token, lengths, jnp.asarray(done), jnp.ones((), jnp.int32))
        while not done.all():
            out, cache, step = self._decoder.decode(cache, step, self._ends, choice, steps=_STEPS, greedy=greedy)
            fresh = []
            for row in range(len(ids)):
                own = [int(one) for one in out[:, row] if one != _NO_TOKEN][: limits[row] - given[row]]
                given[row] += len(own)
                fresh.append(own)
            yield fresh
            done = np.asarray(step.done) | (given >= limits)
            step = step._replace(done=jnp.asarray(done))

    def __repr__(self) -> str:
        return f"LocalGenerator({self._name!r}, context={self._context})"


class _Answer:
    """One row's answer while it grows."""

    def __init__(self, pieces: TextPieces) -> None:
        self.pieces = pieces
        self.count = 0
        self.finish: FinishReason | None = None

    def take(self, tokens: Sequence[int], ends: Sequence[int]) -> str:
        """Further tokens. Returns the text that is settled now."""
        if self.finish is not None:
            return ""
        said = list(tokens)
        for place, token in enumerate(said):
            if token in ends:
                said, self.finish = said[:place], "stop"
                self.count += 1
                break
        self.count += len(said)
        piece = self.pieces.add(said)
        if self.pieces.stopped:
            self.finish = "stop"
            return piece
        return piece + self.pieces.finish() if self.finish is not None else piece

    def generation(self, prompt_tokens: int, seconds: float, model: str) -> Generation:
        self.pieces.finish()
        return Generation(self.pieces.text, self.finish or "length", prompt_tokens, self.count, seconds, model)


def _joined(caches: Sequence[Cache]) -> Cache:
    if len(caches) == 1:
        return caches[0]
    layers = [zip(*part, strict=True) for part in zip(*caches, strict=True)]
    keys, values = (tuple(map(jnp.concatenate, part)) for part in layers)
    return Cache(keys, values)

"""A language model's tokenizer by itself: tokens with the characters they cover, without the weights."""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from gemjax.errors import WeightsError
from gemjax.models.language_files import DEFAULT_LANGUAGE_MODEL, find_language_model, open_tokenizer
from gemjax.models.opening import no_panic
from gemjax.models.tokenizer import load_tokenizer, readable
from gemjax.models.weights import DEFAULT_ENCODER, find_model


class Tokens(NamedTuple):
    """A text's tokens and the characters of the original text that each covers.

    Attributes:
        ids: int32 `[n]`.
        starts, stops: int64 `[n]`; the spans follow each other without gap from 0 to the text's length. A token that
            holds only a part of a character's bytes may have an empty span: its character belongs to a neighbour.
    """

    ids: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class TextTokenizer:
    """Cuts a text into a model's tokens and counts them. Safe to use from several threads.

    Args:
        tokenizer: its truncation and padding are switched off.
        name: how to name it in reports.
    """

    def __init__(self, tokenizer: Tokenizer, name: str = "") -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer, self.name = tokenizer, name

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path = DEFAULT_LANGUAGE_MODEL,
        *,
        download: bool | None = None,
        cache_dir: str | Path | None = None,
    ) -> "TextTokenizer":
        """The tokenizer of a language model by `.gguf` file, folder or name; its weights are not read.

        Raises:
            WeightsError: the model is nowhere, or its tokenizer is damaged.
        """
        files, gguf = find_language_model(model, download=download, cache_dir=cache_dir)
        return cls(open_tokenizer(files, gguf), files.name)

    def tokenize(self, text: str) -> Tokens:
        """The text's tokens, no special ones added, with character spans. Lone surrogates are read as U+FFFD."""
        with no_panic("a text, with this tokenizer,"):
            encoding = self.tokenizer.encode(readable(text), add_special_tokens=False)
        ids = np.asarray(encoding.ids, np.int32)
        if not len(ids):
            return Tokens(ids, np.zeros(0, np.int64), np.zeros(0, np.int64))
        # A token's characters end where the next one's begin: some tokenizers leave the space before a word out of all
        # spans, and several tokens may share one character.
        stops = np.maximum.accumulate(np.asarray(encoding.offsets, np.int64).reshape(-1, 2)[:, 1])
        stops[-1] = len(text)
        return Tokens(ids, np.concatenate([[0], stops[:-1]]), stops)

    def count(self, text: str) -> int:
        """How many tokens the text has, special ones not counted."""
        with no_panic("a text, with this tokenizer,"):
            return len(self.tokenizer.encode(readable(text), add_special_tokens=False).ids)

    def __repr__(self) -> str:
        return f"TextTokenizer({self.name!r})"


@functools.cache
def default_tokenizer() -> TextTokenizer:
    """SmolLM2's tokenizer; where that model is not installed, the default encoder's, which always is."""
    try:
        return TextTokenizer.from_pretrained(DEFAULT_LANGUAGE_MODEL, download=False)
    except WeightsError:
        files = find_model(DEFAULT_ENCODER)
        return TextTokenizer(load_tokenizer(files.folder / "tokenizer.json"), files.name)

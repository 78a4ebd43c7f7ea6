"""Selecting what answers a question, without a language model."""

from typing import Any

from gemjax.distill.config import SelectorConfig
from gemjax.distill.result import Distillation
from gemjax.distill.shortener import TextShortener
from gemjax.distill.turns import TokenReader, Turns
from gemjax.errors import ConfigError
from gemjax.models.text_tokenizer import default_tokenizer


class EvidenceSelector:
    """Fills a token budget with the sentences that answer a query; no language model is read.

    A turn is worth its retrieval score, the query's words in it (BM25) and a share of its neighbours' worth; small talk
    goes last. Without query and scores the sentences come first that say most that is not said yet. Sentences go in
    whole, the last one trimmed to whole words where nothing in it can turn round. What comes out are original
    characters in their original order. Takes milliseconds; safe to use from several threads.

    This is the choice for retrieved memories: on LoCoMo it keeps as much of the answers as `Distiller`, which reads
    every turn with a language model (docs/compression.md).

    Args:
        config: weights and what is set aside.
        tokenizer: counts the budget: a `TextTokenizer`, a `LanguageModel`, or an object with `name`, `tokenize` and
            `count`. None: SmolLM2's, or where that is not installed the default encoder's.
        encoder: scores turns against the query when they carry no scores of their own (`gemjax.as_encoder` takes what
            it may be); None: the default encoder, loaded when it is first needed.
        name: how reports call it.

    Raises:
        ConfigError: `config` is no `SelectorConfig`.
        WeightsError: no tokenizer can be had.
    """

    def __init__(
        self,
        config: SelectorConfig | None = None,
        *,
        tokenizer: TokenReader | None = None,
        encoder: Any = None,
        name: str = "selection",
    ) -> None:
        self.config = SelectorConfig() if config is None else config
        if not isinstance(self.config, SelectorConfig):
            raise ConfigError(f"config must be a SelectorConfig or None, got {type(config).__name__}")
        self.tokenizer = default_tokenizer() if tokenizer is None else tokenizer
        self.name = name
        self._shortener = TextShortener(self.config.recipe(), self.tokenizer, encoder=encoder, name=name)

    def distill(self, turns: Turns, budget: int, query: str | None = None) -> Distillation:
        """The part of the turns that says most within a budget.

        A text within the budget comes back as it is. The result never has more than `budget` tokens, counted by
        tokenising it; it is empty when not even the smallest unit fits. Its sensitivities and bound are 0: no model
        has read it.

        Args:
            turns: a text, texts or `Turn`s, oldest first.
            budget: the most tokens of the tokenizer, at least 1.
            query: what the text will be asked. Turns without scores are scored by their similarity to it.

        Raises:
            ConfigError: the budget is below 1 or no integer.
            TypeError: the turns are neither strings nor `Turn`s, or the query is no string.
        """
        return self._shortener.distill(turns, budget, query)

    def __repr__(self) -> str:
        return f"EvidenceSelector({self.tokenizer.name!r}, {self.config})"

"""FDTD: the paper's distillation by the sensitivity of a small language model."""

from pathlib import Path
from typing import Any

from gemjax.distill.config import DistillConfig
from gemjax.distill.result import Distillation
from gemjax.distill.shortener import Progress, TextShortener
from gemjax.distill.turns import Turns
from gemjax.errors import ConfigError
from gemjax.models.language import LanguageModel, default_language_model


class Distiller:
    """Shortens text to a token budget by the sensitivity of a small language model (CoreMem, section 3.3).

    The text is cut into sentences, the least sensitive units in them are dropped, and sentences enter by their worth,
    mean sensitivity times retrieval score, until the budget is full. What comes out are original characters in their
    original order, with a bound on the first-order change of the loss. Every turn that is not remembered costs a
    forward and a backward pass: `EvidenceSelector` keeps as much of the answers on LoCoMo without one. Safe to use
    from several threads.

    Args:
        model: the language model; None: SmolLM2-135M-Instruct, shared by the process.
        config: the parameters; `DistillConfig.paper()` is the printed method.
        encoder: scores turns against the query when they carry no scores of their own (`gemjax.as_encoder` takes what
            it may be); None: the default encoder, loaded when it is first needed.
        name: how reports call it.

    Raises:
        ConfigError: `config` is no `DistillConfig`.
        WeightsError: the default model's weights are nowhere.
    """

    def __init__(
        self,
        model: LanguageModel | None = None,
        config: DistillConfig | None = None,
        *,
        encoder: Any = None,
        name: str = "fdtd",
    ) -> None:
        self.model = default_language_model() if model is None else model
        self.config = DistillConfig() if config is None else config
        if not isinstance(self.config, DistillConfig):
            raise ConfigError(f"config must be a DistillConfig or None, got {type(config).__name__}")
        self.name = name
        self._shortener = TextShortener(self.config.recipe(), self.model, self.model, encoder=encoder, name=name)

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        config: DistillConfig | None = None,
        *,
        encoder: Any = None,
        download: bool | None = None,
    ) -> "Distiller":
        """A distiller with a model by name, folder or `.gguf` file.

        Raises:
            WeightsError: no weights, damaged weights, or an unsupported model.
        """
        return cls(LanguageModel.from_pretrained(model, download=download), config, encoder=encoder)

    def distill(
        self, turns: Turns, budget: int, query: str | None = None, *, progress: Progress | None = None
    ) -> Distillation:
        """The most telling part of the turns within a budget.

        A text within the budget comes back as it is, without a model pass. The result never has more than `budget`
        tokens, counted by tokenising it; it is empty when not even the smallest unit fits. The scores of the turns read
        last are remembered, so a memory that is retrieved again costs no pass.

        Args:
            turns: a text, texts or `Turn`s, oldest first.
            budget: the most tokens of the model's tokenizer, at least 1.
            query: what the text will be asked. Turns without scores are scored by their similarity to it.
            progress: called with the number of tokens that the model has read since the last call.

        Raises:
            ConfigError: the budget is below 1 or no integer.
            TypeError: the turns are neither strings nor `Turn`s, or the query is no string.
        """
        return self._shortener.distill(turns, budget, query, progress=progress)

    def __repr__(self) -> str:
        return f"Distiller({self.model.name!r}, {self.config})"

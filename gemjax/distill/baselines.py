"""What a distiller is compared with, behind the same interface: truncation, random, self-information, LLMLingua-2."""

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gemjax.distill.outcome import check_budget, finish, whole
from gemjax.distill.recipe import Recipe
from gemjax.distill.render import kept_spans, render
from gemjax.distill.result import Distillation
from gemjax.distill.shortener import TextShortener
from gemjax.distill.turns import ReadTurn, Turns, as_turns, read_turns
from gemjax.distill.units import Units, units_of
from gemjax.errors import ConfigError
from gemjax.models.language import LanguageModel, default_language_model

Side = Literal["first", "last", "retrieved"]


class Truncation:
    """Keep whole tokens from one side until the budget is full.

    Args:
        model: whose tokenizer counts.
        side: "first" keeps the beginning, "last" the end; "retrieved" takes turns by falling score and cuts the last
            one taken: what a user does who just puts the best hits into the prompt.
    """

    def __init__(self, model: LanguageModel | None = None, side: Side = "first") -> None:
        if side not in ("first", "last", "retrieved"):
            raise ConfigError(f"side = {side!r}; expected first, last or retrieved")
        self.model = default_language_model() if model is None else model
        self.side = side
        self.name = f"truncation-{side}"

    def distill(self, turns: Turns, budget: int, query: str | None = None) -> Distillation:
        """See `Distiller.distill`; the query is not used."""

        def order(units: Units, read: list[ReadTurn]) -> np.ndarray:
            n = len(units)
            if self.side == "retrieved":
                known = [turn.turn.score for turn in read if turn.turn.score is not None]
                lowest = min(known, default=0.0) - 1.0
                scores = np.array([lowest if t.turn.score is None else t.turn.score for t in read])
                return np.lexsort((np.arange(n), units.turn, -scores[units.turn]))
            return np.arange(n) if self.side == "first" else np.arange(n)[::-1]

        return _in_order(self.model, turns, budget, order, self.name)


class RandomDrop:
    """Keep units chosen at random, a fresh choice for every text and the same one for the same text.

    Args:
        model: whose tokenizer counts.
        seed: of the choice.
    """

    def __init__(self, model: LanguageModel | None = None, seed: int = 0) -> None:
        self.model = default_language_model() if model is None else model
        self.seed = seed
        self.name = "random"

    def distill(self, turns: Turns, budget: int, query: str | None = None) -> Distillation:
        """See `Distiller.distill`; the query is not used."""

        def order(units: Units, read: list[ReadTurn]) -> np.ndarray:
            text = "\n".join(turn.turn.text for turn in read)
            digest = zlib.crc32(text.encode("utf-8", "surrogatepass"))
            return np.random.default_rng([self.seed, digest]).permutation(len(units))

        return _in_order(self.model, turns, budget, order, self.name)


def self_information(model: LanguageModel | None = None, *, encoder: Any = None) -> TextShortener:
    """Selective Context's criterion through the same decoder and the same budget: keep the most surprising units.

    Words are scored by the mean self-information of their tokens and dropped anywhere; no structure, no protection.
    """
    model = default_language_model() if model is None else model
    recipe = Recipe(
        loss="surprisal",
        context="joint",
        multipliers=None,
        filler=None,
        head=0,
        tail=0,
        longer_than=0,
        keep=0.6,
        value="mean",
        fit="prefix",
        headers=False,
    )
    return TextShortener(recipe, model, model, encoder=encoder, name="self-information")


class LLMLingua2:
    """LLMLingua-2 through the `llmlingua` package, when it and its weights are there (an optional extra; needs torch).

    Its own text is cut to the budget by this package's tokenizer; it decodes token ids, so the result is not made of
    the original's characters and has no spans.

    Args:
        model: whose tokenizer counts the budget.
        weights: a folder or hub name of a LLMLingua-2 model.

    Raises:
        ConfigError: the package is not installed.
    """

    name = "llmlingua-2"

    def __init__(
        self,
        model: LanguageModel | None = None,
        weights: str = "microsoft/llmlingua-2-bert-base-multilingual-cased-meetingbank",
    ) -> None:
        try:
            from llmlingua import PromptCompressor
        except ImportError as error:
            raise ConfigError("LLMLingua-2 needs the llmlingua package: pip install 'gemjax[llmlingua]'") from error
        self.model = default_language_model() if model is None else model
        self._compressor = PromptCompressor(weights, use_llmlingua2=True, device_map="cpu")

    def distill(self, turns: Turns, budget: int, query: str | None = None) -> Distillation:
        """See `Distiller.distill`; the query is not used."""
        check_budget(budget)
        read = read_turns(as_turns(turns), self.model)
        units = units_of(read, "token")
        text = "\n".join(turn.turn.text for turn in read)
        before = self.model.count(text)
        if before <= budget or not text.strip():
            return whole(read, units, text, before, budget, self.model, self.name)
        short = str(self._compressor.compress_prompt(text, target_token=budget)["compressed_prompt"])
        tokens = self.model.tokenize(short)
        stop = len(short) if len(tokens.ids) <= budget else int(tokens.stops[budget - 1])
        while self.model.count(short[:stop]) > budget:
            stop -= 1
        empty = finish(read, units, np.zeros(len(units), bool), before, budget, self.model, name=self.name)
        short = short[:stop]
        status: Literal["compressed", "empty"] = "compressed" if short else "empty"
        return dataclasses.replace(empty, text=short, status=status, tokens_after=self.model.count(short))


def _in_order(
    model: LanguageModel,
    turns: Turns,
    budget: int,
    order: Callable[[Units, list[ReadTurn]], np.ndarray],
    name: str,
) -> Distillation:
    """Keep units in the given order as long as the rendered text fits."""
    check_budget(budget)
    read = read_turns(as_turns(turns), model)
    listed = [turn.turn for turn in read]
    units = units_of(read, "token")
    text = "\n".join(turn.text for turn in listed)
    before = model.count(text)
    if before <= budget or not text.strip():
        return whole(read, units, text, before, budget, model, name)
    ranked = order(units, read)

    def grown(count: int) -> np.ndarray:
        kept = np.zeros(len(units), bool)
        kept[ranked[:count]] = True
        return kept

    # Joints, line ends and merged tokens make the text's own count differ from the sum of the units'.
    low, high = 0, int(np.searchsorted(np.cumsum(units.cost[ranked]), budget, side="right"))
    while low < high:
        middle = (low + high + 1) // 2
        if model.count(render(kept_spans(units, grown(middle), listed), listed)) <= budget:
            low = middle
        else:
            high = middle - 1
    return finish(read, units, grown(low), before, budget, model, name=name)

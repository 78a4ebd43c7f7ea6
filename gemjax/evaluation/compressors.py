"""The methods that the compression tables compare, and the variants that take them apart."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from gemjax.distill import Compressor, DistillConfig, Distiller, EvidenceSelector, Filler, Multipliers, SelectorConfig
from gemjax.distill.baselines import LLMLingua2, RandomDrop, Truncation, self_information
from gemjax.distill.recipe import Recipe
from gemjax.distill.shortener import TextShortener
from gemjax.errors import ConfigError
from gemjax.evaluation.compression import BASELINE
from gemjax.models.language import LanguageModel

Reading = Literal["nothing", "turns", "questions"]


def reading(recipe: Recipe) -> Reading:
    """What the model has to read: nothing, each distinct turn once, or the turns of each question anew."""
    if recipe.loss == "none":
        return "nothing"
    return "turns" if recipe.context == "turn" and recipe.loss != "query" else "questions"


@dataclasses.dataclass(frozen=True, slots=True)
class Contender:
    """One method of the tables. `make` may raise ConfigError when a package is missing."""

    about: str
    make: Callable[[LanguageModel], Compressor]
    reads: Reading = "nothing"
    standard: bool = True
    """Part of a run that names no methods."""


def _fdtd(name: str, about: str, config: DistillConfig) -> Contender:
    return Contender(about, lambda model: Distiller(model, config, name=name), reading(config.recipe()))


METHODS: dict[str, Contender] = {
    BASELINE: Contender("best turns first, the last one cut: the baseline", lambda m: Truncation(m, "retrieved")),
    "truncation-last": Contender("the newest of the retrieved turns", lambda m: Truncation(m, "last")),
    "random": Contender("random tokens", lambda m: RandomDrop(m)),
    "selection": Contender("EvidenceSelector(): no language model", lambda model: EvidenceSelector(tokenizer=model)),
    "fdtd": _fdtd("fdtd", "Distiller(): sensitivity times retrieval score", DistillConfig()),
    "fdtd-paper": _fdtd("fdtd-paper", "DistillConfig.paper(), as printed", DistillConfig.paper()),
    "fdtd-paper-by-turn": _fdtd(
        "fdtd-paper-by-turn",
        "as printed, but each turn read by itself",
        dataclasses.replace(DistillConfig.paper(), context="turn"),
    ),
    "self-information": Contender("Selective Context's criterion", self_information, "questions"),
    "llmlingua-2": Contender("through the package llmlingua", LLMLingua2, standard=False),
}


def chosen_methods(names: Sequence[str] | None, *, each_question: bool = True) -> dict[str, Contender]:
    """Methods by name; None: the standard ones, without those that read for every question unless `each_question`.

    The baseline always comes first: every table states differences to it. Raises ConfigError for an unknown name and
    for an empty list.
    """
    if names is None:
        return {
            name: method
            for name, method in METHODS.items()
            if method.standard and (each_question or method.reads != "questions")
        }
    if not names:
        raise ConfigError(f"no method is named; there are {', '.join(METHODS)}")
    if unknown := [name for name in names if name not in METHODS]:
        raise ConfigError(f"unknown methods {', '.join(map(repr, unknown))}; there are {', '.join(METHODS)}")
    return {name: METHODS[name] for name in (BASELINE, *names)}


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """A method with one part changed; `parent` names the variant that is otherwise the same."""

    recipe: Recipe
    parent: str | None = None

    @property
    def reads(self) -> Reading:
        return reading(self.recipe)

    def make(self, model: LanguageModel, name: str) -> TextShortener:
        """The variant with a model, under the name that the table gives it."""
        return TextShortener(self.recipe, model, model, name=name)


def variants(*, each_question: bool = True) -> dict[str, Variant]:
    """The selection, the distiller and the printed method with one part changed or left out (paper, table 5).

    A variant that comes out like its parent (its part is not in the preset) is left out.

    Args:
        each_question: with those that read all turns for every question.
    """
    return {name: variant for name, variant in _all_variants() if each_question or variant.reads != "questions"}


def _all_variants() -> Iterator[tuple[str, Variant]]:
    selection, fdtd, paper = SelectorConfig().recipe(), DistillConfig().recipe(), DistillConfig.paper().recipe()
    by_turn = dataclasses.replace(paper, context="turn")
    factors, filler = paper.multipliers or Multipliers(), selection.filler or Filler()
    passed = dataclasses.replace(selection, loss="text")
    query = dataclasses.replace(selection, loss="query")
    pruned = dataclasses.replace(passed, keep=0.9)
    families: list[tuple[str, str | None, Recipe, dict[str, Recipe]]] = [
        (
            "selection",
            None,
            selection,
            {
                "with a model pass": passed,
                "question's words not used": dataclasses.replace(selection, lexical=0.0),
                "neighbours not used": dataclasses.replace(selection, neighbours=0.0),
                "retrieval order": dataclasses.replace(selection, lexical=0.0, neighbours=0.0),
                "no filler rules": dataclasses.replace(selection, filler=None),
                "filler words stay": dataclasses.replace(
                    selection, filler=dataclasses.replace(filler, words=frozenset())
                ),
                "questions stay": dataclasses.replace(selection, filler=dataclasses.replace(filler, questions=False)),
                "short ones stay": dataclasses.replace(selection, filler=dataclasses.replace(filler, short=0)),
                "skip": dataclasses.replace(selection, fit="skip"),
                "prefix": dataclasses.replace(selection, fit="prefix"),
            },
        ),
        (
            "fdtd",
            "selection",
            fdtd,
            {
                "mean": dataclasses.replace(fdtd, value="mean"),
                "knapsack": dataclasses.replace(fdtd, value="knapsack"),
                "retrieval score alone": dataclasses.replace(fdtd, lexical=0.0, neighbours=0.0),
            },
        ),
        (
            "selection, 10 % pruned",
            "selection",
            pruned,
            {
                "by self-information": dataclasses.replace(pruned, loss="surprisal"),
                "no multipliers": dataclasses.replace(pruned, multipliers=None),
                "smoothed": dataclasses.replace(pruned, smoothing=5),
                "tokens": dataclasses.replace(pruned, unit="token"),
            },
        ),
        (
            "selection, question's loss",
            "selection",
            query,
            {
                "mean": dataclasses.replace(query, value="mean"),
                "product": dataclasses.replace(query, value="product"),
                "knapsack": dataclasses.replace(query, value="knapsack"),
                "10 % pruned": dataclasses.replace(query, keep=0.9),
            },
        ),
        ("fdtd-paper", None, paper, {"question's loss": dataclasses.replace(paper, loss="query")}),
        (
            "fdtd-paper-by-turn",
            "fdtd-paper",
            by_turn,
            {
                "retrieval order": dataclasses.replace(by_turn, value="turn"),
                "no boosts": dataclasses.replace(by_turn, multipliers=None),
                "no connectors": _boosts(by_turn, dataclasses.replace(factors, connector=1.0)),
                "no punctuation": _boosts(by_turn, dataclasses.replace(factors, heavy=1.0, boundary=1.0)),
                "no content words": _boosts(by_turn, dataclasses.replace(factors, digit=1.0, capital=1.0)),
                "no decay": dataclasses.replace(by_turn, oldest=1.0),
                "no smoothing": dataclasses.replace(by_turn, smoothing=1),
                "no gap filling": dataclasses.replace(by_turn, gap=0),
                "skip": dataclasses.replace(by_turn, fit="skip"),
            },
        ),
    ]
    known: dict[str, Recipe] = {}
    for family, parent, recipe, members in families:
        base = family
        if parent is not None and recipe == known[parent]:
            base = parent
        elif family not in known:
            known[family] = recipe
            yield family, Variant(recipe, parent)
        for name, member in members.items():
            if member != recipe:
                known[f"{family}, {name}"] = member
                yield f"{family}, {name}", Variant(member, base)


def _boosts(recipe: Recipe, multipliers: Multipliers) -> Recipe:
    return dataclasses.replace(recipe, multipliers=multipliers)

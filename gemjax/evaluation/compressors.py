"""The methods that the compression tables compare, and the variants that take the printed and the default one apart."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from gemjax.distill import Compressor, DistillConfig, Distiller, Filler, Multipliers
from gemjax.distill.baselines import LLMLingua2, RandomDrop, Truncation, self_information
from gemjax.errors import ConfigError
from gemjax.evaluation.compression import BASELINE
from gemjax.models.language import LanguageModel

Reading = Literal["nothing", "turns", "questions"]


def reading(config: DistillConfig) -> Reading:
    """What the model has to read: nothing, each distinct turn once, or the turns of each question anew."""
    if config.loss == "none":
        return "nothing"
    return "turns" if config.context == "turn" and config.loss != "query" else "questions"


@dataclasses.dataclass(frozen=True, slots=True)
class Method:
    """One method of the tables. `make` may raise ConfigError when a package is missing."""

    about: str
    make: Callable[[LanguageModel], Compressor]
    reads: Reading = "nothing"
    standard: bool = True
    """Part of a run that names no methods."""


def _fdtd(name: str, about: str, config: DistillConfig) -> Method:
    return Method(about, lambda model: Distiller(model, config, name=name), reading(config))


METHODS: dict[str, Method] = {
    BASELINE: Method("best turns first, the last one cut: the baseline", lambda m: Truncation(m, "retrieved")),
    "truncation-last": Method("the newest of the retrieved turns", lambda m: Truncation(m, "last")),
    "random": Method("random tokens", lambda m: RandomDrop(m)),
    "fdtd-no-model": _fdtd(
        "fdtd-no-model", "the default without sensitivities", dataclasses.replace(DistillConfig(), loss="none")
    ),
    "fdtd": _fdtd("fdtd", "DistillConfig()", DistillConfig()),
    "fdtd-paper": _fdtd("fdtd-paper", "DistillConfig.paper(), as printed", DistillConfig.paper()),
    "fdtd-paper-by-turn": _fdtd(
        "fdtd-paper-by-turn",
        "as printed, but each turn read by itself",
        dataclasses.replace(DistillConfig.paper(), context="turn"),
    ),
    "self-information": Method("Selective Context's criterion", self_information, "questions"),
    "llmlingua-2": Method("through the package llmlingua", LLMLingua2, standard=False),
}


def chosen_methods(names: Sequence[str] | None, *, each_question: bool = True) -> dict[str, Method]:
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

    config: DistillConfig
    parent: str | None = None

    @property
    def reads(self) -> Reading:
        return reading(self.config)


def variants(*, each_question: bool = True) -> dict[str, Variant]:
    """The default method and the printed one with one part changed or left out (paper, table 5).

    A variant that comes out like its parent (its part is not in the preset) is left out.

    Args:
        each_question: with those that read all turns for every question.
    """
    return {name: variant for name, variant in _all_variants() if each_question or variant.reads != "questions"}


def _all_variants() -> Iterator[tuple[str, Variant]]:
    default, paper = DistillConfig(), DistillConfig.paper()
    by_turn = dataclasses.replace(paper, context="turn")
    factors, filler = paper.multipliers or Multipliers(), default.filler or Filler()
    query = dataclasses.replace(default, loss="query")
    pruned = dataclasses.replace(default, loss="text", context="turn", keep=0.9)
    families: list[tuple[str, str | None, DistillConfig, dict[str, DistillConfig]]] = [
        (
            "fdtd",
            None,
            default,
            {
                "no model pass": dataclasses.replace(default, loss="none"),
                "question's words not used": dataclasses.replace(default, lexical=0.0),
                "neighbours not used": dataclasses.replace(default, neighbours=0.0),
                "retrieval order": dataclasses.replace(default, lexical=0.0, neighbours=0.0),
                "order alone": dataclasses.replace(default, loss="none", filler=None),
                "no filler rules": dataclasses.replace(default, filler=None),
                "filler words stay": dataclasses.replace(
                    default, filler=dataclasses.replace(filler, words=frozenset())
                ),
                "questions stay": dataclasses.replace(default, filler=dataclasses.replace(filler, questions=False)),
                "short ones stay": dataclasses.replace(default, filler=dataclasses.replace(filler, short=0)),
                "skip": dataclasses.replace(default, fit="skip"),
                "prefix": dataclasses.replace(default, fit="prefix"),
                "mean": dataclasses.replace(default, value="mean", rank=True),
                "product": dataclasses.replace(default, value="product", rank=True),
                "knapsack": dataclasses.replace(default, value="knapsack", rank=True),
                "10 % pruned": pruned,
            },
        ),
        (
            "fdtd, 10 % pruned",
            "fdtd",
            pruned,
            {
                "by self-information": dataclasses.replace(pruned, loss="surprisal"),
                "no multipliers": dataclasses.replace(pruned, multipliers=None),
                "smoothed": dataclasses.replace(pruned, smoothing=5),
                "tokens": dataclasses.replace(pruned, unit="token"),
            },
        ),
        (
            "fdtd, question's loss",
            "fdtd",
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
    known: dict[str, DistillConfig] = {}
    for family, parent, config, members in families:
        base = family
        if parent is not None and config == known[parent]:
            base = parent
        elif family not in known:
            known[family] = config
            yield family, Variant(config, parent)
        for name, member in members.items():
            if member != config:
                known[f"{family}, {name}"] = member
                yield f"{family}, {name}", Variant(member, base)


def _boosts(config: DistillConfig, multipliers: Multipliers) -> DistillConfig:
    return dataclasses.replace(config, multipliers=multipliers)

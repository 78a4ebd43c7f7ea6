"""What the generator gets to read: the methods that are compared, behind one interface."""

import dataclasses
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gemjax.coremem import CoreMem, CoreMemConfig
from gemjax.coremem.evidence import Evidence, block
from gemjax.coremem.generation import Generator
from gemjax.coremem.pipeline import WHOLE_CLAIMS
from gemjax.coremem.prompts import PromptTemplate
from gemjax.distill import Compressor, DistillConfig, Distiller, EvidenceSelector
from gemjax.distill.baselines import self_information
from gemjax.distill.turns import TokenReader
from gemjax.errors import ConfigError
from gemjax.evaluation.answers.material import Asked, Material
from gemjax.evaluation.answers.written import FACTS_PROMPT, SUMMARY_PROMPT, Notebook, written_memories
from gemjax.evaluation.rankings import Corpus, by_score, method_named
from gemjax.memory import MemoryConfig
from gemjax.models.language import LanguageModel

DEPTH = 50
"""Turns that a ranking hands over, as the paper's distiller reads."""


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What all methods share.

    Args:
        encoder: of turns and questions.
        generator: whose context bounds what "everything" is.
        tokenizer: counts the budget.
        template: of the prompt.
        model: gives sensitivities; None: methods that need one are refused.
        most_tokens: of an answer, which the context must leave room for.
        notebook: what the generator wrote of the dialogues before, and where it is kept; None: nowhere.
    """

    encoder: Any
    generator: Generator
    tokenizer: TokenReader
    template: PromptTemplate
    model: LanguageModel | None = None
    most_tokens: int = 64
    notebook: Notebook | None = None


class Choice(Protocol):
    """Chooses, for one dialogue, what is read for a question."""

    def __call__(self, asked: Asked, budget: int) -> str:
        """The lines of the prompt's memories."""


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerMethod:
    """One method of the table."""

    about: str
    make: Callable[[Material, Setting], Choice]
    reads: bool = False
    """Needs a language model of its own, and is no part of a run that names no methods."""
    writes: bool = False
    """Has the generator write memories first, a call a session, and is no part of a run that names no methods."""


def _nothing(material: Material, setting: Setting) -> Choice:
    return lambda asked, budget: ""


def _everything(material: Material, setting: Setting) -> Choice:
    """All turns, or as many of the newest as the generator's context holds."""
    parts = _parts(material)

    def choose(asked: Asked, budget: int) -> str:
        window = setting.generator.context_window
        if window is None:
            return block(parts, setting.template)
        room, today = window - setting.most_tokens, asked_on(asked, material)

        def fits(count: int) -> bool:
            text = block(parts[len(parts) - count :], setting.template)
            return setting.generator.count_tokens(setting.template.messages(text, asked.text, today)) <= room

        low, high = 0, len(parts)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(middle) else (low, middle - 1)
        return block(parts[len(parts) - low :], setting.template)

    return choose


def _last(material: Material, setting: Setting) -> Choice:
    parts = _parts(material)
    newest = list(range(len(parts) - 1, -1, -1))
    return lambda asked, budget: _filled(parts, newest, setting, budget, stop=True)


def _ranked(name: str) -> Callable[[Material, Setting], Choice]:
    """A ranking of `gemjax.evaluation.rankings`: whole turns, best first, until the budget is full."""

    def make(material: Material, setting: Setting) -> Choice:
        parts = _parts(material)
        texts = [part.text for part in parts]
        questions = [asked.text for asked in material.questions]
        sessions = tuple(part.session or "" for part in parts)
        corpus = Corpus(texts, questions, setting.encoder.encode(texts), setting.encoder.encode(questions), sessions)
        ranking = method_named(name)(corpus, min(DEPTH, len(texts)))
        rows = {asked.id: row.tolist() for asked, row in zip(material.questions, ranking, strict=True)}
        return lambda asked, budget: _filled(parts, rows[asked.id], setting, budget)

    return make


def _written(prompt: str, by_line: bool) -> Callable[[Material, Setting], Choice]:
    """Memories that the generator wrote: the nearest by cosine, whole, until the budget is full."""

    def make(material: Material, setting: Setting) -> Choice:
        parts = written_memories(
            _parts(material), prompt, by_line, setting.generator, setting.template, setting.notebook
        )
        if not parts:
            return lambda asked, budget: ""
        texts, questions = [part.text for part in parts], [asked.text for asked in material.questions]
        similar = setting.encoder.encode(questions) @ setting.encoder.encode(texts).T
        orders = dict(zip((a.id for a in material.questions), by_score(similar, DEPTH).tolist(), strict=True))
        return lambda asked, budget: _filled(parts, orders[asked.id], setting, budget)

    return make


def _pipeline(
    memory: MemoryConfig, distiller: Callable[[Setting], Compressor | None]
) -> Callable[[Material, Setting], Choice]:
    """`CoreMem` itself, with a retrieval and a distiller."""

    def make(material: Material, setting: Setting) -> Choice:
        config = CoreMemConfig(memory=memory, prompt=setting.template, retrieve=DEPTH, support=None)
        chosen: Any = distiller(setting) or EvidenceSelector(WHOLE_CLAIMS, tokenizer=setting.tokenizer)
        core = CoreMem(encoder=setting.encoder, distiller=chosen, config=config)
        core.remember(material.utterances, happened_at=asked_on(None, material))
        return lambda asked, budget: core.recall(asked.text, budget, reference_date=asked.asked_at).text

    return make


def _fdtd(setting: Setting) -> Compressor:
    return Distiller(_model(setting, "paper"), DistillConfig.paper())


def _model(setting: Setting, name: str) -> LanguageModel:
    if setting.model is None:
        raise ConfigError(f"method {name!r} reads every turn with a local language model, and there is none")
    return setting.model


METHODS: dict[str, AnswerMethod] = {
    "nothing": AnswerMethod("no memory: what the model knows or guesses", _nothing),
    "everything": AnswerMethod("all turns, the newest that the context holds", _everything),
    "last": AnswerMethod("the newest turns within the budget", _last),
    "cosine": AnswerMethod("best turns by cosine, whole, until the budget is full", _ranked("cosine")),
    "bm25": AnswerMethod("the same by BM25", _ranked("bm25")),
    "rrf": AnswerMethod("the same by reciprocal-rank fusion of both", _ranked("rrf")),
    "retrieval-paper": AnswerMethod(
        "CoreMem with the paper's score, whole sentences", _pipeline(MemoryConfig.paper(), lambda setting: None)
    ),
    "paper": AnswerMethod(
        "CoreMem with the paper's score and FDTD as printed", _pipeline(MemoryConfig.paper(), _fdtd), reads=True
    ),
    "selective-context": AnswerMethod(
        "the paper's score, self-information (Selective Context's criterion)",
        _pipeline(MemoryConfig.paper(), lambda setting: self_information(_model(setting, "selective-context"))),
        reads=True,
    ),
    "summaries": AnswerMethod(
        "a summary of each session by the generator, best by cosine (MemoryOS in spirit)",
        _written(SUMMARY_PROMPT, by_line=False),
        writes=True,
    ),
    "facts": AnswerMethod(
        "facts of each session by the generator, a line each, best by cosine (Mem0 in spirit)",
        _written(FACTS_PROMPT, by_line=True),
        writes=True,
    ),
    "coremem": AnswerMethod("CoreMem as it is", _pipeline(MemoryConfig.hybrid(), lambda setting: None)),
}


def chosen_methods(names: Sequence[str] | None) -> dict[str, AnswerMethod]:
    """Methods by name; None: the standard ones. Raises ConfigError for an unknown name."""
    if names is None:
        return {name: method for name, method in METHODS.items() if not (method.reads or method.writes)}
    if not names or (unknown := [name for name in names if name not in METHODS]):
        wrong = f"unknown methods {', '.join(map(repr, unknown))}" if names else "no method is named"
        raise ConfigError(f"{wrong}; there are {', '.join(METHODS)}")
    return {name: METHODS[name] for name in names}


def asked_on(asked: Asked | None, material: Material) -> dt.date:
    """The day of a question: its own, else that of the dialogue's last turn."""
    if asked is not None and asked.asked_at is not None:
        return asked.asked_at.date()
    times = [turn.time for turn in material.utterances if turn.time is not None]
    return max(times).date() if times else dt.date(2000, 1, 1)


def _parts(material: Material) -> list[Evidence]:
    return [
        Evidence(i, turn.said, (), turn.session, turn.speaker, turn.time, i, 0.0, 0.0, None, None, kept=turn.said)
        for i, turn in enumerate(material.utterances)
    ]


def _filled(
    parts: Sequence[Evidence], order: Sequence[int], setting: Setting, budget: int, *, stop: bool = False
) -> str:
    """Whole turns in this order while they fit, shown in the order of the dialogue; `stop` at the first that does not.

    A turn of several lines, or of one line after another, may take a token more than by itself: the whole is counted.
    """
    chosen: list[int] = []
    spent = 0
    for place in order:
        cost = setting.tokenizer.count(block([parts[place]], setting.template)) + 1
        if spent + cost <= budget + 1:
            text = block([parts[i] for i in sorted([*chosen, place])], setting.template)
            if setting.tokenizer.count(text) <= budget:
                chosen.append(place)
                spent += cost
                continue
        if stop:
            break
    return block([parts[i] for i in sorted(chosen)], setting.template)

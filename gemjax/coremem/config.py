"""Settings of the pipeline."""

import dataclasses
from typing import Literal

from gemjax.coremem.generation import Sampling
from gemjax.coremem.prompts import PromptTemplate
from gemjax.encoders.cross import Reranker
from gemjax.errors import ConfigError
from gemjax.memory.config import MemoryConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CoreMemConfig:
    """How questions are answered.

    Args:
        retrieve: memories that a search returns; the paper's distiller reads 50.
        budget: tokens of evidence in a prompt, lines as the template has them; the paper's B.
        memory: settings of a bank that is made or opened by its path; None: `MemoryConfig.hybrid()`. A bank that is
            passed in keeps its own.
        rerank: reads the question with the `retrieve` best by the search and by the cosine, such as
            `gemjax.CrossEncoder(folder)`, and puts them in order; None: the search's order.
        prompt: the template.
        sampling: how answers are sampled.
        support: an answer is only tried where the evidence supports it this much (`Recollection.support`); "measured":
            what was measured for the bank's encoder (docs/coremem.md), if anything; None: always.
        unanswered: what an abstention says.

    Raises: ConfigError when a value is out of range.
    """

    retrieve: int = 50
    budget: int = 500
    memory: MemoryConfig | None = None
    rerank: Reranker | None = None
    prompt: PromptTemplate = dataclasses.field(default_factory=PromptTemplate)
    sampling: Sampling = dataclasses.field(default_factory=lambda: Sampling(max_tokens=64))
    support: float | Literal["measured"] | None = "measured"
    unanswered: str = "Nothing that is remembered answers this."

    def __post_init__(self) -> None:
        for name in ("retrieve", "budget"):
            check_count(getattr(self, name), name)
        for name, kind in (("prompt", PromptTemplate), ("sampling", Sampling)):
            if not isinstance(getattr(self, name), kind):
                raise ConfigError(f"{name} must be a {kind.__name__}, got {type(getattr(self, name)).__name__}")
        if not isinstance(self.memory, MemoryConfig | None):
            raise ConfigError(f"memory must be a MemoryConfig or None, got {type(self.memory).__name__}")
        if self.rerank is not None and not isinstance(self.rerank, Reranker):
            raise ConfigError(f"rerank must have `name` and `scores(query, texts)`, got {type(self.rerank).__name__}")
        support: object = self.support
        number = isinstance(support, int | float) and not isinstance(support, bool) and support == support
        if not (number or support in (None, "measured")):
            raise ConfigError(f"support must be a number, 'measured' or None, got {support!r:.40}")
        if not isinstance(self.unanswered, str):
            raise ConfigError(f"unanswered must be a string, got {self.unanswered!r:.40}")

    @classmethod
    def paper(cls) -> "CoreMemConfig":
        """The paper's: its score (alpha 0.5), 50 memories, B = 500, its prompt, an answer to everything."""
        return cls(memory=MemoryConfig.paper(), prompt=PromptTemplate.paper(), support=None)


def check_count(value: object, name: str) -> None:
    """Raise ConfigError unless the value is an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be an integer of at least 1, got {value!r:.40}")

"""What a generator is: messages in, one answer out, with what it cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict, runtime_checkable

from gemjax.errors import ConfigError

FinishReason = Literal["stop", "length", "content_filter"]


class ChatMessage(TypedDict):
    """One message of a prompt, as every chat endpoint and chat template takes it."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Args:
        max_tokens: the most tokens an answer may have.
        temperature: 0 takes the most probable token; above, logits are divided by it before sampling.
        top_p: sample among the most probable tokens that together reach this probability, in (0, 1].
        seed: of the sampler; None takes another one each time.
        stop: an answer ends before the first of these texts.

    Raises:
        ConfigError: a value is out of its range.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, bool) or not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise ConfigError(f"max_tokens = {self.max_tokens!r}; expected an integer of at least 1")
        for name, least, most in (("temperature", 0.0, 100.0), ("top_p", 0.0, 1.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ConfigError(f"{name} = {value!r}; expected a number from {least:g} to {most:g}")
        if self.top_p == 0:
            raise ConfigError("top_p = 0; expected a number above 0 (temperature=0 takes the most probable token)")
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise ConfigError(f"seed = {self.seed!r}; expected an integer or None")
        given: object = self.stop
        if not isinstance(given, tuple) or not all(isinstance(text, str) and text for text in self.stop):
            raise ConfigError(f"stop = {self.stop!r}; expected a tuple of texts, none of them empty")


GREEDY = Sampling()
"""The most probable token each time, at most 256 of them."""


@dataclass(frozen=True)
class Generation:
    """An answer and its bill.

    Args:
        text: what the model said, without the stop text.
        finish_reason: `stop` where the model ended by itself or at a stop text, `length` where `max_tokens` or the
            context ended it, `content_filter` where the endpoint withheld it.
        prompt_tokens: tokens that the model read, by its own count.
        completion_tokens: tokens that it wrote.
        seconds: from the call to the last token.
        model: the name of the model that answered.
    """

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    model: str


@runtime_checkable
class Generator(Protocol):
    """Anything that answers a prompt: a local model, an endpoint, a function of the caller's own."""

    @property
    def model(self) -> str:
        """The model's name, for the ledger."""

    @property
    def context_window(self) -> int | None:
        """Tokens that prompt and answer may have together; None where it is not known."""

    def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        """How many tokens the prompt takes, by the model's own tokenizer or an estimate that errs upward."""

    def generate(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Generation:
        """The whole answer.

        Raises:
            GenerationError: no answer could be had; the message says why and what to do.
        """

    def stream(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Iterator[str]:
        """The answer piece by piece; the pieces joined are `generate(...).text`."""

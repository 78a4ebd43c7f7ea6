"""A generator that says what it is told to: no weights, and every prompt that it got is kept."""

from collections.abc import Callable, Iterator, Sequence

from gemjax.coremem.generation import ChatMessage, FinishReason, Generation, Sampling
from gemjax.errors import GenerationError

GREEDY = Sampling()


class ScriptedGenerator:
    """One token a word, four more a message.

    Args:
        reply: what it says, or a function of the last message's content.
        window: its context.
        fails: raise GenerationError with these words.
    """

    model = "scripted"

    def __init__(
        self,
        reply: str | Callable[[str], str] = "rivers",
        window: int | None = 4000,
        fails: str = "",
        finish: FinishReason = "stop",
    ) -> None:
        self.reply, self.context_window, self.fails, self.finish = reply, window, fails, finish
        self.prompts: list[list[ChatMessage]] = []

    def count_tokens(self, messages: Sequence[ChatMessage]) -> int:
        return sum(4 + len(message["content"].split()) for message in messages)

    def generate(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Generation:
        self.prompts.append(list(messages))
        if self.fails:
            raise GenerationError(self.fails)
        said = self.reply if isinstance(self.reply, str) else self.reply(messages[-1]["content"])
        return Generation(said, self.finish, self.count_tokens(messages), len(said.split()), 0.5, self.model)

    def stream(self, messages: Sequence[ChatMessage], sampling: Sampling = GREEDY) -> Iterator[str]:
        text = self.generate(messages, sampling).text
        for i, word in enumerate(text.split(" ")):
            yield word if not i else f" {word}"

"""What a question gets: an answer with its sources and its bill, or an error that keeps what was recalled."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from gemjax.coremem.evidence import Evidence, Recollection
from gemjax.coremem.generation import ChatMessage, FinishReason
from gemjax.coremem.ledger import AskLedger
from gemjax.errors import GenerationError


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Args:
        text: what was said: the model's words, or the abstention's.
        sources: the memories in the prompt, in its order.
        abstained: nothing supports an answer: the model was not asked, or said itself that it does not know.
        reason: why there is none, or only a part of one; empty otherwise.
        finish_reason: as the generator gave it; None where it was not asked, or does not say (a stream).
        model: who answered; empty where nobody was asked.
        messages: the prompt as it was sent; empty where nobody was asked.
        recollection: all that was recalled.
        ledger: what it cost, from the question to the answer.
    """

    text: str
    sources: tuple[Evidence, ...]
    abstained: bool
    reason: str
    finish_reason: FinishReason | None
    model: str
    messages: tuple[ChatMessage, ...]
    recollection: Recollection
    ledger: AskLedger

    @property
    def empty(self) -> bool:
        """The model said nothing."""
        return not self.text.strip()

    @property
    def cut(self) -> bool:
        """The model had more to say: the limit on tokens, or its context, ended the answer."""
        return self.finish_reason == "length"

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "text": self.text,
            "abstained": self.abstained,
            "reason": self.reason,
            "empty": self.empty,
            "cut": self.cut,
            "finish_reason": self.finish_reason,
            "model": self.model,
            "messages": [dict(message) for message in self.messages],
            "recollection": self.recollection.to_dict(),
            "ledger": self.ledger.to_dict(),
        }


class UnansweredError(GenerationError):
    """The generator failed. What was recalled is kept, so that another one can be asked.

    Args:
        message: why, and what to do.
        recollection: what was recalled.
        messages: the prompt.
        partial: what had come of the answer.
    """

    def __init__(
        self, message: str, recollection: Recollection, messages: tuple[ChatMessage, ...], partial: str = ""
    ) -> None:
        super().__init__(message)
        self.recollection = recollection
        self.messages = messages
        self.partial = partial


class AnswerStream:
    """An answer as it comes: iterate once; `answer` is there when the last piece is, and at once for an abstention.

    Args:
        pieces: of the answer.
        answer: None until then.
        recollection: what was recalled.
    """

    def __init__(self, pieces: Iterator[str], answer: Answer | None, recollection: Recollection | None = None) -> None:
        self.pieces = pieces
        self.answer = answer
        self.recollection = recollection if answer is None else answer.recollection

    def __iter__(self) -> Iterator[str]:
        return self.pieces

"""The long-term memory as one pipeline: remember, recall, prompt, answer (CoreMem, Section 3).

It joins the façades below it (`memory`, `distill`) with a generator; nothing in them imports this package.
"""

from gemjax.coremem.answer import Answer, AnswerStream, UnansweredError
from gemjax.coremem.config import CoreMemConfig
from gemjax.coremem.evidence import Evidence, Recollection
from gemjax.coremem.generation import ChatMessage, FinishReason, Generation, Generator, Sampling
from gemjax.coremem.ledger import AskLedger
from gemjax.coremem.pipeline import CoreMem
from gemjax.coremem.prompts import PromptTemplate
from gemjax.coremem.remembering import Remembered
from gemjax.coremem.utterances import Utterance

__all__ = [
    "Answer",
    "AnswerStream",
    "AskLedger",
    "ChatMessage",
    "CoreMem",
    "CoreMemConfig",
    "Evidence",
    "FinishReason",
    "Generation",
    "Generator",
    "PromptTemplate",
    "Recollection",
    "Remembered",
    "Sampling",
    "UnansweredError",
    "Utterance",
]

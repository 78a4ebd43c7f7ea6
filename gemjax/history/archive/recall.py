"""What a recall found, and how it reads."""

import dataclasses
from typing import Any, Literal

RecallStatus = Literal["found", "nothing", "failed"]


@dataclasses.dataclass(frozen=True, slots=True)
class Recalled:
    """One exchange that was dropped and is back.

    Attributes:
        position: index of the block in the history when it was dropped, oldest first.
        key: the block's key.
        label: tool and arguments in one short line.
        tools: names of the tools it called.
        paths: files and other artifacts that it wrote or touched.
        text: what stands in the answer: the original exchange, or what of it fits the budget.
        whole: nothing of it was left out.
        by: what found it: `letters`, `meaning`, or both.
        score: of the fused ranking; larger is better, no meaning across queries.
    """

    position: int
    key: str
    label: str
    tools: tuple[str, ...]
    paths: tuple[str, ...]
    text: str
    whole: bool
    by: tuple[str, ...]
    score: float


@dataclasses.dataclass(frozen=True, slots=True)
class Recall:
    """The answer to one recall. `str(recall)` is its text.

    Attributes:
        text: for the model: the exchanges, or one sentence that says why there are none. Never empty.
        status: `found`; `nothing` (nothing was dropped, or nothing fits the query or the budget); `failed` (the
            archive could not be read).
        reason: one line; empty when exchanges were found by letters and meaning as asked.
        exchanges: best first.
        tokens: of `text`, by the counter that was used.
    """

    text: str
    status: RecallStatus
    reason: str = ""
    exchanges: tuple[Recalled, ...] = ()
    tokens: int = 0

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)

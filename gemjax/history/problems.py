"""The validity contract's vocabulary: one `Problem` a violated provider rule."""

import dataclasses
from typing import Literal

Severity = Literal["error", "warning"]


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """One violated rule. An `error` is what a provider refuses; a `warning` is odd, but gets through.

    Attributes:
        rule: a stable name such as `missing-result`; see `docs/validity.md` for all of them.
        index: position in the request's message (or item) list; -1 for the request itself.
        id: the call id concerned, or an empty string.
        message: what is wrong.
        fix: what to do about it.
    """

    rule: str
    index: int
    id: str
    message: str
    fix: str
    severity: Severity = "error"

    def __str__(self) -> str:
        where = "request" if self.index < 0 else f"message {self.index}"
        about = f" (id {self.id!r})" if self.id else ""
        return f"{where}: {self.rule}{about}: {self.message}; {self.fix}"

"""Whether what was recalled can hold an answer at all."""

from collections.abc import Sequence

from gemjax.memory import Hit

MEASURED = {"all-MiniLM-L6-v2": 0.28}
"""The support below which hardly any question has an answer, by encoder (docs/coremem.md). Cosines of two encoders do
not compare: for one that is not here nothing is known, and nothing is refused."""


def support_of(hits: Sequence[Hit]) -> float:
    """The largest cosine of a retrieved memory with the question; 0 without any.

    Of what a search knows, this tells questions about what was never spoken of from others best (docs/coremem.md). It
    means the same for every question, which the standardised scores do not.
    """
    return max((hit.cosine for hit in hits), default=0.0)


def least_support(wanted: float | str | None, encoder: str | None) -> float | None:
    """The threshold that a configuration asks for with this encoder; None: everything is tried."""
    if isinstance(wanted, str):
        return MEASURED.get((encoder or "").split(":")[0])
    return wanted

"""Tokens to text while they come: whole characters, and nothing that a stop text may still take back."""

from collections.abc import Sequence

from tokenizers import Tokenizer

_UNFINISHED = "\ufffd"


class TextPieces:
    """The text of a growing answer.

    Args:
        tokenizer: of the model.
        stops: the answer ends before the first of these.

    Attributes:
        text: what is settled.
        stopped: whether a stop text has come.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = [stop for stop in stops if stop]
        self._ids: list[int] = []
        self._whole = ""
        self.text = ""
        self.stopped = False

    def add(self, ids: Sequence[int]) -> str:
        """Further tokens. Returns what is settled now beyond what was."""
        if self.stopped or not ids:
            return ""
        self._ids += ids
        # Decoded as a whole: a token's text may depend on what stands before it.
        self._whole = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        found = [place for stop in self._stops if (place := self._whole.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._settle(self._whole[: min(found)])
        # A character whose bytes are not all there shows as U+FFFD at the end.
        settled = self._whole.rstrip(_UNFINISHED)
        held = max((_overlap(settled, stop) for stop in self._stops), default=0)
        return self._settle(settled[: len(settled) - held])

    def finish(self) -> str:
        """No more tokens come. Returns what was held back."""
        return "" if self.stopped else self._settle(self._whole)

    def _settle(self, text: str) -> str:
        piece = text[len(self.text) :]
        if len(text) > len(self.text):
            self.text = text
        return piece


def _overlap(text: str, stop: str) -> int:
    """How many characters at the text's end may be the beginning of a stop text."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)

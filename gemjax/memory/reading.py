"""The bank's encoder: loaded when the first text must be read, and asked whether it can read."""

import warnings
from collections.abc import Sequence
from typing import Any


class Reader:
    """Not thread-safe."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._encoder: Any = None
        self.unread = 0
        """Texts added of which the encoder's vocabulary knows no part: they cannot be told apart by meaning."""

    def encoder(self) -> Any:
        """The encoder, loaded on the first call."""
        if self._encoder is None:
            from gemjax.encoders import as_encoder

            self._encoder = as_encoder(self._given)
        return self._encoder

    @property
    def name(self) -> str:
        """The encoder's name."""
        return str(self.encoder().name)

    def notice(self, texts: Sequence[str]) -> None:
        """Count the texts that the encoder cannot read; warn at the first. Encoders that cannot tell are trusted."""
        tell = getattr(self.encoder(), "unread", None)
        if tell is None or all(text.isascii() for text in texts):
            return
        found = [text for text, blind in zip(texts, tell(list(texts)), strict=True) if blind]
        if found and not self.unread:
            warnings.warn(
                f"the encoder {self.name!r} knows no part of {found[0][:40]!r}: all such texts get one and the same "
                "vector and cannot be found by meaning. Take a multilingual encoder (docs/memory.md, 'Languages').",
                stacklevel=4,
            )
        self.unread += len(found)

"""What an encoder is, and a function as one."""

from collections.abc import Callable
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from gemjax.encoders.vectors import unit_vectors
from gemjax.errors import ConfigError, EncoderError, GemjaxError


@runtime_checkable
class Encoder(Protocol):
    """Texts to unit vectors.

    `name` says which vectors these are: encoders of one name are taken to give the same ones. `encode` returns float32
    `[len(texts), dim]` with rows of unit length, or zero for a text without direction.
    """

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    def encode(self, texts: list[str]) -> np.ndarray: ...


class CallableEncoder:
    """Any function `list[str] -> array-like [n, dim]` as an encoder: an embedding service, a model of your own.

    Args:
        function: called with a non-empty list; its rows need not be of unit length.
        name: identifies its vectors. Needed for a cache on disk; otherwise made from the function's own name.
        dim: length of a vector. None: found out by the first call (reading `dim` before that encodes one short text).

    Raises:
        ConfigError: `function` cannot be called, or `dim` is not positive.
    """

    def __init__(
        self, function: Callable[[list[str]], Any], *, name: str | None = None, dim: int | None = None
    ) -> None:
        if not callable(function):
            raise ConfigError(f"an encoder function must be callable, not {type(function).__name__}")
        if dim is not None and dim < 1:
            raise ConfigError(f"dim = {dim}; expected a positive number")
        self._function, self._dim = function, dim
        self.named = name is not None
        where = getattr(function, "__module__", None) or type(function).__module__
        what = getattr(function, "__qualname__", None) or type(function).__qualname__
        self.name = name or f"callable:{where}.{what}"

    @property
    def dim(self) -> int:
        """Length of a vector. Raises `EncoderError` when the function has to be asked and fails."""
        if self._dim is None:
            self.encode(["dimension"])
        return cast(int, self._dim)

    def encode(self, texts: list[str]) -> np.ndarray:
        """Unit vectors of the texts. Raises `EncoderError` when the function raises or returns something else."""
        texts = checked_texts(texts)
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        try:
            raw = self._function(texts)
        except GemjaxError:
            raise
        except Exception as error:
            raise EncoderError(f"encoder {self.name!r} raised {type(error).__name__}: {error}") from error
        vectors = unit_vectors(raw, len(texts), self.name, self._dim)
        self._dim = vectors.shape[1]
        return vectors


def checked_texts(texts: list[str]) -> list[str]:
    """`texts` as a list of strings. Raises `TypeError` for one bare string and for other items."""
    given: Any = texts
    if isinstance(given, str):
        raise TypeError("texts is a single string; give a list of strings")
    given = list(given)
    for index, text in enumerate(given):
        if not isinstance(text, str):
            raise TypeError(f"texts[{index}] is {type(text).__name__}; expected str")
    return cast(list[str], given)

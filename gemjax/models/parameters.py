"""A checkpoint's tensors, handed out once each and checked: what every loader has in common."""

from collections.abc import Callable, Mapping

import numpy as np

from gemjax.errors import WeightsError


class Parameters:
    """Hands out each tensor once, and knows at the end what nobody asked for.

    Args:
        tensors: by their names in the checkpoint.
        rename: from such a name to the one that the loader asks for.
    """

    def __init__(self, tensors: Mapping[str, np.ndarray], rename: Callable[[str], str]) -> None:
        self._tensors = tensors
        self._names = {rename(name): name for name in tensors}

    def require_layers(self, count: int) -> None:
        """Raises `WeightsError` for a config with more layers than there are tensors, before room is made for them."""
        if count > len(self._names):
            raise WeightsError(f"the config asks for {count:,} layers, the weights hold {len(self._names):,} tensors")

    def take(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor, float32. Raises `WeightsError` when it is missing, of another shape or not finite."""
        if name not in self._names:
            raise WeightsError(f"the weights lack the parameter {name}")
        value = self._tensors[self._names.pop(name)]
        if value.shape != shape:
            raise WeightsError(f"parameter {name} has shape {list(value.shape)}; the config asks for {list(shape)}")
        value = np.asarray(value, np.float32)
        if not np.isfinite(value).all():
            raise WeightsError(f"parameter {name} holds values that are not finite")
        return value

    def refuse_leftovers(self, known: Callable[[str], bool], way_out: str = "") -> None:
        """Raises `WeightsError` for tensors that nobody took, except those that are known to be of no use."""
        if unknown := sorted(name for name in self._names if not known(name)):
            raise WeightsError(f"the weights hold unknown tensors {unknown[:5]} ({len(unknown)} in all){way_out}")

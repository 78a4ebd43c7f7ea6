"""Shape checks of the kernels' arguments: they run while tracing and cost nothing afterwards."""

from jaxtyping import Array, Shaped


def require_rank(name: str, array: Shaped[Array, "..."], rank: int) -> None:
    """Raise ValueError, naming the argument, unless `array` has this many axes."""
    if array.ndim != rank:
        raise ValueError(f"{name} must have {rank} axes, got shape {tuple(array.shape)}")


def require_shape(name: str, array: Shaped[Array, "..."], shape: tuple[int, ...]) -> None:
    """Raise ValueError, naming the argument, unless `array` has exactly this shape."""
    if tuple(array.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(array.shape)}")

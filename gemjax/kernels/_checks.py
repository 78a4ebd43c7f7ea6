"""What every kernel asks of its arguments, in one kind of message. Checks run while tracing and cost nothing later.

Dtypes, for all kernels: float32 and float64 are computed in as they come. bfloat16 and float16 are storage types: rows
may be stored in them, and everything derived from the rows is float32, because a residual or a loss that is rounded to
eight bits has lost the order that it is for. Kernels that return rows of the kind they were given (`unit_rows` and the
two controls of `spectrum`) keep the caller's dtype. Integers are no vectors and are refused.
"""

from collections.abc import Collection
from types import EllipsisType
from typing import Any

import jax.numpy as jnp
import numpy as np

_KINDS: dict[str, tuple[Any, str]] = {
    "float": (jnp.floating, "floating point"),
    "bool": (jnp.bool_, "bool"),
    "int": (jnp.integer, "integers"),
}


def require(name: str, array: Any, shape: tuple[int | EllipsisType | None, ...], kind: str = "float") -> Any:
    """Refuse an argument of a wrong shape or kind.

    Args:
        name: the argument's name, as the caller wrote it.
        array: anything with `shape` and `dtype`.
        shape: expected sizes; `None` accepts any size in that place, a leading `...` any number of axes.
        kind: `"float"`, `"bool"` or `"int"`.

    Returns: the argument as a JAX array, so that its dtype is the one that JAX computes in (NumPy's float64 is float32
        here unless x64 is enabled).

    Raises: ValueError naming the argument, what came and what was expected.
    """
    got = tuple(np.shape(array))
    wanted = [size for size in shape if not isinstance(size, EllipsisType)]
    rest = got[max(len(got) - len(wanted), 0) :] if shape[:1] == (...,) else got
    if len(rest) != len(wanted) or any(w is not None and w != have for w, have in zip(wanted, rest, strict=True)):
        expected = ", ".join("any" if s is None else "..." if s is ... else str(s) for s in shape)
        raise ValueError(f"`{name}` has shape {got}; expected ({expected}{',' if len(shape) == 1 else ''})")
    dtype = jnp.result_type(array)
    wanted_kind, words = _KINDS[kind]
    if not jnp.issubdtype(dtype, wanted_kind):
        raise ValueError(f"`{name}` has dtype {dtype}; expected {words}")
    return jnp.asarray(array)


def require_rows(x: Any, **masks: Any) -> tuple[Any, ...]:
    """Refuse `x` that is no `[n, d]` array of floats, or a row mask that is not `bool[n]`; a mask may be None.

    Returns: `x` and the masks in their order, as JAX arrays (None stays None).
    """
    rows = require("x", x, (None, None))
    size = (rows.shape[0],)
    return rows, *(mask if mask is None else require(name, mask, size, "bool") for name, mask in masks.items())


def require_scalar(name: str, value: Any) -> None:
    """Refuse a number that has axes (ValueError)."""
    if jnp.ndim(value) != 0:
        raise ValueError(f"`{name}` has shape {jnp.shape(value)}; expected a scalar ()")


def require_positive(name: str, value: int) -> None:
    """Refuse a static size below 1 (ValueError)."""
    if value < 1:
        raise ValueError(f"`{name}` is {value}; expected a positive integer")


def require_one_of(name: str, value: str, known: Collection[str]) -> None:
    """Refuse a static choice that does not exist (ValueError)."""
    if value not in known:
        raise ValueError(f"`{name}` is {value!r}; expected one of {', '.join(known)}")


def working_dtype(*arrays: Any) -> Any:
    """The dtype that is computed in: float32 for 16-bit floats, else what the arrays promote to."""
    return jnp.promote_types(jnp.result_type(*arrays), jnp.float32)

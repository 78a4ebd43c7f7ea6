"""Checks what an encoder returned and brings it to unit length."""

from typing import Any

import numpy as np

from gemjax.errors import EncoderError
from gemjax.kernels.host import unit_rows_host


def unit_vectors(raw: Any, count: int, name: str, dim: int | None = None) -> np.ndarray:
    """An encoder's answer as float32 unit rows `[count, dim]`; a zero row stays zero ("no direction").

    Args:
        raw: what came: any array-like of real numbers.
        count: how many texts were asked for.
        name: the encoder's name, for the message.
        dim: the expected length of a vector; None: whatever came.

    Raises:
        EncoderError: another shape or kind of value, or a value that is not finite. It says what came.
    """
    try:
        # Tensors of other libraries may live on a device or carry gradients; their own conversion knows.
        array = np.asarray(raw.detach().cpu().float() if hasattr(raw, "detach") else raw)
    except Exception as error:  # ragged lists, foreign array types
        raise EncoderError(f"encoder {name!r} returned {type(raw).__name__}, which is no array: {error}") from error
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise EncoderError(f"encoder {name!r} returned {array.dtype} values; expected real numbers")
    expected = f"[{count}, {dim if dim else 'dim'}]"
    if array.ndim != 2 or len(array) != count or array.shape[1] == 0 or (dim and array.shape[1] != dim):
        raise EncoderError(
            f"encoder {name!r} returned shape {list(array.shape)} for {count} texts; expected {expected}"
        )
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(1))[0])
        raise EncoderError(f"encoder {name!r} returned a value that is not finite in row {row} of {count}")
    return unit_rows_host(values)


def mean_of_chunks(vectors: np.ndarray, lengths: np.ndarray, owners: np.ndarray, count: int) -> np.ndarray:
    """Chunk vectors to text vectors: the mean weighted by length, of unit length again.

    Args:
        vectors: unit rows `[chunks, dim]`.
        lengths: tokens of each chunk.
        owners: the index of each chunk's text, ascending.
        count: the number of texts, each with at least one chunk.

    Returns: float32 `[count, dim]`. A text of one chunk keeps that chunk's vector to the bit; a zero mean gives a zero
        row.
    """
    starts = np.searchsorted(owners, np.arange(count))
    if len(starts) == len(owners):
        return vectors
    # A chunk of no tokens (an empty text) still carries its text.
    weighted = vectors * np.maximum(lengths, 1)[:, None].astype(np.float64)
    total = np.add.reduceat(weighted, starts, axis=0)
    norm = np.linalg.norm(total, axis=1, keepdims=True)
    # Directions that cancel leave rounding noise, which is no direction.
    weight = np.add.reduceat(np.maximum(lengths, 1), starts)[:, None]
    pooled = np.where(norm > 1e-6 * weight, total / np.where(norm > 0, norm, 1), 0).astype(np.float32)
    single = np.diff(np.append(starts, len(owners))) == 1
    pooled[single] = vectors[starts[single]]
    return pooled

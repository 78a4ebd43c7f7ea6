"""What the host does before arrays reach a kernel: padded sizes and unit rows. NumPy only; imports no JAX."""

import numpy as np

_ONE_THREAD = 400_000
"""Multiplications of a matrix and a vector that BLAS leaves to one thread (OpenBLAS: 460,800)."""


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest power of two that is at least `n`, and at least `least`: the size that `n` things are padded to.

    Each padded size compiles once, so that a growing history meets a handful of programs.

    Args:
        n: how many there are; 0 and less count as 1.
        least: a power of two.

    Returns: the padded size.

    >>> power_of_two(5), power_of_two(8), power_of_two(0), power_of_two(3, 32)
    (8, 8, 1, 32)
    """
    return max(least, 1 << max(n - 1, 0).bit_length())


def matvec(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """`rows @ vector` by one thread: small products must not wake a pool of threads.

    BLAS shares a product between threads from some 460,000 multiplications on, and where other work keeps the
    processors busy it then waits for the slowest of them, many times as long as the product takes.

    Args:
        rows: real numbers `[n, d]`.
        vector: `[d]`, of the same dtype.

    Returns: `[n]`, to the bit what parts of less than that give.
    """
    part = max(_ONE_THREAD // max(rows.shape[1], 1) // 4 * 4, 4)
    if len(rows) <= part:
        return np.asarray(rows @ vector)
    return np.concatenate([rows[start : start + part] @ vector for start in range(0, len(rows), part)])


def unit_rows_host(values: np.ndarray) -> np.ndarray:
    """Rows of any length and dtype scaled to Euclidean length 1: what `linalg.unit_rows` does, before a device is up.

    Args:
        values: finite real numbers, `[n, d]`.

    Returns: float32 `[n, d]`. A zero row has no direction and stays zero; who has no use for one refuses it.
    """
    # float64, and divided by the largest entry first, so that squares neither under- nor overflow in any dtype.
    wide = values.astype(np.float64)
    largest = np.abs(wide).max(1, initial=0, keepdims=True)
    wide /= np.where(largest > 0, largest, 1)
    norm = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(norm > 0, norm, 1), np.float32)

"""A growing matrix of vectors on the device: appends in place, doubles its capacity, compiles a handful of programs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from gemjax.kernels.host import power_of_two

SMALLEST = 256
LARGEST_WRITE = 4096


@functools.partial(jax.jit, donate_argnums=0)
def _write(buffer: Float[Array, "n d"], rows: Float[Array, "m d"], start: Int[Array, ""]) -> Float[Array, "n d"]:
    return jax.lax.dynamic_update_slice_in_dim(buffer, rows.astype(buffer.dtype), start, 0)


@functools.partial(jax.jit, donate_argnums=0)
def _put(buffer: Float[Array, "n d"], rows: Float[Array, "m d"], index: Int[Array, "m"]) -> Float[Array, "n d"]:
    return buffer.at[index].set(rows.astype(buffer.dtype), mode="drop")


@functools.partial(jax.jit, static_argnames="capacity")
def _grow(buffer: Float[Array, "n d"], capacity: int) -> Float[Array, "m d"]:
    return jnp.zeros((capacity, buffer.shape[1]), buffer.dtype).at[: buffer.shape[0]].set(buffer)


@jax.jit
def _take(buffer: Float[Array, "n d"], index: Int[Array, "m"]) -> Float[Array, "m d"]:
    return buffer[index]


def capacity_for(count: int) -> int:
    """Smallest power of two that holds `count` rows, at least 256."""
    return power_of_two(count, SMALLEST)


class Rows:
    """`[capacity, dim]` on the device, of which the first `len(self)` rows are in use. Not thread-safe.

    An append costs its own rows: the buffer is donated to the write, so it is updated in place, and it is copied only
    when the capacity doubles. Writes are split into powers of two, so N appends of any sizes compile at most
    `log2(4096) + log2(N / 256)` programs.
    """

    def __init__(self, dim: int, dtype: str = "float32") -> None:
        self.dim = dim
        self.dtype = jnp.dtype(dtype)
        self._buffer = jnp.zeros((SMALLEST, dim), self.dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def capacity(self) -> int:
        return int(self._buffer.shape[0])

    @property
    def buffer(self) -> Float[Array, "n d"]:
        """The whole buffer. Do not keep it: the next append invalidates it."""
        return self._buffer

    def append(self, rows: Float[np.ndarray, "m d"]) -> None:
        """Add rows behind the last one."""
        needed = capacity_for(self._count + len(rows))
        if needed > self.capacity:
            self._buffer = _grow(self._buffer, needed)
        done = 0
        while done < len(rows):
            size = min(LARGEST_WRITE, 1 << ((len(rows) - done).bit_length() - 1))
            part = jnp.asarray(rows[done : done + size])
            self._buffer = _write(self._buffer, part, jnp.int32(self._count + done))
            done += size
        self._count += done  # last, so that a failed write leaves the old rows

    def put(self, index: Int[np.ndarray, "m"], rows: Float[np.ndarray, "m d"]) -> None:
        """Write these rows in the places of others, each once."""
        size = capacity_for(len(index))
        places = np.full(size, self.capacity, np.int32)  # out of range: dropped
        padded = np.zeros((size, self.dim), np.float32)
        places[: len(index)], padded[: len(index)] = index, rows
        self._buffer = _put(self._buffer, jnp.asarray(padded), jnp.asarray(places))

    def take(self, index: Int[np.ndarray, "m"]) -> Float[np.ndarray, "m d"]:
        """These rows as stored (rounded to the storage type), float32, on the host."""
        padded = np.zeros(capacity_for(len(index)), np.int32)
        padded[: len(index)] = index
        return np.asarray(_take(self._buffer, jnp.asarray(padded))[: len(index)], np.float32)

    def stored(self, index: Int[np.ndarray, "m"]) -> np.ndarray:
        """These rows in the storage type, bfloat16 as its bits in uint16: what a file keeps."""
        rows = self.take(index)
        return (
            rows if self.dtype != jnp.bfloat16 else np.asarray(jnp.asarray(rows).astype(jnp.bfloat16)).view(np.uint16)
        )

    def as_stored(self, saved: np.ndarray) -> np.ndarray:
        """What `stored` returned, as rows to append."""
        return saved.view(jnp.bfloat16) if self.dtype == jnp.bfloat16 else saved

    def keep(self, index: Int[np.ndarray, "m"]) -> None:
        """Drop all other rows; the kept ones move up in this order. The capacity shrinks to fit."""
        capacity = capacity_for(len(index))
        padded = np.zeros(capacity, np.int32)
        padded[: len(index)] = index
        self._buffer = _take(self._buffer, jnp.asarray(padded))
        self._count = len(index)

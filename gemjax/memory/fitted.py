"""The moments of a bank's rows and the metric fitted from them, brought up to date when they are asked for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from gemjax.kernels import metric as km
from gemjax.kernels import moments as kmo
from gemjax.kernels import search as ks
from gemjax.kernels.host import power_of_two
from gemjax.memory.config import MemoryConfig
from gemjax.memory.rows import Rows

MOMENT_ROWS = 4096

_add_rows = jax.jit(kmo.add_rows)
_remove_rows = jax.jit(kmo.remove_rows)
_all_rows = jax.jit(kmo.moments_from_rows)
_norms = jax.jit(ks.memory_norms)


class FittedMetric:
    """Not thread-safe. `adding` and `removing` compute; nothing changes before `replace`."""

    def __init__(self, config: MemoryConfig) -> None:
        self._config = config
        self._moments: kmo.Moments | None = None  # None: to be taken from the rows
        self._removed = 0  # rows subtracted since the moments were last exact
        self._metric: km.LowRankMetric | None = None
        self._stale = True
        self._norms: Float[Array, "n"] | None = None

    def adding(self, rows: Float[np.ndarray, "m d"], *, first: bool) -> kmo.Moments | None:
        """The moments with these rows too; `first`: there are no others."""
        # The moments describe what is stored, not what was given: with bfloat16 storage the two differ.
        if self._config.dtype == "bfloat16":
            rows = np.asarray(jnp.asarray(rows).astype(jnp.bfloat16).astype(jnp.float32))
        return _updated(kmo.empty_moments(rows.shape[1]) if first else self._moments, _add_rows, rows)

    def removing(self, rows: Float[np.ndarray, "m d"], left: int) -> kmo.Moments | None:
        """The moments without these rows, of which `left` others stay; None when they must be taken from those."""
        self._removed += len(rows)
        if self._removed > left:  # subtraction has cancelled too much
            self._removed = 0
            return None
        return _updated(self._moments, _remove_rows, rows)

    def replace(self, moments: kmo.Moments | None) -> None:
        """Take these moments; the metric is now out of date."""
        self._moments = moments
        self._stale = True
        self._norms = None

    def moments(self, rows: Rows, alive: Bool[Array, "n"]) -> kmo.Moments:
        """Count, mean and centred second moment of the rows that are alive."""
        if self._moments is None:
            self._moments = _all_rows(rows.buffer, alive)
        return self._moments

    def metric(self, rows: Rows, alive: Bool[Array, "n"]) -> km.LowRankMetric:
        """The metric, refitted first when it is out of date (unless `auto_refit` is off)."""
        if self._metric is None or (self._stale and self._config.auto_refit):
            return self.refit(rows, alive)
        return self._metric

    def refit(self, rows: Rows, alive: Bool[Array, "n"]) -> km.LowRankMetric:
        """Fit now. `O(d^3)`, however many rows there are."""
        c = self._config
        metric: km.LowRankMetric = km.fit_metric_jit(
            self.moments(rows, alive), ridge=c.ridge, energy=c.energy, model=c.model
        )
        self._metric, self._stale, self._norms = metric, False, None
        return metric

    def norms(self, metric: km.LowRankMetric, rows: Rows) -> Float[Array, "n"] | None:
        """What the two distance forms need of every row, computed once a fit; None for the plain score."""
        if self._config.form == "similarity":
            return None
        if self._norms is None or self._norms.shape[0] != rows.capacity:
            self._norms = _norms(metric, rows.buffer, jnp.int32(len(rows)))
        return self._norms


def _updated(state: kmo.Moments | None, update: Any, rows: Float[np.ndarray, "m d"]) -> kmo.Moments | None:
    """`state` after `update` with the rows, padded to powers of two so that few programs are compiled."""
    for start in range(0, len(rows) if state is not None else 0, MOMENT_ROWS):
        part = rows[start : start + MOMENT_ROWS]
        size = power_of_two(len(part))
        padded = np.zeros((size, rows.shape[1]), np.float32)
        padded[: len(part)] = part
        state = update(state, padded, np.arange(size) < len(part))
    return state

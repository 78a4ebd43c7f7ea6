"""Prices of today by name, from one data file that says where they are from: `prices.json`."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from gemjax.errors import ConfigError

LONG = "-1h"
"""Ending of a name that asks for the price of a cache that lives an hour."""


@cache
def price_list() -> dict[str, Any]:
    """The data file: `source`, `date`, `unit`, and by name of the model `read`, `write` and `write_1h`."""
    loaded: dict[str, Any] = json.loads(files("gemjax.history").joinpath("prices.json").read_text("utf-8"))
    return loaded


def prices_named(name: str) -> tuple[float, float, float]:
    """Prices of cached, newly cached and uncached input of a model, as multiples of its plain input price.

    Args:
        name: a model of the list; with `-1h` at its end, where the provider sells that, for caches that live an hour.

    Raises: `ConfigError` for a name that is not in the list, and for a cache that the provider does not sell.

    >>> prices_named("claude-opus-5.5"), prices_named("claude-opus-5.5-1h"), prices_named("gpt-5.5")
    ((0.05, 1.25, 1.0), (0.05, 2.0, 1.0), (0.1, 1.0, 1.0))
    """
    models = price_list()["models"]
    model = models.get(name.removesuffix(LONG))
    if model is None:
        raise ConfigError(f"no prices are known for {name!r}; known: {', '.join(models)}")
    if not name.endswith(LONG):
        return model["read"], 1.0 if model["write"] is None else model["write"], 1.0
    if model["write_1h"] is None:
        raise ConfigError(f"{name.removesuffix(LONG)} has no price for a cache that lives an hour")
    return model["read"], model["write_1h"], 1.0

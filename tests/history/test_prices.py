"""The list of prices, and the option that reads it."""

import argparse

import pytest

from gemjax.commands.options import prices
from gemjax.errors import ConfigError
from gemjax.history.policy import CostAwarePolicy
from gemjax.history.price_list import price_list, prices_named


def test_every_price_is_usable_and_says_where_it_is_from() -> None:
    listed = price_list()
    assert listed["source"] and listed["date"]
    for name, model in listed["models"].items():
        read, write, plain = prices_named(name)
        assert 0 < read < plain <= write
        CostAwarePolicy(read=read, write=write)
        if model["write_1h"] is not None:
            assert prices_named(f"{name}-1h") == (read, model["write_1h"], 1.0)


def test_the_option_takes_a_name_or_numbers() -> None:
    assert prices("claude-sonnet-5.5") == (0.05, 1.25, 1.0)
    assert prices("gpt-5.4") == (0.1, 1.0, 1.0)
    assert prices("0.5,1,1") == (0.5, 1.0, 1.0)


@pytest.mark.parametrize("name", ["claude-opus-9", "", "gpt-5.6-1h", "-1h"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(ConfigError):
        prices_named(name)
    with pytest.raises(argparse.ArgumentTypeError):
        prices(name)

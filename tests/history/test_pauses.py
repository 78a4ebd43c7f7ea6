"""Pauses: a rewrite after the provider's cache has expired is free; clocks that say nothing change nothing."""

import time

import pytest

from gemjax import GEMConfig, HistoryCompressor
from gemjax.errors import ConfigError
from gemjax.evaluation.replay import Bill, EstimatedTokens, Prices, Sizer
from gemjax.history import CostAwarePolicy
from tests.conftest import HashingEncoder
from tests.history.requests import chat

# Rents never reach this price: only a pause makes it rewrite a second time.
NEVER = CostAwarePolicy(beta=1e9, ttl=300.0)


def dropped_at(times, policy=NEVER, **settings):
    """How many blocks go out of growing requests that come at these times."""
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(policy=policy, encoder_timeout=None, encoder_wait=None))
    out = []
    for number, now in enumerate(times):
        result = gem.compress(chat(40 + 6 * number), now=now, **settings)
        out.append((result.event, len(result.blocks) - len(result.forwarded), result.reason))
    return gem, out


def test_after_a_long_pause_the_history_is_rewritten_for_nothing():
    _, out = dropped_at([0.0, 10.0, 310.0, 611.0, 612.0])
    assert [event for event, _, _ in out] == [True, False, False, True, False]
    assert out[3][1] > out[2][1] and "expired in a pause of 301 s" in out[3][2]


@pytest.mark.parametrize("times", [[0.0, -1e6, -1e6 + 10], [1e6, 0.0, 5.0], [7.0, 7.0, 7.0]])
def test_a_clock_that_stands_still_or_goes_back_is_no_pause(times):
    _, out = dropped_at(times)
    assert [event for event, _, _ in out] == [True, False, False]


def test_without_a_limit_no_pause_is_long_enough():
    _, out = dropped_at([0.0, 1e9], CostAwarePolicy(beta=1e9, ttl=None))
    assert [event for event, _, _ in out] == [True, False]


def test_by_default_the_monotonic_clock_is_read(monkeypatch):
    moment = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    gem = HistoryCompressor(HashingEncoder(), GEMConfig(policy=NEVER, encoder_timeout=None, encoder_wait=None))
    assert gem.compress(chat(40)).event
    moment[0] += 299.0
    assert not gem.compress(chat(46)).event
    moment[0] += 301.0
    assert gem.compress(chat(52)).event


def test_after_a_restart_the_pause_is_not_known():
    gem, _ = dropped_at([0.0])
    other = HistoryCompressor(HashingEncoder(), GEMConfig(policy=NEVER, encoder_timeout=None, encoder_wait=None))
    other.load_state_dict("default", gem.state_dict())
    assert not other.compress(chat(46), now=1e6).event
    assert other.compress(chat(52), now=2e6).event


@pytest.mark.parametrize("now", ["12:00", float("nan"), float("inf"), True, [1]])
def test_a_time_that_is_none_is_refused(now):
    with pytest.raises(ConfigError, match="now must be a finite number"):
        HistoryCompressor(HashingEncoder()).compress(chat(40), now=now)


def test_the_bill_writes_anew_what_has_expired():
    """Sizes by hand: a frame of 15 characters, messages of 10, a comma between two."""
    messages = [{"c": "abc"}, {"c": "def"}, {"c": "ghi"}]
    ledger = Bill({}, "messages", Sizer(EstimatedTokens()), Prices(0.1, 1.25, ttl=300.0))
    frame = len('{"messages":[]}')
    sizes = [frame + 11, frame + 11 * 2 + 1, frame + 11 * 3 + 2]
    times = [0.0, 100.0, 401.0]
    costs = [ledger.send(messages[: i + 1], at=t).cost for i, t in enumerate(times)]
    assert costs[0] == pytest.approx(1.25 * sizes[0])
    assert costs[1] == pytest.approx(0.1 * sizes[0] + 1.25 * (sizes[1] - sizes[0]))
    assert costs[2] == pytest.approx(1.25 * sizes[2])
    assert ledger.totals.expired == 1
    # Times that are not known, stand still or go back leave the cache alive.
    for at in (None, 401.0, 401.0, 3.0, 4.0):
        assert ledger.send(messages, at=at).cost == pytest.approx(0.1 * sizes[2])


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan")])
def test_a_life_that_is_none_is_refused(ttl):
    with pytest.raises(ConfigError, match="ttl must be a positive number"):
        Prices(ttl=ttl)

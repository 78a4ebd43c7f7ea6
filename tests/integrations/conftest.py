"""A provider on loopback, and how a shortened run is compared with the whole one."""

import pytest

pytest.importorskip("uvicorn", reason="the provider for tests runs on uvicorn; install the extra `test`")

from gemjax.history import HistoryCompressor
from tests.conftest import HashingEncoder
from tests.provider.app import Provider
from tests.provider.loopback import on_loopback


@pytest.fixture(scope="module")
def provider():
    made = Provider()
    with on_loopback(made.app) as url:
        made.url = url
        yield made


@pytest.fixture
def gem():
    return HistoryCompressor(HashingEncoder())


@pytest.fixture
def compare(provider):
    """Check the run under one key against the same agent's whole run under another."""

    def check(ours, whole, field="messages"):
        ours, whole = provider.account(ours), provider.account(whole)
        assert not ours.refused and not whole.refused
        assert ours.turn == whole.turn == provider.calls + 1
        assert ours.cost <= whole.cost
        assert sum(map(len, ours.bodies)) < 0.95 * sum(map(len, whole.bodies))
        for sent, full in zip(ours.requests(), whole.requests(), strict=True):
            rest = iter(full[field])
            assert all(any(m == k for m in rest) for k in sent[field]), "a message was changed"
            assert sent[field][-1] == full[field][-1]
            for name in ("system", "instructions", "tools", "model"):
                assert sent.get(name) == full.get(name)

    return check

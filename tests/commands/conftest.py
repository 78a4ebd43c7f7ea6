"""Commands are interrupted here. A shell that runs the suite in the background ignores Ctrl-C for all its children."""

import signal

import pytest


@pytest.fixture(autouse=True)
def interrupts_arrive():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)

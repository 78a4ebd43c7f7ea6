"""SIGTERM ends a command as Ctrl-C does, with a status of its own, and leaves no handler behind."""

import os
import signal
import threading

import pytest

from gemjax.cli import main
from gemjax.evaluation import compression_run
from tests.commands.eval_compression import call, path, stand_ins

__all__ = ["path", "stand_ins"]


def ended_by(number):
    def end(*rest):
        os.kill(os.getpid(), number)
        raise AssertionError("the signal did not end this")

    return end


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_is_finished_is_printed(path, capsys, monkeypatch, number, status):
    real, end = compression_run.measure, ended_by(number)
    monkeypatch.setattr(
        compression_run, "measure", lambda name, *rest: end() if name == "selection" else real(name, *rest)
    )
    before = signal.getsignal(signal.SIGTERM)
    assert call(path, "--budgets", "40") == status
    streams = capsys.readouterr()
    assert "random" in streams.out and "selection" not in streams.out and "interrupted" in streams.err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_that_keeps_nothing(monkeypatch, capsys):
    monkeypatch.setattr("gemjax.commands.doctor.run", ended_by(signal.SIGTERM))
    assert main(["doctor"]) == 143
    assert capsys.readouterr().err == "gemjax: interrupted\n"


def test_an_ignored_signal_stays_ignored(monkeypatch):
    monkeypatch.setattr("gemjax.commands.doctor.run", lambda arguments: os.kill(os.getpid(), signal.SIGTERM) or 0)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert main(["doctor"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)


def test_another_thread_sets_no_handler(monkeypatch):
    monkeypatch.setattr("gemjax.commands.doctor.run", lambda arguments: 0)
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(main(["doctor"])))
    thread.start()
    thread.join()
    assert statuses == [0]

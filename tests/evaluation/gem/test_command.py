"""`gemjax eval gem` as a user calls it."""

import json

import pytest

from gemjax.cli import main
from tests.conftest import HashingEncoder, unbroken
from tests.evaluation.gem.conftest import conversation, record


@pytest.fixture(autouse=True)
def stand_in(monkeypatch, tmp_path):
    """No weights, and a cache folder of the test's own."""
    monkeypatch.setenv("GEMJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("gemjax.commands.eval.encoder_from", lambda arguments: HashingEncoder())


def call(*arguments):
    return main(["eval", "gem", *map(str, arguments), "--no-compilation-cache"])


def test_json_and_files(runs, tmp_path, capsys):
    out = tmp_path / "new" / "out"
    assert call(runs, "--tables", "D.1", "--json", "--out", out) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [t["name"] for t in printed["tables"]] == ["D.1"] and "raw" not in printed["tables"][0]
    assert json.loads((out / "table-D.1.json").read_text())["raw"]["values"]["recency"]["T3"]
    assert (out / "report.html").read_text().startswith("<!doctype html>")
    assert list((tmp_path / "cache" / "vectors").iterdir())


def test_terminal(runs, capsys):
    assert call(runs, "--tables", "D.1", "--no-vector-cache") == 0
    shown = unbroken(capsys.readouterr().out)
    assert unbroken("latest-action similarity") in shown and unbroken("6 checkpoints, 3 trajectories") in shown


def test_what_cannot_be_done_is_said(tmp_path, runs, capsys):
    record(tmp_path / "short.json", conversation(0, 3))
    assert call(tmp_path / "short.json") == 2
    assert unbroken("short.json: 3 complete blocks") in unbroken(capsys.readouterr().out)
    assert call(tmp_path / "absent") == 2
    assert "no such file or folder" in capsys.readouterr().err
    assert call(runs, "--tables", "9") == 2
    assert "unknown table '9'" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert call(runs, "--tables", "D.1", "--out", tmp_path / "file") == 2
    assert "not written" in capsys.readouterr().out

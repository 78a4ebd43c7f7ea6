"""`gemjax eval locomo` as a user calls it: its files, and its tables at the width of a terminal."""

import json

import pytest

from gemjax.cli import main
from tests.conftest import HashingEncoder


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr("gemjax.commands.eval.encoder_from", lambda arguments: HashingEncoder())


def call(*words):
    return main(["eval", "locomo", *map(str, words), "--resamples", "20", "--no-compilation-cache"])


def test_a_file_that_cannot_be_written_costs_the_file_alone(tiny_path, capsys):
    assert call(tiny_path, "--methods", "cosine", "--json", "-o", "/dev/full") == 2
    streams = capsys.readouterr()
    assert json.loads(streams.out)["methods"]["cosine"]
    assert streams.err == "gemjax: /dev/full: No space left on device\n"


def test_a_folder_is_refused_before_the_work(tmp_path, capsys):
    assert call(tmp_path / "not read.json", "-o", tmp_path) == 2
    assert capsys.readouterr().err == f"gemjax: {tmp_path}: is a folder; name a file in it\n"


def test_the_tables_at_the_width_of_a_terminal(tiny_path, capsys, monkeypatch):
    tiny_path.write_text(json.dumps(json.loads(tiny_path.read_text())[:1]))
    monkeypatch.setenv("COLUMNS", "80")
    assert call(tiny_path, "--methods", "cosine,fused") == 0
    shown = capsys.readouterr().out
    assert "1 conversation, 10 turns, 7 questions of which 6" in " ".join(shown.split())
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    for head in ("by conversation", "macro 1-4", "literal", "never found", "all@50"):
        assert head in " ".join(shown.split()) or all(word in shown for word in head.split())


@pytest.mark.parametrize("methods", ["", ",", "cosine,"])
def test_a_method_without_a_name_is_refused(tiny_path, capsys, methods):
    assert call(tiny_path, "--methods", methods) == 2
    assert "unknown methods ''" in capsys.readouterr().err

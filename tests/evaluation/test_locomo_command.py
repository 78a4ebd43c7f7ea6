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

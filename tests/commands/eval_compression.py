"""`gemjax eval compression` with a tiny model and an encoder of hashed words."""

import pytest

from gemjax.cli import main
from tests.conftest import HashingEncoder
from tests.distill.conftest import tiny_model
from tests.evaluation import dialogue

MODEL = tiny_model()


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch, tmp_path):
    """No weights, and a cache folder of the test's own."""
    monkeypatch.setenv("GEMJAX_CACHE", str(tmp_path / "cache"))
    # How wide a page is must not hang on where the tests run.
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("gemjax.commands.eval_compression.encoder_from", lambda arguments: HashingEncoder())
    monkeypatch.setattr("gemjax.commands.eval_compression.language_model", lambda name: MODEL)


@pytest.fixture
def path(tmp_path):
    return dialogue.write(tmp_path / "locomo.json")


def call(*words):
    return main(["eval", "compression", *map(str, words), "--top", "6", "--no-compilation-cache"])

"""A tiny random model with room for whole made-up runs, and one evaluation that several tests look at."""

import dataclasses

import pytest

from gemjax.encoders import CachedEncoder
from gemjax.evaluation.gem.checkpoints import collect
from gemjax.evaluation.next_action.run import Settings, evaluate
from gemjax.evaluation.replay import load
from gemjax.history.evidence import DEFAULT_RULES
from gemjax.models.language import LanguageModel
from tests.conftest import HashingEncoder
from tests.distill.conftest import tiny_model
from tests.evaluation.gem.conftest import conversation, record

CAP = 24


@pytest.fixture(scope="session")
def reader() -> LanguageModel:
    tiny = tiny_model()
    config = dataclasses.replace(tiny.config, max_position_embeddings=2048)
    return LanguageModel(config, tiny.params, tiny.tokenizer, name="tiny")


def write_runs(folder):
    folder.mkdir()
    for seed, blocks in enumerate((18, 23, 40)):
        record(folder / f"run-{seed}.json", conversation(seed, blocks))
    return folder


@pytest.fixture
def runs(tmp_path):
    return write_runs(tmp_path / "runs")


@pytest.fixture
def collected(runs):
    return collect(load(runs).trajectories, HashingEncoder(), DEFAULT_RULES).trajectories


@pytest.fixture(scope="session")
def evaluated(reader, tmp_path_factory):
    """Seven checkpoints of three runs."""
    folder = write_runs(tmp_path_factory.mktemp("next-action") / "runs")
    settings = Settings(sample=7, block_tokens=CAP)
    return evaluate(folder, CachedEncoder(HashingEncoder()), reader, settings)

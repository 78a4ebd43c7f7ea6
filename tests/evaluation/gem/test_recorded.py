"""What the issue asks of the rules, on recorded agents: the shorter half, so that encoding takes seconds."""

import numpy as np
import pytest

from gemjax.encoders import default_encoder
from gemjax.errors import WeightsError
from gemjax.evaluation.gem.checkpoints import MIN_BLOCKS, collect
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.table import trajectory_means
from gemjax.evaluation.replay import load
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES

SHORTEST = 20


@pytest.fixture(scope="module")
def means(data_dir):
    try:
        encoder = default_encoder()
    except WeightsError as error:
        pytest.skip(str(error))
    found = load([data_dir / "trajectories" / "openai"]).trajectories
    # One more, so that there is a call after the first checkpoint.
    long_enough = [t for t in found if len(t.parsed.blocks) > MIN_BLOCKS]
    shortest = sorted(long_enough, key=lambda t: (sum(b.chars for b in t.parsed.blocks), t.id))[:SHORTEST]
    got = collect(shortest, encoder, (*PAPER_RULES, *DEFAULT_RULES))
    assert len(got.trajectories) >= SHORTEST - 2 and not got.interrupted
    study = Study(got.trajectories)
    return {
        name: {m: float(np.nanmean(trajectory_means(values[m], study.groups))) for m in ("T3", "E", "C")}
        for name, values in study.at_paper_count.items()
    }


@pytest.mark.data
def test_the_papers_rules_keep_more_next_action_evidence_than_geometry_at_the_same_centroid(means):
    assert means["paper"]["T3"] >= means["geometry"]["T3"] + 0.05
    assert abs(means["paper"]["C"] - means["geometry"]["C"]) <= 0.01


@pytest.mark.data
def test_the_default_rules_reach_what_was_asked_at_the_papers_count(means):
    assert means["default"]["T3"] >= 0.68
    assert means["default"]["E"] >= 0.84
    assert means["default"]["C"] >= 0.97


@pytest.mark.data
def test_plain_baselines_are_strong(means):
    # The papers compare with geometry alone; a user's alternatives are these.
    assert means["recency"]["T3"] > means["paper"]["T3"]
    assert means["latest-action"]["T3"] > means["recency"]["T3"]
    assert means["default"]["C"] > means["latest-action"]["C"] + 0.01

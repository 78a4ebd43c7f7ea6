"""Grounding beside the paper's measures, on runs of which one knows by hand where the next call's value stands."""

import dataclasses
import json

import numpy as np
import pytest

from gemjax.evaluation.gem.checkpoints import collect
from gemjax.evaluation.gem.grounding_tables import GROUNDING, grounded, table_g
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.selectors import SELECTORS, selections
from gemjax.evaluation.replay import load
from gemjax.evaluation.replay.grounding import CallNeeds
from gemjax.history.evidence import DEFAULT_RULES, PAPER_RULES
from tests.conftest import HashingEncoder
from tests.evaluation.gem.conftest import record

BACK = 5


def run_with_items(blocks: int) -> list[dict]:
    """Each call opens the item that the result five blocks before it has shown, and nothing else has."""
    messages = [{"role": "system", "content": "work"}, {"role": "user", "content": "go through them"}]
    for i in range(blocks):
        arguments = json.dumps({"command": f"open item_{i - BACK:03d}_key" if i >= BACK else "look"})
        call = {"id": f"c{i}", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"found item_{i:03d}_key, step {i % 7}"})
    return messages


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("runs")
    record(folder / "a.json", run_with_items(22))
    record(folder / "b.json", run_with_items(26))
    return Study(collect(load(folder).trajectories, HashingEncoder(), (*PAPER_RULES, *DEFAULT_RULES)).trajectories)


def test_a_value_is_there_if_the_block_that_holds_it_is(study: Study) -> None:
    rng = np.random.default_rng(0)
    masks = [rng.uniform(size=(len(t.counts), len(t.vectors))) < 0.5 for t in study.trajectories]
    got = grounded(study.trajectories, masks)
    want = np.array(
        [
            m[n - BACK]
            for mask, t in zip(masks, study.trajectories, strict=True)
            for m, n in zip(mask, t.counts, strict=True)
        ]
    )
    assert 0.2 < want.mean() < 0.8
    for name in GROUNDING:
        np.testing.assert_array_equal(got[name], want.astype(float))


def test_the_tables_hold_what_the_selectors_keep(study: Study) -> None:
    one, two = table_g(study)
    counts = study.split(study.own["paper"]["count"].astype(np.int32))
    chosen = selections(study.trajectories, counts, study.paper, study.default)
    for row, name in zip(one.rows, SELECTORS, strict=True):
        means = [
            np.mean([mask[n - BACK] for mask, n in zip(masks, t.counts, strict=True)])
            for masks, t in zip(chosen[name], study.trajectories, strict=True)
        ]
        assert row.cells[0].value == pytest.approx(np.mean(means)) == row.cells[2].value
    recency = one.rows[list(SELECTORS).index("recency")]
    assert recency.cells[0].value == pytest.approx(np.mean([np.mean(c >= BACK) for c in counts]))
    assert [row.label for row in two.rows][:2] == ["grounding with T3", "grounding with C"]


def test_calls_that_copy_nothing_do_not_count(study: Study) -> None:
    trajectory = study.trajectories[0]
    bare = dataclasses.replace(trajectory, needs=tuple(CallNeeds((), ()) for _ in trajectory.needs))
    mask = np.ones((len(bare.counts), len(bare.vectors)), bool)
    assert all(np.isnan(values).all() for values in grounded([bare], [mask]).values())

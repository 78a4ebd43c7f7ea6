"""The numbers of the tables against SciPy and against the raw values."""

import json

import numpy as np
import pytest
import scipy.stats

from gemjax.evaluation.gem.correlation import across, within
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.selectors import SELECTORS, matched, selections
from gemjax.evaluation.next_action.tables import PREDICTORS, Measured, table_n1, table_n2, table_n3
from gemjax.evaluation.statistics import bootstrap_intervals, bootstrap_statistic, spearman


@pytest.mark.parametrize("seed", range(6))
def test_spearman_with_ties(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 60))
    a, b = rng.integers(0, 5, n).astype(float), rng.standard_normal(n).round(1)
    ranks = [[(x < v).sum() + ((x == v).sum() + 1) / 2 for v in x] for x in (a, b)]
    assert spearman(a, b) == pytest.approx(np.corrcoef(ranks)[0, 1], abs=1e-12)
    assert spearman(a, 3 * a + 1) == pytest.approx(1) and spearman(a, -a) == pytest.approx(-1)


def test_spearman_where_it_is_not_defined():
    assert np.isnan(spearman(np.ones(4), np.arange(4.0))) and np.isnan(spearman(np.zeros(0), np.zeros(0)))


def test_bootstrap_of_a_statistic():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), rng.integers(1, 6, 40))
    values = rng.standard_normal(len(groups)) + groups / 20
    ours = bootstrap_statistic(lambda rows: float(values[rows].mean()), groups, resamples=4000)
    np.testing.assert_allclose(ours, bootstrap_intervals(values[:, None], groups, resamples=4000)[0], atol=0.05)
    one = bootstrap_statistic(lambda rows: float(values[rows].mean()), np.zeros(len(groups), int))
    assert one == pytest.approx((values.mean(), values.mean()))
    assert np.isnan(bootstrap_statistic(lambda rows: np.nan, groups, resamples=10)).all()
    assert np.isnan(bootstrap_statistic(lambda rows: 1.0, np.zeros(0, int))).all()


@pytest.fixture
def measured():
    rng = np.random.default_rng(3)
    c, s = 14, len(SELECTORS)
    lost = rng.uniform(0, 1, (s, c))
    tokens = rng.integers(5, 50, c)
    full = rng.uniform(1, 3, c) * tokens
    losses = full + tokens * (0.4 * lost + 0.1 * rng.standard_normal((s, c)))
    latest = rng.uniform(size=(s, c)) < 0.6
    cheap = {
        name: {
            "T3": np.round(3 * (1 - lost[i])) / 3,
            "C": 1 - lost[i],
            "E": rng.uniform(size=c),
            "R_a": lost[i],
            "grounding": 1 - lost[i] ** 2,
        }
        for i, name in enumerate(SELECTORS)
    }
    return Measured(
        names=[f"run {i}" for i in range(5)],
        groups=np.sort(rng.integers(0, 5, c)),
        blocks=np.full(c, 20),
        kept=np.full(c, 10),
        tokens=tokens,
        full=full,
        none=full + 1.5 * tokens,
        losses={name: losses[i] for i, name in enumerate(SELECTORS)},
        latest={name: latest[i] for i, name in enumerate(SELECTORS)},
        cheap=cheap,
    )


def test_correlations_within_a_checkpoint(measured):
    got = within(measured.rise, measured.lost("T3"))
    for c in range(len(got)):
        rise = [(measured.losses[s][c] - measured.full[c]) / measured.tokens[c] for s in SELECTORS]
        lost = [1 - measured.cheap[s]["T3"][c] for s in SELECTORS]
        assert got[c] == pytest.approx(scipy.stats.spearmanr(rise, lost).statistic, abs=1e-12)
    table = table_n3(measured)[0]
    means = [got[measured.groups == g].mean() for g in np.unique(measured.groups)]
    assert table.rows[0].cells[0].value == pytest.approx(np.mean(means))
    assert [row.label for row in table.rows] == list(PREDICTORS.values())


@pytest.mark.parametrize("latest_only", [False, True])
def test_correlations_across_checkpoints(measured, latest_only):
    used = measured.keeps_latest if latest_only else np.ones(measured.rise.shape, bool)
    pairs = []
    for c in range(len(measured.groups)):
        at = np.flatnonzero(used[:, c])
        if len(at) > 1:
            centred = [x[at, c] - x[at, c].mean() for x in (measured.rise, measured.lost("C"))]
            pairs += zip(*centred, strict=True)
    cell = across(measured.rise, measured.lost("C"), measured.groups, used)
    assert cell.value == pytest.approx(scipy.stats.spearmanr(*zip(*pairs, strict=True)).statistic, abs=1e-9)
    assert cell.low < cell.value < cell.high and cell.value > 0.5


def test_a_constant_measure_has_no_correlation(measured):
    flat = np.ones(measured.rise.shape)
    assert np.isnan(within(measured.rise, flat)).all()
    assert across(measured.rise, flat, measured.groups, flat > 0).value is None
    nothing = across(measured.rise, measured.lost("C"), measured.groups, flat < 0)
    assert (nothing.value, nothing.low) == (None, None)


def test_rises_and_differences(measured):
    one, two = table_n1(measured), table_n2(measured)
    groups = np.unique(measured.groups)

    def over(values):
        return np.mean([np.mean(values[measured.groups == g]) for g in groups])

    for i, (name, label) in enumerate(SELECTORS.items()):
        row = next(r for r in one.rows if r.label == label)
        cell = dict(zip(one.columns, row.cells, strict=True))
        assert cell["rise (nats a token)"].value == pytest.approx(over(measured.rise[i]))
        assert cell["rise (nats an action)"].value == pytest.approx(over(measured.losses[name] - measured.full))
        assert cell["rise / all blocks' worth"].value == pytest.approx(over(measured.rise[i]) / 1.5)
        assert cell["latest block kept"].value == pytest.approx(over(measured.latest[name]))
    assert len(two.rows) == 13
    gap = next(r for r in two.rows if r.label == "rise: paper rules - recency").cells[0]
    at = list(SELECTORS)
    difference = over(measured.rise[at.index("paper")] - measured.rise[at.index("recency")])
    assert gap.value == pytest.approx(difference)
    json.dumps([t.to_json() for t in (one, two, *table_n3(measured))], allow_nan=False)


def test_selections_are_those_that_table_1_measures(collected):
    study = Study(collected)
    counts = study.split(study.own["paper"]["count"].astype(np.int32))
    masks = selections(collected, counts, study.paper, study.default)
    for name in SELECTORS:
        flat = 0
        for t, trajectory in enumerate(collected):
            for c, n in enumerate(trajectory.counts):
                kept = masks[name][t][c]
                assert kept.sum() == counts[t][c] and not kept[n:].any()
                near = np.argsort(-np.round(trajectory.vectors[:n] @ trajectory.action[c], 5), kind="stable")[:3]
                assert study.at_paper_count[name]["T3"][flat] == pytest.approx(kept[near].mean(), abs=1e-6)
                flat += 1


def test_some_checkpoints_by_themselves_have_the_values_they_have_among_all(collected):
    study = Study(collected)
    rows = [[0], [2, 5], [0, 9, 20]]
    few = Study([t.only(of) for t, of in zip(collected, rows, strict=True)])
    firsts = np.cumsum([0, *(len(t.counts) for t in collected)])
    at = np.concatenate([firsts[t] + np.array(of) for t, of in enumerate(rows)])
    assert few.sizes.tolist() == study.sizes[at].tolist()
    for name in SELECTORS:
        for measure in ("T3", "C", "E", "R_a", "count"):
            np.testing.assert_allclose(
                few.at_paper_count[name][measure], study.at_paper_count[name][measure][at], atol=2e-6
            )
    counts = [np.full(len(t.counts), 9, np.int32) for t in few.trajectories]
    assert matched(few.trajectories, counts, few.paper, few.default)["recency"]["count"].tolist() == [9.0] * 6

"""Every selector and every measure against a plain NumPy twin in float64, one checkpoint at a time."""

import numpy as np
import pytest

from gemjax.evaluation.gem.checkpoints import UNRANKED
from gemjax.evaluation.gem.selection_tables import Study
from gemjax.evaluation.gem.selectors import MEASURES, SELECTORS, completions, matched, natural, simple_selections
from gemjax.history import GEMConfig

TIE = 1e-5


def projector(rows):
    _, s, vt = (
        np.linalg.svd(rows, full_matrices=False) if len(rows) else (None, np.zeros(0), np.zeros((0, rows.shape[1])))
    )
    return vt[s > 1e-3]


def residuals(x, kept):
    q = projector(x[kept])
    return np.sum(x**2, axis=1) - np.sum((x @ q.T) ** 2, axis=1)


def grow(x, protected, capacity, tau):
    """Largest residual first, of (nearly) equal ones the older block."""
    kept = protected.copy()
    room = max(capacity, kept.sum())
    while kept.sum() < room:
        left = residuals(x, kept)
        if 1 - left.sum() / np.sum(x**2) >= tau - 1e-7:
            break
        left[kept] = -1
        if left.max() <= TIE:
            if tau <= 1:
                break
            kept[np.flatnonzero(~kept)[0]] = True
            continue
        kept[np.flatnonzero(left >= left.max() - TIE)[0]] = True
    return kept


def best(score, count):
    kept = np.zeros(len(score), bool)
    kept[np.argsort(-np.round(score, 5), kind="stable")[:count]] = True
    return kept


def measured(x, kept, action, goal, final):
    mean_kept, mean = x[kept].mean(0), x.mean(0)
    q, every = projector(x[kept]), projector(x)
    nearest = np.argsort(-np.round(x @ action, 5), kind="stable")[:3]
    return {
        "C": mean_kept @ mean / np.linalg.norm(mean_kept) / np.linalg.norm(mean),
        "E": 1 - residuals(x, kept).sum() / np.sum(x**2),
        "P_a": np.sum((q @ action) ** 2),
        "R_a": np.sum((q @ action) ** 2) / np.sum((every @ action) ** 2),
        "T3": kept[nearest].mean(),
        "P_goal": np.sum((q @ goal) ** 2),
        "P_final": np.nan if final is None else np.sum((q @ final) ** 2),
    }


@pytest.fixture
def twins(collected):
    """(checkpoint in flat order, x, action, goal, final, latest, trajectory, row) of every checkpoint."""
    out = []
    for index, t in enumerate(collected):
        for j, n in enumerate(t.counts):
            final = t.final.astype(float) if n < len(t.vectors) else None
            out.append(
                (
                    t.vectors[:n].astype(float),
                    t.action[j].astype(float),
                    t.goal[j].astype(float),
                    final,
                    t.latest[j],
                    index,
                    j,
                )
            )
    return out


def test_measures_and_matched_selectors_are_their_twins(collected, twins):
    study = Study(collected)
    counts = [np.full(len(t.counts), 9, np.int32) for t in collected]
    got = matched(collected, counts, study.paper, study.default)
    assert set(got) == set(SELECTORS)
    for at, (x, action, goal, final, latest, index, j) in enumerate(twins):
        n = len(x)
        paper, default = study.paper[index][j, :n], study.default[index][j, :n]
        expected = {
            "geometry": grow(x, np.zeros(n, bool), 9, 2.0),
            "paper": grow(x, paper < 9, 9, 2.0),
            "default": grow(x, default < 9, 9, 2.0),
            "recency": np.arange(n) >= n - 9,
            "goal": best(x @ goal, 9),
            "latest-action": best(x @ latest, 9),
        }
        for name, kept in expected.items():
            want = measured(x, kept, action, goal, final)
            for m in MEASURES:
                np.testing.assert_allclose(got[name][m][at], want[m], atol=2e-3, err_msg=f"{name} {m} {at}")
    for row in got.values():
        np.testing.assert_array_equal(row["count"], 9)
        np.testing.assert_allclose(row["fraction"], 9 / study.sizes)


def test_random_selections_keep_the_count_and_what_is_protected(collected):
    study = Study(collected)
    from gemjax.evaluation.gem.batches import batches

    for batch in batches(collected):
        protected = batch.masks([p < 7 for p in study.paper])
        args = (batch.x, batch.n, protected, batch.latest, batch.goal, batch.seed, np.minimum(batch.n, 9))
        out, again = np.asarray(simple_selections(*args)), np.asarray(simple_selections(*args))
        np.testing.assert_array_equal(out, again)
        real = batch.places >= 0
        assert (out.sum(-1).transpose(0, 2, 1)[real] == 9).all()
        assert not (protected & ~out[:, 1])[real].any()
        assert not (out & (np.arange(out.shape[-1]) >= batch.n[:, None, :, None])).any()


def test_natural_counts_are_those_of_the_completion(collected, twins):
    study = Study(collected)
    got = natural(collected, {"paper": (study.paper, 16, 0.9), "low": (study.paper, 16, 0.6)})
    for at, (x, *_, index, j) in enumerate(twins):
        protected = study.paper[index][j, : len(x)] < UNRANKED
        for name, tau in (("paper", 0.9), ("low", 0.6)):
            assert got[name]["count"][at] == grow(x, protected, 16, tau).sum()


def test_matched_counts_above_the_history_keep_all_of_it(collected):
    study = Study(collected)
    counts = [np.full(len(t.counts), 39, np.int32) for t in collected]
    got = matched(collected, counts, study.paper, study.default)
    for row in got.values():
        np.testing.assert_array_equal(row["count"], np.minimum(study.sizes, 39))
        np.testing.assert_allclose(row["E"][study.sizes <= 39], 1, atol=1e-4)
        np.testing.assert_array_equal(row["T3"][study.sizes <= 39], 1)


def test_values_do_not_depend_on_what_else_is_in_the_batch(collected):
    together, alone = Study(collected), Study(collected[1:2])
    where = together.groups == 1
    for name, row in together.at_paper_count.items():
        for m in ("T3", "C", "E"):
            np.testing.assert_allclose(row[m][where], alone.at_paper_count[name][m], atol=1e-5)


def test_few_programs_are_compiled(collected):
    study = Study(collected)
    _ = study.own
    before = completions._cache_size()
    _ = Study(collected[::-1]).own
    assert completions._cache_size() == before


@pytest.mark.parametrize("name", ["paper", "default"])
def test_the_tables_select_what_the_compressor_selects(collected, name):
    config = {"paper": GEMConfig.paper(), "default": GEMConfig()}[name]
    places = [t.protected(config.rules) for t in collected]
    found = natural(collected, {name: (places, config.capacity, config.coverage)})[name]
    plans = [t.plan(row, config) for t in collected for row in range(len(t.counts))]
    assert [int(p.selection.core.sum()) for p in plans] == found["count"].tolist()
    np.testing.assert_allclose([p.selection.coverage for p in plans], found["E"], atol=1e-5)

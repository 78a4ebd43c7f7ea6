"""Statistics against formulas written out, printed tables and hand-made cases."""

import math

import numpy as np
import pytest
from scipy import stats

from gemjax.evaluation.hubness import hubness, occurrences
from gemjax.evaluation.statistics import bootstrap_intervals, mcnemar, paired_by_group, student_quantile


def test_mcnemar_is_the_exact_binomial_test():
    ours = np.array([1] * 30 + [0] * 12 + [1] * 50 + [0] * 9, bool)
    theirs = np.array([0] * 30 + [1] * 12 + [1] * 50 + [0] * 9, bool)
    out = mcnemar(ours, theirs)
    assert (out["gained"], out["lost"]) == (30, 12)
    assert out["p"] == pytest.approx(2 * sum(math.comb(42, i) for i in range(13)) / 2**42)
    assert mcnemar(ours, ours) == {"gained": 0, "lost": 0, "p": 1.0}
    assert mcnemar(np.array([True, False]), np.array([False, True]))["p"] == 1.0


def test_bootstrap_is_near_the_normal_interval_and_repeats():
    values = (np.random.default_rng(0).random((800, 2)) < [0.6, 0.1]).astype(float)
    got = bootstrap_intervals(values)
    spread = values.std(0) / np.sqrt(800)
    np.testing.assert_allclose(got[:, 0], values.mean(0) - 1.96 * spread, atol=0.004)
    np.testing.assert_allclose(got[:, 1], values.mean(0) + 1.96 * spread, atol=0.004)
    np.testing.assert_array_equal(got, bootstrap_intervals(values))
    assert np.isnan(bootstrap_intervals(values[:0])).all()


def test_resampling_groups_sees_that_questions_of_a_group_agree():
    groups = np.repeat(np.arange(6), 100)
    values = (groups % 2)[:, None].astype(float)  # within a group all alike
    single, grouped = bootstrap_intervals(values)[0], bootstrap_intervals(values, groups)[0]
    assert np.ptp(grouped) > 5 * np.ptp(single)


def test_hubness():
    even = occurrences(np.arange(12).reshape(4, 3), 12)
    assert hubness(even) == {"skewness": 0.0, "never": 0.0, "robin_hood": 0.0}
    hub = occurrences(np.zeros((6, 1), int), 10)
    out = hubness(hub)
    assert out["never"] == 0.9 and out["robin_hood"] == pytest.approx(0.9)
    centred = hub - hub.mean()
    assert out["skewness"] == pytest.approx(np.mean(centred**3) / np.mean(centred**2) ** 1.5)


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (30, 2.0423)])
def test_student_quantiles_are_those_of_the_printed_tables(freedom, value):
    assert student_quantile(freedom) == pytest.approx(value, abs=5e-5)
    assert student_quantile(1, 0.5) == pytest.approx(1.0)  # a quarter of a Cauchy lies beyond 1


def test_paired_differences_have_scipys_interval_over_groups():
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 12, 300) * 7
    ours, theirs = rng.normal(size=(2, 300)) + groups * 0.01
    ours[5], theirs[9] = np.nan, np.nan
    got = paired_by_group(ours, theirs, groups)
    per = [np.nanmean((ours - theirs)[groups == g]) for g in sorted(set(groups.tolist()))]
    np.testing.assert_allclose(got["by_group"], per)
    low, high = stats.ttest_1samp(per, 0).confidence_interval(0.95)
    np.testing.assert_allclose(got["t_interval"], [low, high])
    assert got["mean"] == pytest.approx(np.mean(per))
    assert (got["positive"], got["negative"], got["of"]) == (sum(p > 0 for p in per), sum(p < 0 for p in per), 12)
    assert got["bootstrap"][0] < got["mean"] < got["bootstrap"][1]


def test_paired_differences_without_enough_groups():
    one = paired_by_group(np.array([1.0, 2.0]), np.array([0.0, 0.0]), np.array([4, 4]))
    assert (one["mean"], one["t_interval"], one["positive"], one["of"]) == (1.5, None, 1, 1)
    none = paired_by_group(np.full(3, np.nan), np.zeros(3), np.arange(3))
    assert none["mean"] is None and none["of"] == 0 and none["t_interval"] is None
    ties = paired_by_group(np.ones(4), np.ones(4), np.array([0, 0, 1, 1]))
    assert ties["t_interval"] == [0.0, 0.0] and ties["positive"] == ties["negative"] == 0

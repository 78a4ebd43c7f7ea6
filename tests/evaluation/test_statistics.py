"""Statistics against SciPy and hand-made cases."""

import numpy as np
import pytest
from scipy import stats

from gemjax.evaluation.hubness import hubness, occurrences
from gemjax.evaluation.statistics import bootstrap_intervals, mcnemar


def test_mcnemar_is_the_exact_binomial_test():
    ours = np.array([1] * 30 + [0] * 12 + [1] * 50 + [0] * 9, bool)
    theirs = np.array([0] * 30 + [1] * 12 + [1] * 50 + [0] * 9, bool)
    out = mcnemar(ours, theirs)
    assert (out["gained"], out["lost"]) == (30, 12)
    assert out["p"] == pytest.approx(stats.binomtest(12, 42).pvalue)
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
    assert out["skewness"] == pytest.approx(stats.skew(hub))

"""Paired tests against SciPy, full enumeration and a hand computation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gemjax.evaluation.paired import holm, sign_test, wilcoxon


@settings(deadline=None)
@given(st.lists(st.integers(-4, 4), max_size=40))
def test_sign_test_is_the_binomial_test(values):
    d = np.array(values, float)
    out = sign_test(np.append(d, np.nan))
    n = out["above"] + out["below"]
    assert n == np.count_nonzero(d)
    fewer = sum(math.comb(n, i) for i in range(min(out["above"], out["below"]) + 1))
    assert out["p"] == pytest.approx(min(1.0, 2 * fewer / 2**n))


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1), st.floats(-1, 1))
def test_wilcoxon_without_ties_is_scipys_exact_one(n, seed, shift):
    d = np.random.default_rng(seed).standard_normal(n) + shift
    theirs = stats.wilcoxon(d, mode="exact") if n > 50 else stats.wilcoxon(d, method="exact")
    out = wilcoxon(d)
    assert out["p"] == pytest.approx(theirs.pvalue, rel=1e-9)
    assert out["statistic"] == theirs.statistic


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_wilcoxon_with_ties_is_the_share_of_all_signs(values):
    d = np.array(values, float)
    out = wilcoxon(d)
    used = d[d != 0]
    if not len(used):
        assert out == {"n": 0, "statistic": 0.0, "p": 1.0}
        return
    ranks = stats.rankdata(np.abs(used))
    sums = np.array(
        [
            sum(r for r, s in zip(ranks, signs, strict=True) if s)
            for signs in itertools.product((0, 1), repeat=len(ranks))
        ]
    )
    seen = ranks[used > 0].sum()
    tail = min(np.mean(sums <= seen + 1e-9), np.mean(sums >= seen - 1e-9))
    assert out["p"] == pytest.approx(min(1.0, 2 * tail))


def test_many_trajectories_do_not_overflow():
    d = np.random.default_rng(0).standard_normal(300) + 0.2
    assert wilcoxon(d)["p"] == pytest.approx(stats.wilcoxon(d, method="exact").pvalue, rel=1e-6)
    assert sign_test(np.ones(3000))["p"] == 0.0


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.04: times 4, 3, 2, 1 is 0.04, 0.06, 0.06, 0.04; never falling: 0.04, 0.06, 0.06, 0.06.
    np.testing.assert_allclose(holm(np.array([0.03, 0.01, 0.04, 0.02])), [0.06, 0.04, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.5, np.nan, 0.9])), [1.0, np.nan, 1.0])
    assert holm(np.array([])).shape == (0,)

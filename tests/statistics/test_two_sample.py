"""The two-sample AUC: the fit against scikit-learn, ties, clusters, pairs, level and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from tests.harness import check_coverage, check_level

from querist.errors import BadOption, NonFinite, ShapeMismatch, TooFewRows
from querist.statistics import auc, folds, two_sample_auc
from querist.statistics.association import column_pair_sums


@pytest.mark.parametrize(("n", "p"), [(60, 4), (40, 90)])
def test_scores_are_those_of_a_ridge_regression_on_the_label(n, p):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((n, p)) * 3 + 7, rng.standard_normal((n, p)) * 3 + 7.5
    found = two_sample_auc(a, b, permutations=1, ridge=2.0, seed=4)
    rows, label = np.concatenate([a, b]), np.r_[np.zeros(n), np.ones(n)]
    fold = folds(2 * n, 5, seed=4)
    for f in range(5):
        train, held = rows[fold != f], rows[fold == f]
        mean, sd = train.mean(axis=0), train.std(axis=0)
        known = Ridge(alpha=2.0 * p).fit((train - mean) / sd, label[fold != f]).predict((held - mean) / sd)
        assert np.corrcoef(known, found.scores[fold == f])[0, 1] == pytest.approx(1, abs=1e-9)


@given(st.integers(0, 30))
def test_columns_of_scores_match_one_by_one(seed):
    rng = np.random.default_rng(seed)
    scores, label = rng.integers(0, 6, (30, 4)).astype(float), rng.random((30, 4)) < 0.4
    above, pairs = column_pair_sums(scores, label)
    for j in range(4):
        assert above[j] / pairs[j] == pytest.approx(auc(scores[:, j], label[:, j]))


def test_a_shift_is_seen_and_its_auc_is_the_closed_form():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2000, 1)), rng.standard_normal((1500, 1)) + 0.8
    found, again = (two_sample_auc(a, b, permutations=99) for _ in range(2))
    assert found.auc == pytest.approx(scipy.special.ndtr(0.8 / math.sqrt(2)), abs=0.02)
    assert found.low < found.auc < found.high
    assert found.p == 0.01
    assert found.scores.shape == (3500,)
    assert (again.low, again.high, again.p) == (found.low, found.high, found.p)


def test_equal_rows_tie_exactly():
    a = np.random.default_rng(0).integers(0, 2, (80, 3)).astype(float)
    found = two_sample_auc(a, a[::-1], permutations=19, pairs=(np.arange(80), np.arange(80)[::-1]))
    assert found.auc == 0.5  # both copies lie in one fold with equal scores
    assert (found.p, found.low, found.high) == (1, 0.5, 0.5)


def test_constant_columns_change_nothing():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 3)), rng.standard_normal((40, 3)) + 0.5
    wide = [np.column_stack([part, np.full(40, 0.1)]) for part in (a, b)]
    one, other = two_sample_auc(a, b, permutations=9, ridge=4), two_sample_auc(*wide, permutations=9, ridge=3)
    assert one.auc == other.auc  # ridge·p is the same


def test_rows_of_a_cluster_do_not_betray_each_other():
    rng = np.random.default_rng(0)
    ids = (np.repeat(np.arange(20), 5), np.repeat(np.arange(20, 40), 5))
    a, b = (rng.standard_normal((20, 8)).repeat(5, axis=0) for _ in range(2))
    assert two_sample_auc(a, b, permutations=199).p <= 0.01
    assert two_sample_auc(a, b, clusters=ids, permutations=199).p > 0.05


def test_two_sample_auc_refuses():
    x = np.zeros((10, 2))
    with pytest.raises(ShapeMismatch):
        two_sample_auc(x, np.zeros((10, 3)))
    with pytest.raises(NonFinite, match="b must"):
        two_sample_auc(x, np.full((10, 2), np.nan))
    for a, b in ((x[:1], x), (x[:0], x), (x[:2], x[:2])):
        with pytest.raises(TooFewRows):
            two_sample_auc(a, b)
    for options in ({"ridge": 0.0}, {"permutations": 0}, {"folds": 1}):
        with pytest.raises(BadOption):
            two_sample_auc(x, x, **options)
    assert two_sample_auc(x, x, permutations=9).p == 1


@pytest.mark.slow
@pytest.mark.parametrize("paired", [False, True])
def test_the_level_is_kept(paired):
    def draw(rng):
        return rng.standard_normal((2, 30, 3)) + (2 * rng.standard_normal((30, 3)) if paired else 0)

    check_level(lambda ab: two_sample_auc(*ab, pairs=paired, permutations=99).p, draw, runs=1600)


@pytest.mark.slow
def test_permuting_paired_rows_apart_is_wrong():
    def draw(rng):
        return rng.standard_normal((2, 30, 3)) + 4 * rng.standard_normal((30, 3))

    with pytest.raises(AssertionError, match="only 0"):
        check_level(lambda ab: two_sample_auc(*ab, permutations=99).p, draw)


TRUTH = float(scipy.special.ndtr(0.8 / math.sqrt(2)))


def interval(ab, ids=None):
    found = two_sample_auc(*ab, clusters=None if ids is None else (ids, ids + ids.size), permutations=1)
    return found.low, found.high


@pytest.mark.slow
@pytest.mark.parametrize("units", [60, 240])
def test_the_interval_covers_the_auc_of_the_best_direction(units):
    ids = np.repeat(np.arange(units), 2)

    def draw(rng):
        return rng.standard_normal((units, 1))[ids], rng.standard_normal((units, 1))[ids] + 0.8

    # 12 units a side and fold: resampling a U statistic of so few overstates its variance (width 1.12 times; 1.01 at 48).
    check_coverage(lambda ab: interval(ab, ids), draw, TRUTH, runs=800, conservative=units == 60)


@pytest.mark.slow
def test_the_interval_is_too_short_near_one_half_as_its_docstring_says():
    with pytest.raises(AssertionError, match=r"only 0\.8\d"):
        check_coverage(interval, lambda rng: rng.standard_normal((2, 200, 10)), 0.5)

"""Bootstrap, jackknife, weights and folds: closed forms of standard errors, nested levels, distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness import check_coverage

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, TooFewRows, UndefinedMetric
from querist.statistics import auc, bootstrap, folds, jackknife, resample_weights
from querist.statistics.draws import _table
from querist.statistics.resampling import _drawer


def test_bootstrap_of_a_mean_matches_scipy():
    x = np.random.default_rng(0).standard_normal(200)
    found = bootstrap(x, np.mean)
    known = scipy.stats.bootstrap((x,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(0))
    assert [found.low, found.high] == pytest.approx(list(known.confidence_interval), abs=0.012)
    assert found == bootstrap(x.tolist(), np.mean) != bootstrap(x, np.mean, seed=1)


def test_clusters_have_the_variance_of_their_means():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(25), 8)
    x = rng.standard_normal(200) + 3 * rng.standard_normal(25)[ids]
    known = x.reshape(25, 8).mean(axis=1).std() / 5
    for clusters in (ids, ids.tolist(), (ids,), [[f"c{i}" for i in ids]]):
        found = bootstrap(x, np.mean, clusters=clusters)
        assert found.se == pytest.approx(known, rel=0.05)
        assert found.n == 25


def test_nested_levels_add_their_variances():
    rng = np.random.default_rng(0)
    outer, inner = np.repeat(np.arange(30), 20), np.tile(np.repeat(np.arange(5), 4), 30)
    x = rng.standard_normal(30)[outer] + 2 * rng.standard_normal(600)
    unit = x.reshape(30, 5, 4).mean(axis=2)
    known = math.sqrt(unit.mean(axis=1).var() / 30 + unit.var(axis=1).mean() / 150)
    assert bootstrap(x, np.mean, clusters=(outer, inner)).se == pytest.approx(known, rel=0.05)


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 3))
def test_draws_are_of_whole_units_inside_their_parents(seed, depth):
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 4, 40) for _ in range(depth)]
    units, draw = _drawer(40, columns)
    assert units == np.unique(columns[0]).size
    counts = np.bincount(draw(np.random.default_rng(seed)), minlength=40)
    path = np.stack(columns, axis=1)
    drawn = 0
    for unit in np.unique(path, axis=0):  # rows of the innermost unit share their count
        mine = counts[(path == unit).all(axis=1)]
        assert np.unique(mine).size == 1
        drawn += int(mine[0])
    if depth == 1:
        assert drawn == units


def test_resamples_without_a_value_are_told_and_too_many_give_no_interval():
    label, score = np.r_[np.ones(4), np.zeros(60)], np.arange(64.0)
    few = bootstrap((score, label), lambda part: auc(*part), replicates=500)
    assert "of 500 resamples without a value" in few.method
    assert few.low is not None
    none = bootstrap((score[3:], label[3:]), lambda part: auc(*part), replicates=500)
    assert none.se is none.low is none.high is None
    with pytest.raises(UndefinedMetric):
        bootstrap((score[4:], label[4:]), lambda part: auc(*part), replicates=20)


def test_bootstrap_and_jackknife_refuse():
    x = np.arange(10.0)
    for call in (lambda: bootstrap(x, np.mean, clusters=np.zeros(10)), lambda: bootstrap(x[:1], np.mean)):
        with pytest.raises(TooFewRows):
            call()
    with pytest.raises(NonFinite):
        bootstrap([1.0, math.nan], np.mean)
    for values, clusters in (((x, x[:3]), ()), (x, (x, x[:3]))):
        with pytest.raises(ShapeMismatch):
            bootstrap(values, lambda part: 0.0, clusters=clusters)
    with pytest.raises(BadValues, match="missing"):
        bootstrap(x, np.mean, clusters=[None, *range(9)])
    with pytest.raises(BadOption):
        bootstrap(x, np.mean, replicates=5)
    with pytest.raises(TooFewRows):
        jackknife([1, 1], lambda keep: 0.0)
    with pytest.raises(NonFinite):
        jackknife([1, 2], lambda keep: math.nan)


@pytest.mark.parametrize("kind", ["poisson", "multinomial"])
def test_weights_have_their_distribution(kind):
    weights = np.stack(list(resample_weights(50, 4000, kind=kind)))
    counts = np.bincount(weights.ravel(), minlength=8)
    law = scipy.stats.poisson(1) if kind == "poisson" else scipy.stats.binom(50, 1 / 50)
    expected = np.r_[law.pmf(np.arange(6)), law.sf(5)] * weights.size
    assert (np.abs(np.r_[counts[:6], counts[6:].sum()] - expected) < 4 * np.sqrt(expected)).all()
    assert (weights.sum(axis=1) == 50).all() == (kind == "multinomial")


def test_the_poisson_table_leaves_open_every_cell_that_a_step_cuts():
    cells, cut, steps = _table()
    law = scipy.stats.poisson(1)
    assert np.allclose(steps[:10], law.cdf(np.arange(10)), rtol=0, atol=1e-15)
    edges = np.arange(65537) / 65536
    sure = ~cut
    assert (law.cdf(cells[sure]) >= edges[1:][sure]).all()
    assert (law.cdf(cells[sure] - 1) <= edges[:-1][sure]).all()
    assert cut.sum() <= 10


def test_weights_of_a_cluster_are_shared_and_refusals_come_at_once():
    ids = np.arange(50) // 5
    weights = np.stack(list(resample_weights(50, 200, cluster=ids)))
    assert (weights[:, ::5] == weights[:, 4::5]).all()
    with pytest.raises(BadOption, match="normal"):
        resample_weights(3, 2, kind="normal")  # type: ignore[arg-type]
    with pytest.raises(ShapeMismatch):
        resample_weights(3, 2, cluster=[0, 1])
    with pytest.raises(TooFewRows):
        resample_weights(0, 2)


@settings(deadline=None)
@given(n=st.integers(12, 80), k=st.integers(2, 6), seed=st.integers(0, 50))
def test_folds_of_rows_are_balanced_within_one(n, k, seed):
    strata = np.random.default_rng(seed).integers(0, 4, n)
    fold = folds(n, k, strata=strata, seed=seed)
    assert np.bincount(fold, minlength=k).min() >= 1
    assert np.ptp(np.bincount(fold, minlength=k)) <= 1
    for s in range(4):
        assert np.ptp(np.bincount(fold[strata == s], minlength=k)) <= 1


@settings(deadline=None)
@given(n=st.integers(12, 80), k=st.integers(2, 5), seed=st.integers(0, 50))
def test_folds_of_clusters_are_whole_and_never_empty(n, k, seed):
    rng = np.random.default_rng(seed)
    ids, strata = rng.integers(0, 12, n), rng.integers(0, 3, n)
    if np.unique(ids).size < k:
        return
    for options in ({"clusters": ids}, {"clusters": ids, "strata": strata}, {"pairs": ids}):
        fold = folds(n, k, seed=seed, **options)
        assert all(np.unique(fold[ids == i]).size == 1 for i in np.unique(ids))
        assert np.bincount(fold, minlength=k).min() >= 1
        if "strata" not in options:
            assert np.ptp(np.bincount(fold, minlength=k)) <= np.bincount(ids).max()


def test_folds_are_random_join_chains_and_refuse_missing_ids():
    draws = np.stack([folds(20, 4, seed=seed) for seed in range(600)])
    assert (draws[:, :1] == draws).mean(axis=0)[1:] == pytest.approx(np.full(19, 4 / 19), abs=0.08)
    chain = folds(8, 3, clusters=[0, 0, 1, 1, 2, 2, 9, 8], pairs=[0, 1, 1, 2, 2, 3, 9, 8])
    assert np.unique(chain[:6]).size == 1
    with pytest.raises(BadValues, match="row 1"):
        folds(3, 2, clusters=[0.0, np.nan, 1.0])
    with pytest.raises(TooFewRows, match="3"):
        folds(10, 4, clusters=[0, 1, 2] * 3 + [0])


@pytest.mark.slow
def test_intervals_of_bootstrap_and_jackknife_cover():
    ids = np.repeat(np.arange(60), 3)

    def boot(x):
        found = bootstrap(x, np.mean, clusters=ids, replicates=400)
        return found.low, found.high

    def draw(rng):
        return rng.standard_normal(60)[ids] + rng.standard_normal(180)

    check_coverage(boot, draw, 0.0, runs=1500)
    groups = np.arange(400) % 20

    def correlated(rng):
        x = rng.standard_normal(400)
        return x, 0.5 * x + math.sqrt(0.75) * rng.standard_normal(400)

    def jack(xy):
        found = jackknife(groups, lambda keep: float(np.corrcoef(xy[0][keep], xy[1][keep])[0, 1]))
        return found.low, found.high

    check_coverage(jack, correlated, 0.5, runs=1500)

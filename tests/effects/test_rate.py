"""Rank-weighted average effects, calibration, policies, resamples: published data, closed forms, properties, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effects.tables import S, T, Y, pair, table

from querist.effects.design._scores import aipw_scores, effect_scores
from querist.effects.errors import PropensityRange, ShareRange
from querist.effects.metrics import (
    best_arm_crossed,
    calibration,
    natural_like,
    numbers,
    policy_difference,
    policy_value,
    qini,
    random_like,
    ranked,
    rate,
    rate_difference,
    rate_values_of,
    replicates,
    single_arm,
    top_values,
)
from querist.effects.metrics._replicates import NAMES
from querist.errors import BadOption, BadValues, ShapeMismatch, TooFewRows, UndefinedMetric, UnknownName
from querist.statistics import mean_interval, stream

SEEDS = st.integers(0, 10_000)


def psi_of(t, y, mu):
    return effect_scores(aipw_scores(t.astype(int), y, mu=mu, control=0))[:, 0]


# -------------------------------------------------------------------------------------------------------------------- rate


def test_example():
    for mu, expected in ((None, 0.25), ("arm", 0.12)):
        psi = effect_scores(aipw_scores(T, Y, propensity=0.5, mu=mu, control=0))[:, 0]
        assert psi.mean() == pytest.approx(0.6)
        assert rate(psi, S).estimate == pytest.approx(expected)
    psi = effect_scores(aipw_scores(T, 1 - Y, propensity=0.5, mu=None, control=0))[:, 0]
    assert rate(psi, S).estimate == pytest.approx(0.01)
    assert rate(psi_of(T, 1 - Y, "arm"), S).estimate == pytest.approx(-0.12)


def test_hillstrom():
    frame, y, t = pair("Mens E-Mail")
    history = frame["history"].to_numpy()
    for mu, q, a in ((None, 0.00240777, 0.00842049), ("arm", 0.00247984, 0.00746275)):
        psi = psi_of(t, y, mu)
        assert rate(psi, history).estimate == pytest.approx(q, abs=5.1e-9)
        assert rate(psi, history, weighting="autoc").estimate == pytest.approx(a, abs=5.1e-9)
    found = numbers(ranked(y, t, history))
    assert (found["rate qini"], found["rate autoc"]) == pytest.approx((0.00247984, 0.00746275), abs=5.1e-9)
    frame, y, t = pair("Womens E-Mail")
    score = frame["womens"].to_numpy() * frame["history"].to_numpy()
    for mu, q in ((None, 0.00759197), ("arm", 0.00745642)):
        assert rate(psi_of(t, y, mu), score).estimate == pytest.approx(q, abs=5.1e-9)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from([4, 10**9]), st.sampled_from(["qini", "autoc"]))
def test_rate_is_what_it_is_defined_as(seed, levels, weighting):
    rng = np.random.default_rng(seed)
    psi, s = rng.normal(size=30), rng.integers(0, levels, 30).astype(float)
    value, influence = rate_values_of(psi, s, weighting=weighting)
    mean = np.array([psi[s == x].mean() for x in s])
    o = np.argsort(-s, kind="stable")
    j = np.arange(1, 31)
    toc = np.cumsum(mean[o]) / j - psi.mean()
    assert value == pytest.approx((toc * (j / 30 if weighting == "qini" else 1)).mean(), abs=1e-12)
    assert influence.mean() == pytest.approx(0, abs=1e-14)
    if weighting == "qini":
        assert rate(psi, -s).estimate == pytest.approx(-value, abs=1e-12)
        assert rate(np.tile(psi, 2), np.tile(s, 2)).estimate == pytest.approx(value, abs=1e-12)
    assert rate(psi, np.exp(s / 1e9), weighting=weighting).estimate == pytest.approx(value, abs=1e-12)
    assert rate(psi, np.ones(30), weighting=weighting).estimate == pytest.approx(0, abs=1e-14)
    assert rate_difference(psi, s, s, weighting=weighting).se == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(("weighting", "tied"), [("qini", False), ("qini", True), ("autoc", True)])
def test_influence_is_the_derivative(weighting, tied):
    """A little more weight on a row moves the number by its influence: by weighted sums, to the order of 1/n."""
    rng = np.random.default_rng(2)
    n = 60
    psi, s = rng.normal(size=n), rng.normal(size=n)
    s = np.round(s, 1) if tied else s

    def functional(w):
        w = w / w.sum()
        above = (w[None] * (s[None] > s[:, None])).sum(axis=1)
        r = above + (w[None] * (s[None] == s[:, None])).sum(axis=1) / 2
        return (w * psi * ((0.5 - r) if weighting == "qini" else -np.log(r) - 1)).sum()

    base, eps = np.ones(n), 1e-5
    wanted = np.array([(functional(base + eps * n * (np.arange(n) == i)) - functional(base)) / eps for i in range(n)])
    found = rate_values_of(psi, s, weighting=weighting)[1]
    slack = 2e-4 if weighting == "qini" else 0.12 * np.abs(wanted).max()  # autoc's places are whole numbers, r is not
    assert np.abs(found - wanted).max() < slack
    assert np.corrcoef(found, wanted)[0, 1] > 0.995


def test_clusters_and_blocks_enter_the_interval():
    rng = np.random.default_rng(0)
    psi, s = rng.normal(size=200) + np.repeat(rng.normal(size=40), 5), np.repeat(rng.normal(size=40), 5)
    ids = np.repeat(np.arange(40), 5)
    alone, whole = rate(psi, s), rate(psi, s, cluster=ids)
    assert whole.se > 1.3 * alone.se
    assert (alone.n, whole.n) == (200, 40)
    assert rate(psi, s, cluster=ids, block=ids // 10).estimate == pytest.approx(alone.estimate)
    with pytest.raises(BadOption):
        rate(psi, s, weighting="toc")  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_the_other_label_negates_scores_whose_nuisance_is_turned_with_it(seed):
    """y to 1 − y, mu to 1 − mu. Numbers of scikit-uplift are not negated while no control has come."""
    rng = np.random.default_rng(seed)
    t, y, mu = rng.permutation(np.arange(40) % 3), rng.integers(0, 2, 40).astype(float), rng.random((40, 3))
    s = rng.normal(size=40)
    e = rng.dirichlet([5, 5, 5], 40) * 0.9 + 0.1 / 3
    one, other = (
        effect_scores(aipw_scores(t, value, propensity=e, mu=m, control=0)) for value, m in ((y, mu), (1 - y, 1 - mu))
    )
    assert other == pytest.approx(-one, abs=1e-12)
    for weighting in ("qini", "autoc"):
        found = [rate(psi[:, 0], s, weighting=weighting).estimate for psi in (one, other)]
        assert found[1] == pytest.approx(-found[0], abs=1e-12)


def test_numbers_of_scikit_uplift_are_not_negated():
    one, other = (qini(y, T, S, normalise=False) for y in (Y, 1 - Y))
    assert abs(one + other) > 0.5
    assert qini(1 - Y, T, S, convention="causalml", normalise=False) == pytest.approx(
        -qini(Y, T, S, convention="causalml", normalise=False)
    )


# ------------------------------------------------------------------------------------------------------------- calibration


def test_calibration_is_least_squares_with_hc1():
    rng = np.random.default_rng(1)
    x, n = np.round(rng.normal(size=300), 1), 300
    psi = 0.2 + 0.8 * x + rng.normal(size=n) * (1 + np.abs(x))
    found = calibration(psi, x)
    X = np.column_stack([np.ones(n), x])
    beta, *_ = np.linalg.lstsq(X, psi, rcond=None)
    bread, e = np.linalg.inv(X.T @ X), psi - X @ beta
    se = np.sqrt(np.diag(bread @ (X * e[:, None] ** 2).T @ X @ bread) * n / (n - 2))
    assert (found.intercept.estimate, found.slope.estimate) == pytest.approx(beta)
    assert (found.intercept.se, found.slope.se) == pytest.approx(se)
    assert found.bins.n.sum() == n
    edges = [x[np.isclose(x, value)] for value in np.unique(x)]
    assert max(part.size for part in edges) <= found.bins.n.max()
    assert (np.diff(found.bins.predicted) > 0).all()
    ids = np.arange(n)
    assert calibration(psi, x, cluster=ids).slope.se == pytest.approx(se[1] * np.sqrt((n - 1) * n / (n - 1) / n))
    wide = calibration(np.repeat(psi, 3), np.repeat(x, 3), cluster=np.repeat(ids, 3))
    assert wide.slope.se == pytest.approx(se[1], rel=0.01)
    one_block = calibration(psi, x, block=np.zeros(n)).slope
    assert one_block.se == pytest.approx(se[1] * np.sqrt((n - 2) / (n - 1)))
    perfect = calibration(2 * x, 2 * x)
    assert (perfect.slope.estimate, perfect.intercept.estimate) == pytest.approx((1, 0), abs=1e-12)
    assert perfect.error <= 0


def test_calibration_refuses():
    with pytest.raises(UndefinedMetric, match="all alike"):
        calibration(np.arange(9.0), np.full(9, 0.1), bins=2)
    with pytest.raises(TooFewRows):
        calibration([1.0, 2.0], [0.0, 1.0], bins=1)
    with pytest.raises(BadOption):
        calibration(np.arange(9.0), np.arange(9.0), bins=0)


# ---------------------------------------------------------------------------------------------------------------- policies


def test_hillstrom_policies():
    frame = table("hillstrom")
    arm, y = frame["segment"].to_numpy(), frame["visit"].to_numpy().astype(float)
    womens = (frame["womens"] == 1).to_numpy() & (frame["mens"] == 0).to_numpy()
    policy = np.where(womens, "Womens E-Mail", "Mens E-Mail")
    ips = policy_value(policy, arm, y, propensity="share")
    assert (ips.estimate, ips.se) == pytest.approx((0.184628, 0.002849), abs=5.1e-7)
    assert policy_value(policy, arm, y, propensity="share", method="snips").estimate == pytest.approx(
        0.184257, abs=5.1e-7
    )
    everyone = np.full(len(frame), "Mens E-Mail")
    gain = policy_difference(policy, everyone, arm, y, propensity="share", method="ips")
    assert (gain.estimate, gain.se) == pytest.approx((0.001871, 0.002662), abs=5.1e-7)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_policy_identities(seed):
    rng = np.random.default_rng(seed)
    n = 60
    arm, y = rng.permutation(np.arange(n) % 3), rng.normal(size=n)
    e = rng.dirichlet([3, 3, 3], n) * 0.9 + 0.1 / 3
    assert policy_value(e, arm, y, propensity=e).estimate == pytest.approx(y.mean())
    labels = rng.integers(0, 3, n)
    certain = np.eye(3)[labels]
    mu = rng.normal(size=(n, 3))
    for method in ("ips", "snips", "dr"):
        one = policy_value(labels, arm, y, propensity=e, method=method, mu=mu)
        other = policy_value(certain, arm, y, propensity=e, method=method, mu=mu)
        assert one == other
        gap = policy_difference(labels, certain, arm, y, propensity=e, method=method, mu=mu)
        assert (gap.estimate, gap.se) == (0, 0)
    shift = policy_value(labels, arm, y + 5, propensity=e, method="snips").estimate
    assert shift == pytest.approx(policy_value(labels, arm, y, propensity=e, method="snips").estimate + 5)
    names = np.array(["c", "b", "a"])
    swapped = policy_value(
        names[labels], names[arm], y, propensity=e[:, [0, 2, 1]], control="c", method="dr", mu=mu[:, [0, 2, 1]]
    )
    assert swapped.estimate == pytest.approx(policy_value(labels, arm, y, propensity=e, method="dr", mu=mu).estimate)


def test_references_treat_as_many():
    rng = np.random.default_rng(4)
    policy = np.eye(3)[rng.integers(0, 3, 50)]
    natural = np.round(rng.normal(size=50), 1)
    for other in (random_like(policy), natural_like(policy, natural)):
        assert other.sum(axis=1) == pytest.approx(np.ones(50))
        assert other.sum(axis=0) == pytest.approx(policy.sum(axis=0))
    like = natural_like(policy, natural)
    treated = like[:, 1:].sum(axis=1)
    assert (np.diff(treated[np.argsort(natural)]) >= -1e-12).all()
    assert single_arm(3, 2, 1).tolist() == [[0, 1]] * 3
    assert natural_like(single_arm(3, 2, 0), natural[:3]).tolist() == [[1, 0]] * 3
    scores = np.tile([0.0, 1.0, 0.5], (20, 1))
    best, chosen = best_arm_crossed(scores, cluster=np.arange(20) // 2)
    assert chosen == (1, 1)
    assert best.tolist() == single_arm(20, 3, 1).tolist()
    with pytest.raises(ShapeMismatch):
        natural_like(policy, natural[:9])


def test_policies_refuse():
    arm, y = np.arange(6) % 2, np.arange(6.0)
    with pytest.raises(UnknownName, match="nobody got"):
        policy_value(np.full(6, 7), arm, y, propensity="share")
    with pytest.raises(UndefinedMetric):
        policy_value(1 - arm, arm, y, propensity="share", method="snips")
    with pytest.raises(BadValues, match="sum to 1"):
        policy_value(np.full((6, 2), 0.4), arm, y, propensity="share")
    with pytest.raises(PropensityRange, match="row 0"):
        policy_value(arm, arm, y, propensity=np.full((6, 2), [0.0, 1.0]))
    with pytest.raises(BadOption):
        policy_value(arm, arm, y, propensity="share", method="mean")  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------------- resamples


def test_a_resample_is_the_numbers_of_repeated_rows():
    rng = np.random.default_rng(3)
    n = 120
    y, t, s = rng.integers(0, 2, n).astype(float), rng.integers(0, 2, n), np.round(rng.normal(size=n), 1)
    rows = ranked(y, t, s)
    found = replicates(rows, names=(*NAMES, "uplift@0.3", "uplift@0.05"), count=6, seed=5)
    from querist.statistics import resample_weights

    o = rows.order.rows
    for b, w in enumerate(resample_weights(n, 6, seed=5)):
        again = numbers(ranked(*(np.repeat(x[o], w) for x in (y, t, s))), (0.3, 0.05))
        for name, drawn in found.drawn.items():
            assert drawn[b] == pytest.approx(again[name], abs=1e-10), (name, b)


def test_clusters_are_drawn_whole_and_undefined_resamples_are_told():
    rng = np.random.default_rng(6)
    ids = np.repeat(np.arange(30), 4)
    y, t = rng.integers(0, 2, 120).astype(float), np.repeat(rng.permutation(np.arange(30) % 2), 4)
    s = np.repeat(rng.normal(size=30), 4)
    rows = ranked(y, t, s)
    wide = replicates(rows, names=("causalml qini raw",), count=200, cluster=ids).interval("causalml qini raw")
    narrow = replicates(rows, names=("causalml qini raw",), count=200).interval("causalml qini raw")
    assert (wide.n, narrow.n) == (30, 120)
    assert wide.low < wide.estimate < wide.high
    few = ranked(np.array([1.0, 0, 1, 0]), np.array([1, 0, 0, 0]), np.arange(4.0))
    told = replicates(few, names=("sklift qini",), count=100).interval("sklift qini")
    assert told.low is None
    assert "without a value" in told.method
    for name in ("qini", "uplift@most"):
        with pytest.raises(BadOption):
            replicates(rows, names=(name,))
    with pytest.raises(ShareRange):
        replicates(rows, names=("uplift@3",))


def test_poisson_and_influence_intervals_agree():
    """The raw causalml Qini is n·(rate qini) to order 1/n with equal groups, so both intervals tell one thing."""
    rng = np.random.default_rng(7)
    n = 4000
    t, s = rng.permutation(np.arange(n) % 2), rng.normal(size=n)
    y = (rng.random(n) < 0.3 + 0.1 * t * (s > 0)).astype(float)
    boot = replicates(ranked(y, t, s), names=("causalml qini raw",), count=300).interval("causalml qini raw")
    wanted = rate(psi_of(t, y, "arm"), s)
    assert boot.estimate * 2 / n == pytest.approx(wanted.estimate, abs=0.1 * wanted.se)
    assert boot.se * 2 / n == pytest.approx(wanted.se, rel=0.15)


# ------------------------------------------------------------------------------------------------------- best shares


@pytest.mark.parametrize("levels", [3, 10_000])
@pytest.mark.parametrize("dependence", ["rows", "blocks", "a lone block", "clusters"])
def test_values_of_the_best_shares_are_means_of_what_they_hold(levels, dependence):
    rng = stream(3, "top", levels)
    n = 201
    psi, score = rng.normal(0.3, 1, n), rng.integers(levels, size=n).astype(float)
    given: dict[str, Any] = {}
    if dependence in ("blocks", "a lone block"):
        given["block"] = np.arange(n) % 3 if dependence == "blocks" else np.r_[7, np.zeros(n - 1, int)]
    if dependence == "clusters":
        given["cluster"] = np.arange(n) // 2
    shares = np.array([0.0, 0.013, 0.1, 1 / 3, 0.5, 0.77, 1.0])
    for share, found in zip(shares, top_values(psi, score, shares, **given), strict=True):
        inside = np.array([np.clip((share * n - (score > s).sum()) / (score == s).sum(), 0, 1) for s in score])
        assert inside.sum() == pytest.approx(share * n)
        wanted = mean_interval(psi * inside, **given)
        for name in ("estimate", "se", "low", "high", "p", "n"):
            assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=1e-12), (share, name)
    order = rng.permutation(n)
    again = top_values(psi[order], score[order], shares, **{name: value[order] for name, value in given.items()})
    assert [one.se for one in again] == pytest.approx([one.se for one in top_values(psi, score, shares, **given)])


def test_best_shares_need_more_units_than_blocks():
    with pytest.raises(TooFewRows):
        top_values(np.ones(3), np.arange(3.0), [0.5], block=np.arange(3))
    with pytest.raises(ShapeMismatch):
        top_values(np.ones(3), np.arange(4.0), [0.5])

"""Effect scores, average effects, propensities, randomisation, overlap, power: published data, closed forms, refusals."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effects.tables import pair, table

from querist.effects.arrays import arm_codes
from querist.effects.design import (
    aipw_scores,
    arm_auc,
    arm_shares,
    assignment_units,
    ate,
    balance_weights,
    component_scores,
    effect_scores,
    estimated_propensity,
    gamma,
    overlap,
    plan,
    propensities,
    smd,
    smd_levels,
    srm,
    tier_weights_of,
)
from querist.effects.errors import (
    ArmMissing,
    ClusterMixed,
    ControlAbsent,
    LengthMismatch,
    NoControl,
    NoTreated,
    PropensityRange,
)
from querist.errors import BadOption, BadValues, ShapeMismatch, UnknownName

SEEDS = st.integers(0, 10_000)

# --------------------------------------------------------------------------------------------------------- published data


@pytest.mark.parametrize(
    ("arm", "outcome", "estimate", "se"),
    [
        ("Mens E-Mail", "visit", 0.076590, 0.003386),
        ("Womens E-Mail", "visit", 0.045233, 0.003234),
        ("Mens E-Mail", "conversion", 0.006805, 0.000921),
        ("Mens E-Mail", "spend", 0.769827, 0.145247),
    ],
)
def test_hillstrom(arm, outcome, estimate, se):
    _, y, t = pair(arm, outcome)
    psi = effect_scores(aipw_scores(t, y, control=False))[:, 0]
    # The stored errors are those of two samples, each variance over its rows less one: arms' means taken out.
    found = ate(psi, block=t)
    assert (found.estimate, found.se) == pytest.approx((estimate, se), abs=5.1e-7)
    assert found.se == pytest.approx(np.sqrt(y[t].var(ddof=1) / t.sum() + y[~t].var(ddof=1) / (~t).sum()), rel=1e-12)
    assert ate(psi).se == pytest.approx(found.se * np.sqrt((t.size - 2) / (t.size - 1)), rel=1e-7)


def test_hillstrom_counts_fit_equal_shares():
    _, codes = arm_codes(table("hillstrom")["segment"], "No E-Mail")
    found = srm(codes, 3)
    assert (found.chi2, found.p, found.df) == (pytest.approx(0.202531, abs=5e-7), pytest.approx(0.903693, abs=5e-7), 2)
    assert (found.chi2, found.p) == pytest.approx(tuple(scipy.stats.chisquare(found.counts)))


def test_social_pressure_needs_its_households():
    frame = table("social_pressure")
    labels, codes = arm_codes(frame["treatment"], "Control")
    households = frame["hh_id"].to_numpy()
    psi = effect_scores(gamma(codes, frame["voted"].to_numpy().astype(float), propensities("share", labels, codes)))
    for arm, estimate, clustered, naive in (
        ("Civic Duty", 0.017899, 0.003237, 0.002595),
        ("Self", 0.048513, 0.003300, 0.002647),
        ("Neighbors", 0.081310, 0.003370, 0.002692),
    ):
        column = psi[:, labels.index(arm) - 1]
        whole, alone = ate(column, cluster=households), ate(column)
        assert (whole.estimate, whole.se, alone.se) == pytest.approx((estimate, clustered, naive), abs=5.1e-7)
    units = assignment_units(codes, households, labels)
    counts = dict(zip(labels, np.bincount(units).tolist(), strict=True))
    assert counts == {"Control": 99_999, "Civic Duty": 20_001, "Hawthorne": 20_002, "Neighbors": 20_000, "Self": 20_000}
    assert srm(units, 5, [5, 1, 1, 1, 1]).p > 0.9999
    with pytest.raises(ClusterMixed, match="Control"):
        assignment_units(codes, frame["cluster"].to_numpy(), labels)


def test_thornton_and_nsw_means():
    seen = table("thornton_hiv").filter(pl.col("got").is_not_null() & pl.col("any").is_not_null())
    for flag, mean, n in ((1, 0.789236, 2211), (0, 0.338684, 623)):
        part = seen.filter(pl.col("any") == flag)
        assert (part.height, round(part["got"].mean(), 6)) == (n, mean)
    scores = aipw_scores(seen["any"], seen["got"], control=0)
    assert scores.mean(axis=0) == pytest.approx([0.338684, 0.789236], abs=5.1e-7)
    known = seen.filter(pl.col("villnum").is_not_null())
    psi = effect_scores(aipw_scores(known["any"], known["got"], control=0))[:, 0]
    villages = ate(psi, cluster=known["villnum"])
    assert villages.n == 119
    assert villages.se > ate(psi).se
    nsw = table("nsw_mixtape")
    assert aipw_scores(nsw["treat"], nsw["re78"], control=0).mean(axis=0) == pytest.approx(
        [4554.80, 6349.14], abs=0.006
    )


# ------------------------------------------------------------------------------------------------------------------ scores


def draw(seed: int, n: int = 60, arms: int = 3):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.arange(n) % arms)
    e = rng.dirichlet([4] * arms, n) * 0.9 + 0.1 / arms
    return codes, rng.normal(size=n), e, rng


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_scores_follow_their_formula(seed):
    codes, y, e, rng = draw(seed)
    mu = rng.normal(size=(60, 3))
    found = gamma(codes, y, e, mu)
    for m in range(3):
        assert found[:, m] == pytest.approx(mu[:, m] + (codes == m) / e[:, m] * (y - mu[:, m]))
    assert gamma(codes, y, e, None)[:, 1] == pytest.approx((codes == 1) / e[:, 1] * y)
    shifted = effect_scores(gamma(codes, y + 7, e, "arm"))
    assert shifted == pytest.approx(effect_scores(gamma(codes, y, e, "arm")))
    assert effect_scores(gamma(codes, 1 - y, e, 1 - mu)) == pytest.approx(-effect_scores(found))
    w = tier_weights_of(codes, 3)
    psi = effect_scores(found)
    base, increments = component_scores(psi, "base", w), component_scores(psi, "incremental", w)
    assert base + increments == pytest.approx(psi)
    assert increments @ w == pytest.approx(np.zeros(60), abs=1e-12)
    names = np.array(["z", "y", "x"])[codes]
    assert aipw_scores(names, y, propensity=e, mu=mu, control="z", arms=["y", "x"]) == pytest.approx(found)
    swapped = aipw_scores(names, y, propensity=dict(zip("zyx", [0.5, 0.3, 0.2], strict=True)), mu=None, control="z")
    assert swapped == pytest.approx(gamma(codes, y, np.tile([0.5, 0.3, 0.2], (60, 1)), None)[:, [0, 2, 1]])


def test_scores_are_without_bias_under_any_nuisance():
    """Every assignment of six people enumerated with its probability: the mean of Γ is the truth exactly."""
    rng = np.random.default_rng(0)
    n, p = 6, rng.uniform(0.2, 0.8, 6)
    outcomes, wrong = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)) * 10
    e = np.column_stack([1 - p, p])
    mean = np.zeros((n, 2))
    for number in range(2**n):
        codes = (number >> np.arange(n)) & 1
        chance = e[np.arange(n), codes].prod()
        mean += chance * gamma(codes, outcomes[np.arange(n), codes], e, wrong)
    assert mean == pytest.approx(outcomes)


def test_blocks_and_clusters():
    codes, y, *_ = draw(0, 120, 2)
    block = np.arange(120) // 20
    psi = effect_scores(gamma(codes, y + 3 * block, np.full((120, 2), 0.5)))[:, 0]
    assert ate(psi + 5.0 * block, block=block).se < ate(psi + 5.0 * block).se
    assert ate(np.repeat(psi, 2), cluster=np.repeat(np.arange(120), 2)).se == pytest.approx(ate(psi).se)


def test_arms_of_any_kind():
    for arm, control, labels in (
        (["b", "a", "c", "a"], "b", ["b", "a", "c"]),
        ([3, 1, 3, 2], 3, [3, 1, 2]),
        ([True, False, True, False], False, [False, True]),
        (pl.Series(["x", "y"], dtype=pl.Categorical), "y", ["y", "x"]),
        (np.array(["u", "v"], dtype=object), "u", ["u", "v"]),
    ):
        found, codes = arm_codes(arm, control)
        assert found == labels
        assert [found[c] for c in codes] == list(arm)
    with pytest.raises(ControlAbsent, match="nearest label is No E-Mail") as caught:
        arm_codes(["No E-Mail", "Mens"], "No EMail")
    assert "Mens (1)" in str(caught.value)
    with pytest.raises(NoTreated):
        arm_codes(["a", "a"], "a")
    with pytest.raises(NoControl):
        arm_codes(["a", "a"], "b", arms=["a", "b"])
    for arm in ([1.0, float("nan")], ["a", None]):
        with pytest.raises(ArmMissing, match="first at row 1"):
            arm_codes(arm, arm[0])
    with pytest.raises(BadValues, match="not listed"):
        arm_codes(["a", "b", "c"], "a", arms=["b"])


# ------------------------------------------------------------------------------------------------------------ propensities


def test_propensities_in_every_spelling():
    codes = np.array([0, 1, 0, 1, 0])
    wanted = np.tile([0.6, 0.4], (5, 1))
    for given_ in ("share", {"a": 0.6, "b": 0.4}, [0.6, 0.4], 0.4, np.full(5, 0.4), wanted):
        assert propensities(given_, ["a", "b"], codes) == pytest.approx(wanted)
    assert arm_shares(codes, 2, [1, 2, 1, 2, 2]) == pytest.approx([0.5, 0.5])
    for given_, fault in (
        ([0.6, 0.6], PropensityRange),
        ([1.0, 0.0], PropensityRange),
        ({"a": 0.6}, UnknownName),
        ({"a": 0.6, "b": 0.4, "c": 0.0}, UnknownName),
        (np.full((4, 2), 0.5), LengthMismatch),
        (np.full((5, 3), 1 / 3), ShapeMismatch),
        ("shares", BadOption),
    ):
        with pytest.raises(fault):
            propensities(given_, ["a", "b"], codes)


def test_estimated_propensities_find_the_truth_out_of_fold():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2)) * [1, 100]
    logits = np.column_stack([np.zeros(3000), X[:, 0], -0.01 * X[:, 1]])
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (rng.random((3000, 1)) > np.cumsum(true[:, :2], axis=1)).sum(axis=1)
    e = estimated_propensity(X, codes, 3, folds=3)
    assert e.sum(axis=1) == pytest.approx(np.ones(3000))
    assert np.abs(e - true).mean() < 0.03
    other = codes.copy()
    other[7] = (codes[7] + 1) % 3
    assert np.abs(estimated_propensity(X, other, 3, folds=3)[7] - e[7]).max() < 0.02


def test_overlap_is_measured_on_propensities_that_are_not_clipped():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 1))
    codes = (rng.random(4000) < 1 / (1 + np.exp(3 - 4 * X[:, 0]))).astype(int)
    clipped, whole = (estimated_propensity(X, codes, 2, clip=clip) for clip in ((0.01, 0.99), None))
    assert clipped.min() >= 0.01 - 1e-12
    assert whole.min() < 1e-4
    assert whole.sum(axis=1) == pytest.approx(np.ones(4000))
    inside = (whole.min(axis=1) > 0.02) & (whole.max(axis=1) < 0.98)
    assert clipped[inside] == pytest.approx(whole[inside])
    assert overlap(clipped, codes).clipped_share.max() == 0
    assert overlap(whole, codes).clipped_share.max() > 0.2
    assert overlap(whole, codes).ess_share[1] < overlap(clipped, codes).ess_share[1]


# ----------------------------------------------------------------------------------------------- randomisation and overlap


def test_balance():
    rng = np.random.default_rng(2)
    codes, X = np.arange(300) % 3, rng.normal(size=(300, 3)) + np.array([0, 5e4, 0])
    X[:, 2] = 4.0
    found = smd(X, codes, 3)
    for m in (1, 2):
        a, b = X[codes == m, :2], X[codes == 0, :2]
        wanted = (a.mean(0) - b.mean(0)) / np.sqrt((a.var(0, ddof=1) + b.var(0, ddof=1)) / 2)
        assert found[m - 1, :2] == pytest.approx(wanted)
    assert (found[:, 2] == 0).all()
    assert smd(codes.astype(float), codes, 3).tolist() == [[np.inf], [np.inf]]
    holes = X.copy()
    holes[::7, 0] = np.nan
    part = ~np.isnan(holes[:, 0])
    assert smd(holes, codes, 3)[:, 0] == pytest.approx(smd(X[part, :1], codes[part], 3)[:, 0])
    levels = rng.integers(0, 4, 300)
    share = [(levels[codes == m] == 2).mean() for m in (0, 1)]
    scale = np.sqrt(sum(p * (1 - p) for p in share) / 2)
    assert smd_levels(levels, 4, codes, 3)[0, 2] == pytest.approx((share[1] - share[0]) / scale)


def test_a_classifier_finds_what_was_not_random():
    rng = np.random.default_rng(10)
    codes, X = rng.permutation(np.arange(240) % 3), rng.normal(size=(240, 2))
    fair = arm_auc(X, codes, 1, permutations=99)
    told = arm_auc(X + 2 * (codes == 1)[:, None], codes, 1, permutations=99, limit=120)
    assert fair.p > 0.05
    assert told.p == 0.01
    assert told.auc > 0.9
    assert told.scores.size == pytest.approx(120, abs=6)
    with pytest.raises(BadOption):
        arm_auc(X, codes, 4)


def test_overlap_and_weights():
    codes = np.array([0, 0, 1, 1])
    e = np.array([[0.5, 0.5], [0.995, 0.005], [0.5, 0.5], [0.75, 0.25]])
    found = overlap(e, codes)
    assert found.ess == pytest.approx([(2 + 1 / 0.995) ** 2 / (4 + 1 / 0.995**2), 36 / 20])
    assert found.max_weight == pytest.approx([2, 4])
    assert found.clipped_share == pytest.approx([0.25, 0.25])
    assert overlap(np.full((4, 2), 0.5), codes).ess_share == pytest.approx([1, 1])
    ipw, both = balance_weights(e, codes, "ipw"), balance_weights(e, codes, "overlap")
    assert ipw * 4 / ipw.sum() == pytest.approx(ipw)
    # With two arms the overlap weight is the probability of the other arm.
    assert both / both[0] == pytest.approx(np.array([0.5, 0.005, 0.5, 0.75]) / 0.5)


def test_srm_refuses_shares():
    with pytest.raises(PropensityRange):
        srm(np.array([0, 1]), 2, [1, 0])
    with pytest.raises(ShapeMismatch):
        srm(np.array([0, 1]), 2, [1, 1, 1])


# ------------------------------------------------------------------------------------------------------------------- power


def test_power_closed_form_and_round_trip():
    z = scipy.stats.norm.ppf(0.975) + scipy.stats.norm.ppf(0.8)
    assert plan(n=1000, shares=[1, 1], sd=2.0) == pytest.approx([z * 2 * np.sqrt(4 / 1000)])
    n = plan(effect=0.1, shares=[2, 1, 1], sd=1.0, cluster_size=5, icc=0.2)
    assert isinstance(n, int)
    assert (
        plan(n=n, shares=[2, 1, 1], sd=1.0, cluster_size=5, icc=0.2).max()
        <= 0.1
        < plan(n=n - 1, shares=[2, 1, 1], sd=1.0, cluster_size=5, icc=0.2).max()
    )
    for wrong in (
        {"n": 10, "effect": 1.0},
        {},
        {"n": 10, "icc": 2.0},
        {"n": 10, "cluster_size": 0.5},
        {"effect": 0.0},
        {"n": 1},
    ):
        with pytest.raises(BadOption):
            plan(shares=[1, 1], sd=1.0, **wrong)
    with pytest.raises(PropensityRange):
        plan(n=10, shares=[1, 0], sd=1.0)

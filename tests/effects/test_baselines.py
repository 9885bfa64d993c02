"""Meta-learners against scikit-learn by hand, references, and what all of them share."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from tests.effects.tables import table

from querist import effects as room
from querist.effects import qini
from querist.effects.baselines import (
    ConstantEffect,
    DRLearner,
    NaturalRank,
    RandomRank,
    RLearner,
    SingleArm,
    SLearner,
    TLearner,
    XLearner,
)
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption, TooFewRows
from querist.statistics import stream
from querist.training import Hook

DATA = simulate(1500, seed=4, **SETTINGS[3])
ONE = DATA.arm < 2
X1, A1, Y1 = DATA.X[ONE], DATA.arm[ONE], DATA.Y[ONE]
Z1 = ((X1 - X1.mean(axis=0)) / X1.std(axis=0, ddof=1)).clip(-8, 8).astype(np.float32).astype(float)
ZERO = DummyRegressor(strategy="constant", constant=0.0)
LEARNERS = (SLearner, TLearner, XLearner, RLearner, DRLearner)


def rmse(a, b):
    return float(np.sqrt(((a - b) ** 2).mean()))


# ---------------------------------------------------------------------------------------------------- oracles by hand


def test_a_t_learner_is_two_learners():
    model = TLearner(LinearRegression(), control=0).fit(X1, A1, Y1)
    mu = [LinearRegression().fit(Z1[m == A1], Y1[m == A1]) for m in (0, 1)]
    effects = model.predict_effects(X1)
    assert effects.total[:, 0] == pytest.approx(mu[1].predict(Z1) - mu[0].predict(Z1), abs=1e-9)
    assert effects.natural == pytest.approx(mu[0].predict(Z1), abs=1e-9)
    binary = (Y1[:, :1] > 0).astype(float)
    by_hand = [LogisticRegression(max_iter=1000).fit(Z1[m == A1], binary[m == A1, 0]) for m in (0, 1)]
    p = [one.predict_proba(Z1)[:, 1] for one in by_hand]
    found = TLearner(control=0).fit(X1, A1, binary).predict(X1)[:, 0, 0]
    assert found == pytest.approx(p[1] - p[0], abs=1e-9)


def test_an_s_learner_is_one_learner_with_a_column_per_arm():
    tree = DecisionTreeRegressor(max_depth=4, random_state=0)
    model = SLearner(tree, control=0).fit(DATA.X, DATA.arm, DATA.Y[:, 0])
    Z = ((DATA.X - DATA.X.mean(axis=0)) / DATA.X.std(axis=0, ddof=1)).astype(np.float32).astype(float)

    def design(arm):
        return np.column_stack([Z, *(np.broadcast_to(arm, len(Z)) == m for m in (1, 2, 3))])

    fitted = tree.fit(design(DATA.arm), DATA.Y[:, 0])
    by_hand = [fitted.predict(design(m)) for m in range(4)]
    assert model.predict(DATA.X)[..., 0] == pytest.approx(np.stack(by_hand[1:], axis=1) - by_hand[0][:, None])
    # Arm indicators times features, without a penalty, are as many learners as arms.
    crossed = SLearner(LinearRegression(), interactions=True, control=0).fit(DATA.X, DATA.arm, DATA.Y)
    apart = TLearner(LinearRegression(), control=0).fit(DATA.X, DATA.arm, DATA.Y)
    assert crossed.predict(DATA.X) == pytest.approx(apart.predict(DATA.X), abs=1e-8)


def test_robust_learners_without_a_model_of_outcomes_have_closed_forms():
    weight = np.random.default_rng(0).uniform(0.5, 2, len(A1))
    e = np.column_stack([1 - (p := np.random.default_rng(1).uniform(0.3, 0.7, len(A1))), p])
    y, t = Y1[:, 0], A1 == 1
    given = {"sample_weight": weight, "propensity": e}

    def found(kind):
        return kind(ZERO, effect_learner=LinearRegression(), control=0).fit(X1, A1, y, **given).predict(X1)[:, 0, 0]

    dr = LinearRegression().fit(Z1, y * t / e[:, 1] - y * ~t / e[:, 0], weight / weight.mean())
    assert found(DRLearner) == pytest.approx(dr.predict(Z1), abs=1e-9)
    own = t - e[:, 1]
    r = LinearRegression().fit(Z1, y / own, weight * own**2)
    assert found(RLearner) == pytest.approx(r.predict(Z1), abs=1e-9)
    treated = LinearRegression().fit(Z1[t], y[t], weight[t])
    control = LinearRegression().fit(Z1[~t], -y[~t], weight[~t])
    plain = XLearner(ZERO, effect_learner=LinearRegression(), control=0, propensity=[0.4, 0.6])
    by_hand = 0.6 * control.predict(Z1) + 0.4 * treated.predict(Z1)
    assert plain.fit(X1, A1, y, sample_weight=weight).predict(X1)[:, 0, 0] == pytest.approx(by_hand, abs=1e-9)
    chance = LogisticRegression(max_iter=1000).fit(Z1, A1, weight / weight.mean()).predict_proba(Z1)[:, 1]
    by_hand = chance * control.predict(Z1) + (1 - chance) * treated.predict(Z1)
    assert found(XLearner) == pytest.approx(by_hand, abs=1e-9)


def test_out_of_fold_means_have_not_seen_the_row_nor_its_cluster():
    """A learner that remembers the nearest row: where pairs of equal rows are parted, it would know each outcome."""
    X, arm = np.repeat(DATA.X[:400], 2, axis=0), np.repeat(DATA.arm[:400], 2)
    y = np.repeat(np.random.default_rng(0).normal(size=400), 2)
    told = {"effect_learner": LinearRegression(), "control": 0, "min_rows": 5}
    near = KNeighborsRegressor(1)
    parted = DRLearner(near, **told).fit(X, arm, y).predict_effects(X).total
    whole = DRLearner(near, **told).fit(X, arm, y, cluster=np.repeat(np.arange(400), 2)).predict_effects(X).total
    assert whole.std() > 1.5 * parted.std()
    with pytest.raises(TooFewRows, match="miss an arm"):
        DRLearner(near, **told).fit(X, arm, y, cluster=np.where(arm == 2, 0, np.arange(1, 801)))


# ---------------------------------------------------------------------------------------------------- what all share


@pytest.mark.parametrize("kind", LEARNERS)
def test_learners_find_the_simulated_effects(kind):
    data = simulate(8000, seed=5, **SETTINGS[3])
    found = kind(control=0).fit(data.X, data.arm, data.Y).predict_effects(data.X)
    flat = ConstantEffect(control=0).fit(data.X, data.arm, data.Y).predict_effects(data.X)
    assert rmse(found.incremental, data.truth.incremental) < 0.6 * rmse(flat.incremental, data.truth.incremental)
    assert rmse(found.total, data.truth.total) < 0.75 * rmse(flat.total, data.truth.total)
    assert rmse(found.natural, data.truth.natural) < 0.75


@pytest.mark.parametrize("kind", [XLearner, RLearner, DRLearner, SLearner])
def test_names_of_arms_only_permute_answers(kind):
    names = np.array(["none", "b", "c", "a"])[DATA.arm]
    plain = kind(control=0).fit(DATA.X, DATA.arm, DATA.Y).predict(DATA.X)
    other = kind(control="none").fit(DATA.X, names, DATA.Y).predict(DATA.X)
    assert other == pytest.approx(plain[:, [2, 0, 1]], abs=1e-9)


@pytest.mark.parametrize("kind", [*LEARNERS, NaturalRank, RandomRank, SingleArm, ConstantEffect])
def test_what_holds_for_all(kind):
    Y = np.column_stack([DATA.Y[:, 0], DATA.Y[:, 1] > 0])
    Y[DATA.arm == 2, 1] = 0
    Y[::5, 0] = np.nan
    model = kind(control=0).fit(DATA.X, DATA.arm, Y)
    effects = model.predict_effects(DATA.X)
    assert np.isnan(effects.total).all(axis=0).tolist() == [[False, False], [False, True], [False, False]]
    order = np.random.default_rng(0).permutation(1500)[:100]
    assert model.predict_effects(DATA.X[order]).total == pytest.approx(effects.total[order], abs=1e-12, nan_ok=True)
    weighted = [
        kind(control=0).fit(DATA.X, DATA.arm, Y, sample_weight=c * np.arange(1, 1501)).predict(DATA.X) for c in (1, 4)
    ]
    assert weighted[0] == pytest.approx(weighted[1], nan_ok=True)
    one = kind(control=0).fit(X1, A1, Y1).predict_effects(X1)
    assert (one.incremental == 0).all()


def test_confounding_is_taken_out_by_propensities():
    data = simulate(8000, seed=1, confounding=1.0, **SETTINGS[1])
    truth = data.truth.total.mean(axis=0)[:, 0]

    def off(propensity):
        model = ConstantEffect(control=0, propensity=propensity).fit(data.X, data.arm, data.Y)
        return abs(model.predict(data.X[:1])[0, :, 0] - truth)

    naive = off("share").max()
    assert naive > 0.4
    assert off(data.propensity).max() < 0.15
    # Its logits are linear in the features, those of the design are not: it takes out what they share.
    assert off("estimate").max() < 0.6 * naive
    found = DRLearner(control=0).fit(data.X, data.arm, data.Y, propensity=data.propensity).predict(data.X)
    assert abs(found.mean(axis=0)[:, 0] - truth).max() < 0.15


@pytest.mark.parametrize("kind", LEARNERS)
def test_an_arm_that_nobody_has_is_not_estimable(kind):
    model = kind(control=0, arms=[1, 2, 3, "new"]).fit(DATA.X, DATA.arm, DATA.Y)
    assert [one.arm for one in model.not_estimable_] == ["new", "new"]
    assert np.isnan(model.predict(DATA.X)[:, 3]).all()
    assert model.predict(DATA.X)[:, :3] == pytest.approx(kind(control=0).fit(DATA.X, DATA.arm, DATA.Y).predict(DATA.X))


def test_learners_that_cannot_do_what_is_asked():
    with pytest.raises(BadOption, match="no weights"):
        TLearner(KNeighborsRegressor(), control=0).fit(X1, A1, Y1, sample_weight=np.arange(1, len(A1) + 1))
    with pytest.raises(BadOption, match="no classes"):
        DRLearner(effect_learner=LogisticRegression(), control=0).fit(X1, A1, Y1)
    for kind in (TLearner, ConstantEffect):
        with pytest.raises(BadOption, match="Hooks watch"):
            kind(control=0).fit(X1, A1, Y1, hooks=[Hook()])
    with pytest.raises(BadOption, match="No such arm"):
        SingleArm(7, control=0).fit(X1, A1, Y1)


def test_any_learner_of_scikit_learn_serves():
    Y = np.column_stack([Y1[:, 0], Y1[:, 1] > 0])
    grown = DecisionTreeClassifier(max_depth=3, max_features=2)
    piped = make_pipeline(StandardScaler(), Ridge())
    weight = np.random.default_rng(0).uniform(1, 2, len(A1))
    for kind in LEARNERS:
        one = kind(piped, classifier=grown, control=0).fit(X1, A1, Y, sample_weight=weight)
        two = kind(piped, classifier=grown, control=0).fit(X1, A1, Y, sample_weight=weight)
        assert np.isfinite(one.predict(X1)).all()
        assert (one.predict(X1) == two.predict(X1)).all()


# --------------------------------------------------------------------------------------------------------- references


def test_references():
    means = np.array([[DATA.Y[DATA.arm == m, k].mean() for k in (0, 1)] for m in range(4)])
    flat = ConstantEffect(control=0).fit(DATA.X, DATA.arm, DATA.Y).predict_effects(DATA.X)
    assert flat.total == pytest.approx(np.tile(means[1:] - means[0], (1500, 1, 1)))
    assert flat.natural == pytest.approx(np.tile(means[0], (1500, 1)))
    best = SingleArm(control=0).fit(DATA.X, DATA.arm, DATA.Y)
    at = means[1:].argmax(axis=0)
    assert list(best.chosen_.values()) == [m + 1 for m in at]
    total = best.predict(DATA.X[:1])[0]
    assert total[at, [0, 1]] == pytest.approx((means[1:] - means[0])[at, [0, 1]])
    assert (np.sort(np.abs(total), axis=0)[:2] == 0).all()
    assert SingleArm(2, control=0).fit(DATA.X, DATA.arm, DATA.Y).predict(DATA.X[:1])[0, 1, 0] == flat.total[0, 1, 0]
    natural = NaturalRank(control=0).fit(DATA.X, DATA.arm, DATA.Y).predict_effects(DATA.X)
    learnt = TLearner(control=0).fit(DATA.X, DATA.arm, DATA.Y).predict_effects(DATA.X)
    assert natural.total == pytest.approx(np.repeat(learnt.natural[:, None], 3, axis=1))


def test_random_ranks_are_uniform_independent_and_lasting():
    one = RandomRank(control=0).fit(DATA.X, DATA.arm, DATA.Y).predict(DATA.X).reshape(1500, -1)
    assert abs(one.mean(axis=0)).max() < 4 * 12**-0.5 / 1500**0.5
    assert one.std(axis=0) == pytest.approx(12**-0.5, rel=0.05)
    assert abs(np.corrcoef(one.T) - np.eye(6)).max() < 4 / 1500**0.5
    other = RandomRank(control=0, random_state=1).fit(DATA.X, DATA.arm, DATA.Y).predict(DATA.X).reshape(1500, -1)
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < 4 / 1500**0.5


# ----------------------------------------------------------------------------------------------------------- Hillstrom


@pytest.mark.slow
def test_the_t_learner_ranks_hillstrom_as_the_reference_does():
    """70/30, ten seeds, logistic regressions: Qini of visits .0090 (sd .0126) and .0638 (.0114)."""
    import polars as pl

    frame = table("hillstrom")
    log = pl.col("history").log1p().alias("log_history")
    X = frame.select("recency", "history", log, "mens", "womens", "newbie", "zip_code", "channel")
    arm, y = frame["segment"].to_numpy(), frame["visit"].to_numpy().astype(float)
    found = {kind: [] for kind in (TLearner, NaturalRank)}
    for seed in range(10):
        train = stream(seed, "split").random(len(y)) < 0.7
        for kind, rows in found.items():
            model = kind(control="No E-Mail").fit(X.filter(train), arm[train], y[train])
            score = model.predict(X.filter(~train))[..., 0]
            pairs = [(arm[~train] == name) | (arm[~train] == "No E-Mail") for name in model.arms_]
            rows.append(
                [
                    qini(y[~train][p], arm[~train][p] == name, score[p, j])
                    for j, (name, p) in enumerate(zip(model.arms_, pairs, strict=True))
                ]
            )
    assert np.mean(found[TLearner], axis=0) == pytest.approx([0.0090, 0.0638], abs=0.0114)
    assert np.mean(found[NaturalRank], axis=0) == pytest.approx([0.0274, -0.0074], abs=0.0096)


def test_baselines_are_public():
    for name in ("SLearner", "TLearner", "XLearner", "RLearner", "DRLearner", "SingleArm", "ConstantEffect"):
        assert getattr(room, name).__name__ == name

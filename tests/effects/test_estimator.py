"""What every estimator promises, held by the quickest of them."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from querist.effects.baselines import SLearner, TLearner
from querist.effects.errors import ArmInFeatures, ControlAbsent, LengthMismatch, NoTreated, PropensityRange
from querist.effects.estimator import Estimator
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption, BadValues
from querist.sources.rows import ColumnMissing

DATA = simulate(1200, seed=1, **SETTINGS[3])


def fitted(made=None, data=DATA, **kwargs):
    return (made or TLearner(control=0)).fit(data.X, data.arm, data.Y, **kwargs)


def test_shapes_parts_and_attributes():
    model = fitted()
    effects = model.predict_effects(DATA.X)
    assert effects.total.shape == (1200, 3, 2)
    assert model.predict(DATA.X) == pytest.approx(effects.total)
    assert effects.total == pytest.approx(effects.base[:, None] + effects.incremental)
    assert np.einsum("nmk,m->nk", effects.incremental, model.tier_weights_) == pytest.approx(0, abs=1e-12)
    counts = np.bincount(DATA.arm)[1:]
    assert model.tier_weights_ == pytest.approx(counts / counts.sum())
    assert (model.arms_, model.control_, model.not_estimable_) == ([1, 2, 3], 0, [])
    assert list(model.outcomes_.values()) == ["continuous", "continuous"]
    assert len(model.features_) == 12


def test_there_is_no_way_to_tell_predict_the_arm():
    model = fitted()
    for verb in (model.predict, model.predict_effects):
        assert list(inspect.signature(verb).parameters) == ["X"]
        with pytest.raises(TypeError):
            verb(DATA.X, arm=DATA.arm)


def test_predictions_depend_on_their_own_row_alone():
    model = fitted()
    whole = model.predict(DATA.X)
    order = np.random.default_rng(0).permutation(1200)
    assert model.predict(DATA.X[order]) == pytest.approx(whole[order], abs=1e-12)
    parts = [model.predict(part) for part in np.array_split(DATA.X, 7)]
    assert np.concatenate(parts) == pytest.approx(whole, abs=1e-12)
    assert model.predict(DATA.X[:1]) == pytest.approx(whole[:1], abs=1e-12)
    batches = list(model.effects_batches(DATA.X, 500))
    assert [len(one.natural) for one in batches] == [500, 500, 200]
    assert np.concatenate([one.total for one in batches]) == pytest.approx(whole, abs=1e-12)
    assert model.predict(DATA.X[:0]).shape == (0, 3, 2)


def test_scikit_learn_takes_it_for_an_estimator():
    model = SLearner(LinearRegression(), interactions=True, control="none", tier="reference")
    copy = clone(model)
    assert copy is not model
    assert copy.get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert copy.interactions is True
    assert copy.control == "none"
    assert {"control", "propensity", "classifier", "min_rows"} <= set(inspect.signature(SLearner).parameters)
    copy.set_params(min_rows=3, learner__fit_intercept=False)
    assert copy.min_rows == 3
    assert copy.learner.fit_intercept is False
    assert "SLearner(" in repr(copy)
    model = fitted()
    assert (pickle.loads(pickle.dumps(model)).predict(DATA.X) == model.predict(DATA.X)).all()


def test_a_pipeline_hands_outcomes_on():
    pipe = make_pipeline(StandardScaler(), TLearner(control=0))
    pipe.fit(DATA.X, DATA.arm, tlearner__Y=DATA.Y)
    assert pipe.predict(DATA.X) == pytest.approx(fitted().predict(DATA.X), abs=1e-4)


def test_weights_count_by_their_ratios_alone_and_equal_ones_not_at_all():
    weight = np.random.default_rng(2).uniform(0.5, 2, 1200)
    one, two = (fitted(sample_weight=c * weight).predict(DATA.X) for c in (1.0, 8.0))
    assert (one == two).all()
    assert abs(one - fitted().predict(DATA.X)).max() > 1e-3
    assert (fitted(sample_weight=np.full(1200, 3.0)).predict(DATA.X) == fitted().predict(DATA.X)).all()


def test_names_of_arms_only_permute_answers():
    names = np.array(["none", "b", "c", "a"])[DATA.arm]
    plain = fitted().predict(DATA.X)
    model = TLearner(control="none").fit(DATA.X, names, DATA.Y)
    assert model.arms_ == ["a", "b", "c"]
    assert model.predict(DATA.X) == pytest.approx(plain[:, [2, 0, 1]], abs=1e-9)
    same = TLearner(control="none", arms=["b", "c", "a"]).fit(DATA.X, names, DATA.Y)
    assert same.predict(DATA.X) == pytest.approx(plain, abs=1e-9)


def test_tiers():
    reference = fitted(TLearner(control=0, tier="reference", reference_arm=2)).predict_effects(DATA.X)
    assert reference.incremental[:, 1] == pytest.approx(0, abs=1e-12)
    own = fitted(TLearner(control=0, tier_weights={1: 0.5, 2: 0.25, 3: 0.25}))
    assert own.tier_weights_ == pytest.approx([0.5, 0.25, 0.25])
    assert own.predict(DATA.X) == pytest.approx(reference.total)
    with pytest.raises(BadOption, match="reference arm"):
        fitted(TLearner(control=0, tier="reference", reference_arm=9))
    with pytest.raises(BadOption, match="every arm"):
        fitted(TLearner(control=0, tier_weights={1: 1.0}))


def test_one_arm_has_no_increments():
    rows = DATA.arm < 2
    model = TLearner(control=0).fit(DATA.X[rows], DATA.arm[rows], DATA.Y[rows])
    effects = model.predict_effects(DATA.X)
    assert (effects.incremental == 0).all()
    assert (effects.base == effects.total[:, 0]).all()


def test_missing_outcomes_are_left_out_of_their_outcome_alone():
    Y = DATA.Y.copy()
    Y[::3, 1] = np.nan
    model = TLearner(control=0).fit(DATA.X, DATA.arm, Y)
    kept = np.arange(1200) % 3 > 0
    half = TLearner(control=0).fit(DATA.X, DATA.arm, DATA.Y)
    assert (model.predict(DATA.X)[..., 0] == half.predict(DATA.X)[..., 0]).all()
    by_hand = [
        LinearRegression().fit(DATA.X[kept & (DATA.arm == m)], DATA.Y[kept & (DATA.arm == m), 1]) for m in (0, 1)
    ]
    linear = TLearner(LinearRegression(), control=0).fit(DATA.X, DATA.arm, Y).predict(DATA.X)[:, 0, 1]
    assert linear == pytest.approx(by_hand[1].predict(DATA.X) - by_hand[0].predict(DATA.X), abs=1e-4)


def test_what_the_rows_do_not_carry_is_null_and_listed():
    Y = np.column_stack([DATA.Y[:, 0], DATA.Y[:, 1] > 0, DATA.Y[:, 0] > 0])
    Y[DATA.arm == 2, 0] = 1.5
    Y[DATA.arm == 3, 1] = np.nan
    Y[DATA.arm == 0, 2] = 0
    model = TLearner(control=0).fit(DATA.X, DATA.arm, Y)
    named = [(one.arm, list(model.outcomes_).index(one.outcome)) for one in model.not_estimable_]
    assert named == [(2, 0), (3, 1), (1, 2), (2, 2), (3, 2)]
    assert model.not_estimable_[2].reason.startswith("control: ")
    effects = model.predict_effects(DATA.X)
    null = np.isnan(effects.total).all(axis=0)
    assert null.tolist() == [[False, False, True], [True, False, True], [False, True, True]]
    assert np.isnan(effects.natural[:, 2]).all()
    assert np.isfinite(effects.natural[:, :2]).all()
    w = model.tier_weights_[[0, 2]] / model.tier_weights_[[0, 2]].sum()
    assert effects.base[:, 0] == pytest.approx(effects.total[:, [0, 2], 0] @ w)
    assert np.isnan(effects.base[:, 2]).all()
    few = TLearner(control=0, min_events=1000).fit(DATA.X, DATA.arm, DATA.Y > 0)
    assert "events" in few.not_estimable_[0].reason


def test_propensities_reach_the_sample():
    seen = []

    class Looks(TLearner):
        def _fit(self, sample, hooks):
            seen.append(sample)
            super()._fit(sample, hooks)

    fitted(Looks(control=0))
    assert seen[-1].propensity[0] == pytest.approx(np.bincount(DATA.arm) / 1200)
    fitted(Looks(control=0, propensity={0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}))
    assert (seen[-1].propensity == 0.25).all()
    fitted(Looks(control=0), propensity=DATA.propensity)
    assert (seen[-1].propensity == DATA.propensity).all()
    fitted(Looks(control=0, propensity="estimate"), cluster=np.arange(1200) // 2)
    assert seen[-1].propensity.std(axis=0).min() > 0
    assert seen[-1].propensity.mean(axis=0) == pytest.approx(np.bincount(DATA.arm) / 1200, abs=0.01)
    fold = seen[-1].folds(5)
    assert (fold[::2] == fold[1::2]).all()
    part = seen[-1].take(np.arange(0, 1200, 4))
    assert part.n == 300
    assert (part.dense == seen[-1].dense[::4]).all()
    with pytest.raises(PropensityRange):
        fitted(propensity=[0.0, 0.5, 0.25, 0.25])


def test_bad_input_is_told():
    with pytest.raises(ControlAbsent, match="not named"):
        TLearner().fit(DATA.X, np.array(list("abcd"))[DATA.arm], DATA.Y)
    assert TLearner().fit(DATA.X, DATA.arm, DATA.Y).control_ == 0
    with pytest.raises(ControlAbsent):
        fitted(TLearner(control=7))
    with pytest.raises(NoTreated):
        TLearner(control=0).fit(DATA.X, np.zeros(1200, dtype=int), DATA.Y)
    with pytest.raises(LengthMismatch):
        TLearner(control=0).fit(DATA.X[:-1], DATA.arm, DATA.Y)
    with pytest.raises(LengthMismatch):
        fitted(cluster=[1, 2])
    with pytest.raises(BadValues, match="weight"):
        fitted(sample_weight=np.zeros(1200))
    with pytest.raises(BadOption, match="not been fitted"):
        TLearner().predict(DATA.X)
    with pytest.raises(BadOption, match="no learner"):
        fitted(TLearner(StandardScaler(), control=0))
    with pytest.raises(BadOption, match="no classifier"):
        fitted(TLearner(classifier=LinearRegression(), control=0))


def test_the_arm_by_another_name_is_no_feature():
    other = np.array([7.0, -1.0, 3.0, np.nan])[DATA.arm]
    with pytest.raises(ArmInFeatures, match="x12"):
        TLearner(control=0).fit(np.column_stack([DATA.X, other]), DATA.arm, DATA.Y)
    other[5] = 7.0 if DATA.arm[5] != 0 else 3.0
    TLearner(control=0).fit(np.column_stack([DATA.X, np.nan_to_num(other)]), DATA.arm, DATA.Y)


def test_tables_of_every_kind_and_what_is_said_of_them():
    import pandas as pd
    import polars as pl

    kept = [f"x{k}" for k in range(12)]
    frame = pl.DataFrame(DATA.X, schema=kept).with_columns(same=pl.lit(3.0), x3=pl.Series(DATA.X[:, 3]))
    hole = frame.with_columns(x3=pl.when(pl.col("x3") > 1).then(None).otherwise(pl.col("x3")))
    Y = pl.DataFrame({"a": DATA.Y[:, 0] > 0, "b": DATA.Y[:, 1]})
    with pytest.warns(UserWarning, match="same"):
        model = TLearner(control=0).fit(hole, DATA.arm, Y)
    assert model.features_ == kept
    assert model.outcomes_ == {"a": "binary", "b": "continuous"}
    said = " | ".join(model.warnings_)
    assert "same never changes" in said
    assert "x3 is missing in" in said
    assert "a is taken as binary" in said
    shuffled = hole.select(reversed(hole.columns)).with_columns(more=pl.lit("z"))
    assert (model.predict(shuffled) == model.predict(hole)).all()
    assert (model.predict(pd.DataFrame(hole.to_dict(as_series=False))) == model.predict(hole)).all()
    assert (model.predict(hole.to_arrow()) == model.predict(hole)).all()
    with pytest.raises(ColumnMissing, match="x5"):
        model.predict(hole.drop("x5"))
    with pytest.raises(BadValues, match="varies"):
        TLearner(control=0).fit(np.ones((1200, 2)), DATA.arm, DATA.Y)


def test_columns_by_name():
    import polars as pl

    frame = pl.DataFrame(DATA.X, schema=[f"x{k}" for k in range(12)]).with_columns(
        got=pl.Series(np.array(["none", "a", "b", "c"])[DATA.arm]),
        y=pl.Series(DATA.Y[:, 0]),
        home=pl.Series(np.arange(1200) // 2),
        w=pl.Series(np.arange(1.0, 1201.0)),
    )
    model = TLearner(control="none").fit_rows(frame, arm="got", outcomes=["y:continuous"], weight="w", cluster="home")
    plain = TLearner(control=0).fit(DATA.X, DATA.arm, DATA.Y[:, 0], sample_weight=np.arange(1.0, 1201.0))
    assert model.features_ == [f"x{k}" for k in range(12)]
    assert model.predict(frame) == pytest.approx(plain.predict(DATA.X))
    few = TLearner(control="none", outcomes={"y": "continuous"}).fit_rows(
        frame, arm="got", feature=["x1*"], drop=["x11"]
    )
    assert few.features_ == ["x1", "x10"]
    with pytest.raises(BadOption, match="outcome"):
        TLearner(control="none").fit_rows(frame, arm="got")


def test_estimators_are_estimators():
    assert issubclass(SLearner, Estimator)
    with pytest.raises(NotImplementedError):
        fitted(Estimator(control=0))


def test_a_classifier_serves_outcomes_of_0_and_1():
    Y = np.column_stack([DATA.Y[:, 0] > 0, DATA.Y[:, 1]])
    both = TLearner(LogisticRegression(C=0.1), control=0).fit(DATA.X, DATA.arm, Y).predict(DATA.X)
    plain = TLearner(control=0).fit(DATA.X, DATA.arm, Y).predict(DATA.X)
    assert (both[..., 1] == plain[..., 1]).all()
    assert abs(both[..., 0] - plain[..., 0]).max() > 1e-3
    assert abs(plain[..., 0]).max() < 1

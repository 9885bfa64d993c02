"""Model folders: what is read again predicts the same, and nothing else is read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from querist.effects import baselines as wing
from querist.effects import load
from querist.effects.estimator import Estimator
from querist.effects.simulation import SETTINGS, simulate
from querist.errors import BadOption, CorruptFile, SourceNotFound, UnsupportedFormat
from querist.sources.rows import hash_rows

DATA = simulate(400, seed=7, **SETTINGS[3])
NAMES = np.array(["none", "b", "c", "a"])[DATA.arm]
Y = np.column_stack([DATA.Y[:, 0] > 0, DATA.Y[:, 1]])
NETWORKS = ("TARNet", "CFRNet", "DragonNet", "M3TN", "EFINLike", "FlexTENet", "MMoE", "PLE")


def fitted(name, **given):
    more = {"epochs": 1} if name in NETWORKS else {}
    return getattr(wing, name)(control="none", min_rows=5, **more, **given).fit(DATA.X, NAMES, Y)


def is_model(name):
    kind = getattr(wing, name)
    return isinstance(kind, type) and issubclass(kind, Estimator) and kind is not wing.Networks


@pytest.mark.parametrize("name", list(filter(is_model, wing.__all__)))
def test_every_model_comes_back(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "m")
    assert {one.name for one in (tmp_path / "m").iterdir()} == {"model.json", "weights.safetensors", "rows.u64"}
    again = load(tmp_path / "m")
    assert type(again) is type(model)
    effects, same = model.predict_effects(DATA.X), again.predict_effects(DATA.X)
    assert same.total == pytest.approx(effects.total, abs=1e-9)
    assert same.natural == pytest.approx(effects.natural, abs=1e-9)
    for what in ("arms_", "control_", "outcomes_", "features_", "not_estimable_", "warnings_"):
        assert getattr(again, what) == getattr(model, what)
    assert (again.tier_weights_ == model.tier_weights_).all()
    assert again.get_params(deep=False) == model.get_params(deep=False)
    assert (again.rows_seen_ == model.rows_seen_).all()
    again.save(tmp_path / "n")
    assert (tmp_path / "n" / "model.json").read_bytes() == (tmp_path / "m" / "model.json").read_bytes()


def test_fit_rows_are_known_by_their_hashes(tmp_path):
    model = fitted("TLearner")
    seen = np.isin(hash_rows(model.columns_.encode(DATA.X[:50])), model.rows_seen_)
    assert seen.all()
    assert not np.isin(hash_rows(model.columns_.encode(DATA.X[:50] + 1e-3)), model.rows_seen_).any()
    assert (np.diff(model.rows_seen_.astype(float)) > 0).all()


@pytest.mark.parametrize(
    ("learner", "positive"),
    [
        (LinearRegression(), False),
        (make_pipeline(StandardScaler(), LinearRegression()), False),
        (make_pipeline(StandardScaler(with_mean=False), PoissonRegressor()), True),
    ],
)
def test_linear_learners_are_kept_by_their_coefficients(learner, positive, tmp_path):
    y = np.exp(DATA.Y[:, 1]) if positive else DATA.Y
    model = wing.XLearner(learner, effect_learner=LinearRegression(), control=0).fit(DATA.X, DATA.arm, y)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.predict(DATA.X) == pytest.approx(model.predict(DATA.X), abs=1e-9)
    assert "LinearRegression" in again.not_kept_["effect_learner"]
    with pytest.raises(BadOption, match="Set them"):
        again.fit(DATA.X, DATA.arm, y)
    again.set_params(learner=learner, effect_learner=LinearRegression()).fit(DATA.X, DATA.arm, y)


@pytest.mark.parametrize(
    ("learner", "kind"),
    [
        (DecisionTreeRegressor(max_depth=5), "real"),
        (DecisionTreeClassifier(max_depth=5), "flag"),
        (RandomForestRegressor(4, max_depth=6), "real"),
        (ExtraTreesClassifier(4, max_depth=6), "flag"),
        (GradientBoostingRegressor(n_estimators=5, loss="huber"), "real"),
        (GradientBoostingClassifier(n_estimators=5), "flag"),
        (HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=8), "real"),
        (HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=8, loss="poisson"), "count"),
        (HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=8), "flag"),
    ],
)
def test_trees_are_kept_by_their_nodes(learner, kind, tmp_path):
    y = {"real": DATA.Y[:, 1], "flag": DATA.Y[:, 1] > 0, "count": np.rint(np.exp(DATA.Y[:, 1]))}[kind]
    rows = DATA.arm < 2
    model = wing.TLearner(learner, control=0).fit(DATA.X[rows], DATA.arm[rows], y[rows])
    assert model.predict(DATA.X).std() > 0.01
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").predict(DATA.X) == pytest.approx(model.predict(DATA.X), abs=1e-9)


def test_learners_that_need_a_pickle_are_refused(tmp_path):
    for learner in (KNeighborsRegressor(3), make_pipeline(MinMaxScaler(), LinearRegression())):
        model = wing.TLearner(learner, control=0).fit(DATA.X, DATA.arm, DATA.Y)
        with pytest.raises(BadOption, match="linear"):
            model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    with pytest.raises(BadOption, match="not been fitted"):
        wing.TLearner().save(tmp_path / "m")


def test_folders_that_are_no_models(tmp_path):
    model = fitted("ConstantEffect")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("years of work")
    with pytest.raises(BadOption, match="in the way"):
        model.save(tmp_path / "own")
    assert (tmp_path / "own" / "thesis.txt").exists()
    with pytest.raises(SourceNotFound, match="no model"):
        load(tmp_path / "own")
    model.save(tmp_path / "run" / "model")
    model.save(tmp_path / "run" / "model")
    assert load(tmp_path / "run").arms_ == model.arms_
    place = tmp_path / "run" / "model"
    written = json.loads((place / "model.json").read_text())
    for change, error in (
        ({"form": "other/1"}, UnsupportedFormat),
        ({"class": "Popen"}, UnsupportedFormat),
        ({"class": "qini"}, UnsupportedFormat),
        ({"state": None, "class": "TLearner"}, CorruptFile),
        ({"parameters": {"strange": 1}}, CorruptFile),
    ):
        (place / "model.json").write_text(json.dumps({**written, **change}))
        with pytest.raises(error):
            load(place)
    (place / "model.json").write_text(json.dumps(written))
    (place / "weights.safetensors").write_bytes(b"no weights")
    with pytest.raises(CorruptFile):
        load(place)
    (place / "weights.safetensors").unlink()
    with pytest.raises(SourceNotFound, match="missing"):
        load(place)

"""`effects fit`: what it writes is the model of the Python interface; kills, streams, groups; what it says; bad tables."""

from __future__ import annotations

import json
import shutil

import numpy as np
import polars as pl
import pytest
from tests.effects.people import BOTH, ROLES, held_fit, people
from tests.harness import Bad, assert_same_answer, check_bad_input, check_study, ray_is_here

from querist import effects
from querist.cli import main
from querist.effects.configs import FitConfig
from querist.effects.serving.folder import model_folder
from querist.effects.studies import fit_train
from querist.effects.studies.fit import FitStudy
from querist.effects.studies.fit_answer import _hidden as hidden_finding
from querist.effects.studies.fit_measure import _hidden
from querist.effects.studies.fit_models import MODELS, check_options, made_model
from querist.effects.studies.people import open_people
from querist.errors import BadOption, UnknownName
from querist.reports.ask import ask
from querist.sources.rows import ColumnMissing

QUICK = {"preset": "small", "epochs": 2, "batch_size": 64, "device": "cpu"}
FEATURES = ["x0", "x1", "age", "city"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "people.parquet"
    people(600).write_parquet(path, row_group_size=100)
    return path


def config(path, **fields):
    return FitConfig.build(table=str(path), **{**ROLES, "outcome": BOTH, "drop": ("home",), **fields})


def fitted(path, out=None, **fields):
    return ask(FitStudy(), config(path, **fields), out=out, progress=False)


def api(frame, model):
    labels = frame["segment"].to_numpy()
    return model.fit(frame.select(FEATURES), labels, frame.select("visit", "spend"))


OUTCOMES = {"visit": "binary", "spend": "continuous"}


# ------------------------------------------------------------------------------------------------------------ as a study


def test_fit_is_a_study(path, tmp_path, chromium):
    result = check_study(FitStudy, config(path, **QUICK), tmp_path, chromium=chromium)
    assert model_folder(tmp_path / "whole") == tmp_path / "whole" / "model"
    frame = people(600)
    made = effects.MTMT(control="none", outcomes=OUTCOMES, **QUICK)
    wanted = api(frame, made).predict_effects(frame)
    for place in ("whole", "killed", "local-2", *(["ray"] if ray_is_here() else [])):
        found = effects.load(tmp_path / place).predict_effects(frame)
        np.testing.assert_array_equal(found.total, wanted.total)
    keys = "model rows rows_fit rows_validation columns control arms outcomes tier tier_weights parameters epochs best_epoch stopped"
    keys += " validation ate shrinkage not_estimable"
    names = list(result.summary)
    assert names[names.index("findings") + 1 :] == keys.split()
    assert sorted(result.summary["columns"]) == sorted(FEATURES)
    assert result.summary["parameters"] == made.parameters_
    assert list(result.figures) == ["ladder", "parts", "importance", "training", "watched"]
    networks = result.tables["networks"].to_dicts()
    assert [row["fold"] for row in networks] == [0, 1]
    assert all(270 <= row["rows_fit"] + row["rows_validation"] <= 330 for row in networks)
    assert all(20 <= row["rows_validation"] <= 40 for row in networks)
    assert {row["part"] for row in result.summary["shrinkage"]} == {"arm means", "increments", "base"}


def test_a_table_in_memory_crosses_processes(tmp_path):
    settings = config("table", model="t-learner")
    result = check_study(held_fit, settings, tmp_path, kill=False, engines=("local:1",))
    assert result.summary["epochs"] == []
    assert result.summary["parameters"] is None
    assert list(result.figures) == ["ladder", "parts", "importance"]


def test_a_network_that_was_killed_goes_on_where_it_was(path, tmp_path, monkeypatch):
    from querist.training.checkpoint import Store

    settings = config(path, **{**QUICK, "epochs": 4})
    saved, own, fatal = [], Store.save, [0]

    def save(store, *given, **named):
        own(store, *given, **named)
        saved.append(store)
        if len(saved) == fatal[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(Store, "save", save)
    whole = ask(FitStudy(), settings, out=tmp_path / "whole", progress=False)
    every = len(saved)
    assert every >= 8
    saved.clear()
    fatal[0] = 3  # in the first network
    with pytest.raises(KeyboardInterrupt):
        ask(FitStudy(), settings, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "model").exists()
    fatal[0] = 0
    saved.clear()
    again = ask(FitStudy(), settings, out=tmp_path / "run", resume=True, progress=False)
    assert len(saved) == every - 3
    assert_same_answer(again, whole)
    assert not (tmp_path / "run" / "units" / ".lasting").exists()
    frame = people(50, seed=3)
    one, other = (effects.load(tmp_path / name).predict(frame) for name in ("run", "whole"))
    np.testing.assert_array_equal(one, other)


def test_a_streamed_fit_is_that_of_the_python_interface(path):
    out = path.with_name("run")
    result = fitted(path, out=out, stream=True, drop=("home", "flat"), **QUICK)
    frame = people(600)
    made = effects.MTMT(control="none", **QUICK)
    made.fit_rows(path, arm="segment", outcomes=OUTCOMES, feature=FEATURES)
    one = effects.load(out).predict(frame)
    np.testing.assert_array_equal(one, made.predict(frame))
    assert result.summary["rows"] == result.summary["rows_fit"] == 600
    assert result.summary["arms"] == {row: int((frame["segment"] == row).sum()) for row in ("none", "call", "mail")}
    for row in result.tables["networks"].to_dicts():
        assert 200 < row["rows_fit"] + row["rows_validation"] < 400
    assert result.findings[0].verdict == "yes"


@pytest.mark.slow
def test_a_group_of_processes_fits_one_model(path, tmp_path):
    alone = fitted(path, shrink="none", **QUICK)
    for fields in ({}, {"stream": True}):
        out = tmp_path / f"run-{len(fields)}"
        result = fitted(path, out=out, processes=2, shrink="none", **fields, **QUICK)
        assert result.summary["parameters"] == alone.summary["parameters"]
        assert np.isfinite(effects.load(out).predict(people(40))).all()
    assert np.isfinite(fitted(path, model="tarnet", processes=2, **QUICK).tables["networks"]["validation"][0])


# ------------------------------------------------------------------------------------------------------------- what it says


def test_the_ladder_is_made_of_differences_and_sums(path):
    frame = people(600)
    result = fitted(path, model="t-learner")
    visits = {arm: frame.filter(pl.col("segment") == arm)["visit"].mean() for arm in ("none", "call", "mail")}
    rows = {(r["outcome"], r["part"], r["arm"]): r for r in result.tables["ladder"].to_dicts()}
    weights = result.summary["tier_weights"]
    assert sum(weights.values()) == pytest.approx(1)
    assert rows["visit", "natural", None]["estimate"] == pytest.approx(visits["none"])
    for arm in ("call", "mail"):
        assert rows["visit", "total", arm]["estimate"] == pytest.approx(visits[arm] - visits["none"])
    for part in ("estimate", "predicted"):
        base = rows["visit", "base", None][part]
        assert base == pytest.approx(sum(w * rows["visit", "total", arm][part] for arm, w in weights.items()))
        for arm in weights:
            assert rows["visit", "total", arm][part] == pytest.approx(base + rows["visit", "incremental", arm][part])
    found = {f.subject: f for f in result.findings if f.question == "effects.any-effect"}
    assert set(found) == {"call, visit", "mail, visit", "call, spend", "mail, spend"}
    assert found["mail, spend"].verdict == "yes"
    assert found["mail, spend"].low < found["mail, spend"].estimate < found["mail, spend"].high


def test_average_effects_are_sharper_with_what_networks_say_out_of_fold(path):
    plain, better = (
        fitted(path, **fields).tables["ate"] for fields in ({"model": "t-learner"}, {**QUICK, "epochs": 20})
    )
    spend = (pl.col("outcome") == "spend") & (pl.col("component") == "total")
    # x1 explains half the variance of spend.
    assert (better.filter(spend)["se"] < 0.9 * plain.filter(spend)["se"]).all()


def test_small_effects_are_told_from_unseen_ones(path, tmp_path):
    big = tmp_path / "big.parquet"
    frame = people(8000)
    frame.with_columns(still=frame["spend"].shuffle(0)).write_parquet(big)
    wide = fitted(big, model="constant", outcome=("still",), drop=("home", "visit", "spend"), margin=0.2)
    assert {f.verdict for f in wide.findings if f.question == "effects.any-effect"} == {"no"}
    few = fitted(path, model="constant", outcome=("spend",), drop=("home", "visit"), margin=0.01)
    assert all(f.verdict != "no" for f in few.findings if f.question == "effects.any-effect")


def test_what_predictions_rest_on_is_found(path):
    big = path.with_name("big.parquet")
    people(6000).write_parquet(big)
    moved = fitted(big, model="t-learner").tables["importance"]
    call = moved.filter((pl.col("arm") == "call") & (pl.col("outcome") == "visit") & (pl.col("part") == "total"))
    assert call.sort("moved", descending=True)["feature"][0] == "x0"
    assert call["feature"].n_unique() == 4
    still = fitted(path, model="constant").tables["importance"]
    assert still["moved"].max() == 0


def test_a_model_that_sees_the_arm_is_caught(path):
    table = open_people(str(path), config(path))

    class Leaks:
        def predict_effects(self, rows):
            arm = (np.array(rows.column("segment").to_pylist()) == "mail").astype(float)
            n = len(arm)
            return effects.Effects(arm[:, None], np.zeros((n, 1)), np.zeros((n, 1, 1)), np.ones(1))

    row = _hidden(table, Leaks())
    assert row == {"rows": 600, "changed": 1.0}
    told = hidden_finding(pl.DataFrame([row]))
    assert told.verdict == "no"
    assert "change by 1" in told.because


def test_the_report_says_which_rows_trained_and_which_stopped(path):
    result = fitted(path, model="tarnet", **QUICK)
    (section,) = [s for s in result.layout.sections if s.title.startswith("Which rows")]
    row = result.tables["networks"].row(0, named=True)
    assert f"trained on {row['rows_fit']} people and stopped by {row['rows_validation']} others" in section.words[0]
    assert row["rows_fit"] + row["rows_validation"] == 600
    assert row["validation"] == result.tables["history"].filter(pl.col("part") == "valid_total")["value"].min()


# ----------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_is_made_with_its_options(name):
    takes = MODELS[name].takes
    values = {
        "epochs": 3,
        "folds": 3,
        "expert": "ft",
        "shrink": "none",
        "preset": "small",
        "weighting": "ipw",
        "ensemble": 2,
    }
    given = {key: value for key, value in values.items() if key in takes}
    settings = FitConfig.build(model=name, seed=5, **given)
    check_options(settings)
    model = made_model(settings, control="none", outcomes=OUTCOMES, propensity="share")
    params = model.get_params(deep=False)
    assert (params["control"], params["random_state"]) == ("none", 5)
    for key, value in given.items():
        assert params[key] == (False if value == "none" else value)
    for key, value in values.items():
        if key not in takes:
            with pytest.raises(BadOption, match=f"--{key}"):
                check_options(FitConfig.build(model=name, **{key: value}))


def test_options_that_make_no_sense_are_refused():
    check_bad_input(
        [
            Bad(lambda: check_options(FitConfig(model="t-lerner")), UnknownName, ["t-learner"]),
            Bad(lambda: check_options(FitConfig(model="tarnet", preset="paper")), BadOption, ["small"]),
            Bad(lambda: check_options(FitConfig(reference_arm="mail")), BadOption, ["--tier reference"]),
            Bad(lambda: check_options(FitConfig(model="s-learner", stream=True)), BadOption, ["--stream"]),
            Bad(lambda: check_options(FitConfig(model="constant", processes=2)), BadOption, ["--processes"]),
        ]
    )


def test_tiers_and_designs_reach_the_model(path, tmp_path):
    out = tmp_path / "run"
    design = ("none=1", "call=1", "mail=1")
    result = fitted(path, out=out, model="t-learner", tier="reference", reference_arm="mail", design=design)
    assert result.summary["tier_weights"] == {"call": 0.0, "mail": 1.0}
    found = effects.load(out).predict_effects(people(30))
    assert np.abs(found.incremental[:, 1]).max() < 1e-12
    with pytest.raises(BadOption, match="reference arm"):
        fitted(path, model="t-learner", tier="reference", reference_arm="post")


# -------------------------------------------------------------------------------------------------------------- bad tables


def changed(path, name, **columns):
    frame = pl.read_parquet(path).with_columns(**columns)
    place = path.with_name(f"{name}.parquet")
    frame.write_parquet(place)
    return place


def words(where, *more, control="none", outcome="visit", model="t-learner"):
    given = ["--arm", "segment", "--outcome", outcome, "--drop", "home", "--model", model]
    named = ["--control", control] if control else []
    return ["effects", "fit", str(where), *given, *named, *more, "--quiet", "--engine", "serial"]


def test_bad_tables_are_refused_with_a_way_out(path, tmp_path):
    segment = pl.col("segment")
    first = pl.int_range(pl.len()) < 4
    holes = changed(path, "holes", segment=pl.when(first).then(None).otherwise(segment))
    alone = path.with_name("alone.parquet")
    pl.read_parquet(path).filter(segment == "none").write_parquet(alone)
    empty = changed(path, "empty", visit=pl.lit(None, pl.Float64))
    half = changed(path, "half", visit=pl.when(first).then(0.5).otherwise(pl.col("visit")))
    text = changed(path, "text", visit=pl.when(pl.col("visit") == 1).then(pl.lit("yes")).otherwise(pl.lit("no")))
    twin = changed(path, "twin", code=segment.replace_strict({"none": 3, "call": 7, "mail": 5}))
    never = ["--out", str(tmp_path / "never")]
    check_bad_input(
        [
            Bad(words(path, *never, control="nnoe"), 2, ["nnoe", "none"]),
            Bad(words(path, *never, control=None), 2, ["none", "--control"]),
            Bad(words(alone, *never), 2, ["none"]),
            Bad(words(holes, *never), 2, ["4 of 600", "--drop-missing-arm"]),
            Bad(words(empty, *never), 2, ["visit", "missing in every row"]),
            Bad(words(half, *never, outcome="visit:binary"), 2, ["0.5 in row 0", "0 and 1"]),
            Bad(words(path, *never, outcome="spend:count"), 2, ["whole numbers"]),
            Bad(words(text, *never), 2, ["visit", "--positive"]),
            Bad(words(twin, *never), 2, ["code", "which arm"]),
            Bad(words(path, *never, "--feature", "x9"), 2, ["x9", "x0"]),
            Bad(words(path, *never, "--expert", "ft"), 2, ["--expert", "t-learner"]),
            Bad(words(path, *never, model="mtm"), 2, ["mtm", "mtmt"]),
            Bad(words(path, *never, "--design", "none=.5,mail=.5,call=0"), 2, ["not positive"]),
            Bad(words(holes, *never, "--stream", "--epochs", "1", model="mtmt"), 2, ["missing", "row 0"]),
        ]
    )
    assert not (tmp_path / "never").exists()


def test_what_is_no_error_is_told(path, tmp_path, capsys):
    rng = np.random.default_rng(0)
    gone = pl.Series(rng.random(600) < 0.1)
    few = pl.Series(np.arange(600) < 590)
    given = changed(
        path,
        "given",
        spend=pl.when(gone).then(None).otherwise(pl.col("spend")),
        bought=pl.when(few | (pl.col("segment") != "mail")).then(0).otherwise(1),
        segment=pl.when(pl.int_range(pl.len()) < 4).then(None).otherwise(pl.col("segment")),
        weight=pl.lit(1.0),
    )
    out = tmp_path / "run"
    more = [
        "--outcome",
        "spend",
        "--outcome",
        "bought",
        "--drop-missing-arm",
        "--weight",
        "weight",
        "--json",
        "--out",
        str(out),
    ]
    assert main(words(given, *more)) == 0
    summary = json.loads(capsys.readouterr().out)
    said = " | ".join(summary["warnings"])
    assert "4 rows without an arm are left out" in said
    assert "The outcome spend is missing in" in said
    assert "The feature age is missing in" in said
    assert "flat never changes" in said
    lost = {(row["arm"], row["outcome"]) for row in summary["not_estimable"]}
    assert lost == {("call", "bought"), ("mail", "bought")}
    assert {
        "what": "mail, bought",
        "reason": next(r["reason"] for r in summary["not_estimable"] if r["arm"] == "mail"),
    } in summary["passed_over"]
    assert [row["estimate"] for row in summary["ate"] if row["outcome"] == "bought"] == [None] * 5
    verdicts = {f["subject"]: f["verdict"] for f in summary["findings"]}
    assert verdicts["mail, bought"] == "cannot say"
    assert np.isnan(effects.load(out).predict(people(10))[:, :, 2]).all()
    assert np.isfinite(effects.load(out).predict(people(10))[:, :, 0]).all()


def test_a_model_is_asked_by_its_run(path, tmp_path):
    out = tmp_path / "run"
    fitted(path, out=out, model="t-learner")
    plain, inner = effects.load(out), effects.load(out / "model")
    frame = people(20)
    np.testing.assert_array_equal(plain.predict(frame), inner.predict(frame))
    more = frame.select(reversed(frame.columns)).with_columns(extra=pl.lit(1))
    np.testing.assert_array_equal(plain.predict(more), plain.predict(frame))
    with pytest.raises(ColumnMissing, match="x0"):
        plain.predict(frame.drop("x0"))
    # A model that is gone is made again by the run that knows of it.
    shutil.rmtree(out / "model")
    ask(FitStudy(), config(path, model="t-learner"), out=out, resume=True, progress=False)
    np.testing.assert_array_equal(effects.load(out).predict(frame), plain.predict(frame))


def test_the_sample_that_a_model_saw_is_all_it_keeps(path):
    model, sample, source = fit_train.fitted(config(path, model="t-learner"), open_people(str(path), config(path)))
    assert source is None
    assert sample.n == 600
    assert "_fit" not in model.__dict__


def test_clusters_are_what_intervals_count(path):
    frame = people(600)
    rng = np.random.default_rng(8)
    home = frame["home"].to_numpy()
    arm = np.array(["none", "mail"])[rng.integers(0, 2, 300)[home]]
    spend = rng.standard_normal(300)[home] + 0.3 * rng.standard_normal(600)
    pl.DataFrame({"x0": frame["x0"], "home": home, "segment": arm, "spend": spend}).write_parquet(path)
    plain, whole = (
        fitted(path, model="constant", outcome=("spend",), drop=("home",) if cluster is None else (), cluster=cluster)
        for cluster in (None, "home")
    )
    total = (pl.col("component") == "total") & (pl.col("arm") == "mail")
    narrow, wide = (result.tables["ate"].filter(total)["se"][0] for result in (plain, whole))
    means = [spend[::2].reshape(-1) / 2 + spend[1::2] / 2, arm[::2]]
    parts = [means[0][means[1] == name] for name in ("mail", "none")]
    assert wide == pytest.approx(np.sqrt(sum(part.var(ddof=1) / part.size for part in parts)), rel=0.02)
    assert wide > 1.25 * narrow
    assert dict(whole.tables["arms"].select("arm", "units").iter_rows()) == {
        name: int((arm[::2] == name).sum()) for name in ("none", "mail")
    }
    assert whole.summary["columns"] == ["x0"]


def test_estimated_propensities_reach_averages(tmp_path):
    rng = np.random.default_rng(2)
    x = rng.standard_normal(4000)
    arm = np.where(rng.random(4000) < 1 / (1 + np.exp(-1.2 * x)), "mail", "none")
    y = 2 * x + 0.5 * (arm == "mail") + 0.5 * rng.standard_normal(4000)
    place = tmp_path / "confounded.parquet"
    pl.DataFrame({"x": x, "z": rng.standard_normal(4000), "segment": arm, "y": y}).write_parquet(place)
    naive, mended = (
        fitted(place, model="t-learner", outcome=("y",), drop=(), propensity=how).tables["ate"]["estimate"][0]
        for how in ("share", "estimate")
    )
    assert naive > 1.5
    assert abs(mended - 0.5) < 0.2

"""The laboratory as a study: the same answer from every engine, every option, every status, every bad input."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.harness import Bad, check_bad_input, check_study

from querist.cli import main
from querist.errors import BadOption, MemoryBound, UnknownName
from querist.results.finding import Finding
from querist.weights import Trajectory, craft, predict_spike
from querist.weights.configs import CraftConfig, PredictConfig
from querist.weights.studies import craft as craft_module
from querist.weights.studies.craft import CraftStudy, memory_needed, rates, tables_needed
from querist.weights.studies.craft_present import shown_settings
from querist.weights.studies.craft_verdicts import _over_repeats, setting
from querist.weights.studies.predict import PredictStudy
from querist.weights.tables import STEPS

SMALL = {"d": 24, "h": 36, "n": 48, "n_test": 20, "steps": 3, "repeats": 2}
RUN = ["repeat", "optimizer", "eta"]
ROOT = Path(__file__).parents[2]
ON_THE_LINE = "--d 24 --h 36 --n 48 --steps 1 --repeats 1 --optimizer gd,adam --eta .1,2 --eta 30 --nulls signflip"
PREDICT_LINE = "weights predict-spike --h 300 --d 200 --n 400 --optimizer adam --eta .22 --json --quiet --out"


def small(**fields) -> Trajectory:
    return craft(**{**SMALL, "nulls": (), **fields})


def test_craft_is_a_study(tmp_path, chromium):
    config = CraftConfig(**SMALL, eta=(2.0,), overlaps=True)
    result = check_study(CraftStudy, config, tmp_path, chromium=chromium)
    assert set(result.tables) == {
        *("steps", "predicted", "spectra", "overlaps", "weights_hist", "profile", "layers", "null_draws")
    }
    assert result.tables["steps"].height == 2 * 2 * 4


def test_predict_spike_is_a_study(tmp_path):
    config = PredictConfig(h=40, d=30, n=60, eta=0.5, observe=3)
    result = check_study(PredictStudy, config, tmp_path)
    assert result.tables["observed"].height == 3


@pytest.fixture(scope="module")
def grid() -> Trajectory:
    return craft(d=100, h=150, n=200, optimizer=("gd", "adam"), steps=2, repeats=3, overlaps=True)


def test_runs_of_a_repeat_share_everything_before_the_first_step(grid):
    start = grid.steps.filter(pl.col("step") == 0).drop("optimizer", "eta", "gamma")
    for _, mine in start.group_by("repeat"):
        assert mine.height == 16
        assert mine.unique().height == 1
    assert start["lambda1"].n_unique() == 3


def test_rates_that_nobody_named_go_from_below_the_threshold_to_the_second_scale(grid):
    for name in ("gd", "adam"):
        told = predict_spike(150, 100, 200, name, 1.0)
        mine = grid.predicted.filter(pl.col("optimizer") == name)
        assert mine.height == 8
        assert mine["eta"][0] == pytest.approx(told.eta_critical / 4, rel=0.01)
        assert mine["eta"][-1] == pytest.approx(told.eta_second_scale, rel=0.01)
        assert set(mine["regime"]) == {"random", "spike", "heavy"}
    assert [row["regime"] for row in shown_settings(grid.predicted.to_dicts())] == ["random", "spike", "heavy"] * 2
    assert rates(CraftConfig(eta=(3.0, 1.0, 3.0)), "gd") == (3.0, 1.0)
    assert (
        CraftConfig(eta=".5,2", optimizer="adam", nulls="none").model_dump()
        == CraftConfig(eta=(0.5, 2.0), optimizer=("adam",), nulls=()).model_dump()
    )


def test_predictions_stand_beside_what_the_first_steps_did(grid):
    first = grid.steps.filter(pl.col("step") == 1)
    for row in grid.predicted.to_dicts():
        mine = first.filter((pl.col("optimizer") == row["optimizer"]) & (pl.col("eta") == row["eta"]))
        assert row["runs"] == mine.height == 3
        assert row["lambda_observed"] == pytest.approx(mine["lambda1"].mean())
        assert row["lambda_low"] <= row["lambda_observed"] <= row["lambda_high"]
        told = predict_spike(150, 100, 200, row["optimizer"], row["eta"])
        assert row["lambda_predicted"] == told.lambda_predicted
    adam = grid.predicted.filter((pl.col("optimizer") == "adam") & (pl.col("regime") != "random"))
    assert (adam["lambda_ratio"] - 1).abs().max() < 0.15


def test_verdicts_follow_the_rate(grid):
    def verdict(question, optimizer, position):
        eta = grid.predicted.filter(pl.col("optimizer") == optimizer)["eta"][position]
        return next(
            f.verdict
            for f in grid.findings
            if f.question == f"weights.{question}" and f.subject == f"{optimizer} eta={eta:g}"
        )

    for optimizer in ("gd", "adam"):
        assert verdict("regime", optimizer, 0) == "no"
        assert verdict("regime", optimizer, -1) == "yes"
        assert verdict("bulk", optimizer, 0) == "no"
        assert verdict("heavy-tail", optimizer, 0) == "no"
    assert verdict("spikes", "gd", 0) == "no"
    assert verdict("spikes", "adam", 5) == "yes"
    middle = next(f for f in grid.findings if f.question == "weights.regime" and f.verdict == "yes")
    assert middle.low == pytest.approx(0.85 * middle.estimate)
    assert middle.null == 1
    assert "over 3 runs, predicted" in middle.because


def test_every_figure_is_drawn(grid):
    views = {name.split(".")[0] for name in grid.figures}
    assert views == {
        *("rates", "losses", "prediction", "profile", "initial", "tail", "values", "weights", "evolution", "overlaps")
    }
    drawn = {figure for section in grid.layout.sections for figure in section.figures}
    assert drawn == set(grid.figures)
    assert all(figure.data for figure in grid.figures.values())


def test_spectra_entries_and_profile_are_whole(grid):
    norms = grid.spectra.group_by([*RUN, "step"]).agg(pl.col("eigenvalue").sum(), pl.len())
    assert set(norms["len"]) == {100}
    start = grid.spectra.filter((pl.col("step") == 0) & (pl.col("repeat") == 0))["eigenvalue"].sum() / 16
    assert start == pytest.approx(15_000, rel=0.05)
    shares = grid.weights_hist.group_by([*RUN, "step"]).agg(pl.col("share").sum())["share"].to_numpy()
    np.testing.assert_allclose(shares, 1)
    squares = grid.profile.group_by("repeat").agg((pl.col("value") ** 2).sum())["value"].to_numpy()
    np.testing.assert_allclose(squares, 1)
    assert grid.profile["value"].mean() == pytest.approx(grid.profile["null"][0], rel=0.1)


def test_overlaps_are_means_over_blocks_beside_chance(grid):
    overlaps = grid.overlaps
    assert set(overlaps["step"]) == {1, 2}
    assert overlaps["i"].max() == overlaps["j"].max() == 63
    nulls = dict(overlaps.group_by("side").agg(pl.col("null").first()).iter_rows())
    assert nulls == {"left": 1 / 150, "right": 1 / 100}
    right = overlaps.filter(pl.col("side") == "right").group_by([*RUN, "step", "pair"]).agg(pl.col("value").mean())
    np.testing.assert_allclose(
        right["value"].to_numpy(), 0.01, rtol=0.25
    )  # both sides are whole bases; blocks differ in size
    top = overlaps.filter((pl.col("optimizer") == "adam") & (pl.col("step") == 1) & (pl.col("i") + pl.col("j") == 0))
    rate = grid.predicted.filter(pl.col("optimizer") == "adam")["eta"][-1]
    strong = dict(
        top.filter((pl.col("eta") == rate) & (pl.col("side") == "left"))
        .group_by("pair")
        .agg(pl.col("value").mean())
        .iter_rows()
    )
    assert strong["after"] > 0.2 > 10 * strong["before"]


def test_small_overlaps_are_whole_bases():
    overlaps = small(optimizer="gd", eta=30.0, overlaps=True).overlaps.filter(pl.col("side") == "right")
    sums = overlaps.group_by([*RUN, "step", "pair", "j"]).agg(pl.col("value").sum())["value"].to_numpy()
    np.testing.assert_allclose(sums, 1, rtol=1e-9)


def test_measured_steps():
    steps = small(optimizer="gd", eta=1.0, steps=7, probe_every=3, repeats=1).steps["step"].to_list()
    assert steps == [0, 1, 3, 6, 7]


def test_rates_decay_by_the_step():
    norms = {
        gamma: small(optimizer="gd", eta=1e-3, gamma=gamma, repeats=1).steps["update_norm"].to_numpy()[1:]
        for gamma in (1.0, 0.5)
    }
    np.testing.assert_allclose(norms[0.5] / norms[1.0], [1, 0.5, 0.25], rtol=1e-3)


def test_weight_normalisation_and_the_last_layer_make_a_difference():
    plain = small(optimizer="gd", eta=30.0, repeats=1)
    scaled = small(optimizer="gd", eta=30.0, repeats=1, weight_norm=True)
    both = small(optimizer="gd", eta=30.0, repeats=1, train_last=True)
    assert plain.steps["lambda1"][0] == scaled.steps["lambda1"][0] == both.steps["lambda1"][0]
    assert plain.steps["lambda1"][-1] != scaled.steps["lambda1"][-1]
    assert plain.steps["lambda1"][1] == both.steps["lambda1"][1]  # the first gradient in W does not know of it
    assert plain.steps["train_loss"][-1] != both.steps["train_loss"][-1]
    sizes = scaled.spectra.group_by("step").agg(pl.col("eigenvalue").sum()).sort("step")["eigenvalue"].to_numpy()
    assert sizes[-1] < 1.5 * 36 * 24


def test_both_feature_scales_stand_beside_each_other(grid):
    for column in ("kta", "refit_train", "refit_test"):
        formula, repo = (grid.steps[f"{column}_{scale}"].to_numpy() for scale in ("formula", "repo"))
        assert np.isfinite(formula).all()
        assert (formula != repo).all()


def test_float32_trains_nearly_the_same():
    exact, half = (small(eta=0.01, optimizer="adam", dtype=dtype).steps for dtype in ("float64", "float32"))
    np.testing.assert_allclose(half["lambda1"].to_numpy(), exact["lambda1"].to_numpy(), rtol=1e-3)
    assert half["lambda1"][3] != exact["lambda1"][3]


def test_steps_read_their_spectra(grid):
    rows = {(r["repeat"], r["step"], r["optimizer"], r["eta"]): r for r in grid.steps.to_dicts()}
    for (repeat, step, optimizer, eta), mine in grid.spectra.group_by(["repeat", "step", "optimizer", "eta"]):
        row = rows[repeat, step, optimizer, eta]
        evals = mine["eigenvalue"].to_numpy()
        assert row["lambda1"] == evals.max()
        assert row["n_spikes"] == np.count_nonzero(evals > row["lambda_edge"])
        assert (row["status"] == "short-tail") == (row["n_tail"] < 50)
    assert set(STEPS.schema()) == set(grid.steps.columns)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"train_last": True, "optimizer": "gd", "eta": (1e9, 1.0), "steps": 60}, "not finite"),
        ({"optimizer": "adam", "eta": (1e200, 0.1)}, "leave float64"),
    ],
)
def test_a_run_that_diverges_keeps_its_rows_and_the_others_go_on(options, words):
    result = small(**options, probe_every=100)
    bad, good = options["eta"]
    ends = result.steps.filter(pl.col("status") == "diverged")
    assert ends["repeat"].to_list() == [0, 1]
    assert set(ends["eta"]) == {bad}
    assert words in ends["reason"][0]
    assert ends["lambda1"].null_count() == 2
    kept = result.steps.filter(pl.col("eta") == bad)
    assert kept.filter(pl.col("step") == 0)["lambda1"].null_count() == 0
    whole = result.steps.filter(pl.col("eta") == good)
    assert whole["step"].max() == options.get("steps", SMALL["steps"])
    assert "2 runs diverged" in result.warnings[0]
    name = setting(options["optimizer"], bad)
    lost = [f for f in result.findings if f.subject == name and f.question == "weights.spikes"]
    assert [f.verdict for f in lost] == ["cannot say"]
    json.dumps(result.summary, allow_nan=False)


def test_without_resampling_no_spike_is_a_yes():
    result = small(optimizer="adam", eta=1.0)
    assert {f.verdict for f in result.findings if f.question == "weights.spikes"} == {"cannot say"}
    assert any("resampling nulls" in warning for warning in result.warnings)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (("yes", "yes", "no"), "yes"),
        (("yes", "no"), "cannot say"),
        (("no", "no", "cannot say"), "no"),
        (("yes", "no", "cannot say"), "cannot say"),
    ],
)
def test_a_setting_says_what_more_than_half_of_its_runs_say(verdicts, expected):
    runs = {
        f"gd eta=1 repeat={i}": [
            Finding(f"gd eta=1 repeat={i}", "weights.spikes", i, "count", 0, 9, 0, 0.1, verdict, "Told.")
        ]
        for i, verdict in enumerate(verdicts)
    }
    found = next(_over_repeats("gd eta=1", runs, len(verdicts) + 1))
    assert found.verdict == expected
    assert (found.low, found.high) == (0, len(verdicts) - 1)
    assert f"Of {len(verdicts)} runs (1 diverged)" in found.because
    assert found.p == pytest.approx(0.1)


def test_predicted_steps_are_those_of_craft():
    exact = craft(d=30, h=40, n=60, optimizer="adam", eta=0.5, steps=1, repeats=2, nulls=()).steps.filter(
        pl.col("step") == 1
    )
    from querist.reports.ask import ask

    told = ask(PredictStudy(), PredictConfig(h=40, d=30, n=60, eta=0.5, observe=2), progress=False)
    observed = told.tables["observed"]
    np.testing.assert_allclose(observed["lambda1"].to_numpy(), exact["lambda1"].to_numpy(), rtol=1e-9)
    np.testing.assert_allclose(observed["theta_e"].to_numpy(), exact["theta_e"].to_numpy(), rtol=1e-9)
    np.testing.assert_allclose(observed["sim"].to_numpy(), exact["sim"].to_numpy(), rtol=1e-6)


def test_json_of_craft(tmp_path, capsys):
    sizes = ON_THE_LINE.split()
    assert main(["weights", "craft", *sizes, "--json", "--quiet", "--out", str(tmp_path / "run")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "querist.weights.craft/1"
    assert told["config"]["eta"] == [0.1, 2.0, 30.0]
    assert told["config"]["optimizer"] == ["gd", "adam"]
    assert len(told["runs"]) == 2 * 3 * 2
    assert set(told["runs"][0]) == set(STEPS.schema())
    assert {row["regime"] for row in told["predicted"]} <= {"random", "spike", "heavy"}
    gate = ["--fail-if", "regime[adam*].verdict == yes", "--resume"]
    assert main(["weights", "craft", *sizes, *gate, "--quiet", "--out", str(tmp_path / "run")]) == 3


def test_json_of_predict_spike(tmp_path, capsys):
    words = PREDICT_LINE.split()
    assert main([*words, str(tmp_path / "run")]) == 0
    told = json.loads(capsys.readouterr().out)
    exact = predict_spike(300, 200, 400, "adam", 0.22).as_dict()
    assert {name: told[name] for name in exact} == pytest.approx(exact)
    assert told["observed"] == []
    assert told["findings"][0]["verdict"] == "yes"
    assert "predicted 2035" in told["findings"][0]["because"]


def test_bad_input(tmp_path):
    out = ["--out", str(tmp_path / "run"), "--quiet"]
    check_bad_input(
        [
            Bad(lambda: craft(eta=0.0), BadOption, ["eta", "above 0"]),
            Bad(lambda: craft(eta=(1.0, -2.0)), BadOption, ["eta", "-2"]),
            Bad(lambda: craft(eta="fast"), BadOption, ["eta", "fast"]),
            Bad(lambda: craft(optimizer="lion"), BadOption, ["optimizer", "lion"]),
            Bad(lambda: craft(optimizer=()), BadOption, ["optimizer"]),
            Bad(lambda: craft(steps=0), BadOption, ["steps", "0"]),
            Bad(lambda: craft(gamma=1.5), BadOption, ["gamma", "1.5"]),
            Bad(lambda: craft(ridge=0.0), BadOption, ["ridge"]),
            Bad(lambda: craft(momentum=0.9), UnknownName, ["momentum", "gamma"]),
            Bad(lambda: craft(device="abacus"), BadOption, ["abacus", "cpu"]),
            Bad(
                lambda: craft(d=10**6, h=10**6), MemoryBound, ["GiB needed", "GiB available", "Make h, d or n smaller"]
            ),
            Bad(lambda: craft(steps=10**6, overlaps=True), MemoryBound, ["measured step", "--probe-every"]),
            Bad(["weights", "craft", "--eta", ".1,0", *out], 2, ["eta", "bad-option"]),
            Bad(["weights", "craft", "--n", "1000000000", *out], 2, ["GiB needed", "memory-bound"]),
            Bad(["weights", "predict-spike", "--eta", "0", *out], 2, ["eta", "greater than 0"]),
            Bad(["weights", "predict-spike", "--optimizer", "lion", *out], 2, ["lion"]),
            Bad(
                ["weights", "predict-spike", "--h", "1000000", "--d", "1000000", "--observe", "1", *out],
                2,
                ["memory-bound"],
            ),
        ]
    )
    assert not (tmp_path / "run").exists()


def test_memory_is_what_a_run_takes(monkeypatch):
    config = CraftConfig(**SMALL)
    assert memory_needed(config.model_copy(update={"dtype": "float32"})) < memory_needed(config)
    needed = memory_needed(config)
    assert tables_needed(config) < tables_needed(config.model_copy(update={"overlaps": True})) < needed * 1000
    monkeypatch.setattr(craft_module, "available_memory", lambda: needed)
    small(eta=1.0, optimizer="gd", repeats=1)
    monkeypatch.setattr(craft_module, "available_memory", lambda: needed - 1)
    with pytest.raises(MemoryBound):
        small(eta=1.0)


def test_the_example_runs(capsys):
    module = runpy.run_path(str(ROOT / "examples" / "craft_a_spike.py"))
    result = module["main"](d=40, repeats=2)
    said = capsys.readouterr().out
    assert isinstance(result, Trajectory)
    assert "a spike from rate" in said
    assert "weights.regime: yes" in said


def test_what_is_wrong_twice_is_told_once():
    """A bad item also makes its list too short."""
    with pytest.raises(BadOption) as told:
        craft(optimizer="lion")
    assert "wrong too" not in str(told.value)
    with pytest.raises(BadOption, match="1 other option is wrong too"):
        craft(optimizer="lion", steps=0)
    with pytest.raises(BadOption, match="2 other options are wrong too"):
        craft(optimizer="lion", steps=0, repeats=0)

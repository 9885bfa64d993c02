"""`effects export`: the file answers as the model does, for any number of rows; what it names; what is refused."""

from __future__ import annotations

import json
import warnings
from importlib import util

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, PoissonRegressor
from tests.harness import Bad, check_bad_input, check_study

from querist.cli import main
from querist.effects import (
    M3TN,
    MTMT,
    PLE,
    ConstantEffect,
    DragonNet,
    DRLearner,
    EFINLike,
    FlexTENet,
    MMoE,
    RandomRank,
    RLearner,
    SLearner,
    TARNet,
    TLearner,
    XLearner,
    export,
)
from querist.effects.configs import ExportConfig
from querist.effects.serving.export import run_file
from querist.effects.serving.pipeline import OUTPUTS, pipeline_of
from querist.effects.simulation import SETTINGS, simulate
from querist.effects.studies.export import ExportStudy
from querist.errors import BadOption, MissingExtra

DATA = simulate(400, seed=7, **SETTINGS[3])
KINDS = {"bought": "binary", "visits": "count", "spend": "hurdle", "kept": "continuous"}
PEOPLE = pl.DataFrame({f"x{j}": DATA.X[:, j] for j in range(4)}).with_columns(
    pl.Series("town", np.array(["a", "b", None, "c"])[np.arange(400) % 4]),
    pl.Series("member", np.arange(400) % 3 == 0),
    pl.when(pl.int_range(400) % 9 == 0).then(None).otherwise(pl.col("x1")).alias("x1"),
)
OUTCOMES = {
    "bought": (DATA.Y[:, 0] > 0).astype(float),
    "visits": np.rint(np.exp(DATA.Y[:, 1] / 2)),
    "spend": np.where(DATA.Y[:, 0] > 0.5, np.exp(DATA.Y[:, 1]), 0.0),
    "kept": DATA.Y[:, 1],
}
QUICK = {"control": 0, "outcomes": KINDS}
NET = {**QUICK, "epochs": 1}
SMALL = {**NET, "preset": "small"}


def fitted(model, X=PEOPLE, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, DATA.arm, OUTCOMES, **given)


def new_people(n: int, seed: int = 0) -> pl.DataFrame:
    """Rows of another kind than those of the fit: far numbers, missing cells, a town that it has not seen."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(n, 4)) * 6
    numbers[rng.random((n, 4)) < 0.2] = np.nan
    towns = np.array(["a", "b", "c", "elsewhere", None])[rng.integers(0, 5, n)].tolist()
    return pl.DataFrame({f"x{j}": numbers[:, j] for j in range(4)}).with_columns(
        pl.Series("town", towns, dtype=pl.String), pl.Series("member", rng.random(n) < 0.5)
    )


def raw(model, people: pl.DataFrame) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs as another program would make them: numbers as they are, codes by hand."""
    numbers = people.select(model.columns_.numbers).cast(pl.Float64).fill_null(np.nan).to_numpy()
    codes = [
        people[name]
        .cast(pl.String)
        .map_elements(
            lambda text, levels=model.columns_.levels[name]: levels.index(text) + 2 if text in levels else 1,
            return_dtype=pl.Int64,
        )
        .fill_null(0)
        for name in model.columns_.categories
    ]
    held = np.stack([one.to_numpy() for one in codes], axis=1) if codes else np.zeros((people.height, 0), np.int64)
    return torch.tensor(numbers.reshape(people.height, -1), dtype=torch.float64), torch.tensor(held)


def assert_alike(model, people, found, tolerance=1e-5):
    effects = model.predict_effects(people)
    sd = np.array([np.nanstd(OUTCOMES[name][DATA.arm == 0]) for name in model.outcomes_])
    size = np.fmax(sd, np.nanmax(np.abs(np.nan_to_num(effects.response)), axis=1))
    for name, values in zip(OUTPUTS, found, strict=True):
        wanted, values = getattr(effects, name), np.asarray(values)
        unit = size if wanted.ndim == 2 else size[:, None]
        assert values.shape == wanted.shape
        np.testing.assert_array_equal(np.isnan(values), np.isnan(wanted))
        np.testing.assert_allclose(values / unit, wanted / unit, rtol=0, atol=tolerance)


LINEAR = {
    "T": lambda: fitted(TLearner(**QUICK)),
    "S": lambda: fitted(SLearner(**QUICK)),
    "S without products": lambda: fitted(SLearner(LinearRegression(), **QUICK)),
    "T of logs": lambda: TLearner(PoissonRegressor(), control=0).fit(PEOPLE, DATA.arm, {"visits": OUTCOMES["visits"]}),
    "X": lambda: fitted(XLearner(**QUICK)),
    "X where chances differ": lambda: fitted(XLearner(**QUICK), propensity=uneven()),
    "R": lambda: fitted(RLearner(**QUICK)),
    "DR": lambda: fitted(DRLearner(**QUICK)),
}
NETWORKS = {
    **{kind.__name__: lambda kind=kind: fitted(kind(**NET)) for kind in (TARNet, M3TN, EFINLike, FlexTENet, MMoE, PLE)},
    "an ensemble": lambda: fitted(DragonNet(ensemble=2, **NET)),
    "MTMT": lambda: fitted(MTMT(**SMALL)),
    "flat refit": lambda: fitted(MTMT(shrink="flat", **SMALL)),
    "slopes": lambda: fitted(MTMT(shrink="slope", tier="reference", reference_arm=2, **SMALL | {"epochs": 20})),
    "flat heads": lambda: fitted(MTMT(tier="none", shrink=False, folds=1, ensemble=2, **SMALL)),
    "tokens": lambda: fitted(MTMT(expert="ft", interaction=False, enhancer=False, **SMALL)),
    "convolutions": lambda: fitted(MTMT(expert="resnet1d", **SMALL)),
    "one arm": lambda: MTMT(control=0, epochs=1, preset="small").fit(PEOPLE, np.minimum(DATA.arm, 1), DATA.Y),
}


def uneven() -> np.ndarray:
    e = np.random.default_rng(1).uniform(0.15, 0.35, (400, 4))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", [*LINEAR, *NETWORKS])
def test_one_module_answers_as_the_model_does(name):
    model = (LINEAR | NETWORKS)[name]()
    before = {k: v.copy() for k, v in model._state()[1].items()}
    pipeline = pipeline_of(model)
    for n in (1, 200):
        people = new_people(n)
        if name == "one arm":
            effects = model.predict_effects(people)
            for part, values in zip(OUTPUTS, pipeline(*raw(model, people)), strict=True):
                np.testing.assert_allclose(values, getattr(effects, part), rtol=0, atol=1e-5)
        else:
            assert_alike(model, people, pipeline(*raw(model, people)), 1e-10 if name in LINEAR else 1e-5)
    for key, value in model._state()[1].items():
        np.testing.assert_array_equal(value, before[key])


@pytest.mark.parametrize("name", ["X where chances differ", "MTMT"])
def test_torch_reads_the_file_for_any_number_of_rows(name, tmp_path):
    """By torch's own loader, on a file that this test has written."""
    model = (LINEAR | NETWORKS)[name]()
    told = export(model, tmp_path / "a.pt2")
    assert told.files == ("a.pt2", "a.json")
    assert told.outputs == OUTPUTS
    assert told.parity_max_sd <= 1e-5
    module = torch.export.load(tmp_path / "a.pt2").module()
    for n in (1, 2, 1000):
        people = new_people(n, seed=n)
        assert_alike(model, people, module(*raw(model, people)))


@pytest.mark.skipif(util.find_spec("onnx") is None, reason="the extra formats is not installed")
@pytest.mark.parametrize("name", ["S", "EFINLike", "MTMT"])
def test_onnx_runs_the_file_for_any_number_of_rows(name, tmp_path):
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = (LINEAR | NETWORKS)[name]()
    told = export(model, tmp_path / "a.onnx", format="onnx", parity_rows=20)
    assert told.parity_max_sd <= 1e-5
    written = onnx.load(tmp_path / "a.onnx")
    onnx.checker.check_model(written, full_check=True)
    run = ReferenceEvaluator(written)
    for n in (1, 1000):
        people = new_people(n, seed=n)
        numbers, codes = raw(model, people)
        assert_alike(model, people, run.run(None, {"numbers": numbers.numpy(), "codes": codes.numpy()}))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*LINEAR, *NETWORKS} - {"one arm"}))
def test_every_model_in_both_formats(name, tmp_path):
    model = (LINEAR | NETWORKS)[name]()
    for form, suffix in (("torch", "pt2"), ("onnx", "onnx")):
        told = export(model, tmp_path / f"a.{suffix}", format=form, parity_rows=200)
        assert told.parity_max_sd <= (1e-10 if name in LINEAR else 1e-5)


@pytest.mark.parametrize("kept", [["town", "member"], ["x0", "x2"]])
def test_tables_of_words_or_of_numbers_alone(kept, tmp_path):
    net = TARNet(width=8, **NET) if "x0" in kept else TLearner(**QUICK)
    model = fitted(net, PEOPLE.select(kept))
    for form, suffix in (("torch", "pt2"), ("onnx", "onnx")):
        if form == "onnx" and util.find_spec("onnx") is None:
            continue
        path = tmp_path / f"a.{suffix}"
        export(model, path, format=form, parity_rows=30)
        people = new_people(40)
        numbers, codes = raw(model, people)
        names = OUTPUTS if form == "onnx" else outputs_of(path)
        assert_alike(model, people, run_file(path, (numbers, codes), names))


def outputs_of(path) -> tuple[str, ...]:
    return tuple(map(str, torch.export.load(path).graph_signature.user_outputs))


def test_what_the_fit_did_not_carry_is_null_and_strange_codes_are_unknown():
    few = np.where((DATA.arm == 2) & (np.arange(400) % 40 != 0), 1, DATA.arm)
    model = fitted_arm(few)
    assert {one.arm for one in model.not_estimable_} == {2}
    people = new_people(30)
    numbers, codes = raw(model, people)
    assert_alike(model, people, pipeline_of(model)(numbers, codes), 1e-10)
    strange = codes.clone()
    strange[:, 0] = torch.tensor([-5, 999] * 15)
    other = codes.clone()
    other[:, 0] = 1
    for a, b in zip(pipeline_of(model)(numbers, strange), pipeline_of(model)(numbers, other), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def fitted_arm(arm):
    return TLearner(**QUICK).fit(PEOPLE, arm, OUTCOMES)


def test_the_json_beside_says_what_goes_in_and_comes_out(tmp_path):
    model = fitted(TLearner(**QUICK))
    export(model, tmp_path / "a.pt2", parity_rows=20)
    told = json.loads((tmp_path / "a.json").read_text())
    numbers, codes = told["inputs"]
    assert numbers["columns"] == ["x0", "x1", "x2", "x3"]
    assert codes["columns"] == [
        {"name": "member", "codes": {"false": 2, "true": 3}},
        {"name": "town", "codes": {"a": 2, "b": 3, "c": 4}},
    ]
    assert (codes["missing"], codes["unknown"], numbers["missing"]) == (0, 1, "NaN")
    assert [one["name"] for one in told["outputs"]] == list(OUTPUTS)
    assert told["outputs"][3]["shape"] == ["rows", 3, 4]
    assert (told["control"], told["arms"], told["outcomes"]) == ("0", ["1", "2", "3"], KINDS)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    fitted(TLearner(**QUICK)).save(folder / "model")
    fitted(ConstantEffect(**QUICK)).save(folder / "constant")
    return folder


def test_export_is_a_study(place, tmp_path):
    config = ExportConfig.build(model=str(place / "model"), parity_rows=50)
    result = check_study(ExportStudy, config, tmp_path, kill=False)
    assert set(result.summary) >= {"format", "files", "outputs", "parity_max_abs"}
    assert (tmp_path / "whole" / "export" / "model.pt2").is_file()


def test_the_command_writes_into_its_run(place, tmp_path, capfd):
    out = tmp_path / "run"
    assert main(["effects", "export", str(place / "model"), "--out", str(out), "--json", "--quiet"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["files"] == ["export/model.pt2", "export/model.json"]
    assert told["outputs"] == list(OUTPUTS)
    assert all((out / name).is_file() for name in told["files"])


def test_bad_exports_are_told(place, tmp_path, monkeypatch):
    model = fitted(TLearner(**QUICK))
    forest = fitted(TLearner(RandomForestRegressor(3, max_depth=2), **QUICK))
    rows = [
        (lambda: export(model, tmp_path / "a.pt2", format="pmml"), BadOption, ["pmml", "torch, onnx"]),
        (lambda: export(model, tmp_path / "a.bin"), BadOption, ["a.bin", ".pt2"]),
        (lambda: export(model, tmp_path), BadOption, [".pt2"]),
        (lambda: export(forest, tmp_path / "a.pt2"), BadOption, ["TLearner with Forest", "linear"]),
        (lambda: export(fitted(RandomRank(**QUICK)), tmp_path / "a.pt2"), BadOption, ["RandomRank", "MTMT"]),
        (lambda: export(TLearner(**QUICK), tmp_path / "a.pt2"), BadOption, ["fitted"]),
    ]
    check_bad_input(rows)
    check_bad_input(
        [
            Bad(["effects", "export", str(tmp_path / "no")], 2, ["no model"]),
            Bad(["effects", "export", str(place / "constant")], 2, ["ConstantEffect"]),
            Bad(["effects", "export", str(place / "model"), "--format", "pmml"], 2, ["pmml"]),
        ]
    )
    monkeypatch.setattr("querist.effects.serving.export.util.find_spec", lambda name: None)
    check_bad_input(
        [(lambda: export(model, tmp_path / "a.onnx", format="onnx"), MissingExtra, ["onnx", "querist[formats]"])]
    )
    assert not list(tmp_path.iterdir())

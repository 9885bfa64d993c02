"""The ranking as a study: scores that are those of the functions, nulls, baselines, truth, verdicts, bad input."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
import torch
from tests.features.blocks import (
    HERE,
    QUICK,
    Placed,
    blocky,
    coloured,
    held_rank,
    new,
    pictures,
    rank_config,
    rank_study,
    texts,
)
from tests.harness import Bad, check_bad_input, check_study
from torch import nn

from querist import features
from querist.cli import main
from querist.errors import (
    BadOption,
    BadValues,
    CorruptFile,
    NonFinite,
    ShapeMismatch,
    SourceNotFound,
    TooFewRows,
    UnknownName,
    UnsupportedFormat,
)
from querist.features import Ranking, capture, freeze, rank
from querist.features.configs import RankConfig
from querist.features.errors import BadLabels, LabelsNeeded
from querist.features.normalise import fit_normaliser
from querist.features.questions import WARNING
from querist.features.scores import permuted, probe
from querist.features.studies.rank_measure import softmax, source_accuracy
from querist.features.studies.rank_truth import matched, read_truth
from querist.features.studies.rank_verdicts import _best_start, _useful
from querist.statistics import weighted_kendall

SMALL = {"n": 60, "permutations": 9, "projections": 8, "splits": 3}
SCORES = ["nce", "leep", "nleep", "logme", "h-score", "transrate", "gbc"]
LAYERS = ["relu", "stage1.0", "stage1.1", "stage2.0", "stage2.1", "logits"]


def ranking(models=None, target=None, **fields) -> Ranking:
    return rank(models or blocky(), target=new() if target is None else target, **{**SMALL, **fields})


def test_rank_is_a_study(tmp_path, chromium):
    truth = tmp_path / "truth.csv"
    rows = [(f"{HERE}:blocky", layer, seed, 0.1 * i + 0.01 * seed) for i, layer in enumerate(LAYERS) for seed in (0, 1)]
    pl.DataFrame(rows, schema=["model", "layer", "seed", "accuracy"], orient="row").write_csv(truth)
    result = check_study(rank_study, rank_config(truth=str(truth)), tmp_path, chromium=chromium)
    assert result.summary["warning"] == WARNING == result.layout.lead
    assert result.tables["scores"].height == 2 * (2 + 5 * 6)
    assert result.tables["agreement"].height


def test_what_is_in_memory_crosses_processes(tmp_path):
    config = rank_config(models=("network",), target="drawn", source="", scores="logme")
    check_study(held_rank, config, tmp_path, kill=False, engines=("local:1",))


# ------------------------------------------------------------------------------------------------------ a whole ranking


@pytest.fixture(scope="module")
def whole() -> Ranking:
    return ranking({"a": blocky(), "b": blocky(4, seed=3)}, coloured(), source=coloured(90, seed=3), n=90)


def test_scores_are_those_of_the_functions(whole):
    found = capture(blocky(), coloured(), layers="blocks", n=90)
    table = {(r["score"], r["layer"]): r for r in whole.scores.filter(pl.col("model") == "a").to_dicts()}
    y = found.labels
    for layer in LAYERS:
        Z = fit_normaliser(found[layer].rows, "iso")(found[layer].rows)
        expected = {
            "nleep": features.nleep(Z, y),
            "logme": features.logme(Z, y),
            "h-score": features.h_score(Z, y, shrinkage=len(Z) < 10 * Z.shape[1]),
            "transrate": features.transrate(Z, y),
            "gbc": features.gbc(Z, y),
        }
        for score, value in expected.items():
            assert table[score, layer]["value"] == pytest.approx(value, rel=1e-9), (score, layer)
        null = permuted(lambda labels, Z=Z: features.transrate(Z, labels), y, permutations=9)
        assert table["transrate", layer]["p"] == null.p
        assert table["transrate", layer]["null_mean"] == pytest.approx(null.mean)
        assert table["transrate", layer]["null_sd"] == pytest.approx(null.sd)
    theta = softmax(found["logits"].rows)
    assert table["leep", "logits"]["value"] == pytest.approx(features.leep(y, theta))
    assert table["nce", "logits"]["value"] == pytest.approx(features.nce(y, theta))


def test_ranks_are_places_over_all_networks_and_layers(whole):
    for score, mine in whole.scores.group_by("score"):
        values = mine["value"].to_numpy()
        assert mine["rank"].to_list() == [1 + int((values > value).sum()) for value in values], score
    assert whole.scores["score"].unique(maintain_order=True).to_list() == SCORES
    best = whole.summary["best"]
    for score in SCORES:
        top = whole.scores.filter((pl.col("score") == score) & (pl.col("rank") == 1)).row(0, named=True)
        assert best[score] == {"model": top["model"], "layer": top["layer"]}


def test_baselines(whole):
    table = {(r["score"], r["model"], r["layer"]): r for r in whole.baselines.to_dicts()}
    assert {key[0] for key in table} == {"constant", "depth", "parameters", "width", "probe", "w"}
    found = capture(blocky(), coloured(), layers="blocks", n=90)
    for i, layer in enumerate(LAYERS, 1):
        assert table["depth", "a", layer]["value"] == pytest.approx(i / 6)
        assert table["constant", "a", layer]["value"] == pytest.approx(np.bincount(found.labels).max() / 90)
        assert table["parameters", "a", layer]["value"] == sum(p.numel() for p in blocky().parameters())
        Z = fit_normaliser(found[layer].rows, "iso")(found[layer].rows)
        known = probe(Z, found.labels)
        row = table["probe", "a", layer]
        assert (row["value"], row["low"], row["high"]) == pytest.approx((known.accuracy, known.low, known.high))
        assert row["null_mean"] == pytest.approx(known.majority)
        assert len(row["folds"]) == 5
    assert table["width", "a", "relu"]["value"] == 5
    assert table["width", "b", "relu"]["value"] == 4


def test_raw_distances_rank_nothing(whole):
    w = whole.baselines.filter(pl.col("score") == "w")
    assert w.height == 12
    assert w["rank"].null_count() == 12
    assert (w["value"] > 0).all()
    assert (w["null_mean"] > 0).all()
    assert all(row["rank"] is None for row in whole.summary["baselines"] if row["score"] == "w")
    assert ranking(scores="logme").baselines.filter(pl.col("score") == "w").height == 0
    names = {trace["name"] for trace in whole.figures["ranks"].data}
    assert "w" not in whole.figures["ranks"].layout["xaxis2"]["ticktext"]
    assert any("a" in name for name in names)


def test_networks_that_tell_the_colours_apart_beat_permuted_labels(whole):
    """Colour is in the stem already: every layer's score is above all of its permutations."""
    rows = whole.scores.filter(pl.col("score").is_in(["h-score", "logme"]) & (pl.col("layer") == "relu"))
    assert (rows["p"] == 0.1).all()


def test_the_summary_and_its_keys(whole):
    summary = whole.summary
    keys = {"model", "layer", "score", "value", "rank", "p"}
    assert all(set(row) == keys for row in [*summary["ranking"], *summary["baselines"]])
    assert len(summary["ranking"]) == whole.scores.height
    assert summary["target"] == "target"
    assert summary["agreement"] == []
    assert summary["capture"]["reduction"] == "mean"
    assert {f.question for f in whole.findings} == {
        *("features.best-start", "features.score-useful", "features.capture-health", "features.overlapping-ids")
    }
    useful = [f for f in whole.findings if f.question == "features.score-useful"]
    assert [f.subject for f in useful] == SCORES
    assert {f.verdict for f in useful} == {"cannot say"}
    assert all("--truth" in f.because for f in useful)


def test_every_figure_is_drawn(whole):
    assert set(whole.figures) == {"ranks", "scores"}
    ranks = whole.figures["ranks"]
    low, high = ranks.layout["yaxis"]["range"]
    assert low > high  # the best is on top
    assert ranks.layout["xaxis2"]["ticktext"][-1] == "probe"
    assert "constant" in ranks.caption  # equal for all: not drawn, and told
    assert "permuted" in " ".join(str(trace["name"]) for trace in ranks.data)
    legend = [trace["name"] for trace in ranks.data if trace.get("showlegend", True)]
    assert len(legend) == len(set(legend))


def test_the_logits_are_ranked_where_they_are_asked_for_only():
    found = ranking(layers="stage2.?", scores="logme,leep")
    assert found.scores.filter(pl.col("score") == "logme")["layer"].to_list() == ["stage2.0", "stage2.1"]
    assert found.scores.filter(pl.col("score") == "leep")["layer"].to_list() == ["logits"]
    assert found.layers["layer"].to_list() == ["stage2.0", "stage2.1"]


def test_source_accuracy_where_labels_are_the_classes_of_the_network():
    source = capture(blocky(), pictures(60), layers="logits", n=60)
    expected = float((source["logits"].rows.argmax(1) == source.labels).mean())
    assert source_accuracy(source, 4) == pytest.approx(expected)
    assert source_accuracy(source, 7) is None
    found = ranking(source=pictures(60), scores="gbc")
    assert found.models["source_accuracy"][0] == pytest.approx(expected)
    assert found.baselines.filter(pl.col("score") == "source-accuracy").height == 6


def test_a_network_without_classes_has_no_leep():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Placed()
    found = ranking(net, texts(80), layers="layers.*")
    assert "leep" not in set(found.scores["score"])
    assert any(
        "leep" in row["what"] and "no row of class logits" in row["reason"] for row in found.summary["passed_over"]
    )
    assert found.models["classes"].to_list() == [None]


def test_a_constant_layer_is_passed_over():
    model = blocky()
    with torch.no_grad():
        for part in (model.stage2[1].bn, model.stage2[0].bn):
            part.weight.zero_()
        model.fc.weight.zero_()
    found = ranking(model, scores="h-score,logme")
    assert "logits" not in set(found.scores["layer"])
    assert any("logits" in row["what"] and "constant" in row["reason"] for row in found.summary["passed_over"])
    assert any(f.question == "features.capture-health" for f in found.findings)


def test_the_networks_are_left_alone():
    model = blocky()
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ranking(model, scores="logme")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())


def test_exported_networks_are_ranked_too(tmp_path):
    batch = torch.export.Dim("batch")
    program = torch.export.export(blocky(), (torch.zeros(4, 3, 8, 8),), dynamic_shapes=({0: batch},))
    found = ranking({"a": program, "b": blocky()}, scores="logme,leep", layers="preactivation")
    a, b = (found.scores.filter(pl.col("model") == name)["value"].to_numpy() for name in "ab")
    np.testing.assert_allclose(a, b, rtol=1e-4)


# -------------------------------------------------------------------------------------------------------------- truth


def truth_rows(**more):
    rows = [
        {"model": "a", "layer": layer, "accuracy": 0.1 * i + 0.02 * seed * (-1) ** i, "seed": seed, **more}
        for i, layer in enumerate(LAYERS)
        for seed in (0, 1, 2)
    ]
    return pl.DataFrame(rows)


@pytest.fixture
def truth(tmp_path):
    path = tmp_path / "truth.parquet"
    truth_rows().write_parquet(path)
    return path


def test_agreement_is_weighted_kendall_over_cells(truth):
    found = ranking({"a": blocky(), "b": blocky(4)}, source=pictures(60), truth=str(truth))
    agreed = {row["score"]: row for row in found.agreement.to_dicts()}
    assert agreed["depth"]["tau_w"] == pytest.approx(1.0)
    assert agreed["depth"]["difference_to_depth"] == 0.0
    assert agreed["constant"]["tau_w"] == agreed["parameters"]["tau_w"] == agreed["leep"]["tau_w"] == 0.0
    assert {row["cells"] for row in agreed.values()} == {3}
    assert {row["candidates"] for row in agreed.values()} == {6}
    values = {
        r["layer"]: r["value"]
        for r in found.scores.filter((pl.col("score") == "gbc") & (pl.col("model") == "a")).to_dicts()
    }
    taus = []
    for seed in range(3):
        cell = {r["layer"]: r["accuracy"] for r in truth_rows().filter(pl.col("seed") == seed).to_dicts()}
        taus.append(weighted_kendall([values[name] for name in LAYERS], [cell[name] for name in LAYERS]))
    assert agreed["gbc"]["tau_w"] == pytest.approx(np.mean(taus))
    assert agreed["gbc"]["low"] <= np.mean(taus) <= agreed["gbc"]["high"]
    w = {
        r["layer"]: -r["value"]
        for r in found.baselines.filter((pl.col("score") == "w") & (pl.col("model") == "a")).to_dicts()
    }
    cell = {r["layer"]: r["accuracy"] for r in truth_rows().filter(pl.col("seed") == 0).to_dicts()}
    assert agreed["w"]["tau_w"] == pytest.approx(
        np.mean([weighted_kendall([w[n] for n in LAYERS], [cell[n] for n in LAYERS])] * 1), abs=0.3
    )
    assert found.summary["agreement"][0].keys() == {
        *("score", "target", "tau_w", "low", "high", "difference_to_depth", "diff_low", "diff_high")
    }
    assert "agreement" in found.figures
    verdicts = {f.subject: f.verdict for f in found.findings if f.question == "features.score-useful"}
    assert verdicts["leep"] == "cannot say"  # below depth, and three cells are too few
    assert any("6 are needed" in f.because for f in found.findings)


def test_one_cell_cannot_say(tmp_path):
    path = tmp_path / "one.csv"
    truth_rows().filter(pl.col("seed") == 0).drop("seed").write_csv(path)
    found = ranking({"a": blocky()}, truth=str(path), scores="logme")
    assert found.agreement["low"].null_count() == found.agreement.height
    assert {f.verdict for f in found.findings if f.question == "features.score-useful"} == {"cannot say"}
    assert any("one cell" in f.because for f in found.findings)


def test_truth_of_a_sweep(tmp_path):
    model = f"{HERE}:blocky"
    how = {**QUICK, "arms": ("pretrained", "random"), "ks": "all", "lr": 1e-2, "epochs": 4}
    freeze(model, target=f"{HERE}:coloured", **how, out=tmp_path / "sweep")
    found = ranking([model], f"{HERE}:coloured", truth=str(tmp_path / "sweep"), scores="logme")
    used = found.truth.filter("used")
    assert used.height == 4 * 2
    assert set(used["layer"]) == {"stage1.0", "stage1.1", "stage2.0", "stage2.1"}
    assert set(found.agreement["candidates"]) == {4}
    ranking([model], f"{HERE}:coloured", out=tmp_path / "rank", scores="logme")
    with pytest.raises(BadOption, match="features rank"):
        read_truth([str(tmp_path / "rank")])


def test_a_cell_whose_accuracies_are_equal_orders_nothing(tmp_path):
    path = tmp_path / "truth.csv"
    flat = pl.col("seed") == 1
    truth_rows().with_columns(accuracy=pl.when(flat).then(0.5).otherwise("accuracy")).write_csv(path)
    found = ranking({"a": blocky()}, truth=str(path), scores="logme")
    assert set(found.agreement["cells"]) == {2}
    assert any("seed 1" in row["what"] and "equal" in row["reason"] for row in found.summary["passed_over"])
    truth_rows().with_columns(accuracy=pl.lit(0.5)).write_csv(path)
    assert not ranking({"a": blocky()}, truth=str(path), scores="logme").agreement.height


def test_which_truth_counts():
    rows = [
        ("t", 0, "a", "x", 0.1),
        ("t", 1, "a", "x", 0.2),
        ("t", 0, "a", "y", 0.3),
        ("t", 1, "a", "y", 0.3),
        ("t", 0, "a", "z", 0.3),  # not in every cell
        ("t", 0, "b", "x", 0.3),  # not ranked
        ("u", 0, "a", "x", 0.3),  # of another target
    ]
    truth = pl.DataFrame(rows, schema=["target", "seed", "model", "layer", "accuracy"], orient="row")
    used, passed = matched(truth, "t#train", {("a", "x"), ("a", "y"), ("a", "z")})
    assert used["used"].to_list() == [True] * 4 + [False] * 3
    reasons = " ".join(row["reason"] for row in passed)
    assert "another target" in reasons
    assert "all of 2 cells" in reasons
    assert "no such network" in reasons
    assert matched(truth.filter(pl.col("target") == "u"), "t", {("a", "x")})[0]["used"].to_list() == [True]


def test_bad_truth(tmp_path):
    good = truth_rows()
    paths = {name: tmp_path / f"{name}.csv" for name in ("lacking", "nan", "twice", "empty", "text", "broken")}
    good.drop("layer").write_csv(paths["lacking"])
    good.with_columns(accuracy=pl.lit(float("nan"))).write_csv(paths["nan"])
    pl.concat([good, good]).write_csv(paths["twice"])
    good.head(0).write_csv(paths["empty"])
    good.with_columns(accuracy=pl.lit("high")).write_csv(paths["text"])
    paths["broken"] = tmp_path / "broken.parquet"
    paths["broken"].write_bytes(b"PAR1 but not really")
    (tmp_path / "notes.txt").write_text("0.5")

    def given(path):
        return lambda: ranking({"a": blocky()}, truth=str(path), scores="logme")

    check_bad_input(
        [
            Bad(given(paths["lacking"]), UnknownName, ["layer", "model, layer, accuracy"]),
            Bad(given(paths["nan"]), NonFinite, ["18 rows"]),
            Bad(given(paths["twice"]), BadValues, ["seed 0", "one row"]),
            Bad(given(paths["empty"]), BadValues, ["no row"]),
            Bad(given(tmp_path / "none.csv"), SourceNotFound, ["none.csv"]),
            Bad(given(tmp_path / "notes.txt"), UnsupportedFormat, ["notes.txt"]),
            Bad(given(tmp_path), BadOption, ["run"]),
        ]
    )
    for name in ("text", "broken"):
        with pytest.raises(CorruptFile, match=paths[name].name):
            read_truth([str(paths[name])])


# ------------------------------------------------------------------------------------------------------------ verdicts


def probes(first, second):
    rows = [
        {"score": "probe", "model": "m", "layer": name, "value": float(np.mean(folds)), "folds": folds}
        for name, folds in (("x", first), ("y", second))
    ]
    return pl.DataFrame(rows)


def test_the_best_start_needs_a_lead_in_every_way():
    config = RankConfig(models=("m",))
    ahead = _best_start(config, probes([0.9, 0.91, 0.9, 0.92, 0.9], [0.7, 0.72, 0.7, 0.71, 0.7]))
    assert (ahead.verdict, ahead.subject) == ("yes", "x")
    assert ahead.estimate == pytest.approx(20.0)
    level = _best_start(config, probes([0.9, 0.6, 0.9, 0.7, 0.9], [0.8, 0.7, 0.8, 0.8, 0.8]))
    assert level.verdict == "cannot say"
    assert _best_start(config, probes([0.9] * 5, [0.9] * 5)).verdict == "cannot say"
    assert _best_start(config, probes([0.9] * 5, [0.9] * 5).head(1)).verdict == "cannot say"


def test_verdicts_of_a_score():
    def verdict(low, high, own=(0.1, 0.6), cells=6):
        row = {"tau_w": 0.5, "difference_to_depth": 0.1, "diff_low": low, "diff_high": high}
        row |= {"low": own[0], "high": own[1], "candidates": 9, "cells": cells}
        return _useful(RankConfig(truth=("t",)), "logme", row, {"tau_w": 0.4}).verdict

    assert verdict(0.01, 0.2) == "yes"
    assert verdict(-0.2, -0.01) == "no"
    assert verdict(-0.1, 0.3) == "cannot say"
    assert verdict(None, None, (None, None)) == "cannot say"
    # better than a depth that orders the wrong way round is no use where the score orders nothing
    assert verdict(0.9, 1.1, (0.0, 0.0)) == "no"
    assert verdict(0.9, 1.1, (-0.1, 0.2)) == "cannot say"
    assert verdict(0.01, 0.2, cells=5) == "cannot say"
    assert _useful(RankConfig(truth=("t",)), "logme", None, None).verdict == "cannot say"


def test_five_cells_without_a_difference_would_be_too_sure():
    """Why six: cells whose leads are as often above 0 as below, judged by their bootstrap."""
    from querist.statistics import bootstrap

    def sure(n, run):
        cells = np.random.default_rng([n, run]).normal(size=n)
        found = bootstrap(cells, np.mean, replicates=200, seed=run)
        return found.low > 0 or found.high < 0

    share = {n: np.mean([sure(n, run) for run in range(400)]) for n in (2, 3, 6)}
    assert share[2] > 0.4
    assert share[3] > 0.2
    assert share[6] < 0.2


def test_the_warnings():
    told = ranking(source=pictures(60), scores="logme").warnings
    assert any("60 examples are few" in text for text in told)
    assert any("8 directions are few" in text for text in told)


# ----------------------------------------------------------------------------------------------------------- bad input


def call(models=None, target=None, **fields):
    return lambda: ranking(models, target, **fields)


def test_bad_input_by_verb():
    X, y = pictures(120)
    few = np.where(np.arange(120) < 3, 9, y)
    same = [f"{HERE}:blocky", f"{HERE}:blocky"]
    check_bad_input(
        [
            Bad(call(target=X), LabelsNeeded, ["target", "labels"]),
            Bad(call(target=(X, few), n=120), BadLabels, ["class 9 has 3", "5 rows"]),
            Bad(call(target=(X, np.zeros(120, int))), BadLabels, ["one class"]),
            Bad(call(target=(X[:15], y[:15])), TooFewRows, ["15", "20 or more"]),
            Bad(call(source=(X[:30], y[:30])), TooFewRows, ["15", "20 or more per arm"]),
            Bad(call(target=(X[..., :1], y)), ShapeMismatch, ["target", "channels"]),
            Bad(call(scores="logmee"), BadOption, ["logmee", "logme"]),
            Bad(call(layers="stage9*"), UnknownName, ["stage9*", "stage1.1"]),
            Bad(call(models=same), BadOption, ["blocky", "once"]),
            Bad(call(reduce="sites:3"), BadOption, ["sites:3", "mean"]),
            Bad(call(reduce="median"), BadOption, ["median"]),
            Bad(call(permutations=0), BadOption, ["permutations"]),
            Bad(call(score="logme"), UnknownName, ["score", "scores"]),
            Bad(call(target="no-such-set"), UnknownName, ["no-such-set"]),
            Bad(call(models=3.5), BadOption, ["float"]),
            Bad(call(device="gpu"), BadOption, ["gpu"]),
        ]
    )


def test_bad_input_by_command(tmp_path):
    out = ["--out", str(tmp_path / "run")]
    model = f"{HERE}:blocky"
    check_bad_input(
        [
            Bad(["features", "rank", "--target", f"{HERE}:new", *out], 2, ["network"]),
            Bad(["features", "rank", model, *out], 2, ["--target B"]),
            Bad(["features", "rank", model, "--target", "digits", *out], 2, ["--channels 3"]),
            Bad(
                ["features", "rank", model, "--target", f"{HERE}:new", "--fail-if", "best-stort.verdict == yes", *out],
                2,
                ["best-start"],
            ),
        ]
    )
    assert not (tmp_path / "run").exists()


def test_the_command_line_of_a_ranking(tmp_path, capsys):
    config = rank_config(scores=("logme", "leep"))
    words = rank_study().argv(config)
    assert (
        main(
            [*words, "--out", str(tmp_path / "run"), "--quiet", "--json", "--fail-if", "capture-health.verdict == yes"]
        )
        == 3
    )
    summary = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["config"] == json.loads(config.model_dump_json())
    assert summary["schema"] == "querist.features.rank/1"
    assert [row["score"] for row in summary["ranking"]].count("logme") == 12


def test_plain_networks_are_ranked():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), nn.Linear(6, 3))
    found = ranking(model, coloured(), n=90, scores="h-score")
    assert found.scores["layer"].to_list() == ["2", "logits"]

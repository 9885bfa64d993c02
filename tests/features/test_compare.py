"""The comparison as a study: what it finds where the answer is known, its options, its summary, and everything that can be wrong."""

from __future__ import annotations

import copy
import importlib.util
import json
import math

import numpy as np
import polars as pl
import pytest
import torch
from tests.features.small import QUICK, Pixels, config, held_study, normal, pictures, study, tiny_net
from tests.harness import assert_same_answer, check_study

from querist.errors import MissingExtra
from querist.features import Comparison, compare
from querist.features.configs import CompareConfig
from querist.features.errors import DimensionMismatch
from querist.features.questions import WARNING
from querist.reports.ask import ask
from querist.results.gates import evaluate, parse

LAYERS = (
    "target",
    "layer",
    "index",
    "width",
    "raw",
    "null_mean",
    "null_q95",
    "excess",
    "low",
    "high",
    "ratio",
    "p",
    "p_adj",
)
OWN = (
    *(
        "warning",
        "capture",
        "model",
        "source",
        "targets",
        "level",
        "n_per_arm",
        "permutations",
        "projections",
        "layers",
    ),
    *("consistency", "association", "max_gap_layer", "max_gap", "min_p_adj", "slope", "network_gap"),
    *("repeats", "spread"),
)


def asked(result: Comparison, question: str) -> dict[str, str]:
    return {f.subject: f.verdict for f in result.findings if f.question == f"features.{question}"}


def rows(result: Comparison | pl.DataFrame) -> dict[str, dict]:
    table = result if isinstance(result, pl.DataFrame) else result.table
    return {row["layer"]: row for row in table.to_dicts()}


def quick(model, source, target, **fields) -> Comparison:
    return compare(model, source=source, target=target, **{**QUICK, **fields})


# ------------------------------------------------------------------------------------------------------------ the study


@pytest.mark.browser
def test_the_study_keeps_what_every_study_promises(tmp_path, chromium):
    result = check_study(study, config(random_nets=2, class_gaps=True), tmp_path, chromium=chromium)
    assert tuple(result.summary)[-len(OWN) :] == OWN
    assert set(result.summary["layers"][0]) == {*LAYERS, "probe_accuracy"}
    assert {r["statistic"] for r in result.summary["consistency"]} == {"C", "tau", "slope", "kappa"}
    assert all(
        list(r) == ["target", "statistic", "frame", "value", "floor", "p", "p_all", "n_null"]
        for r in result.summary["consistency"]
    )
    assert result.summary["warning"] == WARNING
    assert set(result.summary["capture"]) == {"n", "reduction", "normalise", "ids_hash", "bytes_bound", "bytes_peak"}
    assert [target["name"] for target in result.summary["targets"]] == ["tests.features.small:new", "digits"]
    page = (tmp_path / "whole" / "report.html").read_text("utf-8")
    assert WARNING[:60] in page
    drawn = {name.rstrip("-0123456789") for name in result.figures}
    assert drawn == {
        *(
            "profile",
            "ridgeline",
            "evolution",
            "contraction",
            "matrix",
            "matrix-source",
            "association",
            "units",
            "units-top",
        ),
    }
    for figure in result.figures.values():
        for word in ("n = 60", "iso", "sliced W₂", "seed 0"):
            assert word in figure.caption, figure.name


def test_repetitions_are_single_runs_of_their_seeds_and_a_finding_needs_all_of_them(tmp_path):
    fields = {"repeats": 3, "random_nets": 1, "source": "digits#0:400", "n": 50}
    settings = config(**fields, class_gaps=True)
    result = ask(study(), settings, out=tmp_path / "run", progress=False)
    assert_same_answer(ask(study(), settings, engine="local:2", out=tmp_path / "pool", progress=False), result)
    alone = [
        ask(study(), config(**fields | {"repeats": 1, "seed": seed}, class_gaps=False), progress=False)
        for seed in settings.seeds
    ]
    assert len(set(settings.seeds)) == 3
    for name in ("gaps", "probes", "consistency", "evolution", "net_profiles"):
        for repeat, one in enumerate(alone):
            mine = result.tables[name].filter(pl.col("repeat") == repeat).drop("repeat")
            assert mine.equals(one.tables[name].drop("repeat")), (name, repeat)
    assert result.captures["ids_hash"].n_unique() > 3
    first = result.spread.filter((pl.col("target") == "digits") & (pl.col("layer") == "tanh")).to_dicts()[0]
    excess = [rows(one.tables["gaps"].filter(pl.col("target") == "digits"))["tanh"]["excess"] for one in alone]
    assert first["n"] == 3
    assert first["excess"] == pytest.approx(np.mean(excess))
    assert first["excess_sd"] == pytest.approx(np.std(excess, ddof=1))
    assert (first["excess_min"], first["excess_max"]) == (min(excess), max(excess))
    for finding in result.findings:
        if finding.question not in ("features.gap", "features.gap-any"):
            continue
        each = [
            next(f for f in one.findings if (f.question, f.subject) == (finding.question, finding.subject))
            for one in alone
        ]
        verdicts = {one.verdict for one in each}
        assert finding.verdict == (verdicts.pop() if len(verdicts) == 1 else "cannot say")
        assert finding.p == max(one.p for one in each)
        if finding.low is not None:
            assert (finding.low, finding.high) == (min(one.low for one in each), max(one.high for one in each))
    assert result.association.filter(pl.col("target") == "digits")["low"].is_not_null().all()
    assert "spread-1" in result.figures
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "Over repetitions" in page
    assert result.summary["repeats"] == 3
    assert {row["layer"] for row in result.summary["layers"]} == set(result.spread["layer"])
    assert len(result.summary["layers"]) == result.spread.height


def test_repetitions_by_the_command(capfd, tmp_path):
    from querist.cli import main

    argv = ["features", "compare", "tests.features.small:tiny_net", "--source", "tests.features.small:known"]
    argv += [
        "--target",
        "tests.features.small:new",
        "--repeats",
        "2",
        "--n",
        "60",
        "--projections",
        "40",
        "--splits",
        "4",
    ]
    argv += ["--permutations", "19", "--out", str(tmp_path / "run"), "--json", "--quiet", "--engine", "serial"]
    assert main(argv) == 0
    summary = json.loads(capfd.readouterr().out)
    assert {row["n"] for row in summary["spread"]} == {2}
    assert set(summary["association"]["tests.features.small:new"]) >= {"low", "high"}
    assert summary["association"]["tests.features.small:new"]["low"] is not None


def test_networks_and_data_in_memory_cross_processes(tmp_path):
    fields = {"model": "model", "source": "source", "target": ("target",)}
    settings = CompareConfig.build(**fields, **QUICK, random_nets=1)
    result = ask(held_study(), settings, progress=False)
    assert_same_answer(ask(held_study(), settings, out=tmp_path / "run", engine="local:2", progress=False), result)
    assert result.summary["source"] == {"name": "source", "n": 60}
    assert asked(result, "gap-any") == {"target": "yes"}


# ------------------------------------------------------------------------------------------- where the answer is known


def test_the_gap_of_shifted_gaussians_is_the_shift():
    d, shift = 4, 0.5
    found = compare(
        Pixels(d),
        source=normal(3000, d),
        target=normal(3000, d, shift=shift, seed=1),
        normalise="none",
        n=3000,
        projections=40,
        permutations=19,
        splits=20,
        probe=False,
    )
    row = rows(found)["relu"]
    truth = shift  # SW_2² of a shift m is |m|²/d
    assert row["excess"] == pytest.approx(truth, rel=0.1)
    assert row["low"] < truth < row["high"]
    assert row["w2_scale"] == pytest.approx(d * row["raw"] ** 2)
    assert row["p_adj"] == 0.05
    assert asked(found, "gap")["relu"] == "yes"
    scaled = rows(quick(Pixels(d), normal(300, d) * 10, normal(300, d, shift=shift, seed=1) * 10, n=300))
    unscaled = rows(quick(Pixels(d), normal(300, d), normal(300, d, shift=shift, seed=1), n=300))
    assert scaled["relu"]["excess"] == pytest.approx(unscaled["relu"]["excess"], rel=1e-4)


def test_one_law_gives_no_gap():
    found = quick(Pixels(), normal(400), normal(400, seed=1), n=400, margin=0.5, probe=False)
    assert set(asked(found, "gap").values()) == {"no"}
    assert asked(found, "gap-any") == {"target": "no"}
    row = rows(found)["relu"]
    assert row["low"] == 0
    assert row["interval_kind"] == "null quantile"
    assert row["high"] < 0.5


def test_a_set_against_itself_is_told_and_gives_exactly_nothing():
    X = pictures(60)
    found = quick(tiny_net(), X, X)
    assert asked(found, "overlapping-ids") == {"target": "yes"}
    assert {row["excess_p"] for row in found.table.to_dicts()} == {0.0}
    assert {row["p"] for row in found.table.to_dicts()} == {1.0}
    other = quick(tiny_net(), X, (X[0].clone(), X[1]))
    assert asked(other, "overlapping-ids") == {"target": "no"}


def test_changed_copies_are_compared_in_pairs():
    X, y = pictures(60)
    shifted = (X + 0.15, y)
    alone = quick(tiny_net(), (X, y), shifted, permutations=199)
    pairs = quick(tiny_net(), (X, y), shifted, permutations=199, paired="yes")
    assert asked(pairs, "overlapping-ids") == {"target": "yes"}
    assert rows(pairs)["relu"]["p"] < rows(alone)["relu"]["p"]
    assert rows(pairs)["relu"]["p"] <= 0.01


def test_few_shared_images_are_left_out_of_the_target():
    found = compare(
        "tests.features.small:tiny_net", source="digits#0:200", target="digits#170:400", channels=3, size=8, **QUICK
    )
    finding = next(f for f in found.findings if f.question == "features.overlapping-ids")
    assert finding.verdict == "yes"
    assert finding.estimate < 40
    assert "left out of the target" in finding.because


# ------------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("distance", ["per-unit", "max-sliced", "gaussian", "spectrum", "sinkhorn", "otdd"])
def test_every_distance_sees_a_large_shift(distance):
    X, T = normal(60), normal(60, shift=1.5, seed=1)
    y = np.arange(60) % 2
    scale = 3.0 if distance == "spectrum" else 1.0
    options = {"distance": distance, "permutations": 19, "splits": 3, "probe": False}
    if distance == "sinkhorn" and importlib.util.find_spec("geomloss") is None:
        with pytest.raises(MissingExtra, match="transport"):
            quick(Pixels(), (X, y), (scale * T, y), **options)
        return
    found = quick(Pixels(), (X, y), (scale * T, y), layers="relu", **options)
    row = rows(found)["relu"]
    assert row["p"] == 0.05
    assert row["distance"] == distance
    assert all(distance in figure.caption for figure in found.figures.values())


def test_normalisations_drop_count_and_whiten():
    net = Pixels(4)
    with torch.no_grad():
        net.same.weight[2] = 0
    X, T = normal(100), normal(100, shift=1.0, seed=1)
    unit = quick(net, X, T, n=100, normalise="unit")
    dropped = unit.layers.filter(pl.col("layer") == "relu")["dropped_units"].to_list()
    assert dropped == [1, 1]
    whiten = quick(Pixels(4), X, T, n=100, normalise="whiten")
    assert whiten.units.height == 0
    assert rows(whiten)["relu"]["excess"] > 0.5


def test_places_of_an_image_stay_together_and_texts_of_any_length_are_taken():
    X, y = pictures(60)
    found = quick(tiny_net(), (X, y), pictures(60, shift=1.0, seed=1), reduce="sites:3")
    relu = found.layers.filter((pl.col("layer") == "relu") & (pl.col("data") == "source")).to_dicts()[0]
    assert (relu["n_rows"], relu["n_images"], relu["reduction"]) == (180, 60, "sites:3")
    assert rows(found)["relu"]["n_c"] == 30

    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(50, 6), torch.nn.Linear(6, 6)

        def forward(self, input_ids, attention_mask):
            return torch.relu(self.head(self.embed(input_ids)))

    def texts(low, seed):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(2, 9, 60)
        mask = (np.arange(9) < lengths[:, None]).astype(np.int64)
        return {
            "input_ids": torch.from_numpy(rng.integers(low, low + 25, (60, 9))),
            "attention_mask": torch.from_numpy(mask),
        }

    found = quick(Tokens(), texts(0, 1), texts(25, 2), reduce="sites:4", layers="preactivation")
    assert rows(found)["logits"]["p_adj"] <= 0.05
    assert "<input>" not in rows(found)
    assert found.layers["n_rows"].to_list() == [2 * n for n in found.layers["n_images"]]  # two tokens are in every text


def test_rows_kept_in_files_give_the_same_and_leave_nothing_behind(tmp_path):
    X, T = pictures(60), pictures(60, shift=1.0, seed=1)
    held = quick(tiny_net(), X, T, random_nets=1, out=tmp_path / "held", progress=False)
    filed = quick(tiny_net(), X, T, random_nets=1, spill=True, out=tmp_path / "filed", progress=False)
    assert held.table.equals(filed.table)
    assert held.consistency.equals(filed.consistency)
    assert not list((tmp_path / "filed").rglob("spill"))
    assert {
        path.name for path in (tmp_path / "filed" / "units" / "distances").iterdir() if any(path.rglob("*.npy"))
    } == set()
    projected = quick(tiny_net(), X, T, reduce="flat", proj_dim=6)
    assert set(projected.layers.filter(pl.col("layer") == "relu")["width"]) == {5 * 4 * 4}
    assert rows(projected)["relu"]["p_adj"] <= 0.05


def test_a_second_network_of_one_lineage():
    net = tiny_net()
    tuned = copy.deepcopy(net)
    with torch.no_grad():
        tuned.head.weight += 0.5
    X, T = pictures(60), pictures(60, shift=1.0, seed=1)
    found = quick(net, X, T, against=tuned)
    moved = {row["layer"]: row for row in found.summary["network_gap"]}
    assert list(moved["relu"]) == ["layer", "value", "null_mean", "p", "p_adj"]
    assert moved["relu"]["value"] == 0
    assert moved["logits"]["p_adj"] <= 0.05
    assert asked(found, "network-gap")["relu (source)"] == "no"
    assert asked(found, "network-gap")["logits (source)"] == "yes"
    assert {"network-gap", "matrix-against"} <= set(found.figures)
    same = found.matrix.filter(
        (pl.col("model_b") == "against") & (pl.col("layer_a") == "relu") & (pl.col("layer_b") == "relu")
    )
    assert same["spectrum"][0] == pytest.approx(0, abs=1e-6)
    assert same["cka"][0] == pytest.approx(1)


def test_networks_of_other_widths_are_compared_without_matching_units():
    X, T = pictures(60), pictures(60, shift=1.0, seed=1)
    with pytest.raises(DimensionMismatch, match=r"relu: 5 and 7.*--distance spectrum"):
        quick(tiny_net(), X, T, against=tiny_net(width=7))
    found = quick(tiny_net(), X, T, against=tiny_net(width=7), distance="spectrum")
    assert {r["layer"] for r in found.summary["network_gap"]} == {"<input>", "tanh", "logits"}
    assert (
        found.matrix.filter((pl.col("model_b") == "against") & (pl.col("layer_b") == "relu"))["cka"].is_not_null().all()
    )


def test_classes_that_both_sets_name():
    found = compare(
        "tests.features.small:tiny_net",
        source="tiny-images#0:800",
        target=["tiny-images#800:1600", "digits"],
        size=8,
        channels=3,
        **{**QUICK, "n": 240},
    )
    assert set(found.class_gaps["class"]) == {"disc", "square", "cross", "stripes"}
    assert set(found.class_gaps["target"]) == {"tiny-images#800:1600"}
    assert "classes-1" in found.figures
    few = compare(
        "tests.features.small:tiny_net", source="tiny-images#0:800", target="tiny-images#800:1600", size=8, **QUICK
    )
    assert few.class_gaps.height == 0
    assert few.tables["passed_over"]["what"].str.contains("class disc").any()


def test_a_joint_evolution_follows_layers_of_one_width():
    class Square(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    joint = quick(Square(), normal(80), normal(80, shift=1, seed=1), evolution="joint", layers="preactivation")
    pooled = quick(Square(), normal(80), normal(80, shift=1, seed=1), layers="preactivation")
    assert joint.evolution.height == pooled.evolution.height > 0
    assert joint.evolution["value"].to_list() != pooled.evolution["value"].to_list()


def test_what_cannot_be_measured_is_passed_over_by_name():
    class Dead(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)

        def forward(self, x):
            return self.head(torch.relu(0 * self.first(x)))

    found = quick(Dead(), normal(60), normal(60, seed=1), probe=False)
    assert set(rows(found)) == {"<input>"}
    assert set(found.tables["passed_over"]["reason"]) == {"it is constant over the source"}
    assert asked(found, "capture-health") == {"model": "no"}
    assert "skipped" in found.figures
    assert found.evolution.height == 0
    assert asked(found, "consistency") == {"all targets": "cannot say"}


def test_a_probe_without_labels_or_with_small_classes_is_told():
    X, T = pictures(60), pictures(60, shift=1.0, seed=1)
    plain = quick(tiny_net(), X, T[0])
    assert plain.tables["passed_over"].to_dicts() == [
        {"model": "model", "what": "probe on target", "reason": "the target has no labels"}
    ]
    assert plain.table["probe_accuracy"].null_count() == plain.table.height
    labels = T[1].copy()
    labels[:3] = 7
    rare = quick(tiny_net(), X, (T[0], labels))
    assert rare.tables["passed_over"]["what"].to_list() == ["class 7 of target in the probe"]
    assert rare.table["probe_accuracy"].null_count() == 0


def test_warnings_name_what_is_weak():
    found = quick(tiny_net(), pictures(60), pictures(60, seed=1), projections=10, permutations=9)
    told = " ".join(found.summary["warnings"])
    assert "30 examples per arm" in told
    assert "Only 10 projections" in told
    assert "9 permutations cannot reach p = 0.05" in told
    assert asked(found, "w-predicts-transfer") == {"all targets": "cannot say"}


def test_consistency_needs_nineteen_networks_and_is_then_judged():
    X, T = pictures(60), pictures(60, shift=1.0, seed=1)
    few = quick(tiny_net(), X, T, random_nets=2)
    told = next(f for f in few.findings if f.question == "features.consistency")
    assert told.verdict == "cannot say"
    assert "2 random networks cannot reach" in told.because
    none = quick(tiny_net(), X, T)
    assert none.summary["consistency"] == []
    assert none.consistency.height == 5  # C and tau in two frames, and the slope
    many = quick(tiny_net(), X, T, random_nets=19, permutations=19, splits=3)
    for row in many.consistency.to_dicts():
        assert row["n_null"] == 19
        if row["p"] is not None:
            assert row["p"] * 20 == pytest.approx(round(row["p"] * 20))
            assert row["p_all"] >= row["p"]
    assert many.net_profiles["model"].n_unique() == 20


def test_gates_read_findings_and_the_summary():
    found = quick(tiny_net(), pictures(60), pictures(60, shift=2.0, seed=1))
    gates = parse(
        ["gap-any.verdict == yes", "gap[re*].low > .5", "max_gap > 1", "gap[logits].p > .5"],
        study().questions,
        "features",
    )
    assert [outcome.tripped for outcome in evaluate(gates, found.findings, found.summary)] == [True, True, True, False]


def test_the_summary_is_the_tables():
    found = quick(
        tiny_net(), pictures(60), {"a": pictures(60, shift=1.0, seed=1), "b": pictures(60, shift=2.0, seed=2)}
    )
    summary = found.summary
    assert summary["max_gap"] == pytest.approx(found.table["excess"].max())
    assert summary["min_p_adj"] == found.table["p_adj"].min()
    assert set(summary["max_gap_layer"]) == set(summary["slope"]) == set(summary["association"]) == {"a", "b"}
    assert asked(found, "gap")["relu (a)"] == "yes"
    one = found.association.filter(pl.col("target") == "").to_dicts()[0]
    each = found.association.filter(pl.col("target") != "")
    assert one["difference"] == pytest.approx(each["difference"].mean())
    assert one["low"] <= one["difference"] <= one["high"]
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    relative = {(r["target"], r["layer"]): r["relative"] for r in found.table.to_dicts()}
    assert relative["a", "<input>"] == 1
    assert not math.isnan(relative["b", "relu"])

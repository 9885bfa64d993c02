"""The parts of a comparison: relations of sets, rows of images, matrices of layers, verdicts, and the room's parts together."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from tests.features.small import QUICK, normal, pictures, tiny_net

from querist.cli import main
from querist.features import capture, cka, consistency, spectrum_distance
from querist.features.configs import CompareConfig
from querist.features.profile import Gap, layer_matrix
from querist.features.relation import related, rows_of, sites_of
from querist.features.studies.compare_verdicts import consistency_findings, gap_finding, gap_verdict
from querist.features.studies.measure_layer import class_names
from querist.features.studies.opening import Material
from querist.results.charts import Axes, ridgeline

GAP = Gap(0.5, 0.1, 0.15, 0.24, 0.49, 0.4, 0.6, "jackknife", 5.0, 9.0, 0.01, 0.005, 0.005, 100)


def captured(ids, source="one", n=200):
    X, y = pictures(n)
    found = capture(tiny_net(), (X, y), ids=ids)
    return dataclasses.replace(found, source=source)


def test_sets_are_independent_paired_or_parted():
    a = captured(range(100))
    assert related(a, captured(range(100, 200)), "auto").kind == "independent"
    same = related(a, captured(range(20, 120)), "auto")
    assert (same.kind, same.shared) == ("paired", 80)
    np.testing.assert_array_equal(a.ids[same.source], captured(range(20, 120)).ids[same.target])
    parted = related(a, captured(range(90, 200)), "auto")
    assert (parted.kind, parted.shared, len(parted.target)) == ("parted", 10, 100)
    assert related(a, captured(range(100), source="other"), "auto").kind == "independent"
    assert related(a, captured(range(100), source="other"), "yes").kind == "paired"
    assert related(a, captured(range(100)), "no").kind == "independent"


def test_rows_of_an_image_are_cut_to_one_number():
    X, _ = pictures(50)
    whole = capture(tiny_net(), X, reduce="sites:4")
    stack = rows_of(whole, "tanh", 4)
    assert stack.shape == (50, 4, 8)
    np.testing.assert_array_equal(stack[3], whole["tanh"].rows[12:16])
    assert sites_of({"a": whole}, "tanh") == 4
    assert sites_of({"a": whole}, "<input>") == 1
    two = rows_of(whole, "tanh", 2)
    assert two.shape == (50, 2, 8)
    for image in range(50):
        assert {tuple(row) for row in two[image]} <= {tuple(row) for row in stack[image]}


def test_classes_are_shared_by_name_and_numbers_only_within_one_source():
    a, b = captured(range(100)), captured(range(100, 200))
    assert class_names(a, b) == {"0": (0, 0), "1": (1, 1), "2": (2, 2)}
    assert class_names(a, dataclasses.replace(b, source="other")) == {}
    named = dataclasses.replace(a, classes=("cat", "dog", "bird"))
    other = dataclasses.replace(b, source="other", classes=("dog", "fish", "cat"))
    assert class_names(named, other) == {"cat": (0, 2), "dog": (1, 0)}
    assert class_names(named, dataclasses.replace(other, labels=None)) == {}


def test_the_matrix_of_layers_needs_no_matching_units():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 5)) * np.arange(1, 6)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    wide = np.hstack([X @ Q, np.zeros((80, 3))])
    found = layer_matrix({"a": X, "b": X**2}, {"rotated": wide, "scaled": 3 * X}, same_images=True)
    assert found.spectrum[0] == pytest.approx([0, 0], abs=1e-7)
    assert found.spectrum[1, 0] > 0.1
    assert found.cka is not None
    assert found.cka[0] == pytest.approx([1, 1])
    assert found.cka[1, 0] == pytest.approx(cka(X**2, wide))
    assert found.pooled[0, 1] > 1
    one, other = (v / np.sqrt(v.var(0, ddof=1).sum()) for v in (X, X**2))
    assert layer_matrix({"a": X}, {"b": X**2}).spectrum[0, 0] == pytest.approx(spectrum_distance(one, other))
    assert layer_matrix({"a": X}, {"b": X**2}).cka is None


def test_consistency_takes_captures():
    net, X, T = tiny_net(), pictures(60)[0], pictures(60, shift=1.0, seed=1)[0]
    S, first, second = (capture(net, rows) for rows in (X, T, T + 1))
    found = consistency(S, [first, second], permutations=9, projections=20, splits=4)
    assert found.profile.layers == ("relu", "tanh", "logits")
    by_hand = consistency(
        {name: S[name].rows for name in found.profile.layers},
        {
            name: {layer: one[layer].rows for layer in found.profile.layers}
            for name, one in (("0", first), ("1", second))
        },
        permutations=9,
        projections=20,
        splits=4,
    )
    assert found.rows == by_hand.rows


def test_verdicts_of_a_gap_follow_their_rule():
    assert gap_verdict(GAP, 0.1, 0.05) == "yes"
    assert gap_verdict(GAP, 0.7, 0.05) == "no"
    assert gap_verdict(dataclasses.replace(GAP, p_adj=0.2), 0.1, 0.05) == "cannot say"
    assert gap_verdict(dataclasses.replace(GAP, low=0.0), 0.1, 0.05) == "cannot say"
    assert gap_verdict(dataclasses.replace(GAP, high=0.05, p_adj=0.001), 0.1, 0.05) == "no"
    config = CompareConfig.build(model="m", source="s", target=("t",))
    finding = gap_finding(config, "t", "layer2.1", GAP, 11)
    assert finding.because == (
        "At layer2.1, t lies 0.5 away, 5 times the 0.1 between two parts of the source (100 examples each); p = 0.005 over 11 "
        "layers. The law differs; this does not say that transfer is poor."
    )


def row(statistic, target, frame, value, p, p_all, median, n=19):
    from querist.features.profile import ConsistencyRow

    return ConsistencyRow(target, statistic, frame, value, 0.1, p, p_all, n, None, median, None)


def verdict_of(statistic, *rows):
    config = CompareConfig.build(model="m", source="s", target=("a", "b"))
    found = {f.question: f for f in consistency_findings(config, list(rows))}
    return found["features.contraction" if statistic == "slope" else "features.consistency"].verdict


def test_verdicts_over_random_networks_follow_their_rules():
    down = [row("slope", t, "", -0.1, 0.05, 0.05, 0.0) for t in "ab"]
    assert verdict_of("slope", *down) == "yes"
    assert verdict_of("slope", *(dataclasses.replace(r, p_all=0.1) for r in down)) == "cannot say"
    assert verdict_of("slope", *(dataclasses.replace(r, n_null=18) for r in down)) == "cannot say"
    assert verdict_of("slope", *(dataclasses.replace(r, value=0.2, p_all=0.9) for r in down)) == "no"
    assert verdict_of("slope", down[0], dataclasses.replace(down[1], value=None, p_all=None)) == "cannot say"
    assert verdict_of("slope", *(dataclasses.replace(r, value=0.05, null_q50=0.1) for r in down)) == "cannot say"
    frames = [row("C", t, f, 0.2, 0.05, 0.05, 0.5) for t in "ab" for f in ("source", "own")]
    assert verdict_of("C", *frames) == "yes"
    assert verdict_of("C", *(dataclasses.replace(r, value=0.6, p_all=1.0) for r in frames)) == "no"
    one_above = [dataclasses.replace(r, p_all=1.0, value=0.6 if r.frame == "own" else 0.2) for r in frames]
    assert verdict_of("C", *one_above) == "cannot say"


def test_tied_weights_and_hidden_buffers_cross_processes(tmp_path):
    net = tiny_net()
    net.register_buffer("hidden", torch.arange(3.0), persistent=False)
    net.head.tied = net.head.weight
    X = pictures(30)
    material = Material({"model": "model", "source": "source"}, {"model": net, "source": X})
    config = CompareConfig.build(model="model", source="source", target=("t",), n=20)
    moved = material.portable(config, tmp_path, {"model": "model", "source": "data"})
    copied = moved.network("model").module  # pyright: ignore[reportAttributeAccessIssue]
    for (name, one), other in zip(net.named_parameters(), copied.parameters(), strict=False):
        assert torch.equal(one, other), name
    assert torch.equal(copied.hidden, net.hidden)
    data, first = moved.data("source", config), material.data("source", config)
    chosen = data.ids[:7]
    assert torch.equal(data.read(chosen).inputs, first.read(chosen).inputs)
    np.testing.assert_array_equal(data.read(chosen).labels, first.read(chosen).labels)
    kinds = {"model": "model", "source": "data"}
    assert moved.fingerprints(config, kinds) == material.fingerprints(config, kinds)
    with torch.no_grad():
        net.head.bias += 1
    assert moved.fingerprints(config, kinds)["model: model"] != material.fingerprints(config, kinds)["model: model"]


def test_ridges_share_an_axis_and_each_has_its_scale():
    x = np.linspace(-1, 1, 20)
    y = np.exp(-(x**2) * 8)
    data, layout = ridgeline(x, ["top", "bottom"], {"a": [y, 5 * y], "null": [[], y]}, Axes("x", ""), nulls=("null",))
    assert [trace["name"] for trace in data] == ["a", "a", "null"]
    assert max(data[0]["y"]) == pytest.approx(2.5, abs=0.02)
    assert max(data[1]["y"]) == pytest.approx(1.5, abs=0.02)
    assert layout["yaxis"]["ticktext"] == ["top", "bottom"]
    assert layout["yaxis"]["tickvals"] == [1, 0]
    assert data[0]["showlegend"]
    assert not data[1]["showlegend"]


def test_the_command_prints_its_summary_and_trips_gates(tmp_path, capfd):
    words = ["features", "compare", "tests.features.small:tiny_net", "--source", "tests.features.small:known"]
    words += [
        "--target",
        "tests.features.small:new",
        "--target",
        "digits",
        "--channels",
        "3",
        "--size",
        "8",
        "--no-probe",
    ]
    words += ["--n", "60", "--projections", "30", "--splits", "4", "--permutations", "19", "--no-class-gaps", "--quiet"]
    words += ["--engine", "serial", "--out", str(tmp_path / "run"), "--json", "--fail-if", "max_gap > 0"]
    assert main(words) == 3
    summary = json.loads(capfd.readouterr().out)
    assert summary["schema"] == "querist.features.compare/1"
    assert {row["target"] for row in summary["layers"]} == {"tests.features.small:new", "digits"}
    assert summary["association"] == {}
    assert summary["warning"]


def test_the_null_between_random_networks_is_uniform():
    """A network that is random itself is as extreme as any of them: p is uniform on 1/20, 2/20, … (few runs: a coarse look)."""
    from querist.features import compare

    found = []
    for seed in range(6):
        result = compare(
            tiny_net(seed=seed),
            source=normal(40, 3 * 64, seed=seed).reshape(40, 3, 8, 8),
            target=normal(40, 3 * 64, seed=seed + 50, shift=0.5).reshape(40, 3, 8, 8),
            random_nets=4,
            seed=seed,
            probe=False,
            **{**QUICK, "permutations": 9, "splits": 3, "projections": 20},
        )
        found += [r["p"] for r in result.consistency.to_dicts() if r["statistic"] == "C"]
    assert set(found) <= {0.2, 0.4, 0.6, 0.8, 1.0}
    assert 0.4 < np.mean(found) < 0.85

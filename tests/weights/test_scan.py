"""The scan as a study: every layer kind, every status, its findings, its invariances, and its report."""

from __future__ import annotations

import fnmatch
import logging

import numpy as np
import polars as pl
import pytest
import torch
from tests.harness import check_study

from querist.errors import BadOption, SourceNotFound, UnknownName
from querist.results.gates import evaluate, parse
from querist.sources.datasets.matrices import gaussian, low_rank, sample_network, spiked
from querist.weights import Scan, scan
from querist.weights.configs import ScanConfig
from querist.weights.studies.scan import ScanStudy
from querist.weights.tables import LAYERS

SCALE_FREE = [
    "alpha",
    "D",
    "n_tail",
    "alpha_hill",
    "alpha_peak",
    "stable_rank",
    "entropy",
    "rank",
    "mp_softrank",
    "n_spikes",
    "n_spikes_tw",
    "bulk_ks",
    "bulk_p",
    "spike_p",
    "spike_p_rank",
    "shuffle_distance",
    "null_distance",
    "null_max_ratio",
    "rand_num_spikes",
    "n_erg",
    "lr_exponential",
    "lr_lognormal",
    "phase",
    "denoised_rank",
    "denoised_energy",
]


def study() -> ScanStudy:
    network = {name: torch.from_numpy(value) for name, value in sample_network(side=48).items()}
    network["broken.weight"] = torch.full((32, 16), 0.5)
    network["broken.weight"][3, 4] = float("nan")
    network["zero.weight"] = torch.zeros(20, 16)
    return ScanStudy(network)


def rows(result: Scan) -> dict[str, dict]:
    return {row["layer_id"]: row for row in result.table.to_dicts()}


def verdicts(result: Scan, question: str) -> dict[str, str]:
    return {f.subject: f.verdict for f in result.findings if f.question == f"weights.{question}"}


def test_the_scan_is_a_study(tmp_path, chromium):
    result = check_study(study, ScanConfig(source="sample"), tmp_path, chromium=chromium)
    assert verdicts(result, "damaged")["broken.weight"] == "yes"


def test_each_status_costs_one_row_and_never_the_run():
    result = scan(study().data)
    table = rows(result)
    assert table["broken.weight"]["status"] == "nonfinite"
    assert "1 NaN or infinite entries, the first at (3, 4)" in table["broken.weight"]["reason"]
    assert table["zero.weight"]["status"] == "degenerate"
    assert table["zero.weight"]["alpha"] is None
    assert verdicts(result, "damaged") | {"broken.weight": "no"} == dict.fromkeys(table, "no")
    assert table["collapsed.weight"]["rank"] == 16
    assert table["collapsed.weight"]["phase"] == "rank-collapse"
    assert verdicts(result, "collapse")["collapsed.weight"] == "yes"
    assert {p["what"]: p["reason"] for p in result.passed_over} == {"random.bias": "1-dimensional"}
    assert any("NaN" in warning for warning in result.warnings)


def test_verdicts_on_matrices_whose_answer_is_known():
    result = scan(
        {
            "noise": gaussian(120, 240),
            "spikes": spiked(200, 100, strengths=(3.0, 2.0)),
            "lost": low_rank(80, 80, rank=20),
        }
    )
    table = rows(result)
    assert verdicts(result, "spikes")["noise"] == "no"
    assert verdicts(result, "spikes")["spikes"] == "yes"
    assert table["spikes"]["n_spikes"] == 2
    assert table["noise"]["phase"] == "random-like"
    assert table["spikes"]["phase"] == "bulk+spikes"
    assert verdicts(result, "trained")["spikes"] == "yes"
    assert verdicts(result, "heavy-tail")["noise"] == "no"
    finding = next(f for f in result.findings if f.subject == "spikes" and f.question == "weights.spikes")
    assert "2 eigenvalues lie above" in finding.because
    assert finding.p <= 0.05


@pytest.mark.parametrize("seed", [0, 1])
def test_scale_changes_no_scale_free_column(seed):
    W = torch.from_numpy(spiked(90, 60, strengths=(2.0,), seed=seed))
    one, scaled = rows(scan(W)), rows(scan(W * 1024))
    for (_, a), (_, b) in zip(one.items(), scaled.items(), strict=True):
        for column in SCALE_FREE:
            if isinstance(a[column], float):
                assert b[column] == pytest.approx(a[column], rel=1e-6, abs=1e-9), column
            else:
                assert a[column] == b[column], column


def test_same_n_spikes_for_noise_of_any_scale():
    noise = torch.from_numpy(gaussian(100, 100, seed=7))
    small, large = scan({"w": noise}).table["n_spikes"][0], scan({"w": 10 * noise}).table["n_spikes"][0]
    assert small == large == 0


def test_same_seed_same_numbers_and_layers_do_not_depend_on_their_neighbours():
    network = sample_network(side=40)
    whole = scan(network).table
    again = scan(network).table
    assert whole.drop("seconds").equals(again.drop("seconds"))
    alone = scan({"spiked.weight": network["spiked.weight"]}).table
    mine = whole.filter(pl.col("layer_id") == "spiked.weight")
    drop = ["seconds", "position", "spike_p_adj"]
    assert mine.drop(drop).equals(alone.drop(drop))
    assert not scan(network, seed=1).table["shuffle_distance"].equals(whole["shuffle_distance"])


def test_progress_is_called_once_per_layer():
    network = {f"layer{i}": gaussian(40, 30, seed=i) for i in range(10)}
    calls = []
    scan(network, nulls=(), progress=lambda *call: calls.append(call))
    assert [call[:2] for call in calls] == [(i, 10) for i in range(1, 11)]
    assert {key for *_, key in calls} == set(network)
    assert len(ScanStudy(network).units(ScanConfig(nulls=()), "layers", {})) < 10  # several layers are one unit


def test_nothing_is_logged(caplog):
    with caplog.at_level(logging.DEBUG):
        scan(gaussian(20, 30), nulls=())
    assert [record for record in caplog.records if record.name.startswith("querist")] == []


def test_a_live_network_tells_its_layer_kinds():
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(40, 16)
            self.conv = torch.nn.Conv2d(16, 32, 3, groups=2)
            self.up = torch.nn.ConvTranspose2d(16, 24, 3)
            self.rnn = torch.nn.LSTM(16, 16)
            self.attention = torch.nn.MultiheadAttention(16, 2)
            self.head = torch.nn.Linear(16, 40, bias=False)
            self.head.weight = self.embed.weight
            self.norm = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 24))
            self.volume = torch.nn.Conv3d(16, 32, 3)

    torch.manual_seed(0)
    result = scan(Network(), nulls=())
    table = rows(result)
    assert table["conv.weight:group1"]["N"] == 16
    assert sum(name.startswith("rnn.") for name in table) == 8
    assert {name for name in table if name.startswith("attention.")} == {
        "attention.in_proj_weight:q",
        "attention.in_proj_weight:k",
        "attention.in_proj_weight:v",
        "attention.out_proj.weight",
    }
    assert table["embed.weight"]["aliases"] == ["head.weight"]
    assert (table["up.weight"]["N"], table["up.weight"]["M"]) == (24, 144)
    assert (table["volume.weight"]["N"], table["volume.weight"]["M"]) == (32, 432)
    assert sum("norm" in name for name in table) == 1


@pytest.mark.parametrize("options", [{"conv": "slices"}, {"conv": "operator", "grid": (8, 8)}])
def test_views_of_a_convolution_run_with_their_nulls(options):
    kernel = torch.from_numpy(gaussian(24, 16 * 9)).reshape(24, 16, 3, 3)
    result = scan({"conv.weight": kernel}, **options)
    row = rows(result)["conv.weight"]
    assert row["status"] in ("ok", "short-tail")
    assert row["n_values"] == 16 * (9 if "grid" not in options else 64)
    assert row["n_spikes"] == 0
    assert row["shuffle_distance"] is not None


def test_every_option_is_heard():
    W = {"w": spiked(160, 96, strengths=(3.0,))}
    base = scan(W).table
    assert scan(W, nulls=()).table["shuffle_distance"][0] is None
    assert verdicts(scan(W, nulls=()), "spikes")["w"] == "cannot say"
    assert verdicts(scan(W, nulls=("shuffle",)), "spikes")["w"] == "cannot say"
    assert scan(W, fit="hill").table["alpha"][0] == base["alpha_hill"][0]
    assert scan(W, fit="peak").table["alpha"][0] == base["alpha_peak"][0]
    assert scan(W, farms=True).table["alpha_farms"][0] > 1
    assert scan(W, ratios="none").table["lr_exponential"][0] is None
    assert scan(W, ratios="all").table["lr_truncated"][0] <= 0
    assert scan(W, precision="fast").table["rank"][0] is None
    assert scan(W, precision="fast").table["alpha"][0] == pytest.approx(base["alpha"][0], rel=1e-3)
    assert 0 <= scan(W, stability=3).table["phase_share"][0] <= 1
    assert (
        scan(W, replicas=5)
        .tables["null_draws"]
        .filter(pl.col("edge").is_not_null() & pl.col("replica").is_not_null())
        .height
        == 10
    )
    assert scan(W, rank_replicas=39).tables["null_draws"].filter(pl.col("null") == "signflip").height == 39
    unranked = scan(W, rank_replicas=0)
    assert verdicts(unranked, "spikes")["w"] == "cannot say"
    assert unranked.tables["null_draws"].filter(pl.col("null") == "signflip").height == 3
    with pytest.raises(BadOption, match="19"):
        scan(W, rank_replicas=5)
    with pytest.raises(UnknownName, match="w"):
        scan(W, include=("nothing*",))
    with pytest.raises(UnknownName, match="min_side"):
        scan(W, min_side=100)


def test_pandas_and_the_other_tools_names():
    result = scan(sample_network(side=24), nulls=())
    frame = result.to_pandas(columns="weightwatcher")
    assert {"alpha", "log_spectral_norm", "num_spikes", "mp_softrank", "rand_distance"} <= set(frame.columns)
    assert list(result.to_pandas().columns) == [column.name for column in LAYERS.columns]
    with pytest.raises(UnknownName, match="weightwatcher"):
        result.to_pandas(columns="ww")


def test_two_layers_two_figures():
    result = scan({"a.b": gaussian(40, 60), "a-b": gaussian(40, 60, seed=1)}, nulls=())
    names = [name for name in result.figures if fnmatch.fnmatch(name, "esd.*")]
    assert len(set(names)) == 2
    assert result.figure(names[0]).data


def test_gates_read_the_scan():
    result = scan({"w": spiked(160, 96, strengths=(3.0,))})
    gates = parse(["spikes.verdict == yes", "layers.alpha < 1", "n_failed > 0"], ScanStudy.questions, "weights")
    assert [outcome.tripped for outcome in evaluate(gates, result.findings, result.summary)] == [True, False, False]


def test_summary_keys_are_those_of_the_specification():
    keys = [
        "source",
        "format",
        "n_tensors",
        "n_analysed",
        "n_passed_over",
        "n_failed",
        "parameters",
        "layers",
        "passed_over",
        "phases",
        "mean_alpha",
        "mean_alpha_weighted",
        "total_spikes",
        "advice",
    ]
    summary = scan(sample_network(side=24), nulls=()).summary
    assert set(keys) <= set(summary)
    assert summary["parameters"] == sum(w.size for n, w in sample_network(side=24).items() if n.endswith("weight"))
    assert summary["n_tensors"] == 6


@pytest.mark.parametrize(
    ("options", "kind", "fragment"),
    [
        ({"conv": "operator"}, BadOption, "grid"),
        ({"advise": "alpha-pruning"}, BadOption, "target_sparsity"),
        ({"replicas": 0}, BadOption, "replicas"),
        ({"nulls": ("bootstrap",)}, BadOption, "shuffle"),
        ({"alhpa": 1}, UnknownName, "No such option"),
    ],
)
def test_bad_options(options, kind, fragment):
    with pytest.raises(kind) as caught:
        scan(gaussian(20, 20), **options)
    assert fragment in str(caught.value)


def test_a_source_that_is_not_there():
    with pytest.raises(SourceNotFound, match="absent"):
        scan("absent/model.safetensors")


def test_a_streamed_matrix_gives_the_same_row_and_finds_its_damage(monkeypatch):
    from querist.weights.studies import measure

    W = torch.from_numpy(spiked(90, 40, strengths=(3.0,)))
    whole = scan({"w": W}, nulls=()).table
    monkeypatch.setattr(measure, "STREAM_BYTES", 0)
    streamed = scan({"w": W}, nulls=()).table
    assert streamed["alpha"][0] == pytest.approx(whole["alpha"][0], rel=1e-9)
    assert streamed["rank"][0] == whole["rank"][0]
    assert streamed["n_spikes_tw"][0] == whole["n_spikes_tw"][0] == 1
    broken = W.clone()
    broken[70, 3] = float("inf")
    row = scan({"w": broken}, nulls=()).table.to_dicts()[0]
    assert row["status"] == "nonfinite"
    assert "the first at (70, 3)" in row["reason"]


@pytest.mark.parametrize("rank_replicas", [0, 19])
def test_an_approximated_layer_is_tested_by_what_was_asked_for(rank_replicas):
    W = spiked(160, 96, strengths=(4.0,))
    result = scan({"w": W}, approx="always", rank_replicas=rank_replicas)
    row = rows(result)["w"]
    assert row["status"] == "approximate"
    assert row["n_spikes"] == 1
    assert verdicts(result, "spikes")["w"] == ("yes" if rank_replicas else "cannot say")


@pytest.mark.parametrize("nulls", [(), ("shuffle", "signflip")])
def test_an_approximated_layer_is_read_in_blocks_and_whole_only_for_its_copies(monkeypatch, nulls):
    from querist.weights.spectrum import LayerMatrix
    from querist.weights.studies import measure

    loads = []
    load = LayerMatrix.load
    monkeypatch.setattr(LayerMatrix, "load", lambda self: loads.append(self.layer_id) or load(self))
    W = {"w": spiked(160, 96, strengths=(4.0,))}
    whole = rows(scan(W, approx="always", nulls=nulls))["w"]
    assert len(loads) == 1
    monkeypatch.setattr(measure, "STREAM_BYTES", 0)
    streamed = rows(scan(W, approx="always", nulls=nulls))["w"]
    assert len(loads) == 1 + bool(nulls)
    for column in whole.keys() - {"seconds"}:
        one, other = streamed[column], whole[column]
        assert one == (pytest.approx(other, rel=1e-6) if isinstance(other, float) else other), column
    W["w"][70, 3] = np.nan
    row = scan(W, approx="always", nulls=nulls).table.to_dicts()[0]
    assert (row["status"], "the first at (70, 3)" in row["reason"]) == ("nonfinite", True)


def test_sides_up_to_8192_are_exact_unless_asked_for():
    assert ScanConfig().exact_side == 8192
    W = {"w": gaussian(80, 70)}
    assert scan(W, nulls=(), exact_side=70).table["method"][0] == "gram-float64"
    assert scan(W, nulls=(), exact_side=64).table["method"][0] == "slq+topk"
    assert scan(W, nulls=(), exact_side=64, approx="never").table["method"][0] == "gram-float64"


@pytest.mark.slow
def test_a_large_low_rank_matrix_with_noise_goes_by_its_largest_values():
    """4096 x 4096, rank 30 and noise: whole spectra of such matrices were where a scan hung."""
    W = 40 * low_rank(4096, 4096, rank=30) + gaussian(4096, 4096)
    result = scan({"w": W}, approx="always")
    row = rows(result)["w"]
    assert (row["method"], row["status"]) == ("slq+topk", "approximate")
    assert row["n_tail"] <= 256
    assert row["n_spikes"] == row["n_spikes_tw"] == 30
    assert verdicts(result, "spikes")["w"] == "yes"
    assert row["rank"] is None
    assert row["bulk_p"] is None
    assert "256 largest eigenvalues are exact" in row["reason"]
    spectrum = result.tables["spectra"].filter(pl.col("kind") == "real")
    assert spectrum.height == 4096
    assert spectrum["eigenvalue"].is_sorted()
    # σ of the noise from ‖W‖_F² less the spikes; the edge of its bulk by the law.
    assert row["sigma_mp"] == pytest.approx(1.0, rel=0.02)
    assert row["log_norm"] == pytest.approx(np.log10(np.sum(W.astype(np.float64) ** 2)), abs=1e-6)


def test_input_arrays_are_not_changed():
    W = spiked(64, 48)
    before = W.copy()
    scan(W)
    assert np.array_equal(W, before)


def test_figures_and_curves_of_a_scan_in_memory_are_made_when_asked_for(monkeypatch):
    from querist.weights.studies import scan as study

    drawn = []
    whole = study._curves
    monkeypatch.setattr(study, "_curves", lambda *given: drawn.append(1) or whole(*given))
    found = scan({"weight": spiked(60, 40)}, nulls=())
    assert drawn == []
    assert found.figure("overview") is not None
    assert drawn == []
    assert found.curves.height > 0
    assert any(name.startswith("hill") for name in found.figures)
    assert drawn == [1]

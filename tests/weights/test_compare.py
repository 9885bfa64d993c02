"""The comparison as a study: pairing, what changed, where the change lies, and everything that can be wrong."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from tests.harness import Bad, check_bad_input, check_study

from querist.errors import BadOption, SourceNotFound, UnknownName
from querist.results.gates import evaluate, parse
from querist.sources.datasets.matrices import sample_network, spiked
from querist.sources.datasets.registry import locate
from querist.statistics import stream
from querist.weights import Comparison, compare
from querist.weights.configs import CompareConfig
from querist.weights.studies.compare import CompareStudy
from querist.weights.tables import COMPARED


def noise(*shape: int, seed: int = 0, size: float = 1.0) -> torch.Tensor:
    return size * torch.from_numpy(stream(seed, "noise", *shape).standard_normal(shape, dtype=np.float32))


def planted(W: torch.Tensor, k: int, strength: float, *, along: bool, seed: int = 0) -> torch.Tensor:
    """A rank-k update of this size along W's k leading directions, or along random ones."""
    if along:
        U, _, Vh = torch.linalg.svd(W, full_matrices=False)
        return strength * U[:, :k] @ Vh[:k]
    left, right = (torch.linalg.qr(noise(side, k, seed=seed + 1)).Q for side in W.shape)
    return strength * left @ right.T


def networks() -> tuple[dict, dict]:
    """A base of four matrices, and a tuned network of which each changed in another way."""
    base = {name: torch.from_numpy(value) for name, value in sample_network(side=48).items()}
    tuned = {name: value.clone() for name, value in base.items()}
    tuned["spiked.weight"] += planted(base["spiked.weight"], 2, 8.0, along=True) + noise(96, 48, size=0.01)
    tuned["random.weight"] = base["random.weight"].bfloat16()
    tuned["pareto.weight"] = noise(40, 48)
    tuned["broken.weight"] = torch.zeros(20, 16)
    base["broken.weight"] = torch.full((20, 16), 0.5)
    base["broken.weight"][3, 4] = float("nan")
    return base, tuned


def study() -> CompareStudy:
    return CompareStudy(*networks())


def rows(result: Comparison) -> dict[str, dict]:
    return {row["layer_id"]: row for row in result.table.to_dicts()}


def verdicts(result: Comparison, question: str) -> dict[str, str]:
    return {f.subject: f.verdict for f in result.findings if f.question == f"weights.{question}"}


def because(result: Comparison, question: str, subject: str) -> str:
    return next(f.because for f in result.findings if f.question == f"weights.{question}" and f.subject == subject)


def test_the_comparison_is_a_study(tmp_path, chromium):
    config = CompareConfig(base="before", tuned="after", k=4)
    result = check_study(study, config, tmp_path, chromium=chromium)
    assert verdicts(result, "changed") == {
        "run": "yes",
        "random.weight": "no",
        "spiked.weight": "yes",
        "heavy.weight": "no",
        "collapsed.weight": "no",
        "broken.weight": "cannot say",
    }
    assert verdicts(result, "aligned")["spiked.weight"] == "yes"


def test_each_status_costs_one_row():
    result = compare(*networks(), k=4)
    table = rows(result)
    assert table["broken.weight"]["status"] == "nonfinite"
    assert "1 in BASE, the first at (3, 4)" in table["broken.weight"]["reason"]
    assert table["heavy.weight"]["status"] == "unchanged"
    assert table["heavy.weight"]["alpha_tuned"] == table["heavy.weight"]["alpha_base"] is not None
    assert table["heavy.weight"]["alpha_change"] == 0
    assert "pareto.weight" not in table
    unmatched = result.tables["unmatched"].to_dicts()
    assert [row["name"] for row in unmatched] == ["pareto.weight"]
    assert (unmatched[0]["side"], unmatched[0]["base_shape"], unmatched[0]["tuned_shape"]) == (
        "both",
        [48, 48],
        [40, 48],
    )
    assert "[48, 48] in BASE, [40, 48] in TUNED" in unmatched[0]["reason"]
    assert {p["what"]: p["reason"] for p in result.passed_over} == {"random.bias": "1-dimensional"}
    zero = compare({"w": torch.zeros(20, 20)}, {"w": noise(20, 20)})
    assert rows(zero)["w"]["status"] == "degenerate"
    assert verdicts(zero, "changed")["w"] == "yes"


# ---------------------------------------------------------------------------------------------------- what changed


@pytest.mark.parametrize(
    ("narrow", "widened"),
    [
        (torch.bfloat16, False),
        (torch.bfloat16, True),
        (torch.float16, False),
        (torch.float16, True),
        (torch.float8_e4m3fn, False),
    ],
)
def test_a_saved_copy_is_no_change(narrow, widened):
    base = {f"l{i}": noise(64, 96, seed=i) for i in range(6)}
    copy = {name: W.to(narrow).float() if widened else W.to(narrow) for name, W in base.items()}
    result = compare(base, copy)
    assert set(verdicts(result, "changed").values()) == {"no"}
    assert set(verdicts(result, "aligned").values()) == {"cannot say"}
    name = str(narrow).removeprefix("torch.")
    assert {row["dtype_rounding"] for row in result.table.to_dicts()} == {name}
    assert name in because(result, "changed", "l0")


def test_a_structured_change_below_rounding_is_a_change():
    W = {f"l{i}": noise(96, 128, seed=i).bfloat16() for i in range(4)}
    tuned = {name: value.float() for name, value in W.items()}
    tuned["l2"] = tuned["l2"] + planted(tuned["l2"], 2, 0.3, along=False)
    result = compare(W, tuned)
    row = rows(result)["l2"]
    assert 0 < row["delta_relative"] < row["rounding"]
    assert verdicts(result, "changed") == {"run": "yes", "l0": "no", "l1": "no", "l2": "yes", "l3": "no"}
    assert "2 directions of it stand out" in because(result, "changed", "l2")


@pytest.mark.parametrize("along", [True, False])
def test_a_planted_update_is_found_and_placed(along):
    W = torch.from_numpy(spiked(120, 90, strengths=(6.0, 5.0, 4.0)))
    T = W + planted(W, 3, 12.0, along=along) + noise(120, 90, size=0.02)
    result = compare({"w": W}, {"w": T}, k=8)
    row = rows(result)["w"]
    assert row["delta_n_spikes"] == 3
    assert verdicts(result, "changed")["w"] == "yes"
    assert verdicts(result, "aligned")["w"] == ("yes" if along else "no")
    if along:
        assert row["energy_spikes"] > 0.9 > row["energy_spikes_null"]
        assert row["angle_left"] < 5
        assert row["overlap_left"] > row["overlap_high"] > row["overlap_null"]
        # Three of eight directions shared, five of the others random.
        assert row["overlap_left"] == pytest.approx((3 + 5 * 5 / 117) / 8, abs=0.06)
    else:
        assert row["energy_spikes"] < 0.05
        assert row["energy_bulk"] > 0.8


def test_numbers_against_dense_algebra():
    W, T = noise(60, 45), noise(60, 45) + noise(60, 45, seed=1, size=0.1)
    row = rows(compare({"w": W}, {"w": T}, k=5))["w"]
    D = (T - W).double().numpy()
    U, S, Vh = np.linalg.svd(W.double().numpy(), full_matrices=False)
    u, s, vh = np.linalg.svd(D, full_matrices=False)
    assert row["delta_norm"] == pytest.approx(np.linalg.norm(D), rel=1e-6)
    assert row["delta_relative"] == pytest.approx(np.linalg.norm(D) / np.linalg.norm(S), rel=1e-6)
    assert row["delta_spectral"] == pytest.approx(s[0] / S[0], rel=1e-6)
    cosine = float((D * W.numpy()).sum() / np.linalg.norm(D) / np.linalg.norm(S))
    assert row["delta_cosine"] == pytest.approx(cosine, rel=1e-5)
    assert row["delta_stable_rank"] == pytest.approx((s**2).sum() / s[0] ** 2, rel=1e-6)
    assert row["overlap_left"] == pytest.approx(((U[:, :5].T @ u[:, :5]) ** 2).sum() / 5, rel=1e-5)
    assert row["overlap_right"] == pytest.approx(((Vh[:5] @ vh[:5].T) ** 2).sum() / 5, rel=1e-5)
    assert (row["overlap_null_left"], row["overlap_null_right"]) == (5 / 60, 5 / 45)
    assert row["delta_rank"] == 45


def test_rows_of_different_size_are_no_alignment():
    """W and ΔW share large rows and nothing else: random directions reject, copies with random signs do not."""
    yes = 0
    for seed in range(5):
        scale = torch.exp(1.2 * noise(100, 1, seed=50 + seed))
        W, D = scale * noise(100, 80, seed=seed), 0.1 * scale * noise(100, 80, seed=100 + seed)
        result = compare({"w": W}, {"w": W + D}, k=8)
        row = rows(result)["w"]
        assert row["overlap_p"] < 1e-4
        assert row["overlap_flip"] is not None
        yes += verdicts(result, "aligned")["w"] == "yes"
    assert yes == 0
    assert "scales of rows and columns" in because(result, "aligned", "w")


def test_a_matrix_that_shrank_or_was_replaced_is_not_aligned():
    """ΔW then holds −W, which lies along W by itself."""
    W, T = torch.from_numpy(spiked(100, 80, strengths=(6.0, 4.0))), noise(100, 80, seed=4)
    for tuned, shares in ((T, (1.0, 1.0)), (0.9 * W + 0.03 * T, (0.1, 0.03))):
        sizes = [share * float(X.norm()) for share, X in zip(shares, (W, T), strict=True)]
        cosine = -sizes[0] / np.hypot(*sizes)
        result = compare({"w": W}, {"w": tuned}, k=8)
        row = rows(result)["w"]
        assert row["delta_cosine"] == pytest.approx(cosine, abs=0.03)
        assert row["overlap_p"] < 1e-6 < row["overlap_rest_p"]
        assert verdicts(result, "aligned")["w"] == "no"
        assert "shrank or was replaced" in because(result, "aligned", "w")
    along = W - 0.3 * W + planted(W, 2, 20.0, along=True)
    assert verdicts(compare({"w": W}, {"w": along}, k=8), "aligned")["w"] == "yes"


def test_directions_that_are_avoided_are_told():
    W = noise(80, 60)
    U, _, Vh = torch.linalg.svd(W, full_matrices=False)
    result = compare({"w": W}, {"w": W + 3 * U[:, 40:56] @ Vh[40:56]}, k=15)
    assert verdicts(result, "aligned")["w"] == "no"
    assert "avoids" in because(result, "aligned", "w")


# --------------------------------------------------------------------------------------------------------- pairing


def test_prefixes_wrappers_and_tied_tensors():
    base = {
        "embed.weight": noise(40, 16),
        "layers.0.q.weight": noise(16, 24),
        "layers.1.q.weight": noise(16, 24, seed=1),
    }
    base["head.weight"] = base["embed.weight"]
    tuned = {f"model.{name}": value + 0.1 * noise(*value.shape, seed=7) for name, value in base.items()}
    result = compare(base, tuned)
    assert set(rows(result)) == {"embed.weight", "head.weight", "layers.0.q.weight", "layers.1.q.weight"}
    assert rows(result)["embed.weight"]["aliases"] == ["head.weight"]
    assert rows(result)["head.weight"]["tuned_name"] == "model.head.weight"
    assert result.summary["n_unmatched"] == 0
    back = compare(tuned, base)
    assert set(rows(back)) == {f"model.{name}" for name in base}
    assert back.summary["n_matched"] == 4
    tied = compare(base, dict(base))
    assert set(rows(tied)) == {"embed.weight", "layers.0.q.weight", "layers.1.q.weight"}
    compiled = {"module." + name.replace("layers", "layers._orig_mod"): value for name, value in base.items()}
    assert compare(base, compiled).summary["n_unmatched"] == 0


def test_a_live_network_and_its_file(tmp_path):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(16, 32, 3, groups=2)
            self.up = torch.nn.ConvTranspose2d(16, 24, 3)
            self.rnn = torch.nn.LSTM(16, 16)
            self.norm = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(16, 24))

    torch.manual_seed(0)
    network = Network()
    torch.save(network.state_dict(), tmp_path / "tuned.pt")
    for result in (compare(network, tmp_path / "tuned.pt"), compare(tmp_path / "tuned.pt", network)):
        assert result.summary["n_unmatched"] == 0
        assert {row["status"] for row in result.table.to_dicts()} == {"unchanged"}
        assert "conv.weight:group1" in rows(result)
        assert sum(name.startswith("rnn.") for name in rows(result)) == 8
    result = compare(network, Network())
    assert {row["status"] for row in result.table.to_dicts()} == {"ok"}


def test_formats_agree(tmp_path):
    from safetensors.torch import save_file

    base, tuned = networks()
    base, tuned = (
        {n: w for n, w in one.items() if w.dtype == torch.float32 and n != "broken.weight"} for one in (base, tuned)
    )
    tuned = {
        name: base[name] if name.startswith(("random", "pareto")) else tuned.get(name, base[name]) for name in base
    }
    save_file(base, tmp_path / "base.safetensors")
    torch.save({"state_dict": tuned}, tmp_path / "tuned.pth")
    files = compare(tmp_path / "base.safetensors", str(tmp_path / "tuned.pth"), k=4)
    memory = compare(base, tuned, k=4)
    tables = [result.table.drop("seconds", "position").sort("layer_id") for result in (files, memory)]
    assert tables[0].equals(tables[1])
    assert files.summary["format_base"] == "safetensors"


def test_real_checkpoints_of_two_depths_and_a_perturbed_copy():
    base = str(locate("resnet20-cifar10"))
    network = {
        name.removeprefix("module."): value
        for name, value in torch.load(base, weights_only=True, map_location="cpu")["state_dict"].items()
    }
    shallow = {name: value for name, value in network.items() if not name.startswith(("layer1.2", "layer3.2"))}
    wide = dict(network)
    wide["linear.weight"] = noise(20, 64)
    result = compare(
        base, {**{n: v for n, v in wide.items() if n in shallow}, "layer1.3.conv1.weight": noise(16, 16, 3, 3)}
    )
    table = {row["name"]: row for row in result.tables["unmatched"].to_dicts()}
    assert {n for n, row in table.items() if row["side"] == "base"} == {
        f"layer{i}.2.conv{j}.weight" for i in (1, 3) for j in (1, 2)
    }
    assert table["layer1.3.conv1.weight"]["side"] == "tuned"
    assert table["linear.weight"]["side"] == "both"
    assert {row["status"] for row in result.table.to_dicts()} == {"unchanged"}
    kernel = network["layer3.1.conv2.weight"]
    changed = dict(network)
    changed["layer3.1.conv2.weight"] = kernel + planted(kernel.flatten(1), 2, 0.5, along=True).reshape(kernel.shape)
    changed["layer2.1.conv1.weight"] = network["layer2.1.conv1.weight"].half().float()
    result = compare(base, changed, k=4)
    told = {name: verdict for name, verdict in verdicts(result, "changed").items() if verdict == "yes"}
    assert set(told) == {"run", "layer3.1.conv2.weight"}
    assert verdicts(result, "aligned")["layer3.1.conv2.weight"] == "yes"
    assert rows(result)["layer3.1.conv2.weight"]["delta_rank"] == 2
    assert rows(result)["layer2.1.conv1.weight"]["dtype_rounding"] == "float16"


# --------------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize("options", [{"conv": "slices"}, {"conv": "operator", "grid": (6, 6)}])
def test_views_of_a_convolution(options):
    kernel = noise(24, 16, 3, 3)
    D = planted(kernel.flatten(1), 2, 6.0, along=True).reshape(kernel.shape) + noise(24, 16, 3, 3, seed=9, size=0.01)
    flat, viewed = (compare({"conv.weight": kernel}, {"conv.weight": kernel + D}, k=4, **o) for o in ({}, options))
    one, other = rows(flat)["conv.weight"], rows(viewed)["conv.weight"]
    for column in ("delta_norm", "delta_rank", "overlap_left", "overlap_right", "energy_spikes", "angle_left"):
        assert other[column] == pytest.approx(one[column], rel=1e-9), column
    assert other["conv"] == options["conv"]
    assert other["alpha_base"] != one["alpha_base"]
    assert other["delta_n_spikes"] is not None
    sums = {}
    for name, result in (("flat", flat), ("view", viewed)):
        spectra = result.tables["spectra"].filter((pl.col("matrix") == "delta") & (pl.col("kind") == "real"))
        sums[name] = spectra["eigenvalue"].sum()
    # Each entry of the kernel stands once in every row block of the operator: as often as the grid has points.
    assert sums["view"] == pytest.approx(sums["flat"] * (36 if "grid" in options else 1), rel=1e-9)


def test_every_option_is_heard():
    W = {"w": torch.from_numpy(spiked(160, 96, strengths=(3.0,))), "b.weight": noise(40, 48)}
    T = {name: value + noise(*value.shape, seed=5, size=0.1) for name, value in W.items()}
    T["w"] = T["w"] + planted(W["w"], 2, 9.0, along=True)
    base = compare(W, T)
    assert rows(base)["w"]["overlap_k"] == 16
    assert rows(compare(W, T, k=6))["w"]["overlap_k"] == 6
    assert rows(compare(W, T, k=200))["w"]["overlap_k"] == 24
    assert rows(compare(W, T, fit="hill"))["w"]["alpha_base"] == rows(base)["w"]["alpha_hill_base"]
    assert rows(compare(W, T, nulls=()))["w"]["delta_n_spikes"] is None
    assert verdicts(compare(W, T, nulls=()), "aligned")["w"] == "cannot say"
    assert verdicts(base, "aligned")["w"] == "yes"
    assert verdicts(compare(W, T, rank_replicas=0), "aligned")["w"] == "cannot say"
    flips = compare(W, T, rank_replicas=39).tables["null_draws"].filter(pl.col("null") == "signflip")
    assert flips.filter(pl.col("layer_id") == "w")["overlap_left"].drop_nulls().len() == 39
    assert compare(W, T, replicas=5).tables["spectra"].filter(pl.col("kind") == "shuffle")["replica"].max() == 4
    assert set(rows(compare(W, T, include=("b*",)))) == {"b.weight"}
    assert set(rows(compare(W, T, exclude=("b*",)))) == {"w"}
    assert compare(W, T, seed=1).table["delta_p"].to_list() != base.table["delta_p"].to_list()
    assert set(rows(compare(W, T, min_side=41))) == {"w"}
    fused = {"in_proj_weight": noise(48, 16)}, {"in_proj_weight": noise(48, 16, seed=1)}
    assert set(rows(compare(*fused))) == {f"in_proj_weight:{part}" for part in "qkv"}
    assert set(rows(compare(*fused, split=False))) == {"in_proj_weight"}


def test_patterns_name_tensors_as_the_base_does():
    base = {f"layers.{i}.weight": noise(16, 16, seed=i) for i in range(4)}
    tuned = {f"model.{name}": value + 0.1 for name, value in base.items()}
    result = compare(base, tuned, include=("layers.[01].*",))
    assert list(rows(result)) == ["layers.0.weight", "layers.1.weight"]
    assert result.summary["n_unmatched"] == 0
    assert len(rows(compare(base, tuned, exclude=("layers.3*",)))) == 3


def test_a_large_matrix_is_approximated_and_says_so():
    W = torch.from_numpy(spiked(160, 96, strengths=(6.0, 5.0)))
    T = W + planted(W, 2, 12.0, along=True) + noise(160, 96, size=0.05)
    exact, coarse = (compare({"w": W}, {"w": T}, k=4, approx=how) for how in ("never", "always"))
    one, other = rows(exact)["w"], rows(coarse)["w"]
    assert (other["status"], other["method"]) == ("approximate", "slq+topk")
    for column in ("delta_norm", "overlap_left", "overlap_right", "energy_spikes", "angle_right"):
        assert other[column] == pytest.approx(one[column], rel=1e-3), column
    assert other["delta_n_spikes"] == one["delta_n_spikes"] == 2
    assert verdicts(coarse, "aligned")["w"] == verdicts(exact, "aligned")["w"] == "yes"
    assert any("approximated" in warning for warning in coarse.warnings)


@pytest.mark.parametrize("shape", [(90, 40), (40, 90)])
def test_a_streamed_pair_gives_the_same_row(monkeypatch, shape):
    from querist.weights.spectrum import _esd, _leading
    from querist.weights.studies import sides

    W = noise(*shape)
    tuned = W + planted(W, 3, 4.0, along=True) + noise(*shape, seed=3, size=0.05)
    held = rows(compare({"w": W}, {"w": tuned}, nulls=(), k=6))["w"]
    monkeypatch.setattr(sides, "STREAM_BYTES", 0)
    for module in (_esd, _leading):
        monkeypatch.setattr(module, "BLOCK_BYTES", 2000)
    streamed = rows(compare({"w": W}, {"w": tuned}, nulls=(), k=6))["w"]
    assert (held["method"], streamed["method"]) == ("dense", "streamed")
    for name, value in held.items():
        if name not in ("method", "seconds"):
            assert streamed[name] == (
                pytest.approx(value, rel=1e-7, abs=1e-12) if isinstance(value, float) else value
            ), name


def test_same_seed_same_numbers_and_layers_do_not_depend_on_their_neighbours():
    base, tuned = networks()
    one, again = compare(base, tuned, k=4), compare(base, tuned, k=4)
    assert one.table.drop("seconds").equals(again.table.drop("seconds"))
    alone = compare({"spiked.weight": base["spiked.weight"]}, tuned, k=4).table
    mine = one.table.filter(pl.col("layer_id") == "spiked.weight")
    drop = ["seconds", "position", "delta_p_adj", "overlap_p_adj"]
    assert mine.drop(drop).equals(alone.drop(drop))


def test_inputs_are_not_changed():
    base, tuned = networks()
    copies = [{name: value.clone() for name, value in one.items()} for one in (base, tuned)]
    compare(base, tuned)
    for one, copy in zip((base, tuned), copies, strict=True):
        assert all(torch.equal(one[name].nan_to_num(), copy[name].nan_to_num()) for name in one)


# ---------------------------------------------------------------------------------------------- what a run leaves


def test_summary_keys_are_those_of_the_specification():
    result = compare(*networks(), k=4)
    keys = ["base", "tuned", "n_matched", "n_unmatched", "layers", "unmatched"]
    assert set(keys) <= set(result.summary)
    assert result.summary["n_matched"] == 5
    row = ["name", "shape", "delta_norm", "delta_relative", "delta_rank", "delta_n_spikes", "delta_alpha", "alpha_base"]
    row += ["alpha_tuned", "overlap_left", "overlap_right", "overlap_null", "status", "reason"]
    assert set(row) <= set(result.summary["layers"][0])
    assert list(result.summary["layers"][0]) == [column.name for column in COMPARED.columns]
    gates = parse(
        ["changed.verdict == yes", "aligned[spiked*].estimate > .4", "n_unmatched > 3"],
        CompareStudy.questions,
        "weights",
    )
    assert [one.tripped for one in evaluate(gates, result.findings, result.summary)] == [True, True, False]


def test_every_figure_is_drawn():
    result = compare(*networks(), k=4)
    kinds = {name.split(".")[0] for name in result.figures}
    assert kinds == {"overview", "energy", "exponents", "update", "update-nulls", "overlaps", "angles", "before-after"}
    assert {trace["type"] for trace in result.figures["overlaps.spiked.weight"].data} == {"heatmap"}
    assert result.tables["overlaps"].filter(pl.col("layer_id") == "spiked.weight").height == 2 * 4 * 4


def test_bad_input(tmp_path):
    (tmp_path / "empty").mkdir()
    torch.save({"w": noise(20, 30)}, tmp_path / "w.pt")
    torch.save({"z": noise(20, 30)}, tmp_path / "z.pt")
    torch.save({"w": noise(21, 30)}, tmp_path / "taller.pt")
    torch.save({"bias": torch.zeros(30)}, tmp_path / "bias.pt")
    w = str(tmp_path / "w.pt")
    check_bad_input(
        [
            (["weights", "compare", "absent.pt", w], 2, ["absent.pt"]),
            (["weights", "compare", w, str(tmp_path / "absent")], 2, ["absent"]),
            (["weights", "compare", w, str(tmp_path / "empty")], 2, ["no weights"]),
            (["weights", "compare", w, str(tmp_path / "z.pt")], 2, ["no matrix in common", "w", "z"]),
            (["weights", "compare", w, str(tmp_path / "taller.pt")], 2, ["[20, 30] in BASE, [21, 30] in TUNED"]),
            (["weights", "compare", w, str(tmp_path / "bias.pt")], 2, ["no matrix in common"]),
            (["weights", "compare", w, w, "--include", "z*"], 2, ["z*"]),
            (["weights", "compare", w, w, "--k", "0"], 2, ["k", "greater than or equal to 1"]),
            (["weights", "compare", w, w, "--lora-alpha", "0"], 2, ["lora_alpha"]),
            (["weights", "compare", w, w, "--conv", "operator"], 2, ["grid"]),
            (["weights", "compare", w, w, "--fail-if", "chnged.verdict == yes"], 2, ["changed"]),
            (lambda: compare(tmp_path / "absent.pt", w), SourceNotFound, ["absent.pt"]),
            (lambda: compare({"w": noise(20, 30)}, {"z": noise(20, 30)}), UnknownName, ["in common"]),
            (lambda: compare(w, w, farms=True), UnknownName, ["No such option"]),
            Bad(lambda: compare(w, w, rank_replicas=3), BadOption, ["19"]),
        ]
    )


def test_the_command_writes_its_run(tmp_path, capsys):
    from querist.cli import main

    base, tuned = networks()
    for name, state in (("base", base), ("tuned", tuned)):
        torch.save(state, tmp_path / f"{name}.pt")
    line = ["weights", "compare", str(tmp_path / "base.pt"), str(tmp_path / "tuned.pt"), "--k", "4", "--quiet"]
    assert main([*line, "--out", str(tmp_path / "run"), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["schema"] == "querist.weights.compare/1"
    assert summary["config"]["base"].endswith("base.pt")
    assert (tmp_path / "run" / "report.html").is_file()
    assert main([*line, "--out", str(tmp_path / "again"), "--fail-if", "changed[spiked.weight].verdict == yes"]) == 3


def test_the_example_tells_its_three_changes_apart(tmp_path, capsys):
    path = Path(__file__).parents[2] / "examples" / "compare_checkpoints.py"
    assert len(path.read_text().splitlines()) < 80
    results = runpy.run_path(str(path))["main"](str(tmp_path / "run"))
    saved, trained, adapter = results.values()
    assert verdicts(saved, "changed")["run"] == "no"
    assert verdicts(trained, "changed")["run"] == "yes"
    assert rows(trained)["2.weight"]["delta_n_spikes"] > 0
    assert verdicts(adapter, "aligned")["2.weight"] == "yes"
    assert (tmp_path / "run" / "report.html").is_file()
    assert "An adapter" in capsys.readouterr().out


def test_progress_counts_layers():
    """Many small layers are one unit of work, and as many steps of progress as there are."""
    from querist.weights import compare

    def net() -> torch.nn.Module:
        return torch.nn.Sequential(*(torch.nn.Linear(12, 12, bias=False) for _ in range(7)))

    calls: list = []
    compare(net(), net(), nulls=(), progress=lambda *call: calls.append(call))
    assert len(calls) == 7

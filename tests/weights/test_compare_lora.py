"""Low-rank updates compared by their factors: every naming and scale, merged and unmerged, and the null of factors."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.harness import check_bad_input, check_level
from tests.weights.test_compare import because, noise, planted, rows, verdicts

from querist.errors import BadInput, BadOption, ShapeMismatch, SourceNotFound, UnsupportedFormat
from querist.reports.ask import ask
from querist.weights import compare
from querist.weights.configs import CompareConfig
from querist.weights.delta import Factors
from querist.weights.studies.compare import CompareStudy
from querist.weights.studies.update import low_rank_update

R = 6


def learned(h: int, d: int, r: int = R, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A as it is initialised and a B whose columns are mostly one direction, as training leaves them."""
    A, B = noise(r, d, seed=seed), 0.05 * noise(h, r, seed=seed)
    return A, B + 0.5 * noise(h, 1, seed=seed + 7) @ noise(1, r, seed=seed + 9)


def base_network() -> dict[str, torch.Tensor]:
    return {
        f"model.layers.{i}.{name}.weight": noise(60, 80, seed=i + len(name)) for i in range(2) for name in ("q", "up")
    }


def adapter(alpha_free: bool = True) -> dict[str, torch.Tensor]:
    state = {}
    for i in range(2):
        A, B = learned(60, 80, seed=i)
        stem = f"base_model.model.model.layers.{i}.q"
        state |= {f"{stem}.lora_A.weight": A, f"{stem}.lora_B.weight": B}
    return state


def folder(path, state, **config):
    from safetensors.torch import save_file

    path.mkdir()
    save_file({name: value.contiguous() for name, value in state.items()}, path / "adapter_model.safetensors")
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": R, "lora_alpha": 12, **config}))
    return path


def merged(base, state, scale):
    out = dict(base)
    for name in state:
        if ".lora_A." in name:
            target = name.removeprefix("base_model.model.").replace(".lora_A", "")
            out[target] = base[target] + scale * state[name.replace("lora_A", "lora_B")] @ state[name]
    return out


def test_an_adapter_against_dense_algebra(tmp_path):
    base, state = base_network(), adapter()
    result = compare(base, folder(tmp_path / "lora", state), k=8)
    assert set(rows(result)) == {f"model.layers.{i}.q.weight" for i in range(2)}
    row = rows(result)["model.layers.0.q.weight"]
    A, B = (
        state["base_model.model.model.layers.0.q.lora_A.weight"],
        state["base_model.model.model.layers.0.q.lora_B.weight"],
    )
    W, D = base["model.layers.0.q.weight"].double().numpy(), (2.0 * B.double() @ A.double()).numpy()
    U, S, Vh = np.linalg.svd(W, full_matrices=False)
    u, s, vh = np.linalg.svd(D, full_matrices=False)
    assert (row["method"], row["lora_rank"], row["lora_scale"], row["delta_rank"]) == ("low-rank", R, 2.0, R)
    assert row["delta_norm"] == pytest.approx(np.linalg.norm(D), rel=1e-9)
    assert row["delta_cosine"] == pytest.approx((D * W).sum() / np.linalg.norm(D) / np.linalg.norm(W), rel=1e-6)
    assert row["delta_spectral"] == pytest.approx(s[0] / S[0], rel=1e-9)
    assert row["overlap_left"] == pytest.approx(((U[:, :8].T @ u[:, :R]) ** 2).sum() / R, rel=1e-6)
    assert row["overlap_right"] == pytest.approx(((Vh[:8] @ vh[:R].T) ** 2).sum() / R, rel=1e-6)
    spectra = result.tables["spectra"].to_pandas()
    mine = spectra[(spectra.layer_id == "model.layers.0.q.weight") & (spectra.kind == "real")]
    np.testing.assert_allclose(mine[mine.matrix == "delta"].eigenvalue, s[::-1] ** 2, rtol=1e-8, atol=1e-10)
    tuned = np.linalg.svd(W + D, compute_uv=False)
    np.testing.assert_allclose(mine[mine.matrix == "tuned"].eigenvalue, tuned[::-1] ** 2, rtol=1e-5)
    untouched = {p["what"]: p["reason"] for p in result.passed_over}
    assert untouched == {f"model.layers.{i}.up.weight": "the adapter does not change it" for i in range(2)}
    assert result.summary["n_unmatched"] == 0
    assert row["tuned_name"].startswith("model.layers.0.q.lora")


@pytest.mark.parametrize("how", ["folder", "file", "state"])
def test_every_way_to_name_an_adapter(tmp_path, how):
    base, state = base_network(), adapter()
    path = folder(tmp_path / "lora", state)
    source = {"folder": path, "file": path / "adapter_model.safetensors", "state": state}[how]
    result = compare(base, source)
    scale = 1.0 if how == "state" else 2.0
    assert {row["lora_scale"] for row in result.table.to_dicts()} == {scale}
    assert any("--lora-alpha" in warning for warning in result.warnings) == (how == "state")
    assert {row["lora_scale"] for row in compare(base, source, lora_alpha=3.0).table.to_dicts()} == {0.5}
    assert not any("--lora-alpha" in warning for warning in compare(base, source, lora_alpha=3.0).warnings)


def test_merged_and_unmerged_are_one_change(tmp_path):
    base, state = base_network(), adapter()
    path = folder(tmp_path / "lora", state)
    unmerged = {f"base_model.model.{name}".replace(".q.", ".q.base_layer."): value for name, value in base.items()}
    unmerged |= {name.replace(".weight", ".default.weight"): value for name, value in state.items()}
    results = {
        "adapter": compare(base, path, k=8),
        "merged": compare(base, merged(base, state, 2.0), k=8),
        "unmerged": compare(base, unmerged, k=8, lora_alpha=12),
    }
    name = "model.layers.1.q.weight"
    one = rows(results["adapter"])[name]
    for how, result in results.items():
        row = rows(result)[name]
        assert verdicts(result, "changed")[name] == "yes"
        assert row["delta_rank"] == R, how
        for column in ("delta_norm", "overlap_left", "overlap_right", "energy_bulk", "alpha_tuned", "angle_right"):
            assert row[column] == pytest.approx(one[column], rel=1e-3), (how, column)
    assert rows(results["unmerged"])["model.layers.0.up.weight"]["status"] == "unchanged"
    assert [rows(r)[name]["delta_null"] for r in results.values()] == ["factors", "entries", "factors"]
    back = compare(unmerged, base, k=8, lora_alpha=12)
    assert rows(back)[name]["delta_norm"] == pytest.approx(one["delta_norm"])
    same = compare(unmerged, merged(base, state, 2.0), lora_alpha=12)
    assert rows(same)[name]["delta_relative"] < rows(same)[name]["rounding"]
    assert verdicts(same, "changed")[name] == "no"


def test_a_trained_base_layer_under_an_adapter_is_one_dense_change():
    base = {"q.weight": noise(60, 80)}
    A, B = learned(60, 80)
    tuned = {
        "q.base_layer.weight": base["q.weight"] + 0.01 * noise(60, 80, seed=3),
        "q.lora_A.weight": A,
        "q.lora_B.weight": B,
    }
    row = rows(compare(base, tuned, lora_alpha=R))["q.weight"]
    D = tuned["q.base_layer.weight"] - base["q.weight"] + B @ A
    assert (row["method"], row["delta_null"]) == ("dense", "entries")
    assert row["delta_norm"] == pytest.approx(float(D.norm()), rel=1e-5)


def test_updates_that_are_stored_turned():
    A, B = learned(60, 80)
    turned = {"c.weight": noise(80, 60)}  # inputs first, as a Conv1D of GPT-2
    row = rows(compare(turned, {"c.lora_A.weight": A, "c.lora_B.weight": B}, k=4))["c.weight"]
    D = (B.double() @ A.double()).T
    assert row["delta_norm"] == pytest.approx(float(D.norm()), rel=1e-6)
    U = torch.linalg.svd(turned["c.weight"].double(), full_matrices=False).U[:, :4]
    u = torch.linalg.svd(D, full_matrices=False).U[:, :4]
    assert row["overlap_left"] == pytest.approx(float((U.T @ u).square().sum() / 4), rel=1e-5)
    table = {"e.weight": noise(70, 24)}
    A, B = noise(4, 70), noise(24, 4)
    row = rows(compare(table, {"e.lora_embedding_A.default": A, "e.lora_embedding_B.default": B}))["e.weight"]
    assert row["delta_norm"] == pytest.approx(float((B @ A).norm()), rel=1e-5)
    square = {"c.weight": noise(30, 30)}
    A, B = noise(4, 30), noise(30, 4)
    pair = {"c.lora_A.weight": A, "c.lora_B.weight": B}
    lefts = []
    for adapters in (({}, {}), ({}, {"fan_in_fan_out": True})):
        study = CompareStudy(square, pair, adapters)
        lefts.append(ask(study, CompareConfig(k=4), progress=False).tables["layers"]["overlap_left"][0])
    D = {0: B @ A, 1: (B @ A).T}
    U = torch.linalg.svd(square["c.weight"].double(), full_matrices=False).U[:, :4]
    for i, left in enumerate(lefts):
        u = torch.linalg.svd(D[i].double(), full_matrices=False).U[:, :4]
        assert left == pytest.approx(float((U.T @ u).square().sum() / 4), rel=1e-4)


def test_updates_of_fused_and_convolutional_tensors():
    fused = {"attn.in_proj_weight": noise(48, 16)}
    A, B = noise(4, 16), noise(48, 4)
    result = compare(fused, {"attn.lora_A.weight": A, "attn.lora_B.weight": B})
    for i, part in enumerate("qkv"):
        row = rows(result)[f"attn.in_proj_weight:{part}"]
        assert row["delta_norm"] == pytest.approx(float((B[16 * i : 16 * (i + 1)] @ A).norm()), rel=1e-5)
    kernel = {"conv.weight": noise(24, 16, 3, 3)}
    A, B = noise(4, 16, 3, 3), noise(24, 4, 1, 1)
    for options in ({}, {"conv": "slices"}, {"conv": "operator", "grid": (4, 4)}):
        row = rows(compare(kernel, {"conv.lora_A.weight": A, "conv.lora_B.weight": B}, **options))["conv.weight"]
        assert row["delta_norm"] == pytest.approx(float((B.flatten(1) @ A.flatten(1)).norm()), rel=1e-5)
        assert row["delta_rank"] == 4
    down = {"down.0.to_q.weight": noise(32, 24), "down.1.to_q.weight": noise(32, 24)}
    A, B = noise(4, 24), noise(32, 4)
    stem = "lora_unet_down_1_to_q"
    kohya = {f"{stem}.lora_down.weight": A, f"{stem}.lora_up.weight": B, f"{stem}.alpha": torch.tensor(2.0)}
    row = rows(compare(down, kohya))["down.1.to_q.weight"]
    assert row["lora_scale"] == 0.5


def test_two_adapters_of_one_network(tmp_path):
    first = adapter()
    second = {name: value + 0.1 * noise(*value.shape, seed=4) for name, value in first.items()}
    one, other = folder(tmp_path / "one", first), folder(tmp_path / "other", second, lora_alpha=6)
    result = compare(one, other, k=4)
    row = next(iter(rows(result).values()))
    A, B = (
        first["base_model.model.model.layers.0.q.lora_A.weight"],
        first["base_model.model.model.layers.0.q.lora_B.weight"],
    )
    C, D = (
        second["base_model.model.model.layers.0.q.lora_A.weight"],
        second["base_model.model.model.layers.0.q.lora_B.weight"],
    )
    assert row["delta_norm"] == pytest.approx(
        float((D.double() @ C.double() - 2 * B.double() @ A.double()).norm()), rel=1e-6
    )
    assert row["norm"] == pytest.approx(2 * float((B.double() @ A.double()).norm()), rel=1e-6)
    same = compare(one, one)
    assert {row["status"] for row in same.table.to_dicts()} == {"unchanged"}
    assert set(verdicts(same, "changed").values()) == {"no"}


def test_an_untrained_adapter_changes_nothing():
    base = {"q.weight": noise(40, 50)}
    pair = {"q.lora_A.weight": noise(4, 50), "q.lora_B.weight": torch.zeros(40, 4)}
    result = compare(base, pair)
    assert rows(result)["q.weight"]["status"] == "unchanged"
    assert verdicts(result, "changed")["q.weight"] == "no"


def test_modules_saved_whole_and_dora():
    base = {
        "q.weight": noise(40, 50),
        "v.weight": noise(40, 50, seed=2),
        "head.weight": noise(10, 40),
        "o.weight": noise(9, 9),
    }
    state = {
        "base_model.model.q.lora_A.weight": noise(4, 50),
        "base_model.model.q.lora_B.weight": noise(40, 4),
        "base_model.model.v.lora_A.weight": noise(4, 50),
        "base_model.model.v.lora_B.weight": noise(40, 4),
        "base_model.model.v.lora_magnitude_vector": torch.ones(40),
        "base_model.model.head.modules_to_save.default.weight": noise(10, 40, seed=1),
        "base_model.model.head.original_module.weight": base["head.weight"],
    }
    result = compare(base, state)
    assert set(rows(result)) == {"q.weight", "head.weight"}
    assert rows(result)["head.weight"]["tuned_name"] == "base_model.model.head.modules_to_save.default.weight"
    told = {p["what"]: p["reason"] for p in result.passed_over}
    assert "DoRA" in told["v.lora"]
    assert "original" in told["head.original_module.weight"]


def test_an_in_memory_network_tells_its_own_scale(tmp_path):
    class Tuned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q = torch.nn.Module()
            self.q.base_layer = torch.nn.Linear(50, 40, bias=False)
            self.q.lora_A, self.q.lora_B = torch.nn.Linear(50, 4, bias=False), torch.nn.Linear(4, 40, bias=False)
            kind = SimpleNamespace(value="LORA")
            self.peft_config = {"default": SimpleNamespace(peft_type=kind, lora_alpha=8, use_rslora=False)}

    tuned = Tuned()
    base = {"q.weight": tuned.q.base_layer.weight.detach().clone()}
    result = compare(base, tuned)
    assert rows(result)["q.weight"]["lora_scale"] == 2.0
    moved = CompareStudy(base, tuned).portable(CompareConfig(), tmp_path)
    assert isinstance(moved.tuned, str)
    again = ask(moved, CompareConfig(), progress=False)
    assert again.tables["layers"].drop("seconds").equals(result.table.drop("seconds"))


def test_a_run_is_not_resumed_under_another_scale(tmp_path):
    base, path = base_network(), folder(tmp_path / "lora", adapter())
    compare(base, path, out=tmp_path / "run")
    assert compare(base, path, out=tmp_path / "run", resume=True).summary["n_matched"] == 2
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": R, "lora_alpha": 99}))
    with pytest.raises(BadInput, match="adapter_config"):
        compare(base, path, out=tmp_path / "run", resume=True)


def test_bad_adapters(tmp_path):
    base = {"q.weight": noise(40, 50)}
    A, B = noise(4, 50), noise(40, 4)
    pair = {"q.lora_A.weight": A, "q.lora_B.weight": B}
    path = folder(tmp_path / "lora", pair)
    loha = folder(tmp_path / "loha", pair, peft_type="LOHA")
    torch.save(base, tmp_path / "base.pt")
    torch.save({"z.weight": noise(40, 50)}, tmp_path / "other.pt")
    check_bad_input(
        [
            (
                lambda: compare(base, {"q.lora_A.weight": A, "q.lora_B.weight": noise(40, 5)}),
                ShapeMismatch,
                ["q.lora_A", "[40, 5]"],
            ),
            (lambda: compare(tmp_path / "absent.pt", path), SourceNotFound, ["absent.pt"]),
            (
                lambda: compare({"z.weight": noise(40, 50)}, path),
                SourceNotFound,
                ["none of the 1 layers", "q", "z.weight"],
            ),
            (lambda: compare(base, loha), UnsupportedFormat, ["LOHA", "Merge"]),
            (
                lambda: compare(base, {**pair, "q.lora_A.b.weight": A, "q.lora_B.b.weight": B}),
                BadOption,
                ["several adapters", "q.lora.b"],
            ),
            (["weights", "compare", str(tmp_path / "other.pt"), str(path)], 2, ["none of the 1 layers"]),
            (["weights", "compare", str(tmp_path / "base.pt"), str(tmp_path / "nowhere")], 2, ["nowhere"]),
        ]
    )


def test_an_update_of_another_shape_is_an_unmatched_row():
    base = {"q.weight": noise(40, 50), "v.weight": noise(30, 50), "k.weight": noise(40, 50, seed=2)}
    state = {
        f"{name}.lora_{side}.weight": noise(*shape)
        for name in ("q", "v", "x")
        for side, shape in (("A", (4, 50)), ("B", (40, 4)))
    }
    state["k.lora_A.weight"] = noise(4, 50)
    result = compare(base, state)
    assert set(rows(result)) == {"q.weight"}
    unmatched = {row["name"]: row for row in result.tables["unmatched"].to_dicts()}
    assert "[30, 50] in BASE, an update of [40, 50] (A [4, 50], B [40, 4]) in TUNED" in unmatched["v.weight"]["reason"]
    assert unmatched["v.weight"]["base_shape"] == [30, 50]
    assert unmatched["x"]["side"] == "tuned"
    told = {p["what"]: p["reason"] for p in result.passed_over}
    assert "k.lora_B.weight is missing" in told["k.lora_A.weight"]
    assert "v.weight" not in told


# --------------------------------------------------------------------------------------------- the null of factors


def test_correlated_factors_stand_out_and_random_ones_do_not():
    base = {"q.weight": noise(60, 80), "v.weight": noise(60, 80, seed=1), "o.weight": noise(60, 80, seed=2)}
    state = {}
    for name, (A, B) in {"q": learned(60, 80), "v": (noise(R, 80, seed=5), noise(60, R, seed=5))}.items():
        state |= {f"{name}.lora_A.weight": A, f"{name}.lora_B.weight": B}
    state |= {"o.lora_A.weight": noise(1, 80), "o.lora_B.weight": noise(60, 1)}
    result = compare(base, state)
    assert rows(result)["q.weight"]["delta_n_spikes"] == 1
    assert rows(result)["v.weight"]["delta_n_spikes"] == 0
    assert "1 direction of it stands out of pairs with shuffled" in because(result, "changed", "q.weight")
    assert "entries of the same sizes would do as much" in because(result, "changed", "v.weight")
    assert "rank-one" in because(result, "changed", "o.weight")
    assert set(verdicts(result, "changed").values()) == {"yes"}


def test_an_update_along_the_base_is_aligned():
    W = noise(60, 80)
    U, _, Vh = torch.linalg.svd(W, full_matrices=False)
    state = {"q.lora_A.weight": Vh[:4].contiguous(), "q.lora_B.weight": (3 * U[:, :4]).contiguous()}
    state |= {"v.lora_A.weight": noise(4, 80), "v.lora_B.weight": noise(60, 4)}
    result = compare({"q.weight": W, "v.weight": noise(60, 80, seed=3)}, state, k=8)
    assert verdicts(result, "aligned")["q.weight"] == "yes"
    assert verdicts(result, "aligned")["v.weight"] == "no"
    assert rows(result)["q.weight"]["overlap_left"] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["normal", "rows"])
def test_the_factor_null_rejects_one_in_twenty(kind):
    def draw(rng):
        A, B = rng.standard_normal((4, 24)), rng.standard_normal((16, 4))
        return Factors(
            torch.from_numpy(A), torch.from_numpy(B * np.exp(rng.standard_normal((16, 1))) if kind == "rows" else B)
        )

    def test(low):
        config = CompareConfig(nulls=("signflip",), replicas=1, seed=int(1e6 * abs(float(low.A[0, 0]))))
        return low_rank_update(low, low.triplets(), config, "layer").row["delta_p_rank"]

    check_level(test, draw, runs=400, within=0.03)


def test_planted_is_what_it_says():
    D = planted(noise(20, 30), 3, 2.0, along=False)
    assert torch.linalg.svdvals(D)[:4].tolist() == pytest.approx([2, 2, 2, 0], abs=1e-5)

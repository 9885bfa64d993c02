"""From tensors to matrices: every layer kind by its hints and by its name, and a reason for all that is left."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from querist.errors import BadOption, ShapeMismatch
from querist.sources.tensors import TensorRef, open_source
from querist.weights.spectrum import esd, matrices


def of(state, **options):
    found, passed = matrices(open_source(state).refs, **{"min_side": 2, **options})
    return {matrix.layer_id: matrix for matrix in found}, {item.what: item.reason for item in passed}


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_convolution_views_agree_with_a_dense_operator():
    kernel = draw(4, 3, 3, 3)
    size = 5
    operator = np.zeros((4 * size**2, 3 * size**2))
    for i in range(3 * size**2):
        image = torch.zeros(3 * size**2, dtype=torch.float64)
        image[i] = 1
        padded = torch.nn.functional.pad(image.reshape(1, 3, size, size), (1, 1, 1, 1), mode="circular")
        operator[:, i] = torch.nn.functional.conv2d(padded, kernel.double()).flatten().numpy()
    exact = np.sort(np.linalg.svd(operator, compute_uv=False) ** 2)
    found, _ = of({"conv.weight": kernel}, conv="operator", grid=(size, size))
    matrix = found["conv.weight"]
    assert np.allclose(esd(matrix.load()).evals, exact, rtol=1e-9, atol=1e-9)
    assert np.allclose(esd(matrix).evals, exact, rtol=1e-9, atol=1e-9)
    assert np.allclose(matrix.spectrum(matrix.entries()), exact, rtol=1e-9, atol=1e-9)
    assert esd(matrix).count == matrix.count == size**2
    flat, _ = of({"conv.weight": kernel})
    assert torch.equal(flat["conv.weight"].load(), kernel.reshape(4, 27))
    slices, _ = of({"conv.weight": kernel}, conv="slices")
    assert slices["conv.weight"].load().shape == (9, 4, 3)
    assert torch.equal(slices["conv.weight"].load()[4], kernel[:, :, 1, 1])


@pytest.mark.parametrize("grid", [(1,), (2,), (3,), (7,), (8,)])
def test_one_dimensional_operators_on_any_grid(grid):
    """Also where the kernel is longer than the grid and wraps around."""
    kernel, size = draw(3, 4, 5), grid[0]
    operator = np.zeros((3 * size, 4 * size))
    for o in range(3):
        for i in range(4):
            for x in range(size):
                for t in range(5):
                    operator[o * size + x, i * size + (x + t) % size] += float(kernel[o, i, t])
    exact = np.sort(np.linalg.svd(operator, compute_uv=False) ** 2)
    found, _ = of({"conv.weight": kernel}, conv="operator", grid=grid)
    assert np.allclose(esd(found["conv.weight"]).evals, exact, rtol=1e-9, atol=1e-9)


def test_an_operator_of_a_normalised_transposed_grouped_convolution():
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.ConvTranspose2d(6, 4, 3, groups=2))
    found, _ = of(layer, conv="operator", grid=(4, 5))
    assert set(found) == {"weight:group0", "weight:group1"}
    kernel = layer.weight.detach()[3:].transpose(0, 1)
    plain, _ = of({"conv.weight": kernel}, conv="operator", grid=(4, 5))
    assert np.allclose(esd(found["weight:group1"]).evals, esd(plain["conv.weight"]).evals, rtol=1e-5, atol=1e-6)
    assert found["weight:group1"].entries().shape == (2, 3, 3, 3)


def test_resampled_entries_of_slices_are_the_whole_tensor():
    kernel = draw(8, 9, 3, 3)
    (matrix,) = of({"conv.weight": kernel}, conv="slices")[0].values()
    assert matrix.entries().shape == (9, 8, 9)
    assert np.array_equal(matrix.spectrum(matrix.entries()), esd(matrix).evals)
    assert esd(matrix).evals.sum() == pytest.approx(float((kernel.double() ** 2).sum()))


def test_kinds_by_shape_and_module():
    """The smallest networks of public reports: every one gives rows."""
    for layer, shape in (
        (torch.nn.Conv1d(16, 32, 3), (32, 48)),
        (torch.nn.Conv3d(16, 32, 3), (32, 432)),
        (torch.nn.ConvTranspose2d(16, 32, 3), (32, 144)),
    ):
        (matrix,) = of(layer)[0].values()
        assert matrix.shape == shape
        assert matrix.kind.startswith("conv")
        assert len(of(layer.state_dict())[0]) == 1
    found, _ = of(torch.nn.LSTM(64, 128), min_side=8)
    assert len(found) == 8
    found, passed = of(torch.nn.Conv2d(64, 64, 3, groups=64), min_side=8)
    assert not found
    assert passed["weight"] == "each of its 64 matrices is 1 x 9, below min_side 8"


def test_onnx_recurrent_layouts():
    W = draw(2, 4 * 6, 5)
    hints = {
        "kind": "lstm",
        "role": "weight_ih",
        "gates": 4,
        "gate_axis": 1,
        "gate_order": tuple("iofg"),
        "directions": True,
    }
    refs = [replace(open_source({"w": W}).refs[0], hints=hints)]
    found = {matrix.layer_id: matrix for matrix in matrices(refs, min_side=2)[0]}
    assert len(found) == 8
    assert torch.equal(found["w:reverse.gate_o"].load(), W[1, 6:12])
    (whole, other) = matrices(refs, min_side=2, split=False)[0]
    assert (whole.layer_id, other.layer_id) == ("w:forward", "w:reverse")
    one = [replace(open_source({"w": W[:1]}).refs[0], hints=hints)]
    assert [matrix.part for matrix in matrices(one, min_side=2)[0]] == ["gate_i", "gate_o", "gate_f", "gate_g"]


def test_nothing_is_read_before_it_is_asked_for():
    class Sealed:
        key = None

        def load(self):
            raise AssertionError("read")

        rows = load

    refs = [TensorRef("a.weight", (40, 30), "float32", store=Sealed()), TensorRef("b.bias", (9,), "float32")]
    refs += [TensorRef("q.lora_A.weight", (4, 30), "float32"), TensorRef("q.lora_B.weight", (20, 4), "float32")]
    found, passed = matrices(refs)
    assert [matrix.layer_id for matrix in found] == ["a.weight", "q.lora"]
    assert len(passed) == 1


def test_ids_are_unique_where_a_composed_name_meets_a_tensors():
    state = {"x.weight": draw(9, 9), "x.weight_v": draw(9, 9), "x.weight_g": draw(9, 1)}
    found, _ = of(state)
    assert set(found) == {"x.weight", "x.weight#2"}


def test_transposed_and_grouped_convolutions():
    up = torch.nn.ConvTranspose2d(6, 4, 3)
    found, _ = of(up)
    assert torch.equal(found["weight"].load(), up.weight.detach().transpose(0, 1).reshape(4, 54))
    grouped = torch.nn.Conv1d(8, 12, 5, groups=2)
    found, _ = of(grouped)
    assert torch.equal(found["weight:group1"].load(), grouped.weight.detach()[6:].reshape(6, 20))


@pytest.mark.parametrize(("layer", "gates"), [(torch.nn.LSTM(6, 5), "ifgo"), (torch.nn.GRU(6, 5), "rzn")])
@pytest.mark.parametrize("live", [True, False])
def test_recurrent_layers_split_into_gates(layer, gates, live):
    found, passed = of(layer if live else layer.state_dict())
    assert len(found) == 2 * len(gates)
    assert all("1-dimensional" in reason for reason in passed.values())
    weights = [matrix.load() for name, matrix in found.items() if name.startswith("weight_ih_l0")]
    assert torch.equal(torch.cat(weights), layer.weight_ih_l0.detach())
    whole, _ = of(layer, split=False)
    assert set(whole) == {"weight_ih_l0", "weight_hh_l0"}


@pytest.mark.parametrize("live", [True, False])
def test_attention_splits_in_three(live):
    attention = torch.nn.MultiheadAttention(8, 2)
    found, _ = of(attention if live else attention.state_dict())
    assert set(found) == {"in_proj_weight:q", "in_proj_weight:k", "in_proj_weight:v", "out_proj.weight"}
    assert torch.equal(found["in_proj_weight:v"].load(), attention.in_proj_weight.detach()[16:])


def test_fused_projections_by_name():
    found, _ = of({"h.0.attn.qkv.weight": draw(24, 8), "h.1.attn.qkv.weight": draw(16, 8)})
    assert set(found) == {
        "h.0.attn.qkv.weight:q",
        "h.0.attn.qkv.weight:k",
        "h.0.attn.qkv.weight:v",
        "h.1.attn.qkv.weight",
    }
    whole, _ = of({"h.0.attn.qkv.weight": draw(24, 8)}, split=False)
    assert list(whole) == ["h.0.attn.qkv.weight"]


def test_inputs_first_and_grouped_queries():
    W = draw(12, 36)
    found, _ = of({"h.0.attn.c_attn.weight": W})
    assert torch.equal(found["h.0.attn.c_attn.weight:k"].load(), W[:, 12:24])
    grouped = draw(20, 12)  # 12 rows of queries, 4 each of keys and values
    found, _ = of({"layers.0.qkv_proj.weight": grouped})
    assert [matrix.shape for matrix in found.values()] == [(12, 12), (4, 12), (4, 12)]
    assert torch.equal(found["layers.0.qkv_proj.weight:v"].load(), grouped[16:])
    config = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 5}
    found, _ = of({"layers.0.qkv_proj.weight": draw(30, 12)}, config=config)
    assert [matrix.shape[0] for matrix in found.values()] == [20, 5, 5]
    refs = open_source({"w": draw(12, 36)}).refs
    hinted = [replace(refs[0], hints={"columns": (("q", 12), ("k", 12), ("v", 12)), "layout": "in-out"})]
    assert len(matrices(hinted)[0]) == 3


def test_heads_that_are_interleaved_are_told_by_the_configuration_alone():
    heads, side = 3, 4
    q, k, v = (draw(heads, side, 9) for _ in range(3))
    q, k, v = q, k + 1, v + 2
    fused = torch.stack([q, k, v], dim=1).reshape(-1, 9)
    name = "layers.0.attention.query_key_value.weight"
    whole, _ = of({name: fused})
    assert list(whole) == [name]
    config = {"model_type": "gpt_neox", "num_attention_heads": heads}
    found, _ = of({name: fused}, config=config)
    for part, exact in (("q", q), ("k", k), ("v", v)):
        assert torch.equal(found[f"{name}:{part}"].load(), exact.reshape(-1, 9))
    # Two queries for every key head.
    fused = torch.cat([draw(2, 2, side, 9), draw(2, 2, side, 9) * 5], dim=1).reshape(-1, 9)
    config = {"model_type": "internlm2", "num_attention_heads": 4, "num_key_value_heads": 2}
    found, _ = of({"attention.wqkv.weight": fused}, config=config)
    assert [matrix.shape[0] for matrix in found.values()] == [16, 8, 8]
    blocks = fused.reshape(2, 4, side, 9)
    assert torch.equal(found["attention.wqkv.weight:q"].load(), blocks[:, :2].reshape(-1, 9))
    assert torch.equal(found["attention.wqkv.weight:v"].load(), blocks[:, 3].reshape(-1, 9))
    found, _ = of({name: draw(27, 9)}, config={"model_type": "chatglm", "num_attention_heads": 3})
    assert len(found) == 3


@pytest.mark.parametrize("style", ["old", "new"])
def test_weight_norm_is_composed(style):
    linear = torch.nn.Linear(6, 5)
    if style == "new":
        normed = torch.nn.utils.parametrizations.weight_norm(linear)
    else:
        state = {"weight_v": draw(5, 6), "weight_g": torch.linspace(1, 2, 5).reshape(5, 1)}
        found, _ = of(state)
        norms = torch.linalg.vector_norm(found["weight"].load(), dim=1)
        assert torch.allclose(norms, state["weight_g"].flatten())
        return
    for source in (normed, normed.state_dict()):
        found, _ = of(source)
        (matrix,) = found.values()
        assert torch.allclose(matrix.load(), normed.weight.detach(), atol=1e-6)


def test_tied_tensors_are_one_row():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(20, 6)
            self.head = torch.nn.Linear(6, 20, bias=False)
            self.head.weight = self.embed.weight

    found, _ = of(Tied())
    assert list(found) == ["embed.weight"]
    assert found["embed.weight"].aliases == ("head.weight",)
    assert found["embed.weight"].kind == "embedding"


def test_low_rank_pairs_are_composed_and_must_fit():
    A, B = draw(4, 30), draw(20, 4)
    found, _ = of({"q.lora_A.weight": A, "q.lora_B.weight": B})
    (matrix,) = found.values()
    assert matrix.kind == "lora"
    exact = np.sort(np.linalg.svd((B.double() @ A.double()).numpy(), compute_uv=False)[:4] ** 2)
    assert np.allclose(esd(matrix.load()).evals, exact, rtol=1e-9)
    with pytest.raises(ShapeMismatch, match="ranks"):
        of({"q.lora_A.weight": A, "q.lora_B.weight": draw(20, 5)})


def test_expert_stacks_give_a_row_per_expert():
    stack = draw(3, 12, 40)
    found, _ = of({"experts.weight": stack})
    assert list(found) == [f"experts.weight:expert{i}" for i in range(3)]
    assert torch.equal(found["experts.weight:expert2"].load(), stack[2])
    assert found["experts.weight:expert2"].streams


def test_blocks_are_the_matrix_however_it_is_stored(tmp_path):
    from querist.sources.tensors import write_safetensors

    state = {
        "a.weight": draw(50, 12),
        "experts.weight": draw(3, 20, 40),
        "conv.weight": draw(16, 4, 3),
        "rnn.weight_hh_l0": draw(20, 5),
    }
    path = write_safetensors(tmp_path / "model.safetensors", open_source(state))
    found, _ = matrices(open_source(str(path)).refs, min_side=2)
    assert len(found) == 9
    for matrix in found:
        parts = list(matrix.blocks(60))
        assert torch.equal(torch.cat(parts), matrix.load())
        assert len(parts) > 1
        assert all(part.shape[0] == 1 or part.numel() * 4 <= 60 for part in parts)
        again = pickle.loads(pickle.dumps(matrix))
        assert torch.equal(again.load(), matrix.load())
        assert np.array_equal(esd(again).evals, esd(matrix.load()).evals)


def test_names_nobody_knows_are_analysed_by_shape():
    found, _ = of({"zz.blob": draw(9, 11)})
    assert found["zz.blob"].kind == "unknown"


def test_every_tensor_left_out_has_its_reason():
    lazy = torch.nn.Linear(4, 4, device="meta")
    _, passed = of(
        {
            "vector": draw(7),
            "scalar": torch.tensor(1.0),
            "counts": torch.ones(4, 4, dtype=torch.int64),
            "mask": torch.ones(4, 4, dtype=torch.bool),
            "complex": torch.ones(4, 4, dtype=torch.complex64),
            "thin": draw(1, 30),
            "empty": torch.zeros(0, 4),
        }
    )
    assert passed["vector"] == "1-dimensional"
    assert passed["scalar"] == "0-dimensional"
    assert "int64" in passed["counts"]
    assert "bool" in passed["mask"]
    assert "complex64" in passed["complex"]
    assert "min_side 2" in passed["thin"]
    assert passed["empty"] == "empty"
    _, passed = of(lazy)
    assert "not materialised" in passed["weight"]
    _, passed = of(
        {
            "position": draw(1, 1, 9),
            "attn_mask": draw(4, 9, 9),
            "norm": draw(3, 3),
            "half": draw(9, 9),
            "cls": draw(1, 1, 1, 12),
        }
    )
    assert passed["position"] == "a vector stored as 1 x 1 x 9"
    assert "mask" in passed["attn_mask"]
    assert set(passed) == {"position", "attn_mask", "cls"}
    norm = torch.nn.LayerNorm((8, 9))
    _, passed = of(norm)
    assert passed["weight"] == "scales of a normalisation, not a matrix"
    assert passed["bias"] == "a bias"


def test_a_part_that_is_too_small_is_told_apart():
    found, passed = of({"a.qkv_proj.weight": draw(20, 12)}, min_side=8)
    assert list(found) == ["a.qkv_proj.weight:q"]
    assert set(passed) == {"a.qkv_proj.weight:k", "a.qkv_proj.weight:v"}


def test_stacks_of_matrices():
    found, _ = of({"pos_embed": draw(1, 50, 40), "blob": draw(3, 35, 40), "experts.w": draw(2, 3, 9, 40)})
    assert found["pos_embed"].shape == (50, 40)
    assert found["pos_embed"].kind == "embedding"
    assert "blob:matrix2" in found
    assert found["experts.w:expert5"].kind == "expert"
    four = open_source({"experts.w": draw(2, 3, 9, 40)}).refs[0].load()
    assert torch.equal(found["experts.w:expert5"].load(), four[1, 2])


def test_bad_views():
    with pytest.raises(BadOption, match="view"):
        of({"w": draw(4, 4)}, conv="toeplitz")
    with pytest.raises(BadOption, match="grid"):
        of({"conv.weight": draw(4, 4, 3, 3)}, conv="operator", grid=(8,))
    for grid in (None, (0, 3), (-1,)):
        with pytest.raises(BadOption, match="grid"):
            of({"conv.weight": draw(4, 4, 3)}, conv="operator", grid=grid)

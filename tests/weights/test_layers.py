"""From tensors to matrices: every layer kind by its hints and by its name, and a reason for all that is left."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from querist.errors import BadOption, ShapeMismatch
from querist.sources.tensors import open_source
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
    assert np.allclose(esd(found["conv.weight"].load()).evals, exact, rtol=1e-6, atol=1e-6)
    flat, _ = of({"conv.weight": kernel})
    assert torch.equal(flat["conv.weight"].load(), kernel.reshape(4, 27))
    slices, _ = of({"conv.weight": kernel}, conv="slices")
    assert slices["conv.weight"].load().shape == (9, 4, 3)
    assert torch.equal(slices["conv.weight"].load()[4], kernel[:, :, 1, 1])


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
        parts = list(matrix.blocks(100))
        assert torch.equal(torch.cat(parts), matrix.load())
        assert len(parts) > 1


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


def test_bad_views():
    with pytest.raises(BadOption, match="view"):
        of({"w": draw(4, 4)}, conv="toeplitz")
    with pytest.raises(BadOption, match="grid"):
        of({"conv.weight": draw(4, 4, 3, 3)}, conv="operator", grid=(8,))

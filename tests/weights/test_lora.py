"""Low-rank pairs: the core and its vectors against the dense update, and how pairs are found by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.errors import ShapeMismatch
from querist.sources.tensors import open_source
from querist.weights.spectrum import esd, lora_matrix, lora_svd, matrices, norms


def pair(h, d, r, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((r, d))), torch.from_numpy(rng.standard_normal((h, r)))


def of(state, **options):
    return matrices(open_source(state).refs, **options)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**31), h=st.integers(1, 30), d=st.integers(1, 30), r=st.integers(1, 12))
def test_the_core_has_the_updates_singular_values(seed, h, d, r):
    A, B = pair(h, d, r, seed)
    dense = np.linalg.svd((2.5 * B @ A).numpy(), compute_uv=False)[: min(h, d, r)]
    core = np.linalg.svd(lora_matrix(A, B, 2.5).numpy(), compute_uv=False)
    np.testing.assert_allclose(core[: dense.size], dense, rtol=1e-9, atol=1e-12 * dense[0])
    found = lora_svd(A, B, 2.5)
    np.testing.assert_allclose((found.U * found.S) @ found.V.T, 2.5 * B @ A, rtol=1e-9, atol=1e-10)


def test_ranks_must_agree():
    A, B = pair(20, 30, 4)
    with pytest.raises(ShapeMismatch, match="ranks"):
        lora_matrix(A, torch.zeros(20, 5))
    with pytest.raises(ShapeMismatch, match="two matrices"):
        lora_svd(A[0], B)
    with pytest.raises(ShapeMismatch, match="ranks"):
        of({"q.lora_A.weight": A, "q.lora_B.weight": torch.zeros(20, 5)})


@pytest.mark.parametrize("h", [40, 12])
@pytest.mark.parametrize("r", [1, 4, 20])
def test_its_spectrum_is_that_of_the_dense_update(h, r):
    A, B = pair(h, 30, r)
    (matrix,), _ = of({"q.lora_A.weight": A, "q.lora_B.weight": B}, lora_alpha=16.0)
    assert (matrix.kind, matrix.shape, matrix.scale) == ("lora", (h, 30), 16 / r)
    assert not matrix.resampled
    spectrum, dense = esd(matrix), esd(16 / r * B @ A)
    assert spectrum.evals.size == min(h, 30)
    assert (spectrum.shape, spectrum.method) == ((h, 30), "low-rank-core")
    np.testing.assert_allclose(spectrum.evals, dense.evals, rtol=1e-8, atol=1e-12 * dense.evals[-1])
    assert np.count_nonzero(spectrum.evals == 0) == matrix.zeros == min(h, 30) - min(r, h, 30)
    assert norms(spectrum.evals, spectrum.shape).rank == min(r, h, 30)


NAMES = {
    "peft": ("base.q_proj.lora_A.weight", "base.q_proj.lora_B.weight", "base.q_proj.lora"),
    "peft, named": ("q.lora_A.mine.weight", "q.lora_B.mine.weight", "q.lora.mine"),
    "peft, embedding": ("e.lora_embedding_A.mine", "e.lora_embedding_B.mine", "e.lora.mine"),
    "kohya": ("lora_unet_down_to_q.lora_down.weight", "lora_unet_down_to_q.lora_up.weight", "lora_unet_down_to_q.lora"),
    "diffusers": ("to_q.lora.down.weight", "to_q.lora.up.weight", "to_q.lora"),
}


@pytest.mark.parametrize("style", NAMES)
def test_names_of_pairs(style):
    a, b, composed = NAMES[style]
    A, B = pair(20, 30, 4)
    for state in ({a: A, b: B}, {b: B, a: A}):
        found, passed = of(state)
        assert [matrix.layer_id for matrix in found] == [composed]
        assert not passed


def test_an_alpha_tensor_scales_its_pair():
    A, B = pair(20, 30, 4)
    state = {"x.lora_down.weight": A, "x.lora_up.weight": B, "x.alpha": torch.tensor(8.0)}
    found, passed = of(state)
    assert not passed
    np.testing.assert_allclose(esd(found[0]).evals[-4:], esd(2.0 * B @ A).evals[-4:], rtol=1e-9)
    found, _ = of(state, lora_alpha=4.0)
    np.testing.assert_allclose(esd(found[0]).evals[-4:], esd(B @ A).evals[-4:], rtol=1e-9)


def test_pairs_of_convolutions_and_half_pairs():
    A, B = torch.randn(4, 6, 3, 3), torch.randn(16, 4, 1, 1)
    found, passed = of({"c.lora_A.weight": A, "c.lora_B.weight": B, "d.lora_A.weight": A.clone()})
    dense = B.flatten(1).double() @ A.flatten(1).double()
    np.testing.assert_allclose(esd(found[0]).evals[-4:], esd(dense).evals[-4:], rtol=1e-6)
    assert [(item.what, "d.lora_B.weight is missing" in item.reason) for item in passed] == [("d.lora_A.weight", True)]
    found, _ = of({"flora_attention.weight": torch.randn(9, 9)})
    assert found[0].kind != "lora"


def test_one_factor_may_serve_several_pairs():
    A, B = pair(20, 30, 4)
    found, passed = of({"q.lora_A.weight": A, "q.lora_B.weight": B, "v.lora_A.weight": A, "v.lora_B.weight": B + 1})
    assert [matrix.layer_id for matrix in found] == ["q.lora", "v.lora"]
    assert not passed
    np.testing.assert_allclose(esd(found[1]).evals[-4:], esd((B + 1) @ A).evals[-4:], rtol=1e-9)

"""Eigenvalues, sizes, approximations: against full decompositions and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.errors import BadOption, NonFinite, ShapeMismatch
from querist.sources.datasets.matrices import gaussian, low_rank
from querist.weights.spectrum import alpha_weighted, esd, log_alpha_norm, lora_matrix, nonfinite, norms, slq

SHAPES = [(30, 20), (20, 30), (25, 25), (1, 9), (200, 3)]


class Blocks:
    """A matrix that is handed out block by block, as a file would."""

    def __init__(self, W):
        self.W, self.shape, self.largest = W, tuple(W.shape), 0

    def blocks(self, max_bytes):
        step = max(1, min(7, max_bytes // (8 * self.shape[1])))
        for begin in range(0, self.shape[0], step):
            self.largest = max(self.largest, step)
            yield self.W[begin : begin + step]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_equal_to_numpys_singular_values(shape, dtype):
    W = torch.from_numpy(gaussian(*shape)).to(dtype)
    known = np.sort(np.linalg.svd(W.double().numpy(), compute_uv=False) ** 2)
    found = esd(W)
    assert np.allclose(found.evals, known, rtol=1e-9, atol=1e-12 * known[-1])
    assert found.evals.sum() == pytest.approx(float((W.double() ** 2).sum()), rel=1e-10)
    assert (min(shape), max(shape)) == (found.N, found.M)


@pytest.mark.parametrize("shape", SHAPES)
def test_blocks_are_the_whole(shape):
    W = torch.from_numpy(gaussian(*shape))
    assert np.allclose(esd(Blocks(W)).evals, esd(W).evals, rtol=1e-10, atol=1e-10)


def test_a_stack_is_a_loop():
    stack = torch.from_numpy(gaussian(12, 40)).reshape(4, 12, 10)
    loop = np.sort(np.concatenate([esd(matrix).evals for matrix in stack]))
    assert np.allclose(esd(stack).evals, loop, rtol=1e-10, atol=1e-12)
    assert esd(stack).count == 4


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 1000), h=st.integers(2, 30), d=st.integers(2, 30))
def test_invariances(seed, h, d):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((h, d))
    base = esd(W).evals
    rotation = np.linalg.qr(rng.standard_normal((h, h)))[0]
    for other in (W.T.copy(), W[rng.permutation(h)], W[:, rng.permutation(d)], rotation @ W):
        assert np.allclose(esd(other).evals, base, rtol=1e-9, atol=1e-10 * base[-1])
    assert np.allclose(esd(3 * W).evals, 9 * base, rtol=1e-10)


def test_small_eigenvalues_survive():
    """A float32 Gram matrix misses the smallest eigenvalue of a square Gaussian by tens of per cent."""
    W = gaussian(600, 600)
    known = np.sort(np.linalg.svd(W.astype(float), compute_uv=False) ** 2)[0]
    assert esd(W).evals[0] == pytest.approx(known, rel=1e-6)
    single = torch.from_numpy(W)
    assert abs(float(torch.linalg.eigvalsh(single @ single.T)[0]) / known - 1) > 1e-3


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_scales(scale):
    W = torch.from_numpy(gaussian(20, 30)).double() * scale
    assert np.allclose(esd(W).evals / scale**2, esd(W / scale).evals, rtol=1e-9)
    assert np.isfinite(esd(torch.full((9, 9), 1e200, dtype=torch.float64) / 1e60).evals).all()


def test_normalisations():
    W = gaussian(40, 80) * 3
    raw = esd(W).evals
    assert np.allclose(esd(W, normalise="max").evals, raw / 80)
    assert esd(W, normalise="trace").evals.sum() == pytest.approx(40)
    assert esd(W, normalise="mp").evals.mean() == pytest.approx(1)
    with pytest.raises(BadOption, match="normalisation"):
        esd(W, normalise="l2")


def test_fast_is_good_for_tails():
    W = gaussian(200, 100)
    assert esd(W, precision="fast").evals[-1] == pytest.approx(esd(W).evals[-1], rel=1e-5)
    assert esd(W, precision="fast").method != esd(W).method


def test_what_is_no_matrix():
    with pytest.raises(ShapeMismatch):
        esd(np.zeros(3))
    with pytest.raises(NonFinite):
        esd(np.array([[1.0, math.inf], [0.0, 1.0]]))
    assert esd(np.zeros((3, 4))).evals.tolist() == [0, 0, 0]


def test_nonfinite_entries_are_counted_and_found():
    W = torch.ones(4, 5)
    assert nonfinite(W) == (0, None)
    W[2, 3], W[3, 0] = math.nan, math.inf
    assert nonfinite(W) == (2, (2, 3))
    assert nonfinite(torch.full((300, 300), 3e38)) == (0, None)
    assert nonfinite(torch.full((2, 2), 1e308, dtype=torch.float64)) == (0, None)


def test_norms_closed_forms():
    evals = np.array([1.0, 2.0, 5.0])
    found = norms(evals, (3, 4))
    assert found.log_norm == pytest.approx(math.log10(8))
    assert found.log_spectral_norm == pytest.approx(math.log10(5))
    assert found.stable_rank == pytest.approx(1.6)
    p = evals / 8
    assert found.entropy == pytest.approx(-(p @ np.log(p)) / math.log(3))
    assert (found.rank, found.rank_loss, found.weak_rank_loss) == (3, 0, 0)
    assert norms(np.ones(5), (5, 5)).entropy == pytest.approx(1)
    assert alpha_weighted(2.0, evals) == pytest.approx(2 * math.log10(5))
    assert log_alpha_norm(2.0, evals) == pytest.approx(math.log10(30))
    assert log_alpha_norm(40.0, evals * 1e10) == pytest.approx(40 * math.log10(5e10), rel=1e-9)


def test_numerical_rank():
    evals = esd(low_rank(60, 40, rank=9)).evals
    assert norms(evals, (60, 40)).rank <= 40
    exact = np.random.default_rng(0).standard_normal((60, 9)) @ np.random.default_rng(1).standard_normal((9, 40))
    assert norms(esd(exact).evals, (60, 40)).rank == 9
    assert norms(np.zeros(4), (4, 4)).rank == 0


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 500), r=st.integers(1, 8))
def test_low_rank_core_is_the_dense_update(seed, r):
    rng = np.random.default_rng(seed)
    A, B = torch.from_numpy(rng.standard_normal((r, 30))), torch.from_numpy(rng.standard_normal((20, r)))
    dense = np.linalg.svd((2.0 * B @ A).numpy(), compute_uv=False)[:r]
    core = np.linalg.svd(lora_matrix(A, B, 2.0).numpy(), compute_uv=False)
    assert np.allclose(core, dense, rtol=1e-9, atol=1e-9)
    with pytest.raises(ShapeMismatch):
        lora_matrix(A, torch.zeros(20, r + 1))


@pytest.mark.parametrize("name", ["diagonal", "gaussian", "low rank and noise"])
def test_quadrature_lies_within_its_own_bars(name):
    n = 400
    if name == "diagonal":
        W = torch.diag(torch.linspace(0.1, 3.0, n, dtype=torch.float64))
    elif name == "gaussian":
        W = torch.from_numpy(gaussian(600, n)).double()
    else:
        W = torch.from_numpy(20 * low_rank(600, n, rank=5) + gaussian(600, n)).double()
    exact = esd(W).evals
    found = slq(W, k=32, probes=16, steps=80)
    assert (np.abs(found.top - exact[-32:]) <= found.top_error + 1e-9 * exact[-1]).all()
    assert found.trace == pytest.approx(exact[:-32].sum(), abs=4 * found.trace_error)
    share = np.searchsorted(found.evals, exact, side="right") / n
    assert np.abs(share - np.arange(1, n + 1) / n).max() <= 5 * found.cdf_error + 1 / n
    assert found.evals.size == n
    again = slq(W, k=32, probes=16, steps=80)
    assert np.array_equal(found.evals, again.evals)

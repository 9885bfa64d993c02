"""Approximate spectra: exact top values, and a rest within its own error bars, against full decompositions."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from querist.errors import BadOption, NonFinite, ShapeMismatch
from querist.sources.datasets.matrices import gaussian, inverse_wishart, low_rank, spiked
from querist.sources.tensors import open_source
from querist.weights.spectrum import esd, slq
from querist.weights.spectrum._krylov import largest_pairs
from querist.weights.spectrum._operator import GramOperator
from querist.weights.spectrum._quadrature import _t975


class Pieces:
    def __init__(self, W, rows=37):
        self.W, self.shape, self.rows = W, tuple(W.shape), rows

    def blocks(self, max_bytes):
        yield from self.W.split(self.rows)


MATRICES = {
    "diagonal": lambda: torch.diag(torch.linspace(0.1, 3.0, 600, dtype=torch.float64)),
    "gaussian, tall": lambda: torch.from_numpy(gaussian(900, 600)),
    "gaussian, wide": lambda: torch.from_numpy(gaussian(600, 900)),
    "gaussian, square": lambda: torch.from_numpy(gaussian(600, 600)),
    "spiked": lambda: torch.from_numpy(spiked(700, 600, strengths=(30.0, 8.0, 3.0, 1.5))),
    "heavy": lambda: torch.from_numpy(inverse_wishart(900, 600, freedom=1.05)),
    "low rank and noise": lambda: torch.from_numpy(20 * low_rank(700, 600, rank=5) + gaussian(700, 600)),
    "low rank": lambda: torch.from_numpy(low_rank(700, 600, rank=40)).double(),
    "identity": lambda: torch.eye(600),
}


@pytest.mark.parametrize("name", MATRICES)
def test_top_values_are_exact_and_the_rest_lies_within_its_bars(name):
    W = MATRICES[name]()
    exact = esd(W).evals
    found = slq(W, k=64, probes=16, steps=96)
    assert found.top.size == 64
    error = np.abs(found.top - exact[-64:])
    assert (error <= found.top_error + 1e-13 * exact[-1]).all()
    assert error.max() <= 1e-4 * exact[-1]
    assert found.total == pytest.approx(exact.sum(), rel=1e-10)
    assert found.trace == pytest.approx(exact[:-64].sum(), abs=found.trace_error + 1e-9 * exact.sum())

    x = np.linspace(0, 1.05 * exact[-1], 400)
    if name in ("identity", "low rank"):  # a jump is right or wrong by rounding at the jump itself
        x = x[(np.abs(x[:, None] - exact[None, [0, -1]]) > 1e-6).all(axis=1)]
    value, half = found.cdf(x)
    truth = np.searchsorted(exact, x, side="right") / 600
    off = np.abs(value - truth)
    assert np.mean(off <= half + 1e-12) >= 0.95
    assert (off <= 2 * half + 1e-12).all()
    assert found.cdf_error < 0.06

    edges = np.linspace(0, exact[-65] + 1e-9, 21)
    if name not in ("identity", "low rank"):
        value, half = found.density(edges)
        truth = np.histogram(exact, edges)[0] / (600 * np.diff(edges))
        assert np.mean(np.abs(value - truth) <= half + 1e-12) >= 0.9
    assert found.evals.size == 600
    assert (np.diff(found.evals) >= 0).all()
    assert np.array_equal(found.evals[-64:], found.top)


@pytest.mark.real_models
@pytest.mark.parametrize(
    "name",
    [
        "embeddings.position_embeddings.weight",
        "encoder.layer.0.attention.self.query.weight",
        "encoder.layer.0.intermediate.dense.weight",
        "encoder.layer.3.attention.self.value.weight",
        "encoder.layer.5.output.dense.weight",
        "pooler.dense.weight",
    ],
)
def test_so_it_is_on_trained_weights(name):
    W = open_source("minilm-l6")[name].load()
    exact = esd(W).evals
    found = slq(W, k=32, probes=16, steps=96)
    assert found.top.size == 32
    assert (np.abs(found.top - exact[-32:]) <= found.top_error + 1e-13 * exact[-1]).all()
    assert found.trace == pytest.approx(exact[:-32].sum(), abs=found.trace_error + 1e-9 * exact.sum())
    x = np.concatenate([np.linspace(0, exact[-1], 300), np.quantile(exact, np.linspace(0.005, 0.995, 100))])
    value, half = found.cdf(x)
    off = np.abs(value - np.searchsorted(exact, x, side="right") / exact.size)
    assert np.mean(off <= half + 1e-12) >= 0.95
    assert (off <= 2 * half + 1e-12).all()
    assert half.max() < 0.1


def test_the_density_of_a_large_gaussian_is_marchenko_pasturs():
    """Against the law itself, not an eigenvalue routine: q=1/2, unit variance."""
    n, m, q = 1000, 2000, 0.5
    found = slq(torch.from_numpy(gaussian(m, n)), k=16, probes=16, steps=128)
    x = np.linspace((1 - math.sqrt(q)) ** 2, (1 + math.sqrt(q)) ** 2, 200)
    fine = np.linspace(x[0], x[-1], 20001)
    pdf = np.sqrt(np.maximum((fine[-1] - fine) * (fine - fine[0]), 0)) / (2 * math.pi * q * fine)
    law = np.interp(x, fine, np.concatenate([[0], np.cumsum((pdf[1:] + pdf[:-1]) / 2 * np.diff(fine))]))
    value, half = found.cdf(x * m)
    assert (np.abs(value - law) <= half + 2 / n).all()
    assert half.max() < 0.04


@pytest.mark.parametrize("shape", [(300, 200), (200, 300), (250, 250)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_streamed_blocks_are_the_whole(shape, dtype):
    W = torch.from_numpy(gaussian(*shape)).to(dtype)
    whole, streamed = slq(W, k=20, steps=40), slq(Pieces(W), k=20, steps=40)
    np.testing.assert_allclose(streamed.top, whole.top, rtol=1e-9)
    np.testing.assert_allclose(streamed.evals, whole.evals, rtol=2e-3)
    assert streamed.total == pytest.approx(whole.total, rel=1e-12)


def test_one_seed_one_answer():
    W = gaussian(300, 200)
    one, same, other = slq(W, k=9, steps=30), slq(W, k=9, steps=30), slq(W, k=9, steps=30, layer="x")
    assert np.array_equal(one.evals, same.evals)
    assert not np.array_equal(one.nodes, other.nodes)
    np.testing.assert_allclose(one.top, other.top, rtol=1e-6)
    state = torch.random.get_rng_state()
    slq(W, k=9, steps=30)
    assert torch.equal(state, torch.random.get_rng_state())


@settings(max_examples=30, deadline=None)
@given(
    h=st.integers(2, 40),
    d=st.integers(2, 40),
    k=st.integers(1, 50),
    steps=st.integers(2, 50),
    seed=st.integers(0, 2**31),
)
def test_small_matrices_work_whatever_is_asked(h, d, k, steps, seed):
    W = np.random.default_rng(seed).standard_normal((h, d))
    exact = esd(W).evals
    found = slq(W, k=k, probes=4, steps=steps)
    assert found.evals.size == min(h, d)
    assert found.top.size == min(k, h, d)
    np.testing.assert_allclose(found.top, exact[exact.size - found.top.size :], atol=1e-6 * exact[-1])


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e18])
def test_scales(scale):
    W = torch.from_numpy(gaussian(120, 80))
    one, other = slq(W, k=10, steps=30), slq(W * scale, k=10, steps=30)
    np.testing.assert_allclose(other.top / scale**2, one.top, rtol=1e-5)
    np.testing.assert_allclose(other.total / scale**2, one.total, rtol=1e-5)


def test_zero_and_bad_input():
    zero = slq(np.zeros((30, 20)), k=5)
    assert (zero.evals == 0).all()
    assert zero.trace == zero.cdf_error == 0
    W = gaussian(30, 20)
    W[3, 4] = np.nan
    for given_as in (W, Pieces(torch.from_numpy(W))):
        with pytest.raises(NonFinite, match=r"\(3, 4\)"):
            slq(given_as)
    with pytest.raises(ShapeMismatch):
        slq(np.zeros((2, 3, 4)))
    for options in ({"k": 0}, {"probes": 1}, {"steps": 1}):
        with pytest.raises(BadOption, match=next(iter(options))):
            slq(gaussian(20, 20), **options)


def test_a_cluster_wider_than_a_block_is_found_whole():
    values = torch.cat([torch.full((40,), 5.0, dtype=torch.float64), torch.linspace(1, 2, 160, dtype=torch.float64)])
    generator = torch.Generator().manual_seed(0)
    found = largest_pairs(lambda V: values[:, None] * V, 200, 50, generator, tolerance=1e-8, most=200)
    np.testing.assert_allclose(found.values[:40], 5, rtol=1e-12)
    np.testing.assert_allclose(found.values[40:], values.sort(descending=True).values[40:50], rtol=1e-9)
    gram = found.vectors.T @ found.vectors
    np.testing.assert_allclose(gram, np.eye(50), atol=1e-10)


def test_the_operator_is_the_gram_matrix():
    for shape in ((50, 30), (30, 50)):
        W = torch.from_numpy(gaussian(*shape)).double()
        gram = W.T @ W if shape[0] >= shape[1] else W @ W.T
        V = torch.from_numpy(gaussian(30, 7)).double()
        for source in (W, Pieces(W, 11), W.numpy()):
            np.testing.assert_allclose(GramOperator(source)(V), gram @ V, rtol=1e-12)
        np.testing.assert_allclose(GramOperator(W.float())(V), gram @ V, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            GramOperator(W.float())(V, exact=True),
            W.float().double().T @ (W.float().double() @ V)
            if shape[0] >= shape[1]
            else W.float().double() @ (W.float().double().T @ V),
            rtol=1e-12,
        )


def test_students_quantile():
    for freedom in (1, 2, 3, 5, 15, 31, 1000):
        assert _t975(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=0.02)


@pytest.mark.slow
def test_a_large_matrix_in_bounded_time():
    """4096 x 4096, low rank and noise: 7 s of one core here, where its whole spectrum takes 4; 60 s would be a defect."""
    W = torch.from_numpy(40 * low_rank(4096, 4096, rank=30) + gaussian(4096, 4096))
    began = time.process_time()
    found = slq(W)
    assert time.process_time() - began < 60
    np.testing.assert_allclose(found.top, esd(W).evals[-256:], rtol=1e-5)
    assert found.cdf_error < 0.025

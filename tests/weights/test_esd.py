"""Eigenvalues of the smaller Gram matrix: against numpy's SVD of the full matrix, in pieces, in bounded memory."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.errors import BadOption, BadValues, NonFinite, NumericalFailure, ShapeMismatch
from querist.sources.datasets.matrices import gaussian, low_rank
from querist.weights.spectrum import esd, nonfinite

SHAPES = [(30, 20), (20, 30), (25, 25), (1, 9), (200, 3), (3, 200), (300, 200), (200, 300)]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


class Pieces:
    """A matrix that is handed out row block by row block, as a file would; counts the rows it handed out."""

    def __init__(self, W: torch.Tensor, rows: int = 7):
        self.W, self.shape, self.rows, self.handed = W, tuple(W.shape), rows, 0

    def blocks(self, max_bytes):
        step = max(1, min(self.rows, max_bytes // (self.W.element_size() * self.shape[1])))
        for block in self.W.split(step):
            self.handed += len(block)
            yield block.clone()


class Held(Pieces):
    """Row blocks that can also be read whole."""

    streams, loaded = True, 0

    def load(self):
        self.loaded += 1
        return self.W


def squares(W) -> np.ndarray:
    return np.sort(np.linalg.svd(torch.as_tensor(W).double().numpy(), compute_uv=False).ravel() ** 2)


def close(found, known, rtol=1e-10):
    """Every eigenvalue is good to rounding of the largest."""
    assert found.shape == known.shape
    np.testing.assert_allclose(found, known, rtol=rtol, atol=1e-14 * max(found.size, 50) * known[-1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_to_numpys_singular_values(shape, dtype):
    W = torch.from_numpy(gaussian(*shape)).to(dtype)
    before = W.clone()
    found = esd(W)
    close(found.evals, squares(W))
    assert torch.equal(W, before)
    assert (found.N, found.M, found.count) == (min(shape), max(shape), 1)
    assert found.scale == float(W.double().abs().max())
    assert found.method == "gram-float64"
    assert np.all(np.diff(found.evals) >= 0)
    assert found.evals.dtype == np.float64


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_blocks_are_the_whole(shape, dtype):
    W = torch.from_numpy(gaussian(*shape)).to(dtype)
    streamed = esd(Pieces(W))
    close(streamed.evals, esd(W).evals)
    assert streamed.method == "gram-float64-streamed"


@settings(max_examples=40, deadline=None)
@given(h=st.integers(1, 24), d=st.integers(1, 24), b=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_a_batch_is_a_loop_and_the_sum_is_the_frobenius_norm(h, d, b, seed):
    stack = torch.from_numpy(np.random.default_rng(seed).standard_normal((b, h, d)))
    found = esd(stack)
    close(found.evals, np.sort(np.concatenate([esd(matrix).evals for matrix in stack])))
    assert found.count == b
    assert found.evals.sum() == pytest.approx(float((stack**2).sum()), rel=1e-12)


def test_a_stack_larger_than_a_batch_is_a_loop():
    """4000 Gram matrices of 70 x 70 exceed the 64 MiB that are held at a time."""
    stack = torch.from_numpy(gaussian(100 * 70, 90)).reshape(100, 70, 90)
    close(esd(stack.repeat(12, 1, 1)).evals, np.sort(np.repeat(esd(stack).evals, 12)))
    loop = np.concatenate([esd(matrix).evals for matrix in stack])
    close(esd(stack).evals, np.sort(loop))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), h=st.integers(2, 30), d=st.integers(2, 30))
def test_invariances(seed, h, d):
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((h, d))
    base = esd(W).evals
    rotations = [np.linalg.qr(rng.standard_normal((side, side)))[0] for side in (h, d)]
    for other in (W.T, W[rng.permutation(h)], W[:, rng.permutation(d)], rotations[0] @ W, W @ rotations[1], W[::-1]):
        np.testing.assert_allclose(esd(other).evals, base, rtol=1e-9, atol=1e-13 * base[-1])


@settings(max_examples=25, deadline=None)
@given(exponent=st.integers(-120, 120), seed=st.integers(0, 2**31))
def test_scaling_by_a_power_of_two_is_exact(exponent, seed):
    W = torch.from_numpy(np.random.default_rng(seed).standard_normal((9, 14)))
    assert np.array_equal(esd(W * 2.0**exponent).evals, esd(W).evals * 4.0**exponent)


def test_small_eigenvalues_survive():
    """The smallest of 1000 spans six decades below the largest: a float32 Gram matrix misses it by far more than ours."""
    W = gaussian(1000, 1000)
    known = np.linalg.svd(W.astype(np.float64), compute_uv=False)[-1] ** 2
    assert esd(W).evals[0] == pytest.approx(known, rel=1e-8)
    single = torch.from_numpy(W)
    assert abs(float(torch.linalg.eigvalsh(single @ single.T)[0]) / known - 1) > 1e-3


def test_fast_is_good_for_tails_and_says_what_it_is_not():
    W = gaussian(200, 100)
    fast, exact = esd(W, precision="fast"), esd(W)
    np.testing.assert_allclose(fast.evals[-50:], exact.evals[-50:], rtol=2e-5)
    assert fast.method == "svdvals-float32: ranks masked"
    assert fast.error > exact.error
    np.testing.assert_allclose(esd(1e150 * W.astype(np.float64), precision="fast").evals, fast.evals * 1e300, rtol=1e-4)
    np.testing.assert_allclose(esd(Held(torch.from_numpy(W)), precision="fast").evals, fast.evals)


def test_what_is_no_larger_than_the_gram_matrix_is_read_whole():
    small = Held(torch.from_numpy(gaussian(40, 20)))
    assert esd(small).method == "gram-float64"
    assert (small.loaded, small.handed) == (1, 0)
    tall = Held(torch.zeros(1, 16).expand(2_000_000, 16), rows=500_000)  # 128 MB if it were held
    assert esd(tall).method == "zero"
    assert tall.loaded == 0


def test_the_order_of_the_routine_does_not_matter(monkeypatch):
    W = gaussian(30, 50)
    known = esd(W).evals
    inner = torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda *a, **k: inner(*a, **k).flip(-1).roll(7, -1))
    assert np.array_equal(esd(W).evals, known)
    close(esd(Pieces(torch.from_numpy(W))).evals, known)


def test_a_routine_that_fails_is_told(monkeypatch):
    def fail(*args, **kwargs):
        raise torch.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(torch.linalg, "eigvalsh", fail)
    with pytest.raises(NumericalFailure, match="no convergence"):
        esd(gaussian(10, 10))


def test_round_off_is_never_negative():
    found = esd(low_rank(80, 60, rank=3).astype(np.float64))
    assert found.evals.min() >= 0
    assert np.count_nonzero(found.evals > 1e-10 * found.evals[-1]) == 3


def test_normalisations():
    W = gaussian(40, 80) * 3
    raw = esd(W).evals
    assert np.array_equal(esd(W, normalise="max").evals, raw / 80)
    assert esd(W, normalise="trace").evals.sum() == pytest.approx(40)
    np.testing.assert_allclose(esd(W, normalise="mp").evals, raw / (80 * np.mean(W.astype(float) ** 2)), rtol=1e-6)
    np.testing.assert_allclose(esd(W, normalise="mp", variance=9.0).evals, raw / 720, rtol=1e-12)
    stack = gaussian(12, 40).reshape(4, 12, 10)
    assert esd(stack, normalise="trace").evals.sum() == pytest.approx(40)
    assert esd(np.zeros((3, 4)), normalise="trace").evals.tolist() == [0, 0, 0]
    for options in (
        {"normalise": "l2"},
        {"precision": "double"},
        {"variance": 1.0},
        {"normalise": "mp", "variance": 0},
    ):
        with pytest.raises(BadOption):
            esd(W, **options)


def test_every_array_that_is_a_matrix_is_taken():
    W = np.arange(12.0).reshape(3, 4) ** 2
    known = squares(W)
    locked = W.copy()
    locked.flags.writeable = False
    views = [W[::-1, ::-1], np.asfortranarray(W), W.astype(">f8"), locked, W.astype(np.int64), W.astype(np.float32)]
    views += [np.repeat(W, 2, axis=1)[:, ::2], torch.from_numpy(W).requires_grad_(), torch.from_numpy(W).T]
    for view in views:
        close(esd(view).evals, known)
    quarter = torch.from_numpy(W).to(torch.float8_e4m3fn)
    close(esd(quarter).evals, squares(quarter))
    close(esd(W % 2 == 0).evals, squares((W % 2 == 0).astype(float)))
    complex_one = W + 1j * W[::-1]
    known = np.sort(np.linalg.svd(complex_one, compute_uv=False) ** 2)
    close(esd(complex_one).evals, known)
    close(esd(complex_one.T.copy()).evals, known)


def test_what_is_no_matrix():
    for value in (np.zeros(3), np.zeros((0, 4)), np.zeros((2, 2, 2, 2))):
        with pytest.raises(ShapeMismatch, match="matrix"):
            esd(value)
    for size in (1e200, 1e-200):
        with pytest.raises(BadValues, match="float64"):
            esd(np.full((9, 9), size))
    assert esd(np.full((9, 9), 1e150)).evals[-1] == pytest.approx(81e300)
    zero = esd(np.zeros((3, 4)))
    assert (zero.evals.tolist(), zero.method, zero.scale) == ([0, 0, 0], "zero", 0)
    assert esd(Pieces(torch.zeros(9, 4))).method == "zero"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_bad_entry_is_counted_and_found(bad, dtype):
    W = torch.from_numpy(gaussian(60, 20)).to(dtype)
    assert nonfinite(W) == (0, None)
    W[37, 5], W[41, 0] = bad, bad
    for given_as in (W, Pieces(W)):
        with pytest.raises(NonFinite, match=r"2 entries .* \(37, 5\)"):
            esd(given_as)
        assert nonfinite(given_as) == (2, (37, 5))
    with pytest.raises(NonFinite, match=r"2 entries .* \(0, 41\)"):
        esd(Pieces(W.T.contiguous()))
    assert nonfinite(torch.stack([torch.zeros(60, 20, dtype=dtype), W])) == (2, (1, 37, 5))


def test_large_finite_entries_are_no_damage():
    assert nonfinite(torch.full((300, 300), 3e38)) == (0, None)
    assert nonfinite(torch.full((2, 2), 1e308, dtype=torch.float64)) == (0, None)
    assert nonfinite(torch.ones(2, 2, dtype=torch.int64)) == (0, None)
    assert nonfinite(torch.full((2, 2), 3e38 + 0j)) == (0, None)


PROGRAM = """
import resource, sys
import torch
torch.set_num_threads(1)
from querist.weights.spectrum import esd
class Made:
    def __init__(self, h, d): self.shape = (h, d)
    def blocks(self, most):
        h, d = self.shape
        step = max(1, most // (4 * d))
        for begin in range(0, h, step):
            yield torch.ones(min(step, h - begin), d)
esd(Made(1000, 50)); esd(Made(50, 1000))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
esd(Made(*map(int, sys.argv[1:])))
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(600_000, 512), (512, 300_000)])
def test_memory_does_not_grow_with_the_matrix(shape):
    """1.2 GB and .6 GB of float32, streamed: the bound is N²·8 twice and two blocks of 64 MiB, with 100 MiB to spare."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *map(str, shape)], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 2 * 512**2 * 8 + (2 * 64 + 100) * 2**20

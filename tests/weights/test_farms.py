"""FARMS: windows, pooling, the bias it is for, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch
from querist.sources.datasets.matrices import gaussian, inverse_wishart
from querist.weights.fits import farms, hill_exponent
from querist.weights.fits._farms import starts


def spectrum(W):
    return np.linalg.svd(np.asarray(W, dtype=float), compute_uv=False)[::-1] ** 2


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(2, 15))
def test_starts_reach_both_borders(length, window, most):
    window = min(window, length)
    found = starts(length, window, most)
    assert found[0] == 0
    assert found[-1] == length - window
    assert len(found) == len(set(found)) == min(most, length - window + 1)
    steps = np.diff(found)
    assert steps.size == 0 or steps.max() - steps.min() <= 1


@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (40, 40)])
def test_pools_the_spectra_of_its_windows(shape):
    W = inverse_wishart(*shape)
    found = farms(W, side=24)
    short = W if shape[0] <= shape[1] else W.T
    down, across = starts(40, 24, 15), starts(max(shape), 24, 15)
    pooled = np.sort(np.concatenate([spectrum(short[i : i + 24, j : j + 24]) for i in down for j in across]))
    np.testing.assert_allclose(found.evals, pooled, rtol=1e-9, atol=1e-12 * pooled[-1])
    assert found.window == (24, 24)
    assert found.starts == (len(down), len(across))
    assert found.n_windows == len(down) * len(across)
    assert found.alpha == pytest.approx(hill_exponent(pooled)[0], rel=1e-9)
    assert found.n_tail == pooled.size - pooled.size // 2
    assert found.sigma == pytest.approx((found.alpha - 1) / math.sqrt(found.n_tail))


def test_the_last_row_and_column_count():
    """The public code steps and can miss them: here all that is not noise lies in the last column."""
    W = gaussian(33, 70).astype(float)
    huge = W.copy()
    huge[-1, -1] = 1e6
    plain, moved = farms(W, side=32), farms(huge, side=32)
    assert moved.evals[-1] > 1e11
    assert np.count_nonzero(moved.evals > 1e11) == 1
    assert plain.evals[-1] < 1e4


def test_defaults():
    assert farms(gaussian(48, 200)).window == (48, 48)
    assert farms(gaussian(48, 200)).starts == (1, 15)
    assert farms(gaussian(48, 50)).starts == (1, 3)
    assert farms(gaussian(48, 48)).n_windows == 1
    assert farms(gaussian(60, 60), max_starts=4, side=20).starts == (4, 4)
    assert farms(gaussian(48, 200), hill="textbook").alpha != farms(gaussian(48, 200)).alpha


@pytest.mark.parametrize(("ratio", "window"), [(2.0, (48, 96)), (0.5, (48, 24)), (5.0, (40, 200))])
def test_other_ratios(ratio, window):
    found = farms(gaussian(48, 200), ratio=ratio)
    assert found.window == window
    assert found.evals.size == found.n_windows * min(window)


def test_one_window_is_the_matrix():
    W = inverse_wishart(64, 64)
    np.testing.assert_allclose(farms(W).evals, spectrum(W), rtol=1e-8)


def test_stack_type_and_side_do_not_matter():
    W = inverse_wishart(40, 100).astype(float)
    one = farms(W, side=20)
    assert farms(torch.from_numpy(W), side=20).alpha == one.alpha
    assert farms(torch.from_numpy(W).requires_grad_(), side=20).alpha == one.alpha
    assert farms(W.T, side=20).alpha == pytest.approx(one.alpha, rel=1e-12)
    stacked = farms(np.stack([W, 3 * W]), side=20)
    assert stacked.n_windows == 2 * one.n_windows
    np.testing.assert_allclose(stacked.evals, np.sort(np.concatenate([one.evals, 9 * one.evals])), rtol=1e-7, atol=1e-9)
    assert farms(torch.from_numpy(W).half(), side=20).alpha == pytest.approx(one.alpha, rel=1e-2)
    assert farms(W * 1e-20, side=20).alpha == pytest.approx(one.alpha, rel=1e-5)


def test_square_windows_remove_the_bias_of_the_aspect_ratio():
    """Gaussian matrices of every shape: plain Hill follows q, FARMS stays at the value of q = 1, 2.1217."""
    plain, windowed = [], []
    for long in (100, 150, 200, 300, 500, 1000):
        W = gaussian(100, long)
        plain.append(hill_exponent(spectrum(W))[0])
        windowed.append(farms(W).alpha)
    assert np.ptp(windowed) < np.ptp(plain) / 4
    assert np.mean(windowed) == pytest.approx(2.1217, abs=0.05)


def test_zeros_are_left_out_and_counted():
    W = np.zeros((32, 64))
    W[:, :32] = gaussian(32, 32)
    found = farms(W)
    assert found.n_dropped > 0
    assert found.n_tail <= found.evals.size - found.n_dropped
    empty = farms(np.zeros((32, 64)))
    assert (empty.alpha, empty.xmin, empty.n_tail) == (None, None, 0)


def test_refuses_small_windows_with_the_reason():
    with pytest.raises(BadValues, match=r"too small.*\(15, 40\).*15 x 15.*16 or more"):
        farms(gaussian(15, 40))
    with pytest.raises(BadValues, match="20 x 10"):
        farms(gaussian(20, 40), ratio=0.5)
    with pytest.raises(BadValues, match="16 to 20"):
        farms(gaussian(20, 40), side=8)


@pytest.mark.parametrize("options", [{"ratio": 0.0}, {"ratio": math.nan}, {"max_starts": 1}, {"side": 41}])
def test_bad_options(options):
    with pytest.raises(BadOption):
        farms(gaussian(40, 90), **options)


def test_bad_entries():
    W = gaussian(20, 30)
    W[3, 4] = np.nan
    with pytest.raises(NonFinite):
        farms(W)
    with pytest.raises(ShapeMismatch):
        farms(np.ones(20))

"""The fitted bulk: its scale, its edges, its test, and what has no bulk."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from querist.errors import BadOption, NumericalFailure, ShapeMismatch
from querist.sources.datasets.matrices import gaussian, spiked
from querist.sources.tensors import open_source
from querist.statistics import stream
from querist.weights.errors import InvalidSpectrum
from querist.weights.nulls import beyond_copies, bulk_p, fit_mp, mp_quantiles, tw_edge
from querist.weights.nulls._simulate import wishart_eigenvalues
from querist.weights.spectrum import esd, matrices


def spectrum(W):
    return np.sort(np.linalg.svd(W, compute_uv=False) ** 2)


@pytest.mark.parametrize(("N", "M", "sd"), [(50, 100, 0.018), (100, 100, 0.012), (200, 400, 0.005), (400, 400, 0.003)])
def test_scale_is_unbiased(N, M, sd):
    rng = np.random.default_rng(N + M)
    scales = [fit_mp(wishart_eigenvalues(N, M, rng), (N, M)).sigma_mp for _ in range(400)]
    assert np.mean(scales) == pytest.approx(1, abs=0.0025 + 3 * sd / 20)
    assert np.std(scales) < sd


def test_exact_quantiles_give_the_exact_scale():
    fit = fit_mp(9 * mp_quantiles(80, 160), (160, 80))
    assert fit.sigma_mp == pytest.approx(3, rel=1e-9)
    assert fit.n_spikes_tw99 == 0
    assert fit.bulk_ks == pytest.approx(0.5, abs=1e-6)  # quantiles at (i − ½)/N are half a step from both sides
    assert fit.bulk_p == 1


def test_spikes_do_not_move_the_scale():
    fit = fit_mp(spectrum(spiked(240, 120, strengths=(6.0, 5.0, 4.0))), (240, 120))
    assert fit.n_spikes_tw99 == 3
    assert fit.sigma_mp == pytest.approx(1, abs=0.015)
    assert fit.softrank < 0.3
    assert fit.bulk_p > 0.01


@settings(deadline=None, max_examples=20)
@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 50))
def test_scale_equivariance(scale, seed):
    evals = spectrum(gaussian(40, 60, seed=seed).astype(float))
    one, other = fit_mp(evals, (40, 60)), fit_mp(evals * scale, (40, 60))
    assert other.sigma2 == pytest.approx(one.sigma2 * scale, rel=1e-9)
    assert other.lambda_plus == pytest.approx(one.lambda_plus * scale, rel=1e-9)
    assert (other.n_spikes_tw99, other.softrank) == (one.n_spikes_tw99, pytest.approx(one.softrank))
    assert other.bulk_ks == pytest.approx(one.bulk_ks, rel=1e-6)


def test_softrank_never_exceeds_one():
    assert 0 < fit_mp(spectrum(gaussian(400, 400)), (400, 400)).softrank <= 1


def test_the_same_spikes_at_ten_times_the_scale():
    W = gaussian(120, 200).astype(float)
    one, other = fit_mp(spectrum(W), W.shape), fit_mp(spectrum(10 * W), W.shape)
    assert (one.n_spikes_tw95, one.n_spikes_tw99) == (other.n_spikes_tw95, other.n_spikes_tw99)


def at_level(p, N, q):
    """The bulk distance whose p is this, by bisection."""
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bulk_p(middle, N, q) > p else (low, middle)
    return low


@pytest.mark.parametrize(("N", "q99"), [(50, 2.7), (100, 3.1), (200, 3.3), (300, 3.4), (400, 3.7)])
def test_the_table_gives_the_reference_quantiles(N, q99):
    """Given to one digit from fewer draws: ours lie up to .25 above, and on .65 + ½·ln N within .25."""
    assert at_level(0.01, N, 0.5) == pytest.approx(q99, abs=0.25)
    assert at_level(0.01, N, 0.5) == pytest.approx(0.65 + 0.5 * np.log(N), abs=0.25)
    assert at_level(0.05, N, 0.5) == pytest.approx(0.4 + 0.5 * np.log(N), abs=0.2)


def test_p_is_uniform_where_it_was_not_simulated():
    """Size and ratio between those of the table, other draws: the whole of the distribution, not only its tail."""
    rng = np.random.default_rng(11)
    p = np.array([fit_mp(wishart_eigenvalues(80, 130, rng), (80, 130)).bulk_p for _ in range(3000)])
    for level in (0.75, 0.5, 0.2, 0.05):
        assert np.mean(p < level) == pytest.approx(level, abs=3.5 * np.sqrt(level * (1 - level) / 3000) + 0.1 * level)


def test_p_falls_and_reaches_far():
    values = [bulk_p(ks, 300, 0.7) for ks in np.linspace(0.5, 12, 60)]
    assert values[0] == 1
    assert all(a >= b for a, b in itertools.pairwise(values))
    assert 0 < values[-1] < 1e-6


@given(N=st.integers(2, 20_000), q=st.floats(1e-4, 1), count=st.integers(1, 50), ks=st.floats(0, 40))
def test_p_is_a_probability_that_falls_with_ks_and_rises_with_size(N, q, count, ks):
    p = bulk_p(ks, N, q, count=count)
    assert 0 <= p <= 1
    assert bulk_p(ks + 0.5, N, q, count=count) <= p
    assert bulk_p(ks, 2 * N, q, count=count) >= p
    assert bulk_p(ks, N, q, count=count + 1) >= p


def test_beyond_the_table_is_told():
    assert not fit_mp(mp_quantiles(1024, 1100), (1024, 1100)).bulk_extrapolated
    assert fit_mp(mp_quantiles(1025, 1100), (1025, 1100)).bulk_extrapolated
    # Linear in ln N: 1500 lies as far above 3000 as 6000 below it.
    steps = np.diff([at_level(0.05, N, 0.6) for N in (1500, 3000, 6000)])
    assert steps[0] == pytest.approx(steps[1], abs=0.02)
    assert 0.25 < steps[0] < 0.4  # ½·ln 2 is .35


@pytest.mark.parametrize(
    "evals",
    [
        np.zeros(30),
        np.concatenate([np.zeros(28), [1.0, 2.0]]),
        np.array([1.0, 2.0, 3.0]),
    ],
)
def test_without_a_bulk(evals):
    with pytest.raises(NumericalFailure):
        fit_mp(evals, (evals.size, evals.size))


@pytest.mark.parametrize(
    "evals", [np.full(40, 3.0), np.concatenate([np.zeros(10), np.linspace(1, 9, 30)]), np.geomspace(1e-30, 1e30, 40)]
)
def test_spectra_unlike_any_bulk_are_fitted_and_rejected(evals):
    """All alike (an orthogonal matrix), a quarter zero, sixty decades."""
    fit = fit_mp(evals, (40, 60))
    assert fit.bulk_p < 1e-3
    assert 0 < fit.softrank <= 1
    assert fit.sigma2 > 0
    assert fit.n_spikes_tw99 <= fit.n_spikes_tw95 <= 40


def test_any_order_the_input_unchanged():
    evals = spectrum(gaussian(30, 50).astype(float))
    mixed = np.random.default_rng(0).permutation(evals)
    kept = mixed.copy()
    assert fit_mp(mixed, (30, 50)) == fit_mp(evals, (50, 30))
    assert np.array_equal(mixed, kept)


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: fit_mp(np.array([1.0, 2, np.nan, 3, 4, 5]), (6, 6)), InvalidSpectrum, "index 2: nan"),
        (lambda: fit_mp(np.array([1.0, 2, 3, 4, 5, -6]), (6, 6)), InvalidSpectrum, "index 5: -6"),
        (lambda: fit_mp(np.ones(6, dtype=complex), (6, 6)), InvalidSpectrum, "complex"),
        (lambda: fit_mp(np.ones((3, 3)), (3, 3)), InvalidSpectrum, "vector"),
        (lambda: fit_mp(np.ones(12), (6, 9)), ShapeMismatch, "12 eigenvalues.*count 1"),
        (lambda: bulk_p(1.0, 100, 1.5), BadOption, "q=1.5"),
        (lambda: bulk_p(float("nan"), 100, 0.5), BadOption, "ks=nan"),
    ],
)
def test_wrong_input_is_told(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_a_pool_of_slices_shares_scale_and_edge():
    rng = np.random.default_rng(3)
    pooled = np.sort(np.concatenate([4 * wishart_eigenvalues(48, 64, rng) for _ in range(9)]))
    fit = fit_mp(pooled, (64, 48), count=9)
    assert fit.sigma_mp == pytest.approx(2, rel=0.01)
    assert fit.tw99 == pytest.approx(tw_edge(48, 64, 0.99, fit.sigma2, count=9))
    assert fit.bulk_p > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("N", "M"), [(8, 30), (40, 40), (60, 90), (60, 400), (150, 300), (300, 300), (400, 417)])
def test_one_in_a_hundred_noise_matrices_is_rejected(N, M):
    rng = np.random.default_rng(N * M)
    p = np.array([fit_mp(wishart_eigenvalues(N, M, rng), (N, M)).bulk_p for _ in range(3000)])
    assert np.mean(p < 0.01) <= 0.015
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.015)
    assert np.mean(p < 0.5) == pytest.approx(0.5, abs=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.5, 1.0])
def test_extrapolation_holds_at_twice_the_largest_size(q):
    rng = np.random.default_rng(2)
    N, M = 2048, round(2048 / q)
    p = np.array([fit_mp(wishart_eigenvalues(N, M, rng), (N, M)).bulk_p for _ in range(200)])
    assert np.mean(p < 0.5) == pytest.approx(0.5, abs=0.12)
    assert np.mean(p < 0.05) <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("N", "M", "count"), [(32, 48, 9), (16, 64, 4), (64, 64, 9), (32, 128, 49)])
def test_pooled_slices_keep_the_level(N, M, count):
    rng = np.random.default_rng(N * M + count)
    p = []
    for _ in range(1500):
        pooled = np.sort(np.concatenate([wishart_eigenvalues(N, M, rng) for _ in range(count)]))
        p.append(fit_mp(pooled, (N, M), count=count).bulk_p)
    assert np.mean(np.array(p) < 0.01) <= 0.015


@pytest.mark.slow
@pytest.mark.parametrize(
    ("out", "inputs", "kernel", "grid"),
    [(32, 32, (3, 3), (8, 8)), (64, 32, (3, 3), (16, 16)), (64, 48, (5, 5), (8, 8)), (32, 32, (1, 1), (8, 8))],
)
def test_noise_in_a_kernel_keeps_the_level_of_its_operator(out, inputs, kernel, grid):
    """Order one and as many matrices as the kernel has positions: between a tenth of the level (complex frequencies
    stray less) and the level. As many as there are frequencies would reject none, or every operator of a 1 x 1 kernel."""
    frequencies, positions, runs = math.prod(grid), math.prod(kernel), 400
    edge, known, counted = [], [], []
    for run in range(runs):
        weight = stream(run, "operator", out, inputs, kernel, grid).standard_normal((out, inputs, *kernel))
        (matrix,), _ = matrices(open_source({"c.weight": weight.astype(np.float32)}).refs, conv="operator", grid=grid)
        assert (matrix.count, matrix.independent) == (frequencies, min(positions, frequencies))
        evals = esd(matrix).evals
        fit = fit_mp(evals, (out, inputs), count=frequencies, independent=matrix.independent)
        edge.append(evals[-1] > fit.tw95)
        known.append(fit.bulk_p)
        counted.append(fit_mp(evals, (out, inputs), count=frequencies))
    assert 0.005 <= np.mean(edge) <= 0.05 + 0.025
    assert np.mean(np.array(known) < 0.05) <= 0.05 + 0.025
    assert np.mean([fit.n_spikes_tw95 > 0 for fit in counted]) <= 0.02
    if positions == 1:
        assert np.mean([fit.bulk_p < 0.01 for fit in counted]) == 1


@given(count=st.integers(1, 9), independent=st.integers(1, 9))
def test_copies_of_one_spectrum_are_judged_as_one(count, independent):
    evals = np.sort(np.concatenate([spectrum(gaussian(40, 60, seed=i)) for i in range(count)]))
    one = fit_mp(evals, (40, 60), count=count)
    again = fit_mp(np.repeat(evals, 2), (40, 60), count=2 * count, independent=count)
    assert again.bulk_p == pytest.approx(one.bulk_p, rel=0.2, abs=0.01)
    assert again.bulk_ks == pytest.approx(2 * one.bulk_ks, rel=0.05)
    assert (again.tw95, again.tw99) == pytest.approx((one.tw95, one.tw99), rel=1e-3)
    assert again.ks_sd == pytest.approx(2 * one.ks_sd)
    limited = fit_mp(evals, (40, 60), count=count, independent=independent)
    assert limited.independent == min(count, independent)
    assert limited.tw95 <= one.tw95 * (1 + 1e-9)


def test_being_one_more_copy():
    """Student's t by hand: three copies of mean 2 whose spread .1 is taken to be .37."""
    p = beyond_copies(3.0, [1.9, 2.0, 2.1])
    assert p == pytest.approx(stats.t.sf(1 / (0.37 * math.sqrt(4 / 3)), 2))
    assert beyond_copies(3.0, [1.0, 2.0, 3.0]) == pytest.approx(stats.t.sf(1 / math.sqrt(4 / 3), 2))
    assert beyond_copies(2.0, [1.9, 2.0, 2.1]) == pytest.approx(0.5)
    assert beyond_copies(3.0, [1.9, 2.0, 2.1], 1.0) > p

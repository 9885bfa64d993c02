"""The fitted bulk: its scale, its edges, its test, and what has no bulk."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.errors import NumericalFailure
from querist.sources.datasets.matrices import gaussian, spiked
from querist.weights.nulls import bulk_p, fit_mp, mp_quantiles
from querist.weights.nulls._simulate import wishart_eigenvalues


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


@pytest.mark.parametrize(("N", "q99"), [(50, 2.7), (100, 3.1), (200, 3.3), (300, 3.4), (400, 3.7)])
def test_the_table_gives_the_reference_quantiles(N, q99):
    assert bulk_p(q99 + 0.45, N, 0.5) < 0.01
    assert bulk_p(q99 - 0.45, N, 0.5) > 0.01
    assert bulk_p(0.4 + 0.5 * np.log(N) + 0.45, N, 0.5) < 0.05


def test_p_falls_and_reaches_far():
    values = [bulk_p(ks, 300, 0.7) for ks in np.linspace(0.5, 12, 60)]
    assert values[0] == 1
    assert all(a >= b for a, b in itertools.pairwise(values))
    assert 0 < values[-1] < 1e-6


@pytest.mark.parametrize("evals", [np.zeros(30), np.concatenate([np.zeros(28), [1.0, 2.0]]), np.array([1.0, 2.0, 3.0])])
def test_without_a_bulk(evals):
    with pytest.raises(NumericalFailure):
        fit_mp(evals, (evals.size, evals.size))


@pytest.mark.slow
@pytest.mark.parametrize(("N", "M"), [(40, 40), (60, 90), (60, 400), (150, 300), (300, 300)])
def test_one_in_a_hundred_noise_matrices_is_rejected(N, M):
    rng = np.random.default_rng(N * M)
    p = np.array([fit_mp(wishart_eigenvalues(N, M, rng), (N, M)).bulk_p for _ in range(3000)])
    assert np.mean(p < 0.01) <= 0.015
    assert np.mean(p < 0.05) == pytest.approx(0.05, abs=0.015)


@pytest.mark.slow
def test_pooled_slices_keep_the_level():
    rng = np.random.default_rng(5)
    p = []
    for _ in range(1500):
        pooled = np.sort(np.concatenate([wishart_eigenvalues(32, 48, rng) for _ in range(9)]))
        p.append(fit_mp(pooled, (32, 48), count=9).bulk_p)
    assert np.mean(np.array(p) < 0.01) <= 0.015

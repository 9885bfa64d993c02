"""Shrinkage and outliers against published values and against matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querist.errors import BadOption, NonFinite, ShapeMismatch
from querist.sources.datasets.matrices import gaussian, spiked
from querist.weights.shrinkage import (
    bbp_outlier,
    bbp_overlap_long,
    bbp_overlap_short,
    bbp_threshold,
    frobenius_shrinker,
    hard_threshold,
    shrink,
)


@pytest.mark.parametrize(("beta", "omega"), [(1.0, 2.8584), (2 / 3, 2.3897), (0.25, 1.8369)])
def test_thresholds_without_sigma(beta, omega):
    assert hard_threshold(beta, known_sigma=False) == pytest.approx(omega, abs=2e-4)


def test_threshold_of_a_square_matrix_is_4_over_root_3():
    assert hard_threshold(1.0) == pytest.approx(4 / np.sqrt(3), rel=1e-12)


def planted(strength, seed, h=800, d=400):
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal(h), rng.standard_normal(d)
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    return rng.standard_normal((h, d)) + strength * np.outer(u, v), u, v


@pytest.mark.parametrize(("times", "published"), [(1.2, 1.735), (4.0, 3.586)])
def test_outliers_of_a_planted_term(times, published):
    """σ₁/√M of an 800 x 400 matrix at 1.2 and at four times the threshold."""
    strength = times * bbp_threshold(800, 400)
    predicted = np.sqrt(bbp_outlier(strength / np.sqrt(800), 0.5))
    assert predicted == pytest.approx(published, abs=1e-3)
    tops = [np.linalg.norm(planted(strength, seed)[0], 2) / np.sqrt(800) for seed in range(3)]
    assert np.mean(tops) == pytest.approx(published, rel=0.015)


@given(times=st.floats(1.01, 30), h=st.integers(5, 500), d=st.integers(5, 500))
def test_the_outlier_in_noise_of_unit_variance(times, h, d):
    """M times the outlier at strength θ/√M is (h + θ²)(d + θ²)/θ²."""
    M, beta = max(h, d), min(h, d) / max(h, d)
    strength = times * bbp_threshold(h, d)
    expected = (h + strength**2) * (d + strength**2) / strength**2
    assert M * bbp_outlier(strength / np.sqrt(M), beta) == pytest.approx(expected, rel=1e-12)


@given(beta=st.floats(0.01, 1.0))
def test_at_the_threshold_the_outlier_is_the_edge_and_overlaps_nothing(beta):
    theta = beta**0.25
    assert bbp_outlier(0.999 * theta, beta) is None
    assert bbp_overlap_short(0.999 * theta, beta) == bbp_overlap_long(0.999 * theta, beta) == 0
    assert bbp_outlier(theta * (1 + 1e-6), beta) == pytest.approx((1 + np.sqrt(beta)) ** 2, rel=1e-9)
    assert bbp_overlap_short(theta * (1 + 1e-6), beta) == pytest.approx(0, abs=1e-5)
    assert bbp_overlap_long(theta * (1 + 1e-6), beta) == pytest.approx(0, abs=1e-5)
    assert bbp_overlap_short(1e4, beta) == pytest.approx(1, abs=1e-7)


def test_overlaps_of_a_planted_term():
    strength, found = 2.0 * bbp_threshold(800, 400), []
    for seed in range(4):
        W, u, v = planted(strength, seed)
        left, _, right = np.linalg.svd(W, full_matrices=False)
        found.append(((right[0] @ v) ** 2, (left[:, 0] @ u) ** 2))
    theta = strength / np.sqrt(800)
    expected = [bbp_overlap_short(theta, 0.5), bbp_overlap_long(theta, 0.5)]
    assert np.mean(found, axis=0) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(("theta", "beta"), [(0.95, 0.5), (1.7, 0.5), (3.0, 1.0)])
def test_shrinker_undoes_the_outlier(theta, beta):
    """The optimal value for Frobenius loss is θ times the product of both cosines."""
    y = np.sqrt(bbp_outlier(theta, beta))
    cosines = np.sqrt(bbp_overlap_short(theta, beta) * bbp_overlap_long(theta, beta))
    assert frobenius_shrinker(y, beta) == pytest.approx(theta * cosines, rel=1e-9)
    assert frobenius_shrinker(1 + np.sqrt(beta), beta) == 0


@pytest.mark.parametrize("sigma", [None, 1.0])
def test_rank_and_energy_of_signal_in_noise(sigma):
    noise = shrink(np.linalg.svd(gaussian(200, 300), compute_uv=False), (200, 300), sigma=sigma)
    assert noise.denoised_rank == 0
    assert noise.denoised_energy < 0.02
    strong = gaussian(200, 300) + 100 * np.outer(np.eye(200)[0], np.eye(300)[0])
    result = shrink(np.linalg.svd(strong, compute_uv=False), (200, 300), sigma=sigma)
    assert result.denoised_rank == 1
    assert 0.1 < result.denoised_energy < 0.2


def test_nothing_left_of_nothing():
    assert shrink(np.zeros(20), (20, 30)).denoised_energy == 0


def test_denoising_brings_a_matrix_nearer_to_its_signal():
    """In Frobenius loss the shrunken matrix beats the one cut at the hard threshold, and that the noisy one."""
    rng = np.random.default_rng(4)
    factors = [np.outer(rng.standard_normal(120), rng.standard_normal(200)) for _ in range(3)]
    signal = 40 / np.sqrt(120 * 200) * sum(factors)
    noisy = signal + rng.standard_normal((120, 200))
    left, values, right = np.linalg.svd(noisy, full_matrices=False)
    result = shrink(noisy)
    assert result.denoised_rank == 3
    candidates = (result.values, np.where(values > result.threshold, values, 0), values)
    losses = [np.linalg.norm((left * kept) @ right - signal) for kept in candidates]
    assert losses == sorted(losses)
    assert losses[0] < 0.25 * losses[2]


@given(scale=st.floats(1e-6, 1e6))
def test_scale_equivariance(scale):
    values = np.linalg.svd(spiked(60, 40, strengths=(4.0, 3.0)).astype(float), compute_uv=False)
    one, other = shrink(values, (60, 40)), shrink(scale * values, (60, 40))
    assert (other.denoised_rank, one.denoised_rank) == (2, 2)
    assert other.denoised_energy == pytest.approx(one.denoised_energy, rel=1e-9)
    assert other.sigma == pytest.approx(scale * one.sigma, rel=1e-9)
    assert np.allclose(other.values, scale * one.values, rtol=1e-9, atol=0)


def test_a_matrix_its_singular_values_in_any_order_and_a_pool_give_the_same():
    W = spiked(60, 40, strengths=(4.0,)).astype(float)
    values = np.linalg.svd(W, compute_uv=False)
    upside_down = values[::-1].copy()
    other = shrink(upside_down, (40, 60))
    assert shrink(W).denoised_energy == pytest.approx(other.denoised_energy, rel=1e-12)
    assert np.allclose(shrink(W).values, other.values[::-1])
    assert np.array_equal(upside_down, values[::-1])
    pool = shrink(np.concatenate([values, values]), (60, 40), count=2)
    assert pool.denoised_rank == 2
    assert pool.denoised_energy == pytest.approx(other.denoised_energy, rel=1e-9)


def test_a_matrix_of_low_rank_has_no_noise():
    values = np.zeros(40)
    values[:3] = 7.0, 5.0, 2.0
    result = shrink(values, (40, 40))
    assert (result.denoised_rank, result.sigma, result.threshold) == (3, 0.0, 0.0)
    assert result.denoised_energy == 1


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: shrink(np.ones(5)), ShapeMismatch, "shape=None"),
        (lambda: shrink(np.ones(50), (4, 9)), ShapeMismatch, r"shape \(50,\)"),
        (lambda: shrink(np.ones((4, 9)), (9, 5)), ShapeMismatch, r"shape \(4, 9\)"),
        (lambda: shrink(np.array([1.0, np.nan]), (4, 9)), NonFinite, "NaN"),
        (lambda: shrink(np.ones(4), (4, 9), sigma=-1.0), BadOption, "-1.0"),
        (lambda: hard_threshold(1.5), BadOption, "1.5"),
        (lambda: frobenius_shrinker(2.0, 0.0), BadOption, "aspect ratio"),
        (lambda: bbp_outlier(-1.0, 0.5), BadOption, "theta"),
        (lambda: bbp_overlap_long(2.0, 1.2), BadOption, "1.2"),
    ],
)
def test_wrong_input_is_told(call, error, told):
    with pytest.raises(error, match=told):
        call()

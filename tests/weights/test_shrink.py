"""Shrinkage and outliers against published values and against matrices."""

from __future__ import annotations

import numpy as np
import pytest

from querist.sources.datasets.matrices import gaussian
from querist.weights.shrink import bbp_outlier, bbp_overlaps, bbp_threshold, frobenius_shrinker, hard_threshold, shrink


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
    theta = times * bbp_threshold(800, 400)
    predicted = bbp_outlier(theta, 800, 400)
    assert np.sqrt(predicted / 800) == pytest.approx(published, rel=0.015)
    tops = [np.linalg.norm(planted(theta, seed)[0], 2) for seed in range(3)]
    assert np.mean(tops) == pytest.approx(np.sqrt(predicted), rel=0.015)


def test_overlaps_of_a_planted_term():
    theta = 2.0 * bbp_threshold(800, 400)
    short, long = bbp_overlaps(theta / np.sqrt(800), 0.5)
    found = []
    for seed in range(4):
        W, u, v = planted(theta, seed)
        left, _, right = np.linalg.svd(W, full_matrices=False)
        found.append(((right[0] @ v) ** 2, (left[:, 0] @ u) ** 2))
    assert np.mean(found, axis=0) == pytest.approx([short, long], abs=0.03)
    assert bbp_overlaps(0.5, 0.5) == (0.0, 0.0)
    assert bbp_outlier(0.9 * bbp_threshold(80, 40), 80, 40) is None


def test_shrinker_undoes_the_outlier():
    theta, beta = 1.7, 0.5
    y = np.sqrt((1 + theta**2) * (beta + theta**2) / theta**2)
    short, long = bbp_overlaps(theta, beta)
    # The optimal value for Frobenius loss is θ times the product of both cosines.
    assert frobenius_shrinker(y, beta) == pytest.approx(theta * np.sqrt(short * long), rel=1e-9)
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

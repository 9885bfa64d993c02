"""The Tracy–Widom law against published values, and the edge against matrices."""

from __future__ import annotations

import numpy as np
import pytest

from querist.errors import BadOption
from querist.weights.nulls import johnstone, tw1_cdf, tw1_quantile, tw1_sf, tw_edge
from querist.weights.nulls._simulate import tracy_widom_one, wishart_eigenvalues


# Quantiles: Bejan (2005), table 1; moments: Prähofer's tables as cited by Bornemann (2010).
@pytest.mark.parametrize(
    ("p", "x"), [(0.05, -3.1804), (0.5, -1.2686), (0.9, 0.4501), (0.95, 0.9793), (0.99, 2.0234), (0.999, 3.2724)]
)
def test_published_quantiles(p, x):
    assert tw1_quantile(p) == pytest.approx(x, abs=3e-4)
    assert tw1_cdf(x) == pytest.approx(p, abs=1e-4)
    assert tw1_sf(x) == pytest.approx(1 - p, abs=1e-4)


def test_published_moments():
    s = np.linspace(-9, 8, 40_001)
    mass = np.diff(tw1_cdf(s))
    middle = (s[1:] + s[:-1]) / 2
    mean = float(mass @ middle)
    assert mean == pytest.approx(-1.2065336, abs=1e-4)
    assert float(np.sqrt(mass @ (middle - mean) ** 2)) == pytest.approx(1.2679801, abs=2e-4)


def test_the_bundled_table_is_what_the_determinant_gives():
    s = np.array([-5.0, -1.0, 0.5, 3.0, 5.0])
    log_cdf, log_sf = tracy_widom_one(s, points=120)
    assert np.allclose(np.log(tw1_cdf(s)), log_cdf, rtol=1e-6)
    assert np.allclose(np.log(tw1_sf(s)), log_sf, rtol=1e-5)


def test_bidiagonal_draws_are_wishart():
    """Mean and second moment of the trace: NM and NM(N + M + 1)."""
    rng = np.random.default_rng(0)
    draws = np.array([wishart_eigenvalues(6, 11, rng) for _ in range(4000)])
    assert draws.sum(axis=1).mean() == pytest.approx(66, rel=0.01)
    assert (draws**2).sum(axis=1).mean() == pytest.approx(6 * 11 * 18, rel=0.02)


@pytest.mark.parametrize(("N", "M"), [(60, 60), (50, 200)])
def test_one_in_twenty_noise_matrices_passes_the_edge(N, M):
    rng = np.random.default_rng(1)
    edge = tw_edge(N, M, 0.95)
    share = np.mean([wishart_eigenvalues(N, M, rng)[-1] > edge for _ in range(2000)])
    assert share == pytest.approx(0.05, abs=0.017)  # three standard errors of the share, and O(N^-2/3) of the law


def test_the_largest_of_several():
    assert tw_edge(50, 90, 0.95, count=9) == pytest.approx(tw_edge(50, 90, 0.95 ** (1 / 9)))
    assert tw_edge(50, 90, 0.95, 4.0) == pytest.approx(4 * tw_edge(50, 90, 0.95))
    assert johnstone(90, 50) == johnstone(50, 90)


def test_levels_outside_the_range():
    with pytest.raises(BadOption, match="level"):
        tw1_quantile(1.0)

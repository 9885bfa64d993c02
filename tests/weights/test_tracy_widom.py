"""The Tracy–Widom law against published values, and the edge against matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import airy

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


def test_the_bundled_table_gives_the_determinant_between_its_points():
    s = np.random.default_rng(0).uniform(-8, 10, 60)
    log_cdf, log_sf = tracy_widom_one(s, points=160)
    assert np.log(tw1_cdf(s)) == pytest.approx(log_cdf, rel=0, abs=2e-6)
    assert np.log(tw1_sf(s)) == pytest.approx(log_sf, rel=0, abs=1e-7)


# log F₁(−x), x large, with its constant −(11/48)·ln 2 + ζ'(−1)/2: Baik, Buckingham & DiFranco (2008).
@pytest.mark.parametrize("x", [6.0, 8.0, 9.0, 12.0, 20.0])
def test_lower_tail_is_the_published_expansion(x):
    leading = x**3 / 24 + x**1.5 / (3 * np.sqrt(2)) + np.log(x) / 16 + 1 / (24 * np.sqrt(2) * x**1.5)
    constant = -11 / 48 * np.log(2) - 0.1654211437 / 2
    assert np.log(tw1_cdf(-x)) == pytest.approx(constant - leading, rel=0, abs=1e-4)


@pytest.mark.parametrize("x", [3.0, 6.0, 9.0, 11.0])
def test_upper_tail_is_half_the_integral_of_airy(x):
    """1 − F tends to the kernel's trace, ½∫Ai from x: the rest is smaller by another such factor."""
    trace = 0.5 * quad(lambda u: airy(u)[0], x, x + 15)[0]
    assert tw1_sf(x) == pytest.approx(trace, rel=trace + (5e-3 if x > 10 else 1e-6))


@given(p=st.floats(1e-10, 1 - 1e-10))
def test_quantile_inverts_cdf_in_both_tails(p):
    x = tw1_quantile(p)
    assert tw1_cdf(x) == pytest.approx(p, rel=1e-7)
    assert tw1_sf(x) == pytest.approx(1 - p, rel=1e-5)


def test_both_tails_add_to_one_and_end_where_they_should():
    s = np.linspace(-12, 14, 2001)
    assert tw1_cdf(s) + tw1_sf(s) == pytest.approx(np.ones(s.size), abs=4e-8)  # the interpolation, as documented
    assert (np.diff(tw1_sf(s)) <= 0).all()
    assert tw1_sf(14.0) > 0
    assert tw1_cdf([-np.inf, np.inf]).tolist() == [0, 1]


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


@pytest.mark.parametrize("p", [0.0, 1.0, -0.3, float("nan")])
def test_levels_outside_the_range(p):
    with pytest.raises(BadOption, match=f"level.*{p}"):
        tw1_quantile([0.5, p])

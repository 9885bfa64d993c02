"""The Marchenko–Pastur law against its closed forms and against matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from querist.errors import BadOption
from querist.weights.fits import fit_powerlaw
from querist.weights.nulls import mp_cdf, mp_edges, mp_moment, mp_pdf, mp_quantile, mp_quantiles

RATIOS = (0.02, 0.25, 2 / 3, 0.99, 1.0)


@pytest.mark.parametrize(("q", "median"), [(1.0, 0.65278), (2 / 3, 0.77238), (0.25, 0.91600)])
def test_medians(q, median):
    assert mp_quantile(0.5, q) == pytest.approx(median, abs=1e-5)


@pytest.mark.parametrize("q", RATIOS)
def test_density_integrates_to_one_and_to_its_moments(q):
    low, high = mp_edges(q)
    middle, half = (low + high) / 2, (high - low) / 2

    def moment(k):
        def slope(t):
            x = middle - half * np.cos(t)
            return x**k * mp_pdf(x, q) * half * np.sin(t)

        return quad(slope, 0, np.pi, limit=400)[0]

    assert moment(0) == pytest.approx(1, abs=1e-6)
    for k, exact in ((1, 1.0), (2, 1 + q), (3, 1 + 3 * q + q * q)):
        assert moment(k) == pytest.approx(exact, rel=1e-6)
        assert mp_moment(k, q) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("q", RATIOS)
def test_cdf_is_the_integral_of_the_density(q):
    low, high = mp_edges(q)
    for x in np.linspace(low, high, 7)[1:-1]:
        area = quad(lambda root: 2 * root * mp_pdf(low + root * root, q), 0, np.sqrt(x - low), limit=200)[0]
        assert mp_cdf(x, q) == pytest.approx(area, abs=2e-6)
    assert mp_cdf(low - 1, q) == 0
    assert mp_cdf(high + 1, q) == pytest.approx(1)


@given(u=st.floats(0.001, 0.999), q=st.floats(0.01, 1.0))
def test_quantile_inverts_cdf(u, q):
    assert mp_cdf(mp_quantile(u, q), q) == pytest.approx(u, abs=1e-9)


@pytest.mark.parametrize(("q", "hill"), [(0.25, 3.4546), (2 / 3, 2.4492), (1.0, 2.1217)])
def test_hill_of_the_law(q, hill):
    """1 + ½/∫_{u>½} ln(x(u)/x(½)) du, which the finite quantiles approach."""
    median = float(mp_quantile(0.5, q))
    closed = 1 + 0.5 / quad(lambda u: np.log(mp_quantile(u, q) / median), 0.5, 1, limit=200)[0]
    assert closed == pytest.approx(hill, abs=2e-4)
    n = 4000
    assert fit_powerlaw(mp_quantiles(n, round(n / q)), method="hill").alpha == pytest.approx(hill, rel=2e-3)


def test_random_matrices_follow_it():
    rng = np.random.default_rng(0)
    drawn = [np.linalg.svd(rng.standard_normal((150, 400)), compute_uv=False)[::-1] ** 2 for _ in range(20)]
    law = mp_quantiles(150, 400)
    gap = np.mean(drawn, axis=0) - law
    assert np.abs(gap[:-3]).max() < 0.01 * law[-1]
    # The largest ones lie below the law's edge by Tracy–Widom's mean, 1.2 of a scale of 21.
    assert np.abs(gap).max() < 40


@pytest.mark.parametrize("q", [0.0, -1.0, 1.5])
def test_ratios_outside_the_range(q):
    with pytest.raises(BadOption, match="aspect ratio"):
        mp_pdf(1.0, q)
    with pytest.raises(BadOption, match="level"):
        mp_quantile(1.5, 0.5)

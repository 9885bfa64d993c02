"""The Marchenko–Pastur law against its closed forms and against matrices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from querist.errors import BadOption
from querist.weights.fits import fit_powerlaw
from querist.weights.nulls import mp_cdf, mp_edges, mp_moment, mp_pdf, mp_quantile, mp_quantiles

RATIOS = (0.001, 0.02, 0.25, 2 / 3, 0.99, 4095 / 4096, 1.0)


@pytest.mark.parametrize(("q", "median"), [(1.0, 0.65278), (2 / 3, 0.77238), (0.25, 0.91600)])
def test_medians(q, median):
    assert mp_quantile(0.5, q) == pytest.approx(median, abs=1e-5)


def integral(function, q, end=np.pi):
    """∫ f dF for the density's F up to x = 1 + q − 2√q·cos(end), by quadrature in t, split where it bends for q near 1."""
    low, high = mp_edges(q)

    def slope(t):
        x = low + (high - low) * np.sin(t / 2) ** 2
        return function(x) * mp_pdf(x, q) * (high - low) / 2 * np.sin(t)

    bends = [bend for bend in (1 - np.sqrt(q), 10 * (1 - np.sqrt(q)), 0.3) if 0 < bend < end]
    parts = [0.0, *sorted(bends), end]
    return sum(quad(slope, a, b, limit=200, epsabs=1e-13)[0] for a, b in itertools.pairwise(parts))


@pytest.mark.parametrize("q", RATIOS)
def test_density_integrates_to_one_and_to_its_moments(q):
    for k, exact in ((0, 1.0), (1, 1.0), (2, 1 + q), (3, 1 + 3 * q + q * q)):
        assert integral(lambda x, k=k: x**k, q) == pytest.approx(exact, rel=1e-9)
        assert mp_moment(k, q) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("q", RATIOS)
def test_cdf_is_the_integral_of_the_density(q):
    low, high = mp_edges(q)
    for t in (0.003, 0.05, 0.7, 1.6, 2.9):
        x = low + (high - low) * np.sin(t / 2) ** 2
        assert mp_cdf(x, q) == pytest.approx(integral(np.ones_like, q, t), abs=1e-9)
    assert mp_cdf(low - 1, q) == 0
    assert mp_cdf(high + 1, q) == pytest.approx(1, abs=1e-12)


@given(u=st.floats(1e-6, 1 - 1e-6), q=st.floats(0.001, 1.0))
def test_quantile_inverts_cdf(u, q):
    x = mp_quantile(u, q)
    assert mp_cdf(x, q) == pytest.approx(u, abs=1e-12)
    assert mp_edges(q)[0] <= x <= mp_edges(q)[1] * (1 + 1e-15)


@given(q=st.floats(0.001, 1.0))
def test_quantiles_end_at_the_edges_and_rise(q):
    assert mp_quantile([0, 1], q) == pytest.approx(mp_edges(q), rel=1e-12)
    assert (np.diff(mp_quantile(np.linspace(0, 1, 500), q)) > 0).all()


@pytest.mark.parametrize("N", [64, 1024, 4096])
def test_smallest_eigenvalues_of_square_and_nearly_square_matrices(N):
    """F is (t + sin t)/π at q = 1, so its quantiles begin like (πu/2)²; a table of F over x loses them at N = 4096."""
    u = (np.arange(3) + 0.5) / N
    assert mp_quantiles(N, N)[:3] / N == pytest.approx((np.pi * u / 2) ** 2, rel=5 / N)
    # One row more lifts the least eigenvalues: the law then bends within t of 1 − √q, between the points of an even grid.
    assert (mp_quantiles(N, N + 1)[:3] > mp_quantiles(N, N)[:3]).all()
    low, high = mp_edges(N / (N + 1))
    t = 2 * np.arcsin(np.sqrt((mp_quantiles(N, N + 1)[:3] / (N + 1) - low) / (high - low)))
    assert [integral(np.ones_like, N / (N + 1), end) for end in t] == pytest.approx(u, rel=1e-6)


def test_the_law_is_continuous_at_one():
    u = np.linspace(0.001, 1, 200)
    assert mp_quantile(u, 1 - 1e-12) == pytest.approx(mp_quantile(u, 1.0), rel=1e-9)


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


def test_matched_quantiles_do_not_depend_on_the_order_of_the_sides():
    assert np.array_equal(mp_quantiles(40, 90), mp_quantiles(90, 40))
    assert mp_quantiles(300, 500).mean() == pytest.approx(500, rel=1e-4)
    with pytest.raises(ValueError, match="read-only"):
        mp_quantiles(40, 90)[0] = 0


@pytest.mark.parametrize("q", [0.0, -1.0, 1.5, float("nan")])
def test_ratios_outside_the_range(q):
    for call in (mp_edges, lambda q: mp_pdf(1.0, q), lambda q: mp_cdf(1.0, q), lambda q: mp_quantile(0.5, q)):
        with pytest.raises(BadOption, match=f"aspect ratio.*{q}"):
            call(q)


@pytest.mark.parametrize("u", [-0.5, 1.5, float("nan")])
def test_levels_outside_the_range(u):
    with pytest.raises(BadOption, match=f"level.*{u}"):
        mp_quantile([0.25, u, 0.75], 0.5)

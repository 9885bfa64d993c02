"""The pruned search against a plain one, written out here the slow way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.sources.datasets.matrices import gaussian, inverse_wishart, spiked
from querist.statistics import stream
from querist.weights.fits import fit_powerlaw

WEIGHTWATCHER = json.loads((Path(__file__).parent / "data" / "weightwatcher_fits.json").read_text(encoding="utf-8"))
LONG = {"deadline": None, "max_examples": 150}


def plain(x, min_tail=2):
    """Every distinct value in turn: (xmin, alpha, D, n_tail) arrays, in the words of the definition."""
    x = np.sort(np.asarray(x, dtype=float))
    x = x[x > 0]
    rows = []
    for xmin in np.unique(x)[:-1]:
        tail = x[x >= xmin]
        if tail.size < min_tail:
            continue
        alpha = 1 + tail.size / np.log(tail / xmin).sum()
        model = 1 - (tail / xmin) ** (1 - alpha)
        below = np.searchsorted(tail, tail, side="left") / tail.size
        rows.append((xmin, alpha, np.abs(model - below).max(), tail.size))
    return [np.array(column) for column in zip(*rows, strict=True)]


def spectrum(W):
    return np.linalg.svd(np.asarray(W, dtype=float), compute_uv=False)[::-1] ** 2


def check(x, min_tail=2):
    xmin, alpha, D, n_tail = plain(x, min_tail)
    fit = fit_powerlaw(x, min_tail=min_tail)
    best = int(np.flatnonzero(D.min() + 1e-12 >= D)[0])
    assert fit.xmin == xmin[best]
    assert fit.alpha == pytest.approx(alpha[best], rel=1e-10)
    assert pytest.approx(D[best], abs=1e-10) == fit.D
    assert fit.n_tail == n_tail[best]
    near = D <= 1.1 * fit.D
    margin = 1.96 * fit.sigma
    assert fit.low == pytest.approx(min(alpha[near].min(), fit.alpha - margin), rel=1e-9)
    assert fit.high == pytest.approx(max(alpha[near].max(), fit.alpha + margin), rel=1e-9)
    return fit


@pytest.mark.parametrize("shape", [(40, 60), (200, 300), (150, 150)])
@pytest.mark.parametrize("make", [gaussian, spiked, inverse_wishart])
def test_equals_the_plain_search_on_spectra(make, shape):
    check(spectrum(make(*shape)))


@pytest.mark.parametrize("n", [3, 30, 400])
@pytest.mark.parametrize("exponent", [1.5, 2.5, 4.0])
def test_equals_the_plain_search_on_pareto_samples(n, exponent):
    check(stream(0, "pareto", n, exponent).random(n) ** (-1 / (exponent - 1)))


@pytest.mark.parametrize("n", [1000, 3000])
def test_equals_the_plain_search_on_long_vectors(n):
    rng = stream(1, "long", n)
    for x in (rng.random(n) ** (-1 / 1.5), rng.gamma(3.0, size=n), rng.lognormal(size=n)):
        check(x)


# Subnormal numbers hold too few digits for ten of them to agree.
@settings(**LONG)
@given(st.lists(st.floats(1e-12, 1e12), min_size=2, max_size=40).filter(lambda x: len({*x}) > 1))
def test_equals_the_plain_search_on_anything(x):
    x = np.array(x)
    steps = np.diff(np.unique(x)) / np.unique(x)[1:]
    if steps.min() < 1e-9:
        return  # the definition itself, as written in `plain`, loses its digits there
    _, _, D, _ = plain(x)
    order = np.sort(D)
    if order.size > 1 and 1e-13 < order[1] - order[0] < 1e-11:
        return  # whether these two are one is a matter of rounding
    check(x)


@settings(**LONG)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=60).filter(lambda x: len({*x}) > 1), st.integers(2, 4))
def test_equals_the_plain_search_on_tied_values(x, min_tail):
    if len(x) < min_tail:
        assert fit_powerlaw(x, min_tail=min_tail).alpha is None
    else:
        check(x, min_tail)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(1e-9, 1e-5), (1e-3, 1e-10), (20.0, 1e-10)]))
def test_the_unit_of_the_logarithm_scales_the_slope(seed, unit_and_tolerance):
    """ln x → c·ln x leaves every D alone and divides α − 1 by c, down to values that agree to nine digits."""
    unit, tolerance = unit_and_tolerance
    logs = np.random.default_rng(seed).exponential(size=30)
    fit, one = fit_powerlaw(np.exp(logs * unit)), fit_powerlaw(np.exp(logs))
    assert fit.n_tail == one.n_tail
    assert (fit.alpha - 1) * unit == pytest.approx(one.alpha - 1, rel=tolerance)
    assert pytest.approx(one.D, rel=tolerance) == fit.D


def test_ties_in_D_are_counted_and_the_smallest_xmin_taken():
    # Two tails of two distinct values each, m = 2 and m = 4 with every value twice: the model at the top is 1 − e^−2 in
    # both, and so is the empirical share, ½.
    fit = fit_powerlaw([1.0, 1.0, 3.0, 3.0])
    assert pytest.approx(1 - np.exp(-2) - 0.5, abs=1e-14) == fit.D
    geometric = 2.0 ** np.arange(6)
    _, _, D, _ = plain(geometric)
    assert fit_powerlaw(geometric).ties == np.count_nonzero(D.min() + 1e-12 >= D)


def test_the_curve_is_the_plain_one():
    x = stream(2, "curve").lognormal(size=300)
    xmin, alpha, D, n_tail = plain(x)
    curve = fit_powerlaw(x).candidates
    np.testing.assert_array_equal(curve.xmin, xmin)
    np.testing.assert_allclose(curve.alpha, alpha, rtol=1e-11)
    np.testing.assert_allclose(curve.D, D, atol=1e-12)
    np.testing.assert_array_equal(curve.n_tail, n_tail)


@pytest.mark.parametrize("case", WEIGHTWATCHER["cases"], ids=lambda case: case["name"])
def test_weightwatcher_on_the_same_values(case):
    fit = fit_powerlaw(case["evals"])
    assert fit.alpha == pytest.approx(case["alpha"], rel=1e-10)
    assert fit.xmin == case["xmin"]
    assert pytest.approx(case["D"], abs=1e-10) == fit.D
    assert fit.sigma == pytest.approx(case["sigma"], rel=1e-10)
    assert fit.n_tail == case["n_tail"]
    curve = fit.candidates
    assert curve.alpha[0] == pytest.approx(case["alphas_first"], rel=1e-10)
    assert curve.D[0] == pytest.approx(case["D_first"], abs=1e-10)


def test_the_grid_beyond_the_limit():
    x = stream(3, "grid").pareto(1.5, 6000) + 1 + stream(3, "bump").gamma(2.0, size=6000)
    exact = fit_powerlaw(x)
    grid = fit_powerlaw(x, exact_limit=4000)
    assert (exact.xmin_search, grid.xmin_search) == ("exact", "grid")
    curve = exact.candidates
    place = int(np.flatnonzero(curve.xmin == grid.xmin)[0])
    assert pytest.approx(curve.D[place], abs=1e-12) == grid.D
    assert exact.D <= grid.D <= 1.05 * exact.D
    assert grid.candidates.D[np.searchsorted(grid.candidates.xmin, grid.xmin)] == pytest.approx(grid.D, abs=1e-12)
    assert 1990 <= grid.candidates.xmin.size <= 2010
    assert np.isin(curve.xmin[-300:], grid.candidates.xmin).all()
    neighbours = curve.D[[place - 1, place + 1]]
    assert (neighbours >= grid.D).all()


@pytest.mark.slow
def test_the_grid_on_a_long_vector():
    x = stream(4, "very long").pareto(1.5, 60_000) + 1
    exact = fit_powerlaw(x, exact_limit=10**6)
    grid = fit_powerlaw(x)
    assert grid.xmin_search == "grid"
    assert exact.D <= grid.D <= 1.05 * exact.D

"""Tail indices over k: closed forms, exact identities, consistency where the index is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querist.errors import BadOption, TooFewRows
from querist.statistics import stream
from querist.weights.fits import (
    InvalidSpectrum,
    double_bootstrap_k,
    fit_powerlaw,
    hill_curve,
    moments_estimator,
    pickands,
)


def pareto_quantiles(n, index):
    return ((np.arange(n) + 0.5) / n) ** -index


def test_hill_by_hand():
    curve = hill_curve([1.0, 2.0, 4.0, 16.0])
    np.testing.assert_array_equal(curve.k, [1, 2, 3])
    two = math.log(2)
    np.testing.assert_allclose(curve.index, [2 * two, (3 + 1) * two / 2, (4 + 2 + 1) * two / 3])
    np.testing.assert_allclose(curve.alpha, 1 + 1 / curve.index)
    np.testing.assert_array_equal(curve.xmin, [4.0, 2.0, 1.0])
    np.testing.assert_allclose(curve.se, curve.index / np.sqrt([1, 2, 3]))
    k, alpha = hill_curve([1.0, 2.0, 4.0, 16.0])
    np.testing.assert_array_equal(k, curve.k)
    np.testing.assert_array_equal(alpha, curve.alpha)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=40))
def test_hill_is_the_mean_log_excess_at_every_k(x):
    x = np.sort(x)
    for k, index in zip(*(lambda c: (c.k, c.index))(hill_curve(x)), strict=True):
        assert index == pytest.approx(np.log(x[-k:] / x[-k - 1]).mean(), abs=1e-12)


def test_hill_half_is_the_textbook_fit():
    x = stream(0, "half").lognormal(size=101)
    fit = fit_powerlaw(x, method="hill", hill="textbook")
    assert fit.alpha == pytest.approx(1 + 1 / hill_curve(x).at(50)[0], rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(1e-2, 1e2), min_size=8, max_size=40), st.floats(0.01, 100), st.floats(-3, 3))
def test_what_each_estimate_does_not_see(x, unit, shift):
    """None sees the unit; Pickands' does not see a shift either."""
    x = np.array(x)
    for estimate in (hill_curve, pickands, moments_estimator):
        np.testing.assert_allclose(estimate(x * unit).index, estimate(x).index, rtol=1e-6, atol=1e-6)
    moved = x + 5 + shift
    one, other = pickands(x + 5).index, pickands(moved).index
    fine = np.abs(one) < 20
    np.testing.assert_allclose(other[fine], one[fine], atol=1e-4)


@pytest.mark.parametrize("index", [0.3, 1.0, 2.0])
def test_on_exact_pareto_quantiles(index):
    x = pareto_quantiles(200_000, index)
    for estimate in (hill_curve, pickands, moments_estimator):
        assert estimate(x).at(20_000)[0] == pytest.approx(index, abs=2e-3)
    assert hill_curve(x).alpha[20_000] == pytest.approx(1 + 1 / index, rel=1e-3)


def test_bounded_and_exponential_tails():
    uniform = (np.arange(100_000) + 0.5) / 100_000
    assert pickands(uniform).at(2000)[0] == pytest.approx(-1, abs=1e-3)
    assert moments_estimator(uniform + 1).at(200)[0] == pytest.approx(-1, abs=2e-2)
    exponential = -np.log(uniform)
    assert pickands(exponential).at(500)[0] == pytest.approx(0, abs=1e-3)
    curve = pickands(uniform)
    assert np.isnan(curve.alpha[1999])


@pytest.mark.parametrize("estimate", [hill_curve, pickands, moments_estimator])
@pytest.mark.parametrize("index", [0.5, 1.0])
def test_standard_errors_cover(estimate, index):
    hits = 0
    for seed in range(400):
        x = stream(seed, "cover", index).random(2000) ** -index
        value, se = estimate(x).at(200)
        hits += abs(value - index) <= 1.96 * se
    assert 0.92 <= hits / 400 <= 0.98


def test_standard_errors_below_zero():
    for estimate, data in ((pickands, 0.0), (moments_estimator, 1.0)):
        hits = 0
        for seed in range(400):
            x = data + stream(seed, "below zero").random(4000)
            value, se = estimate(x).at(200)
            hits += abs(value + 1) <= 1.96 * se
        assert 0.9 <= hits / 400 <= 0.99


def test_intervals_of_alpha():
    curve = hill_curve(stream(0, "interval").random(500) ** -0.5)
    k = 100
    value, se = curve.at(k)
    assert curve.low[k - 1] == pytest.approx(1 + 1 / (value + 1.96 * se))
    assert curve.high[k - 1] == pytest.approx(1 + 1 / (value - 1.96 * se))
    assert np.isnan(curve.high[0])  # one value: the interval reaches 0


def test_ties_and_zeros():
    assert hill_curve([1.0, 3.0, 3.0]).index[0] == 0
    assert np.isnan(hill_curve([1.0, 3.0, 3.0]).alpha[0])
    np.testing.assert_array_equal(hill_curve([0.0, 0.0, 1.0, 2.0]).index, hill_curve([1.0, 2.0]).index)
    assert np.isnan(pickands([1.0, 2.0, 2.0, 2.0]).index).all()
    assert np.isnan(moments_estimator([1.0, 2.0, 2.0, 2.0]).index[0])


def test_too_few_and_invalid():
    for estimate, least in ((hill_curve, 2), (pickands, 4), (moments_estimator, 3)):
        with pytest.raises(TooFewRows, match=f"{least} or more"):
            estimate(np.ones(least - 1))
        with pytest.raises(InvalidSpectrum, match="index 1"):
            estimate([1.0, -1.0, 2.0, 3.0, 4.0])
    with pytest.raises(TooFewRows, match="1 to 3"):
        hill_curve([1.0, 2.0, 3.0, 4.0]).at(4)


# ------------------------------------------------------------------------------------------------ double bootstrap


def test_double_bootstrap_is_deterministic_and_consistent():
    x = stream(0, "double").random(800) ** -0.5
    one = double_bootstrap_k(x, samples=100)
    assert one == double_bootstrap_k(x[::-1].copy(), samples=100)
    assert one != double_bootstrap_k(x, samples=100, seed=1)
    assert one.index == hill_curve(x).at(one.k)[0]
    assert one.alpha == 1 + 1 / one.index
    assert one.n2 == round(one.n1**2 / 800)
    assert one.rho < 0


def test_double_bootstrap_takes_much_of_a_pareto_sample_and_little_of_a_biased_one():
    """Exact Pareto has no bias, so k is large; a Burr tail with rho = −½ has, and the best k is about n^½ to n^⅔."""
    pure, mixed = [], []
    for seed in range(12):
        u = stream(seed, "burr").random(2000)
        pure.append(double_bootstrap_k(u**-0.5, samples=60, seed=seed).k)
        mixed.append(double_bootstrap_k((u**-0.5 - 1) ** 1.0, samples=60, seed=seed).k)
    assert np.median(pure) > 700
    assert np.median(mixed) < 300


def test_double_bootstrap_is_near_the_best_k():
    """Burr, γ = ½, ρ = −½: the error at the chosen k is within twice that at the best fixed k, in root mean square."""
    chosen, fixed = [], []
    for seed in range(40):
        x = stream(seed, "best k").random(2000) ** -0.5 - 1
        curve = hill_curve(x).index - 0.5
        fixed.append(curve**2)
        chosen.append(curve[double_bootstrap_k(x, samples=60, seed=seed).k - 1] ** 2)
    assert math.sqrt(np.mean(chosen)) < 2 * math.sqrt(np.mean(fixed, axis=0).min())


def test_double_bootstrap_refuses():
    with pytest.raises(TooFewRows, match="50 or more"):
        double_bootstrap_k(np.arange(1.0, 40.0))
    x = np.arange(1.0, 200.0)
    for options in ({"samples": 0}, {"most": 1.0}, {"n1": 199}, {"n1": 10}):
        with pytest.raises(BadOption):
            double_bootstrap_k(x, **options)


def test_values_that_differ_by_a_rounding_are_tied():
    x = np.array([1.0] * 6 + [100.0, np.nextafter(100.0, 200.0)])
    assert np.isnan(pickands(x).index[0])
    assert np.isnan(pickands(x * 0.01171875).index[0])

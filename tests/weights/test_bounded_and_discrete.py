"""Bounded and discrete power laws, fixed xmin, and samples drawn from a fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import zeta

from querist.statistics import stream
from querist.weights.fits import ccdf_fit, fit_powerlaw
from querist.weights.fits._bootstrap import draw_tail
from querist.weights.fits._bounded import bounded
from querist.weights.fits._ladder import build
from querist.weights.fits._zeta import zeta_sum


def pareto(n, alpha, seed=0):
    return stream(seed, "pareto sample", n, alpha).random(n) ** (-1 / (alpha - 1))


# ------------------------------------------------------------------------------------------------ fixed xmin, xmax


def test_fixed_xmin_at_and_between_values():
    x = np.array([1.0, 2.0, 4.0, 8.0])
    for xmin in (2.0, 1.5):
        fit = fit_powerlaw(x, xmin=xmin)
        tail = x[x >= xmin]
        alpha = 1 + 3 / np.log(tail / xmin).sum()
        assert fit.alpha == pytest.approx(alpha, rel=1e-14)
        assert (fit.xmin, fit.n_tail, fit.xmin_search, fit.ambiguous) == (xmin, 3, "fixed", False)
        assert pytest.approx(np.abs(1 - (tail / xmin) ** (1 - alpha) - np.arange(3) / 3).max(), abs=1e-14) == fit.D
    one = fit_powerlaw([1.0, 5.0, 5.0], xmin=4.0)
    assert one.alpha == pytest.approx(1 + 1 / math.log(5 / 4))
    assert fit_powerlaw(x, xmin=8.0).alpha is None
    assert "xmin 9" in fit_powerlaw(x, xmin=9.0).reason
    assert fit_powerlaw(pareto(2000, 2.5), xmin=1e-3).n_tail == 2000


def test_pareto_interval_covers():
    """α ± 1.96σ with xmin known covers .95 ± .02 of independent samples."""
    rng = stream(0, "coverage")
    hits = 0
    for _ in range(1000):
        fit = fit_powerlaw(rng.random(200) ** (-1 / 1.5), xmin=1.0)
        hits += fit.low <= 2.5 <= fit.high
    assert 0.93 <= hits / 1000 <= 0.97


@pytest.mark.parametrize(("alpha", "xmax"), [(2.0, 30.0), (1.2, 100.0), (0.5, 10.0), (1.0, 50.0)])
def test_xmax_recovers_a_truncated_power_law(alpha, xmax):
    """CalculatedContent/WeightWatcher#103: the truncated likelihood finds α, the plain fit warns."""
    u = stream(0, "truncated", alpha).random(3000)
    c = 1 - alpha
    x = (1 + u * (xmax**c - 1)) ** (1 / c) if c else xmax**u
    fit = fit_powerlaw(x, xmin=1.0, xmax=xmax)
    assert abs(fit.alpha - alpha) < 3 * fit.sigma
    assert (fit.xmax, fit.bounded, fit.n_above) == (xmax, True, 0)
    plain = fit_powerlaw(x, xmin=1.0)
    assert plain.alpha > alpha + 3 * fit.sigma
    assert any("upper bound (xmax)" in words for words in plain.warnings)
    searched = fit_powerlaw(x, xmax=xmax)
    assert searched.D <= fit.D
    assert abs(searched.alpha - alpha) < 4 * searched.sigma  # the search takes the xmin that suits it


def test_xmax_likelihood_is_at_its_maximum():
    x = np.sort(pareto(300, 2.2))
    kept = x[x <= 20]
    fit = fit_powerlaw(x, xmin=1.0, xmax=20.0)
    assert fit.n_above == 300 - kept.size

    def loss(slope):
        return -(np.log(slope / (1 - 20.0**-slope)) - (slope + 1) * np.log(kept)).sum()

    best = minimize_scalar(loss, bounds=(0.1, 5), method="bounded", options={"xatol": 1e-10})
    assert fit.alpha - 1 == pytest.approx(best.x, abs=1e-7)
    h = 1e-4
    curve = (loss(best.x + h) - 2 * loss(best.x) + loss(best.x - h)) / h**2
    assert fit.sigma == pytest.approx(1 / math.sqrt(curve), rel=1e-4)
    model = (1 - kept ** -(fit.alpha - 1)) / (1 - 20.0 ** -(fit.alpha - 1))
    assert pytest.approx(np.abs(model - np.arange(kept.size) / kept.size).max(), abs=1e-10) == fit.D


def test_all_values_at_xmax():
    fit = fit_powerlaw([0.5, 7.0, 7.0], xmin=2.0, xmax=7.0)
    assert fit.alpha is None
    assert "at xmax" in fit.reason
    assert fit_powerlaw([0.5, 7.0, 7.0], xmin=2.0).alpha == pytest.approx(1 + 1 / math.log(3.5))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=25).filter(lambda x: np.ptp(x) > 0.01))
def test_every_bounded_exponent_solves_its_equation(x):
    ladder = build(np.sort(np.array(x)))
    law = bounded(ladder, 11.0)
    for i, slope in enumerate(law.slope):
        tail = np.sort(x)[np.sort(x) >= ladder.x[i]]
        y, span = np.log(tail / ladder.x[i]).mean(), math.log(11.0 / ladder.x[i])
        t = abs(slope) * span
        mean = 0.5 - t / 12 if t < 1e-4 else 1 / t - math.exp(-t) / -math.expm1(-t)
        assert y / span == pytest.approx(mean if slope >= 0 else 1 - mean, rel=1e-8)


# ------------------------------------------------------------------------------------------------ discrete data


@pytest.mark.parametrize("s", [1.01, 1.5, 2.5, 7.0, 40.0])
@pytest.mark.parametrize("q", [1.0, 2.0, 12.0, 1e3, 1e6])
def test_zeta_sums(s, q):
    total, first, second = zeta_sum(s, q, moments=True)
    mean, variance = first / total, second / total - (first / total) ** 2
    if s >= 7 and q <= 12:  # term by term; the thousandth is below 1e-12 of the first
        logs = np.log1p(np.arange(5000) / q)
        mass = np.exp(-s * logs)
        assert total == pytest.approx(mass.sum(), rel=1e-12)
        assert first == pytest.approx(mass @ logs, rel=1e-10)
        assert second == pytest.approx(mass @ logs**2, rel=1e-9)
        return
    assert total == pytest.approx(zeta(s, q) * q**s, rel=1e-10)
    h = 2e-3 * (s - 1)
    low, here, high = (math.log(zeta(s + step, q)) for step in (-h, 0, h))
    assert mean == pytest.approx((low - high) / (2 * h) - math.log(q), rel=1e-4, abs=1e-9)
    assert variance == pytest.approx((low - 2 * here + high) / h**2, rel=1e-3)


def test_discrete_exponent_is_at_its_maximum():
    x = np.floor(pareto(400, 2.4) * 3)
    fit = fit_powerlaw(x, discrete=True, xmin=4)
    tail = x[x >= 4]

    def loss(alpha):
        return tail.size * math.log(zeta(alpha, 4)) + alpha * np.log(tail).sum()

    best = minimize_scalar(loss, bounds=(1.1, 6), method="bounded", options={"xatol": 1e-10})
    assert fit.alpha == pytest.approx(best.x, abs=1e-6)
    h = 1e-3
    assert fit.sigma == pytest.approx(h / math.sqrt(loss(best.x + h) - 2 * loss(best.x) + loss(best.x - h)), rel=1e-4)
    values = np.unique(tail)
    below = np.array([(tail < value).mean() for value in values])
    assert pytest.approx(np.abs(1 - zeta(fit.alpha, values) / zeta(fit.alpha, 4) - below).max(), abs=1e-9) == fit.D


def test_counts_of_powerlaw_issue_61():
    """powerlaw-devs/powerlaw#61: integers give (2.59, xmin 1) as such and (3.81, 6) by the continuous formula; both are seen."""
    counts = {1: 233, 2: 33, 3: 13, 4: 10, 5: 2, 6: 3, 7: 2, 8: 2, 9: 1, 11: 1, 15: 1, 18: 1}
    x = np.repeat([*counts], [*counts.values()])
    fit = fit_powerlaw(x, discrete=True)
    assert (round(fit.alpha, 2), fit.xmin) == (2.59, 1)
    assert "xmin 1 (exponent 2.59, 302 values) has the least distance, 0.012" in fit.choice
    assert "the next minimum is xmin 4" in fit.choice
    at_six = np.flatnonzero(fit.candidates.xmin == 6)[0]
    exact = minimize_scalar(
        lambda s: 11 * math.log(zeta(s, 6)) + s * np.log(x[x >= 6]).sum(), bounds=(2, 6), method="bounded"
    ).x
    assert fit.candidates.alpha[at_six] == pytest.approx(exact, abs=1e-5)
    continuous = fit_powerlaw(x)
    assert (round(continuous.alpha, 2), continuous.xmin) == (3.81, 6)
    assert round(continuous.candidates.alpha[np.flatnonzero(continuous.candidates.xmin == 6)[0]], 2) == 3.81
    assert continuous.candidates.D[0] > 10 * fit.D


# ------------------------------------------------------------------------------------------------ bootstrap


def test_bootstrap_p():
    good = fit_powerlaw(pareto(150, 2.5), bootstrap=60)
    assert good.p > 0.1
    assert good.p == fit_powerlaw(pareto(150, 2.5), bootstrap=60).p
    assert good.p != fit_powerlaw(pareto(150, 2.5), bootstrap=60, seed=1).p
    body = stream(0, "two humps").uniform(1.0, 1.2, 200)
    bad = fit_powerlaw(np.concatenate([body, body + 5]), xmin=1.0, bootstrap=60)
    assert bad.p == pytest.approx(1 / 61)


@pytest.mark.slow
def test_bootstrap_level():
    p = np.array([fit_powerlaw(pareto(100, 2.5, seed), bootstrap=99, seed=seed).p for seed in range(300)])
    assert 0.03 <= (p <= 0.1).mean() <= 0.17


@pytest.mark.parametrize("options", [{}, {"discrete": True, "xmin": 3}, {"xmax": 20.0, "xmin": 1.0}])
def test_draws_follow_the_fit(options):
    x = pareto(500, 2.4)
    fit = fit_powerlaw(np.floor(3 * x) if "discrete" in options else x, **options)
    drawn = np.sort(draw_tail(fit, 20_000, stream(0, "draws")))
    assert drawn[0] >= fit.xmin
    values = np.unique(drawn)
    above = 1 - np.searchsorted(drawn, values, side="left") / drawn.size
    assert np.abs(above - ccdf_fit(fit, values)).max() < 1.95 / math.sqrt(20_000)
    again = fit_powerlaw(drawn, **options)
    assert abs(again.alpha - fit.alpha) < 4 * again.sigma

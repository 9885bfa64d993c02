"""Other laws for a tail: their maxima against scipy's densities and optimiser, and the tests against powerlaw's."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import powerlaw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize

from querist.errors import UnknownName
from querist.statistics import stream
from querist.weights.fits import (
    ALTERNATIVES,
    DEFAULT_ALTERNATIVES,
    InvalidSpectrum,
    compare_tail,
    fit_powerlaw,
    vuong,
)
from querist.weights.fits._cutoff import fit_cutoff, moments
from querist.weights.fits._lognormal import _excess, fit_lognormal

SAMPLES = {
    "pareto": stream(0, "pareto").random(400) ** (-1 / 1.5),
    "lognormal": stream(0, "lognormal").lognormal(0, 1, 400),
    "narrow lognormal": stream(0, "narrow").lognormal(3, 0.05, 300),
    "exponential": 1 + stream(0, "exponential").exponential(size=400),
    "weibull": stream(0, "weibull").weibull(0.6, 400),
    "gamma": stream(0, "gamma").gamma(2.0, size=400),
    "uniform": stream(0, "uniform").uniform(4, 5, 200),
    "few": stream(0, "few").gamma(2.0, size=6),
}
NAMES = {"stretched": "stretched_exponential", "truncated": "truncated_power_law"}


def tail_of(name, share=0.3):
    x = np.sort(SAMPLES[name])
    xmin = float(np.quantile(x, share))
    return x[x >= xmin], xmin


def log_density(law, parameters, x, xmin):
    """Log density on x >= xmin, from scipy's laws where it has them."""
    if law == "exponential":
        return stats.expon.logpdf(x, loc=xmin, scale=1 / parameters["rate"])
    if law == "lognormal":
        whole = stats.lognorm(parameters["sigma"], scale=math.exp(parameters["mu"]))
        return whole.logpdf(x) - whole.logsf(xmin)
    if law == "stretched":
        whole = stats.weibull_min(parameters["shape"], scale=parameters["rate"] ** (-1 / parameters["shape"]))
        return whole.logpdf(x) - whole.logsf(xmin)
    a, rate = parameters["alpha"], parameters["rate"]
    total = quad(lambda y: math.exp(-(a - 1) * y - rate * xmin * (math.exp(y) - 1)), 0, 60, limit=500)[0]
    return -a * np.log(x / xmin) - rate * (x - xmin) - math.log(total * xmin)


def maximum(law, x, xmin, start):
    """The largest log likelihood that a general minimiser finds, from our parameters and from elsewhere."""
    keys = [*start]
    positive = {"rate", "sigma", "shape"}

    def decode(theta):
        return {key: math.exp(t) if key in positive else t for key, t in zip(keys, theta, strict=True)}

    def loss(theta):
        value = -log_density(law, decode(theta), x, xmin).sum()
        return value if math.isfinite(value) else 1e12

    begin = np.array([math.log(start[key]) if key in positive else start[key] for key in keys])
    options = {"xatol": 1e-9, "fatol": 1e-11, "maxiter": 4000, "maxfev": 4000}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return max(-minimize(loss, begin + shift, method="Nelder-Mead", options=options).fun for shift in (0.0, 0.2))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("law", ALTERNATIVES)
def test_is_at_the_maximum(name, law):
    x, xmin = tail_of(name)
    fit = fit_powerlaw(SAMPLES[name], xmin=xmin, alternatives=(law,))
    power = stats.pareto.logpdf(x, fit.alpha - 1, scale=xmin)
    (found,) = fit.comparisons
    if found.limit:
        y = np.log(x / xmin)
        if law == "truncated":
            slope = fit.alpha - 1
            assert slope > 1
            assert x.mean() / xmin >= slope / (slope - 1)
        else:
            assert (y**2).mean() >= 2 * y.mean() ** 2 * (1 - 1e-8)
        assert (found.R, found.p) == (0.0, 1.0)
        return
    ours = log_density(law, found.parameters, x, xmin)
    assert maximum(law, x, xmin, found.parameters) == pytest.approx(ours.sum(), abs=1e-6)
    d = power - ours
    if law == "truncated":
        assert pytest.approx(d.sum(), abs=1e-7 * (1 + abs(ours.sum()))) == found.R
        assert found.R <= 0
        assert found.p == pytest.approx(stats.chi2.sf(-2 * d.sum(), 1), rel=1e-5)
    else:
        R = d.sum() / (d.std() * math.sqrt(d.size))
        assert pytest.approx(R, rel=1e-5) == found.R
        assert found.p == pytest.approx(2 * stats.norm.sf(abs(R)), rel=1e-4)


@pytest.mark.parametrize("name", ["pareto", "lognormal", "exponential", "weibull"])
@pytest.mark.parametrize("law", ["exponential", "lognormal", "stretched", "truncated"])
def test_beside_powerlaw(name, law):
    """powerlaw's own optimiser gets to our maximum or stops short of it, never beyond."""
    x, xmin = tail_of(name)
    fit = fit_powerlaw(SAMPLES[name], xmin=xmin, alternatives=(law,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(powerlaw.Fit(SAMPLES[name], xmin=xmin, verbose=0), NAMES.get(law, law))
        likelihoods = np.array(theirs.loglikelihoods(x))
        power = stats.pareto.logpdf(x, fit.alpha - 1, scale=xmin)
        R, p = powerlaw.statistics.loglikelihood_ratio(
            power.copy(), likelihoods.copy(), nested=law == "truncated", normalized_ratio=law != "truncated"
        )
    (found,) = fit.comparisons
    ours = power.sum() if found.limit else log_density(law, found.parameters, x, xmin).sum()
    assert likelihoods.sum() <= ours + 1e-5
    if likelihoods.sum() > ours - 1e-4 and not found.limit:
        assert pytest.approx(R, abs=2e-3) == found.R
        assert found.p == pytest.approx(p, abs=2e-3)


def test_an_exponential_sample_loses():
    """CalculatedContent/WeightWatcher#173."""
    x = stream(0, "issue 173").exponential(size=1000)
    fit = fit_powerlaw(x, xmin=0.1, alternatives="all")
    assert fit.ratios["exponential"][0] < 0
    assert fit.ratios["exponential"][1] < 1e-6
    assert all(R < 0 for R, _ in fit.ratios.values())
    searched = fit_powerlaw(x, alternatives="default").ratios["exponential"]
    assert searched[0] < 0


def test_a_pareto_sample_beats_the_exponential_and_is_no_worse_than_the_lognormal():
    won, worse = 0, 0
    for seed in range(100):
        x = stream(seed, "pareto wins").random(400) ** (-1 / 1.5)
        ratios = fit_powerlaw(x, xmin=1.0, alternatives="default").ratios
        won += ratios["exponential"][0] > 0 and ratios["exponential"][1] < 0.1
        worse += ratios["lognormal"][0] < 0 and ratios["lognormal"][1] < 0.1
    assert won >= 90
    assert worse <= 12


def test_a_lognormal_beats_the_power_law():
    for seed in range(20):
        x = stream(seed, "lognormal wins").lognormal(0, 1, 500)
        R, p = fit_powerlaw(x, xmin=0.5, alternatives=("lognormal",)).ratios["lognormal"]
        assert R < 0
        assert p < 0.01


@pytest.mark.parametrize("a", [-60.0, -8.0, -1.0, 0.0, 1.0, 3.99, 4.01, 10.0, 1e3])
def test_the_excess_of_a_cut_normal(a):
    delta, rest = _excess(a)
    law = stats.truncnorm(a, math.inf) if a < 8 else None
    mean = law.mean() - a if law else 1 / a - 2 / a**3 + 10 / a**5
    assert delta == pytest.approx(mean, rel=1e-3 if law is None and a < 20 else 1e-8)
    assert rest == pytest.approx(1 - a * delta, abs=1e-9 * (1 + a * a))


@settings(deadline=None, max_examples=60)
@given(st.floats(-30, 200), st.floats(1e-3, 50))
def test_lognormal_moments_give_back_their_parameters(cut, sigma):
    """With δ and 1 − aδ of the cut normal, its mean and mean square; the root must find the cut again."""
    delta, rest = _excess(cut)
    found = fit_lognormal(sigma * delta, sigma * sigma * rest)
    assert found is not None
    assert found.cut == pytest.approx(cut, rel=1e-5, abs=1e-6)
    assert found.sigma == pytest.approx(sigma, rel=1e-5)


@pytest.mark.parametrize("slope", [-3e3, -3.0, -0.5, 0.0, 0.3, 1.5, 6.0])
@pytest.mark.parametrize("rate", [1e-7, 1e-3, 0.1, 2.0, 50.0, 1e4])
def test_cutoff_moments_against_quadrature(slope, rate):
    peak = max(0.0, math.log(-slope / rate)) if slope < 0 else 0.0
    top = -slope * peak - rate * math.expm1(peak)

    def integral(f):
        def mass(y):
            return f(y) * math.exp(-slope * y - rate * math.expm1(y) - top)

        end, steep = peak + 45, max(abs(slope), rate, 1.0)
        wide = 12 / math.sqrt(steep) if peak else 12 / steep
        turn = max(peak, math.log1p(1 / rate))
        ends = sorted({0.0, max(peak - wide, 0.0), peak, min(peak + wide, end), min(turn + 4, end), end})
        pieces = itertools.pairwise(ends)
        return sum(quad(mass, a, min(b, 650.0), epsabs=0, epsrel=1e-12, limit=300)[0] for a, b in pieces)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        total = integral(lambda y: 1.0)
        ey, eu = integral(lambda y: y) / total, integral(math.expm1) / total
        vy = integral(lambda y: (y - ey) ** 2) / total
        vu = integral(lambda y: (math.expm1(y) - eu) ** 2) / total
        cov = integral(lambda y: (y - ey) * (math.expm1(y) - eu)) / total
    found = moments(slope, rate)
    assert found[0] == pytest.approx(math.log(total) + top, abs=1e-9)
    assert found[1:] == pytest.approx((ey, rate * eu, vy, rate * cov, rate**2 * vu), rel=1e-7)


@pytest.mark.parametrize(("slope", "rate"), [(0.5, 0.01), (1.5, 0.2), (-0.7, 1.0), (0.01, 1e-5), (3.0, 1e-4)])
def test_cutoff_finds_the_parameters_of_its_moments(slope, rate):
    _, ey, ev, *_ = moments(slope, rate)
    found = fit_cutoff(ey, ev / rate)
    assert found is not None
    assert found.alpha - 1 == pytest.approx(slope, rel=1e-5, abs=1e-6)
    assert found.rate == pytest.approx(rate, rel=1e-4)


def test_names():
    x, xmin = tail_of("gamma")
    alpha = fit_powerlaw(x, xmin=xmin).alpha
    assert [c.name for c in compare_tail(x, alpha, xmin)] == [*DEFAULT_ALTERNATIVES]
    assert [c.name for c in compare_tail(x, alpha, xmin, "all")] == [*ALTERNATIVES]
    assert compare_tail(x, alpha, xmin, "none") == ()
    assert compare_tail(x, alpha, xmin, "lognormal")[0].name == "lognormal"
    assert vuong(x, alpha, xmin, "lognormal") == fit_powerlaw(x, xmin=xmin, alternatives="all").ratios["lognormal"]
    with pytest.raises(UnknownName, match="exponential, lognormal, truncated, stretched"):
        compare_tail(x, alpha, xmin, ("weibull",))


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_unit_changes_no_ratio(factor):
    x = SAMPLES["gamma"]
    one, other = fit_powerlaw(x, alternatives="all"), fit_powerlaw(x * factor, alternatives="all")
    for name, (R, p) in one.ratios.items():
        assert other.ratios[name] == pytest.approx((R, p), rel=1e-6)


def test_tails_of_any_width():
    wide = np.array([1.0, 2.0, 1e10, 1e200, 1e300])
    for R, p in fit_powerlaw(wide, xmin=1.0, alternatives="all").ratios.values():
        assert math.isfinite(R)
        assert 0 <= p <= 1
    fit = fit_powerlaw(wide * 1e-10, xmin=1e-300, alternatives="all")
    assert fit.ratios == {}
    assert any("No other law was compared: the tail runs from 1e-300" in words for words in fit.warnings)
    with pytest.raises(InvalidSpectrum, match="runs from"):
        compare_tail(wide, 2.0, 1e-300)


def test_a_tail_of_one_value():
    fit = fit_powerlaw([1.0, 5.0, 5.0], xmin=2.0, alternatives="all")
    assert fit.alpha is not None
    assert fit.comparisons == ()
    assert any("one value, 5" in words for words in fit.warnings)

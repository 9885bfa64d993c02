"""Power-law fits: published data sets, closed forms, options, bad values, and what users reported elsewhere."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import powerlaw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import zeta

from querist.errors import BadOption, BadValues, UnknownName
from querist.sources.datasets.matrices import gaussian, spiked
from querist.sources.datasets.registry import locate
from querist.statistics import stream
from querist.weights.fits import (
    InvalidSpectrum,
    candidates,
    ccdf_fit,
    density_fit,
    fit_powerlaw,
    hill_exponent,
)
from querist.weights.fits._bootstrap import draw_tail
from querist.weights.fits._bounded import bounded
from querist.weights.fits._ladder import build
from querist.weights.fits._signs import fingers
from querist.weights.fits._zeta import zeta_sum

REFERENCE = Path(powerlaw.__file__).parent / "reference_data"


def spectrum(W):
    return np.linalg.svd(np.asarray(W, dtype=float), compute_uv=False)[::-1] ** 2


def pareto(n, alpha, seed=0):
    return stream(seed, "pareto sample", n, alpha).random(n) ** (-1 / (alpha - 1))


# ------------------------------------------------------------------------------------------------ published data sets


@pytest.mark.parametrize(
    ("name", "discrete", "unit", "alpha", "xmin", "D", "n_tail", "tolerance"),
    [
        ("words", True, 1.0, 1.9527, 7, 0.0083, 2958, 1e-4),
        ("terrorism", True, 1.0, 2.3699, 12, 0.0177, 547, 1e-4),
        ("cities", False, 1e-3, 2.3700, 52.46, 0.0188, 580, 1e-3),
        ("fires", False, 1.0, 2.1636, 6324, 0.0357, 521, 1e-4),
        ("flares", False, 1.0, 1.7884, 323, 0.0083, 1711, 1e-4),
        ("quakes", False, 1e-3, 1.9524, 10, 0.0381, 2659, 1e-4),
    ],
)
def test_published_data_sets(name, discrete, unit, alpha, xmin, D, n_tail, tolerance):
    """Clauset, Shalizi & Newman's data as powerlaw ships them; csgillespie/poweRlaw#19 is the first: xmin 7, not 1."""
    fit = fit_powerlaw(np.loadtxt(REFERENCE / f"{name}.txt") * unit, discrete=discrete)
    assert fit.alpha == pytest.approx(alpha, abs=tolerance)
    assert fit.xmin == pytest.approx(xmin, rel=1e-4)
    assert pytest.approx(D, abs=tolerance) == fit.D
    assert fit.n_tail == n_tail
    assert fit.xmin_search == "exact"


@pytest.mark.real_models
def test_minilm_as_weightwatcher_fits_it():
    import torch

    from querist.sources.tensors import open_source

    source = open_source(str(locate("minilm-l6")), exclude=("*word_embeddings*",))
    alphas = {}
    for ref in source.refs:
        if len(ref.shape) == 2 and min(ref.shape) >= 8:
            W = ref.load().double()
            gram = W @ W.T if W.shape[0] <= W.shape[1] else W.T @ W
            alphas[ref.name] = fit_powerlaw(torch.linalg.eigvalsh(gram).clamp_min(0).numpy()).alpha
    assert len(alphas) == 38
    assert np.mean(list(alphas.values())) == pytest.approx(4.1061, abs=1e-3)
    for part, alpha in (
        ("attention.self.query", 2.4597),
        ("attention.self.key", 2.5764),
        ("intermediate.dense", 2.4789),
    ):
        assert alphas[f"encoder.layer.0.{part}.weight"] == pytest.approx(alpha, abs=1e-3)


# ------------------------------------------------------------------------------------------------ the three methods


def marchenko_pastur(q, n):
    """Quantiles at (i − ½)/n by bisection on a fine trapezium of the density: independent of querist's own."""
    t = np.linspace(0, np.pi, 400_001)
    x = 1 + q - 2 * math.sqrt(q) * np.cos(t)
    mass = (2 * np.sin(t) ** 2 / np.pi) / np.maximum(x, 1e-300)
    if q == 1:
        mass[0] = 2 / np.pi  # sin²t / (2(1 − cos t)) → ½·2
    below = np.concatenate(([0], np.cumsum((mass[1:] + mass[:-1]) / 2 * np.diff(t))))
    return np.interp((np.arange(n) + 0.5) / n, below / below[-1], x)


@pytest.mark.parametrize(("q", "alpha"), [(0.25, 3.4546), (2 / 3, 2.4492), (1.0, 2.1217)])
@pytest.mark.parametrize("form", ["index", "textbook"])
def test_hill_on_marchenko_pastur(q, alpha, form):
    assert fit_powerlaw(marchenko_pastur(q, 40_000), method="hill", hill=form).alpha == pytest.approx(alpha, abs=4e-4)


def test_both_hill_forms_by_hand():
    x = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0])
    index = fit_powerlaw(x, method="hill")
    assert index.alpha == pytest.approx(1 + 3 / (math.log(8 / 5) + math.log(13 / 5)))
    assert (index.xmin, index.n_tail, index.method, index.xmin_search) == (5.0, 3, "hill-index", "fixed")
    textbook = fit_powerlaw(x, method="hill", hill="textbook")
    assert textbook.alpha == pytest.approx(1 + 3 / (math.log(5 / 3) + math.log(8 / 3) + math.log(13 / 3)))
    assert (textbook.xmin, textbook.n_tail, textbook.method) == (3.0, 3, "hill-textbook")
    assert hill_exponent(x)[0] == index.alpha
    assert textbook.sigma == pytest.approx((textbook.alpha - 1) / math.sqrt(3))
    assert (textbook.low, textbook.high) == pytest.approx(
        (textbook.alpha - 1.96 * textbook.sigma, textbook.alpha + 1.96 * textbook.sigma)
    )
    odd = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
    assert fit_powerlaw(odd, method="hill").alpha == pytest.approx(1 + 3 / (math.log(5 / 3) + math.log(8 / 3)))
    assert fit_powerlaw(odd, method="hill", hill="textbook").alpha == pytest.approx(
        1 + 2 / (math.log(5 / 3) + math.log(8 / 3))
    )
    assert fit_powerlaw([0, 0, *x], method="hill").alpha == index.alpha


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=30), st.sampled_from(["index", "textbook"]))
def test_hill_distance_by_definition(x, form):
    x = np.sort(x)
    fit = fit_powerlaw(x, method="hill", hill=form)
    if fit.alpha is None:
        assert "upper half" in fit.reason or x[0] == x[-1]
        return
    tail = x[x.size - fit.n_tail :]
    below = np.searchsorted(tail, tail, side="left") / tail.size
    assert pytest.approx(np.abs(1 - (tail / fit.xmin) ** (1 - fit.alpha) - below).max(), abs=1e-9) == fit.D


@pytest.mark.parametrize("shape", [(60, 90), (200, 200)])
def test_peak_searches_between_its_bounds(shape):
    x = spectrum(spiked(*shape, strengths=(3.0, 2.0))) / 50
    counts, edges = np.histogram(np.log10(x), bins=100)
    mode = 10 ** edges[np.argmax(counts)]
    curve = fit_powerlaw(x).candidates

    def best(low, high):
        inside = np.flatnonzero((curve.xmin >= low) & (curve.xmin <= high))
        return inside[np.argmin(curve.D[inside])]

    like = fit_powerlaw(x, method="peak")
    assert like.xmin == curve.xmin[best(0.95 * mode, 1.5 * mode)]
    assert like.method == "peak-like-with-like"
    assert ((like.candidates.xmin >= 0.95 * mode) & (like.candidates.xmin <= 1.5 * mode)).all()
    published = fit_powerlaw(x, method="peak", peak="as-published")
    assert published.xmin == curve.xmin[best(math.log10(0.95 * mode), 1.5 * mode)]
    assert published.candidates.xmin.size > like.candidates.xmin.size


@pytest.mark.parametrize("factor", [1e-8, 3.7, 1e9])
def test_the_unit_changes_nothing(factor):
    x = spectrum(spiked(60, 90))
    for method in ("csn", "hill", "peak"):
        one, other = fit_powerlaw(x, method=method), fit_powerlaw(x * factor, method=method)
        assert other.alpha == pytest.approx(one.alpha, rel=1e-10)
        assert pytest.approx(one.D, abs=1e-11) == other.D
        assert (other.n_tail, other.finger) == (one.n_tail, one.finger)
        assert other.low == pytest.approx(one.low, rel=1e-9)
        assert other.xmin == pytest.approx(one.xmin * factor, rel=1e-14)


def test_order_does_not_matter_and_the_input_stays():
    x = pareto(50, 2.5)
    before = x.copy()
    assert fit_powerlaw(x) == fit_powerlaw(np.sort(x)[::-1])
    np.testing.assert_array_equal(x, before)
    assert fit_powerlaw(list(x)) == fit_powerlaw(x)
    assert pickle.loads(pickle.dumps(fit_powerlaw(x))) == fit_powerlaw(x)


def test_min_tail():
    x = spectrum(gaussian(200, 300))
    free, held = fit_powerlaw(x), fit_powerlaw(x, min_tail=50)
    assert free.n_tail < 50 <= held.n_tail
    curve = free.candidates
    assert pytest.approx(curve.D[curve.n_tail >= 50].min(), abs=1e-14) == held.D


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


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=25).filter(lambda x: np.ptp(x) > 0.01))
def test_every_bounded_exponent_solves_its_equation(x):
    ladder = build(np.sort(np.array(x)))
    law = bounded(ladder, 11.0)
    for i, slope in enumerate(law.slope):
        tail = np.sort(x)[np.sort(x) >= ladder.x[i]]
        y, span = np.log(tail / ladder.x[i]).mean(), math.log(11.0 / ladder.x[i])

        def miss(t, y=y, span=span):
            return (0.5 - t / 12 if abs(t) < 1e-6 else 1 / t - 1 / math.expm1(t)) - y / span

        assert slope * span == pytest.approx(brentq(miss, -700, 700, xtol=1e-12), abs=1e-6, rel=1e-8)


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


# ------------------------------------------------------------------------------------------------ signs and warnings


def test_finger_of_weightwatcher_issue_102():
    x = pareto(500, 3.0)
    assert fit_powerlaw(x).finger == 0
    fit = fit_powerlaw(np.concatenate([x, [1.3 * x.max()] * 3]))
    assert abs(fit.alpha - 3) < 0.3
    assert fit.finger == 3
    assert any("finger" in words for words in fit.warnings)


def test_a_value_far_out_is_a_finger():
    x = pareto(300, 3.0, seed=5)
    assert fit_powerlaw(np.append(x, x.max() * 200)).finger == 1


def test_fingers_are_rare_without_cause():
    rng = stream(0, "finger level")
    found = [fingers(np.sort(rng.exponential(0.5, 200))[-11:], 2.0) for _ in range(2000)]
    assert np.mean(np.array(found) > 0) < 0.012


def test_a_pareto_sample_has_no_early_end():
    warned = [
        any("upper bound" in w for w in fit_powerlaw(pareto(300, 2.5, seed), xmin=1.0).warnings) for seed in range(300)
    ]
    assert np.mean(warned) < 0.025


def test_ambiguous_tails_say_so():
    fit = fit_powerlaw(spectrum(gaussian(300, 450)))
    near = fit.candidates.D <= 1.1 * fit.D
    far = np.abs(fit.candidates.alpha - fit.alpha) > 1.96 * fit.sigma
    assert fit.near_ties == np.count_nonzero(near & far)
    assert fit.ambiguous == (fit.near_ties > 0)
    assert fit.ambiguous == any("Other xmins" in words for words in fit.warnings)


# ------------------------------------------------------------------------------------------------ curves for drawing


def test_curves_lie_on_the_tail_only():
    """powerlaw-devs/powerlaw#71: with xmin=12 the fit is drawn from 12 on, and not below."""
    x = np.loadtxt(REFERENCE / "terrorism.txt")
    fit = fit_powerlaw(x, discrete=True, xmin=12)
    grid = np.arange(1.0, 60.0)
    for curve in (ccdf_fit(fit, grid), density_fit(fit, grid)):
        assert np.isnan(curve[grid < 12]).all()
        assert np.isfinite(curve[grid >= 12]).all()
    assert ccdf_fit(fit, 12.0) == pytest.approx(1)
    assert density_fit(fit, grid[11:])[0] == pytest.approx(12**-fit.alpha / zeta(fit.alpha, 12))
    seen = np.array([(x >= value).mean() for value in grid[11:]])
    drawn = fit.n_tail / fit.n_values * ccdf_fit(fit, grid[11:])
    assert np.abs(seen - drawn).max() < 1.1 * fit.D


@pytest.mark.parametrize("options", [{}, {"xmax": 9.0}, {"xmin": 1.3, "xmax": 9.0}])
def test_density_is_the_slope_of_the_share(options):
    fit = fit_powerlaw(pareto(400, 2.3), **options)
    x = np.linspace(fit.xmin * 1.001, min(fit.xmax, 8.9), 2001)
    slope = -np.gradient(ccdf_fit(fit, x), x)
    np.testing.assert_allclose(slope[1:-1], density_fit(fit, x)[1:-1], rtol=1e-3)
    if "xmax" in options:
        assert ccdf_fit(fit, 9.0) == pytest.approx(0, abs=1e-12)
        assert np.isnan(density_fit(fit, 9.1))


def test_no_curve_without_a_fit():
    fit = fit_powerlaw([3.0, 3.0])
    assert np.isnan(ccdf_fit(fit, [1.0, 4.0])).all()
    assert np.isnan(density_fit(fit, [1.0, 4.0])).all()
    assert fit.candidates.xmin.size == 0
    assert "Nothing was fitted" in fit.choice


def test_a_thinned_curve():
    x = pareto(1500, 2.5)
    thin, whole = candidates(x, limit=100), fit_powerlaw(x).candidates
    assert 60 <= thin.xmin.size <= 100
    place = np.searchsorted(whole.xmin, thin.xmin)
    np.testing.assert_array_equal(whole.D[place], thin.D)
    assert (thin.n_tail[0], thin.n_tail[-1]) == (whole.n_tail[0], whole.n_tail[-1])
    assert candidates(x[:50], limit=100).xmin.size == 49
    assert candidates([1.0]).xmin.size == 0


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


# ------------------------------------------------------------------------------------------------ bad input


def test_zeros_are_dropped_and_counted():
    """powerlaw-devs/powerlaw#32, csgillespie/poweRlaw#33."""
    fit = fit_powerlaw([0, 0, 1, 2, 5])
    assert fit.n_dropped == 2
    assert "2 zeros were dropped." in fit.warnings
    assert fit.n_values == 3
    assert fit.alpha == fit_powerlaw([1, 2, 5]).alpha
    assert fit_powerlaw([1, -0.0, 2]).n_dropped == 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, -2.0, 3.0], ("index 1", "-2.0")),
        ([1.0, 2.0, np.nan], ("index 2", "nan")),
        ([np.inf, 2.0], ("index 0", "inf")),
        ([1.0 + 0j, 2.0 + 1j], ("index 1", "2+1j", "complex128")),
        ([[1.0, 2.0]], ("(1, 2)",)),
        ([], ("empty",)),
        (["a", "b"], ("index 0", "a")),
    ],
)
def test_invalid_spectra(values, words):
    with pytest.raises(InvalidSpectrum) as caught:
        fit_powerlaw(np.array(values))
    assert isinstance(caught.value, BadValues)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [2.0, 2.0, 2.0], [0.0, 3.0]])
@pytest.mark.parametrize("method", ["csn", "hill", "peak"])
def test_nothing_to_fit_is_a_reason_not_an_error(values, method):
    fit = fit_powerlaw(values, method=method)
    assert (fit.alpha, fit.xmin, fit.D, fit.low, fit.n_tail) == (None, None, None, None, 0)
    assert "fewer than two distinct positive values" in fit.reason
    assert fit.ratios == {}


def test_discrete_data_are_integers():
    with pytest.raises(InvalidSpectrum, match=r"1\.5"):
        fit_powerlaw([1, 1.5, 2], discrete=True)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "lasso"},
        {"hill": "index0"},
        {"peak": "published"},
        {"min_tail": 1},
        {"exact_limit": 0},
        {"bootstrap": -1},
        {"xmin": 0.0},
        {"xmax": math.inf},
        {"xmin": 3.0, "xmax": 2.0},
        {"method": "hill", "xmin": 1.0},
        {"method": "peak", "discrete": True},
        {"discrete": True, "xmax": 9.0},
        {"discrete": True, "xmin": 1.5},
        {"discrete": True, "alternatives": "default"},
        {"xmax": 9.0, "alternatives": ("lognormal",)},
    ],
)
def test_bad_options(options):
    with pytest.raises(BadOption):
        fit_powerlaw([1.0, 2.0, 3.0], **options)


def test_unknown_alternative():
    with pytest.raises(UnknownName, match="lognormal"):
        fit_powerlaw([1.0, 2.0, 3.0], alternatives=("log-normal",))

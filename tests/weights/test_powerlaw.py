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
from querist.weights.fits._signs import fingers

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

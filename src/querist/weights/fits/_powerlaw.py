"""Power-law fits to the upper tail of a spectrum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption
from querist.weights.fits._discrete import DiscreteStarts, discrete_search
from querist.weights.fits._pruned import Candidates, Starts, all_distances, exponents, search
from querist.weights.fits._values import checked

__all__ = ["PLFit", "candidates", "ccdf_fit", "density_fit", "fit_powerlaw", "hill_exponent"]

Method = Literal["csn", "hill", "peak"]
GRID = 2000
"""Starts that are judged where a spectrum is longer than `exact_limit`."""
WIDEN = 1.1
FINGER_LEVEL = 1e-3
"""The three topmost values crowd together as closely as that once in a thousand samples of the law."""


@dataclass(frozen=True, slots=True)
class PLFit:
    """A power law fitted to values above xmin.

    alpha: density exponent, one more than that of the survival function; None where nothing can be fitted, with `reason`.
    sigma: (alpha − 1)/√n_tail, right for independent values and too wide for eigenvalues, which repel. low, high: alpha ±
    1.96 sigma, widened over every xmin with D <= 1.1·min D. D: Kolmogorov–Smirnov distance of the tail. near_ties: starts
    outside the neighbourhood of the chosen one with such a D. finger: the topmost values stand apart from the law.
    ratios: name to (statistic, p) of likelihood ratio tests, positive where the power law fits better.
    p: bootstrap p value of the fit, None where none was asked for.
    """

    alpha: float | None
    xmin: float | None
    xmax: float | None
    D: float | None
    n_tail: int
    sigma: float | None
    low: float | None
    high: float | None
    method: str
    xmin_search: str
    n_dropped: int
    near_ties: int = 0
    finger: bool = False
    ratios: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    p: float | None = None
    reason: str | None = None


def fit_powerlaw(
    evals: ArrayLike,
    *,
    method: Method = "csn",
    hill: Literal["index", "textbook"] = "index",
    peak: Literal["like-with-like", "as-published"] = "like-with-like",
    xmin: float | None = None,
    xmax: float | None = None,
    discrete: bool = False,
    min_tail: int = 2,
    exact_limit: int = 20_000,
    bootstrap: int = 0,
    alternatives: Sequence[str] = (),
    seed: int = 0,
) -> PLFit:
    """Fit p(x) ∝ x^−α to the tail of positive values.

    method "csn": the xmin with the smallest D, exact by a pruned search up to `exact_limit` distinct values, beyond it on a
    log-spaced grid refined around the best. "peak": the same with xmin in [.95, 1.5] times the mode of 100 log10 bins;
    peak="as-published" compares a log10 lower bound with linear values, as the public code does. "hill": the upper half of the
    values; hill="index" takes the values from index floor(N/2) on and counts the first one, "textbook" does not count it.
    xmin fixes the start; xmax takes the likelihood truncated there (values above it are left out); discrete=True is the zeta
    distribution over integers. bootstrap: number of synthetic samples for the goodness of fit (independent values: liberal
    for rigid spectra). alternatives: of "exponential", "lognormal", "truncated", "stretched".

    Zeros are dropped and counted. Raises InvalidSpectrum, and BadOption for options that contradict each other.

    Source: Clauset, Shalizi & Newman (2009); Hill (1975); peak after AlphaPruning and TempBalance (Lu et al. 2024; Zhou et al.
    2023), whose public code mixes logarithms and values.
    """
    if min_tail < 2:
        raise BadOption("A tail needs two values", value=min_tail, allowed="min_tail >= 2")
    x, dropped = checked(evals)
    if xmax is not None:
        x = x[x <= xmax]
    if method == "hill":
        fit = _hill(x, hill, dropped)
    elif method in ("csn", "peak"):
        if discrete:
            if method == "peak" or xmax is not None:
                raise BadOption("Discrete data are fitted by csn without xmax", value=method, allowed="method=csn")
            fit = _discrete(x, xmin, min_tail, dropped)
        else:
            fit = _continuous(x, method, peak, xmin, xmax, min_tail, exact_limit, dropped)
    else:
        raise BadOption("No such fit", value=method, allowed="csn, hill, peak")
    if fit.alpha is None:
        return fit
    if alternatives:
        from querist.weights.fits._likelihood import vuong

        tail = x[x >= fit.xmin]
        fit = replace(fit, ratios={name: vuong(tail, fit.alpha, fit.xmin, name) for name in alternatives})
    if bootstrap:
        from querist.weights.fits._bootstrap import bootstrap_p

        fit = replace(fit, p=bootstrap_p(x, fit, bootstrap, discrete=discrete, min_tail=min_tail, seed=seed))
    return fit


def _none(method: str, dropped: int, n: int, reason: str) -> PLFit:
    return PLFit(None, None, None, None, n, None, None, None, method, "none", dropped, reason=reason)


def _continuous(
    x: np.ndarray,
    method: str,
    peak: str,
    xmin: float | None,
    xmax: float | None,
    min_tail: int,
    exact_limit: int,
    dropped: int,
) -> PLFit:
    name = method if method == "csn" else f"peak-{peak}"
    starts = exponents(x, min_tail) if x.size else None
    if starts is None or starts.index.size == 0:
        return _none(name, dropped, x.size, "fewer than two distinct positive values")
    kind, allowed = "exact", None
    if method == "peak":
        allowed = _near_peak(x, starts, peak)
    if xmin is not None:
        at = int(np.searchsorted(x[starts.index], xmin, side="left"))
        if at == starts.index.size:
            return _none(name, dropped, x.size, f"fewer than {min_tail} distinct values from xmin {xmin:g} on")
        kind, allowed = "fixed", np.arange(starts.index.size) == at
    elif starts.index.size > exact_limit:
        kind, allowed = "grid", _grid(starts, allowed)
    if allowed is not None and not allowed.any():
        return _none(name, dropped, x.size, "no value lies near the peak")
    best, D, where, distances = search(starts, allowed)
    alpha, size = float(starts.alpha[best]), int(starts.size[best])
    start = float(x[starts.index[best]])
    if xmin is not None:
        start = float(xmin)
        tail = x[x >= start]
        alpha, size = 1 + tail.size / float(np.log(tail / start).sum()), tail.size
        D = _distance(tail, start, alpha)
    if xmax is not None:
        from querist.weights.fits._likelihood import truncated_exponent

        tail = x[x >= start]
        alpha = truncated_exponent(tail, start, xmax)
        D = _distance(tail, start, alpha, xmax)
    sigma = (alpha - 1) / math.sqrt(size)
    close = where[distances <= WIDEN * D] if kind != "fixed" and xmax is None else np.array([best])
    spread = starts.alpha[close]
    far = np.abs(close - best) > max(2, 0.05 * starts.index.size)
    return PLFit(
        alpha=alpha,
        xmin=start,
        xmax=float(x[-1]),
        D=D,
        n_tail=size,
        sigma=sigma,
        low=min(alpha - 1.96 * sigma, float(spread.min()) if spread.size else alpha),
        high=max(alpha + 1.96 * sigma, float(spread.max()) if spread.size else alpha),
        method=name,
        xmin_search=kind,
        n_dropped=dropped,
        near_ties=int(far.sum()),
        finger=_finger(x[x >= start], start, alpha),
    )


def _distance(tail: np.ndarray, xmin: float, alpha: float, xmax: float | None = None) -> float:
    model = 1 - (tail / xmin) ** (1 - alpha)
    if xmax is not None:
        model = model / (1 - (xmax / xmin) ** (1 - alpha))
    return float(np.abs(model - np.searchsorted(tail, tail, side="left") / tail.size).max())


def _finger(tail: np.ndarray, xmin: float, alpha: float) -> bool:
    """Whether the three topmost values crowd together, where the law would spread them out.

    Times α − 1, the logarithms' spacing from the largest to the third is E₁ + E₂/2 with standard exponentials (Rényi), and
    P(E₁ + E₂/2 < s) < s².
    """
    return tail.size >= 20 and float(np.log(tail[-1] / tail[-3])) * (alpha - 1) < math.sqrt(FINGER_LEVEL)


def _near_peak(x: np.ndarray, starts: Starts, peak: str) -> np.ndarray:
    logs = np.log10(x)
    counts, edges = np.histogram(logs, bins=100)
    mode = 10 ** edges[int(np.argmax(counts))]
    values = x[starts.index]
    if peak == "like-with-like":
        return (values >= 0.95 * mode) & (values <= 1.5 * mode)
    if peak == "as-published":
        return (values >= math.log10(0.95 * mode)) & (values <= 1.5 * mode)
    raise BadOption("No such peak rule", value=peak, allowed="like-with-like, as-published")


def _grid(starts: Starts, allowed: np.ndarray | None) -> np.ndarray:
    """A log-spaced grid of starts in tail size, and all starts around the best of them."""
    chosen = np.zeros(starts.index.size, dtype=bool)
    targets = np.geomspace(starts.size[-1], starts.size[0], GRID)
    chosen[np.unique(np.clip(np.searchsorted(-starts.size, -targets), 0, starts.index.size - 1))] = True
    if allowed is not None:
        chosen &= allowed
    if not chosen.any():
        return chosen
    best = search(starts, chosen)[0]
    on = np.flatnonzero(chosen)
    at = int(np.searchsorted(on, best))
    low, high = on[max(at - 1, 0)], on[min(at + 1, on.size - 1)]
    near = np.unique(np.linspace(low, high, GRID // 4).astype(int))
    chosen[near] = True
    return chosen if allowed is None else chosen & allowed


def hill_exponent(x: Float[np.ndarray, "n"], form: str = "index") -> tuple[float | None, int, int]:
    """Hill's exponent over the upper half of ascending positive values, the index of its start, and the tail's size."""
    start = x.size // 2
    tail = x[start:]
    if form == "textbook":
        tail = tail[1:]
    elif form != "index":
        raise BadOption("No such Hill form", value=form, allowed="index, textbook")
    total = float(np.log(tail / x[start]).sum()) if tail.size else 0.0
    return (1 + tail.size / total if total > 0 else None), start, tail.size


def _hill(x: np.ndarray, form: str, dropped: int) -> PLFit:
    alpha, start, size = hill_exponent(x, form) if x.size > 1 else (None, 0, 0)
    if alpha is None:
        return _none(f"hill-{form}", dropped, x.size, "fewer than two distinct positive values in the upper half")
    sigma = (alpha - 1) / math.sqrt(size)
    tail = x[start:]
    D = _distance(tail, float(x[start]), alpha)
    low, high = alpha - 1.96 * sigma, alpha + 1.96 * sigma
    return PLFit(
        alpha,
        float(x[start]),
        float(x[-1]),
        D,
        size,
        sigma,
        low,
        high,
        f"hill-{form}",
        "fixed",
        dropped,
        finger=_finger(tail, float(x[start]), alpha),
    )


def _discrete(x: np.ndarray, xmin: float | None, min_tail: int, dropped: int) -> PLFit:
    if (x != np.round(x)).any():
        bad = float(x[x != np.round(x)][0])
        raise BadOption("Discrete data are integers", value=bad, allowed="whole numbers from 1 on")
    found: DiscreteStarts | None = discrete_search(x, xmin, min_tail)
    if found is None:
        return _none("csn-discrete", dropped, x.size, "fewer than two distinct values")
    best = int(np.argmin(found.D))
    alpha, size, D = float(found.alpha[best]), int(found.size[best]), float(found.D[best])
    sigma = float(found.sigma[best])
    close = found.alpha[found.D <= WIDEN * D]
    return PLFit(
        alpha=alpha,
        xmin=float(found.xmin[best]),
        xmax=float(x[-1]),
        D=D,
        n_tail=size,
        sigma=sigma,
        low=min(alpha - 1.96 * sigma, float(close.min())),
        high=max(alpha + 1.96 * sigma, float(close.max())),
        method="csn-discrete",
        xmin_search="fixed" if xmin is not None else "exact",
        n_dropped=dropped,
        near_ties=int(close.size - 1),
    )


def candidates(evals: ArrayLike, *, discrete: bool = False, min_tail: int = 2, limit: int = 200) -> Candidates:
    """The D curve: xmin, α, D and tail size of at most `limit` starts, log-spaced in tail size, each judged in full."""
    x, _ = checked(evals)
    if discrete:
        found = discrete_search(x, None, min_tail)
        if found is None:
            return Candidates(*(np.empty(0) for _ in range(4)))
        return Candidates(found.xmin, found.alpha, found.D, found.size)
    starts = exponents(x, min_tail) if x.size else None
    if starts is None or starts.index.size == 0:
        return Candidates(*(np.empty(0) for _ in range(4)))
    count = starts.index.size
    at = np.arange(count) if count <= limit else np.unique(count - np.geomspace(1, count, limit).astype(int))
    return Candidates(x[starts.index[at]], starts.alpha[at], all_distances(starts, at), starts.size[at])


def density_fit(fit: PLFit, x: ArrayLike) -> Float[np.ndarray, "..."]:
    """Density of the fitted law; NaN below xmin, where nothing was fitted."""
    x = np.asarray(x, dtype=float)
    if fit.alpha is None or fit.xmin is None:
        return np.full(x.shape, np.nan)
    return np.where(x >= fit.xmin, (fit.alpha - 1) / fit.xmin * (x / fit.xmin) ** -fit.alpha, np.nan)


def ccdf_fit(fit: PLFit, x: ArrayLike) -> Float[np.ndarray, "..."]:
    """Survival function of the fitted law; NaN below xmin."""
    x = np.asarray(x, dtype=float)
    if fit.alpha is None or fit.xmin is None:
        return np.full(x.shape, np.nan)
    return np.where(x >= fit.xmin, (x / fit.xmin) ** (1 - fit.alpha), np.nan)

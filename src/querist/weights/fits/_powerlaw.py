"""Power-law fits to the upper tail of a spectrum."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption
from querist.weights.errors import InvalidSpectrum
from querist.weights.fits._bounded import bounded
from querist.weights.fits._fit import Candidates, PLFit, finger_words
from querist.weights.fits._grid import grid_search
from querist.weights.fits._ladder import Values, build, log_ratio, positive
from querist.weights.fits._likelihood import alternative_names, compare_tail, incomparable
from querist.weights.fits._pruned import NEAR, Z95, Found, Pareto, Tail, distance, distances, search
from querist.weights.fits._signs import MOST, ends_early, fingers
from querist.weights.fits._zeta import zetas

__all__ = ["candidates", "fit_powerlaw", "hill_exponent"]

Method = Literal["csn", "hill", "peak"]
HillForm = Literal["index", "textbook"]
PeakRule = Literal["like-with-like", "as-published"]

EARLY = 0.01


def fit_powerlaw(
    evals: ArrayLike,
    *,
    method: Method = "csn",
    hill: HillForm = "index",
    peak: PeakRule = "like-with-like",
    xmin: float | None = None,
    xmax: float | None = None,
    discrete: bool = False,
    min_tail: int = 2,
    exact_limit: int = 20_000,
    bootstrap: int = 0,
    alternatives: str | Iterable[str] = (),
    seed: int = 0,
) -> PLFit:
    """Fit p(x) ∝ x^−alpha to the tail of positive values [N], in any order and any unit.

    method: "csn", the xmin whose tail lies nearest to its own fit; "peak", the same with xmin within [.95, 1.5]·p, p the left
    edge of the fullest of 100 bins of log10 x; "hill", the upper half of the values, without a search.
    hill: "index" takes the values from index floor(N/2) on, that one counted; "textbook" the floor(N/2) largest above the next
    one. peak: "as-published" takes log10(.95p) as the lower end, compared with the values themselves, as public code does.
    xmin: fixed, any positive number. xmax: the law ends there; larger values are left out and counted, and the likelihood is
    that of the truncated law. discrete: the zeta law on integers. min_tail: fewest values in a tail. exact_limit: distinct
    values up to which every xmin is weighed; beyond it a grid of 2000, refined around the best (`xmin_search` "grid").
    bootstrap: number of synthetic samples for p, drawn from `seed`. alternatives: of exponential, lognormal, truncated,
    stretched; or "default" (the first two), "all".

    Zeros are dropped and counted. Where fewer than two distinct positive values are left, or none that the options allow, alpha
    is None and `reason` says why. Raises InvalidSpectrum for negative, NaN, infinite or complex values (index and value) and
    for discrete values that are no integers; BadOption for options outside their range or against each other; UnknownName for
    an alternative.

    Source: Clauset, Shalizi & Newman (2009); empirical shares are taken strictly below each distinct value, one candidate for
    each (so ties are handled; the published earthquake fit ignores them). Among equal distances the smallest xmin is
    taken. Hill (1975). peak: TempBalance (Zhou et al. 2023) and AlphaPruning (Lu et al. 2024), whose code mixes logarithms and
    values.
    """
    _check(method, hill, peak, xmin, xmax, discrete, min_tail, exact_limit, bootstrap)
    names = alternative_names(alternatives)
    if names and (discrete or xmax is not None):
        raise BadOption(
            "Other laws are compared on continuous tails without an upper bound",
            value=f"alternatives={', '.join(names)} with {'discrete' if discrete else 'xmax'}",
            mend="Leave one of the two out",
        )
    x, n_dropped = positive(evals)
    fit = _fitted(Values(x, n_dropped), method, hill, peak, xmin, xmax, discrete, min_tail, exact_limit)
    if fit.alpha is None or fit.xmin is None:
        return fit
    more: dict[str, Any] = {}
    if names:
        tail = x[x.size - fit.n_tail :]
        reason = incomparable(tail, fit.xmin)
        if reason:
            more["warnings"] = (*fit.warnings, f"No other law was compared: {reason}.")
        else:
            more["comparisons"] = compare_tail(tail, fit.alpha, fit.xmin, names)
    if bootstrap:
        from querist.weights.fits._bootstrap import bootstrap_p

        def refit(values: np.ndarray) -> float | None:
            again = _fitted(Values(values, 0), method, hill, peak, xmin, xmax, discrete, min_tail, exact_limit)
            return again.D

        inside = x[: x.size - fit.n_above] if fit.n_above else x
        more["p"] = bootstrap_p(inside, fit, refit, bootstrap, seed)
    return dataclasses.replace(fit, **more) if more else fit


def _check(
    method: str,
    hill: str,
    peak: str,
    xmin: float | None,
    xmax: float | None,
    discrete: bool,
    min_tail: int,
    exact_limit: int,
    bootstrap: int,
) -> None:
    for what, value, allowed in (
        ("method", method, ("csn", "hill", "peak")),
        ("hill", hill, ("index", "textbook")),
        ("peak", peak, ("like-with-like", "as-published")),
    ):
        if value not in allowed:
            raise BadOption(f"No such {what}", value=value, allowed=", ".join(allowed))
    for what, number, least in (
        ("min_tail", min_tail, 2),
        ("exact_limit", exact_limit, 2),
        ("bootstrap", bootstrap, 0),
    ):
        if number < least:
            raise BadOption(f"{what} is too small", value=number, allowed=f"{least} or more")
    for what, bound in (("xmin", xmin), ("xmax", xmax)):
        if bound is not None and not 0 < bound < math.inf:
            raise BadOption(f"{what} lies outside its range", value=bound, allowed="a positive number")
    if xmin is not None and xmax is not None and xmin >= xmax:
        raise BadOption("xmin must lie below xmax", value=f"xmin={xmin:g}, xmax={xmax:g}")
    if method != "csn" and (xmin is not None or xmax is not None or discrete):
        given = "xmin" if xmin is not None else "xmax" if xmax is not None else "discrete"
        raise BadOption(f"method={method} takes no {given}", value=f"method={method}", mend="Use method=csn")
    if discrete and xmax is not None:
        raise BadOption(
            "The zeta law has no upper bound here", value="discrete with xmax", mend="Leave one of the two out"
        )
    if discrete and xmin is not None and xmin != round(xmin):
        raise BadOption("xmin of discrete data is an integer", value=xmin, allowed="1, 2, 3, …")


def _fitted(
    values: Values,
    method: Method,
    hill: HillForm,
    peak: PeakRule,
    xmin: float | None,
    xmax: float | None,
    discrete: bool,
    min_tail: int,
    exact_limit: int,
) -> PLFit:
    x, n_dropped = values
    n_above = 0
    if discrete and (x != np.round(x)).any():
        i = int(np.flatnonzero(x != np.round(x))[0])
        raise InvalidSpectrum("Discrete data are integers", value=f"{x[i]}", allowed="1, 2, 3, …; zeros are dropped")
    if xmax is not None:
        n_above = x.size - int(np.searchsorted(x, xmax, side="right"))
        x = x[: x.size - n_above]
    name = {"hill": f"hill-{hill}", "peak": f"peak-{peak}"}.get(method, f"{method}-discrete" if discrete else method)
    base: dict[str, Any] = {
        "method": name,
        "n_values": x.size,
        "n_dropped": n_dropped,
        "n_above": n_above,
        "bounded": xmax is not None,
        "discrete": discrete,
        "warnings": (f"{n_dropped} zero{'s were' if n_dropped > 1 else ' was'} dropped.",) if n_dropped else (),
    }
    ladder = build(x, xmin)
    if ladder is None:
        where = f" from xmin {xmin:g} on" if xmin is not None else ""
        return _nothing(base, f"fewer than two distinct positive values{where}")
    if xmin is not None and xmax is not None and ladder.x.size == 2 and ladder.x[1] == xmax:
        return _nothing(base, "every value lies at xmax, where no exponent is large enough")
    tail: Tail = (
        zetas(ladder) if discrete else bounded(ladder, xmax) if xmax is not None else Pareto(ladder, ladder.slope)
    )
    if method == "hill":
        return _hill(base, x, tail, hill)
    everything = np.arange(ladder.x.size - 1)
    allowed = everything
    if xmin is not None:
        allowed = allowed[:1]
    if method == "peak":
        allowed = _near_peak(x, ladder.x[:-1], peak)
    if allowed.size and ladder.count[allowed[-1]] < min_tail:
        allowed = allowed[ladder.count[allowed] >= min_tail]
    if allowed.size == 0:
        why = "no value lies near the peak" if method == "peak" else f"no tail holds {min_tail} values"
        return _nothing(base, why)
    how = "exact"
    if xmin is not None:
        how = "fixed"
        margin = Z95 * tail.sigma(0)
        slope = float(tail.slope[0])
        found = Found(0, distance(tail, 0)[0], 1, slope - margin, slope + margin)
    elif allowed.size > exact_limit:
        how = "grid"
        found, allowed = grid_search(tail, allowed)
    else:
        found = search(tail, allowed)
    return _told(base, x, tail, found, how, allowed, xmax)


def _nothing(base: dict[str, Any], reason: str) -> PLFit:
    return PLFit(xmin_search="none", reason=reason, **base)


def _told(
    base: dict[str, Any], x: np.ndarray, tail: Tail, found: Found, how: str, allowed: np.ndarray, xmax: float | None
) -> PLFit:
    """The fit of the candidate found, with the signs that go with it."""
    ladder, i = tail.ladder, found.index
    slope, sigma, n_tail = float(tail.slope[i]), tail.sigma(i), int(ladder.count[i])
    margin = Z95 * sigma
    ambiguous = found.low < slope - margin or found.high > slope + margin
    finger, warnings = 0, base["warnings"]
    if not base["discrete"] and xmax is None:
        finger = fingers(np.log(x[-min(n_tail, MOST + 1) :]), slope)
        early = ends_early(-float(ladder.log[i]), slope, n_tail)
        if finger:
            warnings += (finger_words(finger),)
        if early < EARLY:
            warnings += (
                f"The tail ends at {x[-1]:.4g}, where the law would go on (p {early:.1g}): an upper bound (xmax) or another "
                f"law fits better.",
            )
    if ambiguous:
        warnings += (
            f"Other xmins fit about as well (D within {found.D * NEAR:.3g}), with exponents from {found.low + 1:.3g} to "
            f"{found.high + 1:.3g}.",
        )
    return PLFit(
        alpha=slope + 1,
        xmin=float(ladder.x[i]),
        xmax=float(x[-1]) if xmax is None else float(xmax),
        D=found.D,
        n_tail=n_tail,
        sigma=sigma,
        low=found.low + 1,
        high=found.high + 1,
        xmin_search=how,
        ties=found.ties,
        ambiguous=ambiguous,
        finger=finger,
        tail=tail,
        allowed=allowed,
        **(base | {"warnings": warnings}),
    )


def _near_peak(x: np.ndarray, values: np.ndarray, rule: PeakRule) -> np.ndarray:
    logs = np.log10(x)
    mode = float(x[0])
    if logs[-1] - logs[0] > 1e-12:  # closer values fall into one bin, and numpy refuses to cut it
        counts, edges = np.histogram(logs, bins=100)
        mode = float(10 ** edges[int(counts.argmax())])
    low = 0.95 * mode if rule == "like-with-like" else math.log10(0.95 * mode)
    return np.flatnonzero((values >= low) & (values <= 1.5 * mode))


def hill_exponent(x: Float[np.ndarray, "N"], form: HillForm = "index") -> tuple[float | None, int, int]:
    """Hill's exponent over the upper half of ascending positive values, the index of its xmin, and the tail's size.

    alpha is None where the upper half is one value. Form "index": 1 + m/Σ ln(x_j/x_i) over j >= i = floor(N/2), m = N − i, x_i
    counted; "textbook": 1 + k/Σ over the k = floor(N/2) largest of ln(x/x_(N−k)), the reference not counted.
    """
    n = x.size
    start, size = (n // 2, n - n // 2) if form == "index" else (n - n // 2 - 1, n // 2)
    if size < 1 or not x[-1] > x[start]:
        return None, start, size
    log = log_ratio(x[start:])
    total = float(log.sum()) - log.size * float(log[0])
    return 1 + size / total, start, size


def _hill(base: dict[str, Any], x: np.ndarray, tail: Tail, form: HillForm) -> PLFit:
    alpha, start, n_tail = hill_exponent(x, form)
    if alpha is None:
        return _nothing(base, "fewer than two distinct positive values in the upper half")
    ladder = build(x[start + (form == "textbook") :], float(x[start]))
    assert ladder is not None  # x[-1] > x[start]
    law = Pareto(ladder, np.array([alpha - 1] * (ladder.x.size - 1)))
    D, sigma = distance(law, 0)[0], (alpha - 1) / math.sqrt(n_tail)
    found = Found(0, D, 1, alpha - 1 - Z95 * sigma, alpha - 1 + Z95 * sigma)
    fit = _told(base, x, law, found, "fixed", np.arange(1), None)
    return dataclasses.replace(fit, n_tail=n_tail, sigma=sigma, tail=tail, allowed=np.arange(tail.ladder.x.size - 1))


def candidates(
    evals: ArrayLike, *, discrete: bool = False, xmax: float | None = None, min_tail: int = 2, limit: int = 200
) -> Candidates:
    """The D curve at no more than `limit` xmins, evenly spaced in the logarithm of the tail's size, each computed in full.

    Empty where nothing can be fitted. Raises as `fit_powerlaw`. `fit.candidates` is the whole curve.
    """
    fit = fit_powerlaw(evals, discrete=discrete, xmax=xmax, min_tail=min_tail)
    if fit.tail is None or fit.allowed is None:
        return fit.candidates
    count, kept = fit.tail.ladder.count, fit.allowed
    if kept.size > limit:
        sizes = np.geomspace(count[kept[0]], count[kept[-1]], limit)
        kept = kept[np.unique(np.minimum(np.searchsorted(-count[kept], -sizes), kept.size - 1))]
    return Candidates(
        fit.tail.ladder.x[kept], fit.tail.slope[kept] + 1, distances(fit.tail, kept), count[kept].astype(np.int64)
    )

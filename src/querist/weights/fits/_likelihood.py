"""Other laws for the same tail, each at its exact maximum likelihood, and the tests between them and the power law."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from querist.errors import UnknownName
from querist.weights.errors import InvalidSpectrum
from querist.weights.fits._cutoff import fit_cutoff
from querist.weights.fits._ladder import log_over
from querist.weights.fits._lognormal import fit_lognormal
from querist.weights.fits._stretched import fit_stretched

__all__ = [
    "ALTERNATIVES",
    "DEFAULT_ALTERNATIVES",
    "Comparison",
    "alternative_names",
    "compare_tail",
    "incomparable",
    "vuong",
]

DEFAULT_ALTERNATIVES = ("exponential", "lognormal")
ALTERNATIVES = ("exponential", "lognormal", "truncated", "stretched")

WIDEST = 700
"""ln of the largest ratio of values in a tail: float64 ends at e^709."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A power law against another law on the same tail.

    R: Vuong's normalised log likelihood ratio, positive where the power law fits better; for "truncated", which contains the
    power law, the plain log likelihood ratio, never positive. p: two-sided, that R differs from 0; for "truncated" that of a
    χ² with one degree, as powerlaw gives it (half of it would do, the power law being at the border). parameters: of the other
    law at its maximum, in the units of the values: exponential e^(−rate·x), lognormal mu and sigma of ln x, stretched
    e^(−rate·x^shape), truncated x^−alpha·e^(−rate·x). limit: the maximum is the power law itself, which is a limit of that
    law; then R is 0.
    """

    name: str
    R: float
    p: float
    parameters: Mapping[str, float] = field(default_factory=dict)
    limit: bool = False


@dataclass(frozen=True, slots=True)
class _Tail:
    """u = x/xmin − 1, y = ln(x/xmin), and the log density of y under the power law."""

    xmin: float
    u: np.ndarray
    y: np.ndarray
    slope: float
    power: np.ndarray


def alternative_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """The laws meant by a list of names, "default" or "all"; raises UnknownName."""
    if isinstance(names, str):
        names = {"default": DEFAULT_ALTERNATIVES, "all": ALTERNATIVES, "none": ()}.get(names, (names,))
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        if name not in ALTERNATIVES:
            raise UnknownName(
                "No such alternative to a power law",
                value=name,
                allowed=f"{', '.join(ALTERNATIVES)}, or default, all, none",
            )
    return chosen


def compare_tail(
    tail: Float[np.ndarray, "m"], alpha: float, xmin: float, names: str | Iterable[str] = DEFAULT_ALTERNATIVES
) -> tuple[Comparison, ...]:
    """The power law of exponent alpha on [xmin, ∞) against other laws on the same values, all at or above xmin.

    "exponential": closed form. "lognormal": truncated-normal moments of ln x and one scalar root. "stretched" exponential: its
    scale is closed given its shape, which is one scalar root. "truncated" power law x^−a·e^(−bx): Newton's method on its two
    sufficient statistics with 48-point quadrature. No general minimiser. alpha must be the maximum likelihood
    exponent, as `fit_powerlaw` gives it.

    Raises UnknownName, and InvalidSpectrum for a tail that is one value or whose ends have a ratio above e^700.

    Source: Vuong (1989); Clauset, Shalizi & Newman (2009), section 5 and appendix C. For lognormal and stretched exponential the
    power law is a limit of the family, reached where mean(y²) >= 2·mean(y)² with y = ln(x/xmin); R is then exactly 0, where
    a minimiser stops at some very small value.
    """
    chosen = alternative_names(names)
    reason = incomparable(tail, xmin)
    if reason:
        raise InvalidSpectrum("No other law can be compared", value=reason)
    y = log_over(tail, xmin)
    slope = alpha - 1
    shared = _Tail(xmin, (tail - xmin) / xmin, y, slope, math.log(slope) - slope * y)
    return tuple(_LAWS[name](shared) for name in chosen)


def incomparable(tail: Float[np.ndarray, "m"], xmin: float) -> str | None:
    """Why no other law has a likelihood on this ascending tail; None where they all do."""
    if math.log(tail[-1]) - math.log(xmin) > WIDEST:
        return f"the tail runs from {xmin:.3g} to {tail[-1]:.3g}, a ratio above e^{WIDEST}"
    if tail[-1] - tail[0] <= 1e-12 * tail[-1]:
        return f"the tail is one value, {tail[-1]:.6g}, on which a narrow law has any likelihood"
    return None


def vuong(tail: Float[np.ndarray, "m"], alpha: float, xmin: float, alternative: str) -> tuple[float, float]:
    """(R, p) of the power law against one other law; see `compare_tail`."""
    one = compare_tail(tail, alpha, xmin, (alternative,))[0]
    return one.R, one.p


def _normalised(name: str, tail: _Tail, other: np.ndarray, parameters: Mapping[str, float]) -> Comparison:
    """Vuong's test from log densities of y under both laws."""
    ratio = tail.power - other
    total = float(ratio.sum())
    ratio -= total / ratio.size
    spread = math.sqrt(float(ratio @ ratio))
    if spread <= 1e-13 * max(1.0, float(np.abs(tail.power).max())) * math.sqrt(ratio.size):
        return Comparison(name, 0.0, 1.0, parameters)
    R = total / spread
    return Comparison(name, R, math.erfc(abs(R) / math.sqrt(2)), parameters)


def _exponential(tail: _Tail) -> Comparison:
    rate = 1 / float((tail.u / tail.u.size).sum())
    # Density of y = ln x is that of x times x.
    return _normalised("exponential", tail, math.log(rate) - rate * tail.u + tail.y, {"rate": rate / tail.xmin})


def _lognormal(tail: _Tail) -> Comparison:
    found = fit_lognormal(float(tail.y.mean()), float(tail.y @ tail.y) / tail.y.size)
    if found is None:
        return Comparison("lognormal", 0.0, 1.0, {}, limit=True)
    return _normalised(
        "lognormal", tail, found.log_density(tail.y), {"mu": found.mu + math.log(tail.xmin), "sigma": found.sigma}
    )


def _stretched(tail: _Tail) -> Comparison:
    found = fit_stretched(tail.y)
    if found is None:
        return Comparison("stretched", 0.0, 1.0, {}, limit=True)
    parameters = {"shape": found.shape, "rate": found.rate * tail.xmin**-found.shape}
    return _normalised("stretched", tail, found.log_density(tail.y), parameters)


def _truncated(tail: _Tail) -> Comparison:
    found = fit_cutoff(float(tail.y.mean()), float((tail.u / tail.u.size).sum()))
    gain = 0.0
    if found is not None:
        gain = tail.y.size * (found.log_likelihood - (math.log(tail.slope) - tail.slope * float(tail.y.mean())))
    if found is None or gain <= 0:
        return Comparison("truncated", 0.0, 1.0, {}, limit=True)
    return Comparison(
        "truncated", -gain, math.erfc(math.sqrt(gain)), {"alpha": found.alpha, "rate": found.rate / tail.xmin}
    )


_LAWS: dict[str, Callable[[_Tail], Comparison]] = {
    "exponential": _exponential,
    "lognormal": _lognormal,
    "stretched": _stretched,
    "truncated": _truncated,
}

"""The lognormal tail at its exact maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from querist.weights.fits._roots import root

__all__ = ["LognormalTail", "fit_lognormal"]

NEAR_LIMIT = 1e-8
"""Distance of mean(y²)/mean(y)² from 2 within which the law is its own limit, the power law: the standardised cut is then
beyond 2e4, and the two differ by less than the rounding of the log likelihood of 1e4 values."""


@dataclass(frozen=True, slots=True)
class LognormalTail:
    """ln x is normal(mu, sigma) given x >= 1, in units of xmin; cut = −mu/sigma."""

    mu: float
    sigma: float
    cut: float

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log density of y = ln x >= 0."""
        z = y / self.sigma
        # φ(z + cut)/(1 − Φ(cut)), with e^(−cut²/2) cancelled: neither factor underflows.
        return -z * (0.5 * z + self.cut) - math.log(self.sigma) + _log_mills(self.cut)


def fit_lognormal(mean: float, square: float) -> LognormalTail | None:
    """The maximum likelihood from the mean of y and of y², y = ln x >= 0; None where that is the power law itself.

    A normal cut from below at 0 has square/mean² = (1 − aδ)/δ², δ = φ(a)/(1 − Φ(a)) − a, at the standardised cut a: it rises
    from 1 to 2, the exponential's value, as a goes from −∞ to ∞. One scalar root.

    Source: the truncated normal is textbook (Cohen 1950).
    """
    ratio = square / mean**2
    if ratio >= 2 - NEAR_LIMIT:
        return None

    def miss(a: float) -> float:
        delta, rest = _excess(a)
        return rest - ratio * delta * delta

    # Uncut, ratio − 1 is 1/a²; near the limit, 2 − ratio is 4/a².
    low = -1 / math.sqrt(max(ratio - 1, 1e-12)) - 2
    high = 4 / math.sqrt(2 - ratio) + 2
    a = root(lambda cut: miss(cut) / max(1.0, cut * cut), low, high)
    sigma = mean / _excess(a)[0]
    return LognormalTail(-a * sigma, sigma, a)


def _excess(a: float) -> tuple[float, float]:
    """δ(a) = φ(a)/(1 − Φ(a)) − a, and 1 − aδ; by the continued fraction where the difference would cancel."""
    if a < 4:
        delta = _hazard(a) - a
        return delta, 1 - a * delta
    inner = a
    for k in range(60, 2, -1):
        inner = a + k / inner
    inner = 2 / inner
    return 1 / (a + inner), inner / (a + inner)


def _hazard(a: float) -> float:
    return math.sqrt(2 / math.pi) * math.exp(-a * a / 2) / math.erfc(a / math.sqrt(2))


def _log_mills(a: float) -> float:
    """ln of φ(a)/(1 − Φ(a))."""
    if a < 4:
        return -0.5 * a * a - 0.5 * math.log(2 * math.pi) - math.log(0.5 * math.erfc(a / math.sqrt(2)))
    return math.log(a + _excess(a)[0])

"""The stretched exponential tail at its exact maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from querist.weights.fits._roots import root

__all__ = ["StretchedTail", "fit_stretched"]


@dataclass(frozen=True, slots=True)
class StretchedTail:
    """P(X >= x) = e^(−rate·(x^shape − 1)) for x >= 1, in units of xmin."""

    shape: float
    rate: float

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log density of y = ln x >= 0."""
        grown = self.shape * y
        return math.log(self.shape * self.rate) + grown - self.rate * np.expm1(grown)


def fit_stretched(y: Float[np.ndarray, "m"]) -> StretchedTail | None:
    """The maximum likelihood for y = ln x >= 0; None where that is the power law itself, the limit of shape 0.

    Given the shape b, the rate is 1/mean(x^b − 1); the derivative of what is left, 1/b + mean(y) − mean(x^b·y)/mean(x^b − 1),
    is positive at 0 only if mean(y²) < 2·mean(y)², and has one root.
    """
    mean, square = float(y.mean()), float(y @ y) / y.size
    if square >= 2 * mean * mean * (1 - 1e-9):
        return None
    top = float(y.max())

    def slope(log_shape: float) -> float:
        b = math.exp(log_shape)
        mass = np.exp(b * (y - top))  # x^b in units of its largest: shapes of any size without overflow
        excess = mass * -np.expm1(-b * y)
        return 1 + b * mean - b * float(mass @ y) / float(excess.sum())

    low, high = math.log(1e-6 / top), math.log(1 / top)
    while slope(high) > 0 and high < 40:
        high += 2
    while slope(low) < 0 and low > -60:
        low -= 2
    shape = math.exp(root(slope, low, high))
    grown = float(np.expm1(shape * y).sum()) if shape * top < 700 else math.inf
    return StretchedTail(shape, y.size / grown) if math.isfinite(grown) else None

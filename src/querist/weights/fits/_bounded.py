"""The power law that ends at a known xmax: its exponent and its shares for every candidate tail at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from querist.weights.fits._ladder import Ladder, log_ratio

__all__ = ["Bounded", "bounded", "log_mass", "quantile", "share_above"]

SERIES_BELOW = 0.2
"""Below this, 1/t − 1/(e^t − 1) is summed as a series: good to 1e-14 there, where the difference has lost one digit."""


@dataclass(frozen=True, eq=False)
class Bounded:
    """Density ∝ x^−(slope+1) on [x_i, xmax]; `end` is ln(xmax/x[-1]). The slope may be any real number."""

    ladder: Ladder
    slope: np.ndarray
    end: float

    def row(self, i: int) -> np.ndarray:
        """Fitted share at or above each distinct value from i on."""
        log = self.ladder.log
        return share_above(log[i:] - log[i], self.end - log[i], self.slope[i])

    def at(self, i: np.ndarray, j: np.ndarray | int) -> np.ndarray:
        """Fitted share at or above value j in the tail of i."""
        log = self.ladder.log
        return share_above(log[j] - log[i], self.end - log[i], self.slope[i])

    def sigma(self, i: int) -> float:
        """One over the root of n times the variance of ln x under the fit: the expected information."""
        span = self.end - float(self.ladder.log[i])
        spread = span * math.sqrt(float(_variance(np.array([self.slope[i] * span]))[0]))
        return 1.0 / (spread * math.sqrt(self.ladder.count[i]))


def bounded(ladder: Ladder, xmax: float) -> Bounded:
    """Maximum likelihood for every candidate tail of values that are all at most xmax.

    With span b = ln(xmax/x_i), the mean of ln(x/x_i) over the tail, divided by b, must be 1/t − 1/(e^t − 1) at t = slope·b;
    that is solved by Newton's method for all candidates at once.

    Source: Clauset, Shalizi & Newman (2009) for the unbounded case; the truncated exponential is textbook.
    """
    end = -float(log_ratio(np.array([ladder.x[-1], xmax]))[0])
    span = end - ladder.log[:-1]
    share = ladder.above[:-1] / ladder.count[:-1] / span
    return Bounded(ladder, _solve(share) / span, end)


def share_above(y: np.ndarray, span: np.ndarray | float, slope: np.ndarray | float) -> np.ndarray:
    """Share at or above e^y times xmin, of a power law that ends at e^span times xmin."""
    steep = np.maximum(np.abs(slope), 1e-12)
    rest = np.expm1(-steep * (span - y)) / np.expm1(-steep * span)
    return np.where(np.asarray(slope) >= 0, np.exp(-steep * y), 1.0) * rest


def _mean(t: Float[np.ndarray, "n"]) -> np.ndarray:
    """1/t − 1/(e^t − 1) for t >= 0: mean of the exponential of rate t truncated to [0, 1]."""
    near = t < SERIES_BELOW
    far = np.where(near, 1.0, np.minimum(t, 700.0))
    value = 1 / np.where(near, 1.0, t) - 1 / np.expm1(far)
    square = np.minimum(t, 1.0) ** 2
    series = 0.5 - t / 12 * (1 - square / 60 * (1 - square / 42 * (1 - square / 40)))
    return np.where(near, series, value)


def _variance(t: Float[np.ndarray, "n"]) -> np.ndarray:
    """1/t² − 1/(4 sinh²(t/2)): its variance."""
    t = np.abs(t)
    near = t < SERIES_BELOW
    far = np.where(near, 1.0, np.minimum(t, 700.0))
    value = 1 / np.where(near, 1.0, t) ** 2 - 1 / (4 * np.sinh(far / 2) ** 2)
    square = np.minimum(t, 1.0) ** 2
    series = (1 - square / 20 * (1 - 5 * square / 126)) / 12
    return np.where(near, series, value)


def _solve(share: Float[np.ndarray, "n"]) -> np.ndarray:
    """t with mean `share`, in (0, 1); by symmetry t(1 − share) = −t(share).

    The mean falls and is convex for t > 0 and lies above ½ − t/12, so Newton's method from 12·(½ − share) only ever moves
    right, and at least doubles t while it is far away: 60 steps reach t = 1e15.
    """
    low = np.maximum(np.minimum(share, 1 - share), 1e-16)
    t = 12 * (0.5 - low)
    for _ in range(60):
        step = (_mean(t) - low) / _variance(t)
        t += step
        if (np.abs(step) <= 1e-14 * (1 + t)).all():
            break
    return np.where(share <= 0.5, t, -t)


def log_mass(span: float, slope: float) -> float:
    """ln of ∫ e^(−slope·y) dy over [0, span]: for a steep slope of either sign without overflow."""
    steep = abs(slope)
    if steep * span < 1e-12:
        return math.log(span)
    return math.log(-math.expm1(-steep * span) / steep) + (steep * span if slope < 0 else 0.0)


def quantile(u: Float[np.ndarray, "n"], span: float, slope: float) -> np.ndarray:
    """ln(x/xmin) with share u at or above it, of a power law that ends at e^span times xmin."""
    if abs(slope * span) < 1e-12:
        return (1 - u) * span
    # share = (e^(−slope·y) − c)/(1 − c) with c = e^(−slope·span); 1 − share enters so that nothing cancels.
    return -np.log1p((1 - u) * math.expm1(-slope * span)) / slope

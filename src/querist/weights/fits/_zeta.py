"""The discrete power law: Hurwitz sums with their derivatives, and the exponent of every candidate tail at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.polynomial import Polynomial

from querist.weights.fits._ladder import Ladder

__all__ = ["Zeta", "zeta_sum", "zetas"]

TERMS = 12
"""Terms summed before the Euler-Maclaurin remainder takes over; with four corrections the relative error is below 1e-13."""

_S = Polynomial([0, 1])
_RISING = [_S, _S * (_S + 1) * (_S + 2)]
_RISING += [_RISING[-1] * (_S + 3) * (_S + 4)]
_RISING += [_RISING[-1] * (_S + 5) * (_S + 6)]
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600)


@dataclass(frozen=True, eq=False)
class Zeta:
    """P(X = x) ∝ x^−(slope+1) on the integers from x_i on."""

    ladder: Ladder
    slope: np.ndarray
    total: np.ndarray

    def row(self, i: int) -> np.ndarray:
        """Fitted share at or above each distinct value from i on."""
        log, x = self.ladder.log, self.ladder.x
        s = float(self.slope[i]) + 1
        return np.exp(-s * (log[i:] - log[i])) * zeta_sum(s, x[i:])[0] / self.total[i]

    def at(self, i: np.ndarray, j: np.ndarray | int) -> np.ndarray:
        """Fitted share at or above value j in the tail of i."""
        log, x = self.ladder.log, self.ladder.x
        s = self.slope[i] + 1
        return np.exp(-s * (log[j] - log[i])) * zeta_sum(s, x[j])[0] / self.total[i]

    def sigma(self, i: int) -> float:
        """One over the root of n times the variance of ln x under the fit: the expected information."""
        total, first, second = zeta_sum(float(self.slope[i]) + 1, self.ladder.x[i], moments=True)
        return 1.0 / math.sqrt(float(second / total - (first / total) ** 2) * self.ladder.count[i])


def zetas(ladder: Ladder) -> Zeta:
    """Maximum likelihood for every candidate tail of positive integers.

    The mean of ln(x/x_i) over the tail must be its expectation, a falling convex function of the exponent: Newton's method,
    for all candidates at once, from the continuous approximation.

    Source: Clauset, Shalizi & Newman (2009), equation 3.5 (their approximation 3.7 is only the starting point).
    """
    q = ladder.x[:-1]
    mean = ladder.above[:-1] / ladder.count[:-1]
    s = 1 + 1 / (mean - np.log1p(-0.5 / q))
    for _ in range(100):
        total, first, second = zeta_sum(s, q, moments=True)
        expected = first / total
        step = (expected - mean) / (second / total - expected**2)
        step = np.maximum(step, (1 - s) / 2)  # never beyond the pole at 1
        s = s + step
        if (np.abs(step) <= 1e-13 * s).all():
            break
    return Zeta(ladder, s - 1, zeta_sum(s, q)[0])


def zeta_sum(
    s: Float[np.ndarray, "n"] | float, q: Float[np.ndarray, "n"] | float, *, moments: bool = False
) -> tuple[np.ndarray, ...]:
    """Σ_{x>=q} (x/q)^−s over steps of one, for s > 1 and q > 0; with `moments` also those of ln(x/q) and ln²(x/q).

    It is q^s times Hurwitz's zeta, which underflows where this does not. Source: Euler-Maclaurin summation.
    """
    s, q = np.broadcast_arrays(np.asarray(s, dtype=float), np.asarray(q, dtype=float))
    steps = np.log1p(np.arange(TERMS) / q[..., None])
    mass = np.exp(-s[..., None] * steps)
    w, v = q + TERMS, np.log1p(TERMS / q)
    base = np.exp(-s * v)
    rest = w / (s - 1) + 0.5
    slope = -w / (s - 1) ** 2
    bend = 2 * w / (s - 1) ** 3
    for k, (factor, rising) in enumerate(zip(_BERNOULLI, _RISING, strict=True)):
        power = factor * w ** -(2.0 * k + 1)
        rest = rest + power * rising(s)
        if moments:
            slope = slope + power * rising.deriv()(s)
            bend = bend + power * rising.deriv(2)(s)
    total = mass.sum(-1) + base * rest
    if not moments:
        return (total,)
    first = (mass * steps).sum(-1) - base * (slope - v * rest)
    second = (mass * steps**2).sum(-1) + base * (bend - 2 * v * slope + v * v * rest)
    return total, first, second

"""The power law with an exponential cutoff, at its exact maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Cutoff", "fit_cutoff", "moments"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)
DEPTH = 42.0
"""The integrand is followed down to e^−42 of its peak: 6e-19."""
SMALLEST_RATE = 1e-305
"""A cutoff beyond the largest float64 is none."""


@dataclass(frozen=True, slots=True)
class Cutoff:
    """Density ∝ x^−alpha·e^(−rate·x) for x >= 1, in units of xmin; log_likelihood is the mean of that of y = ln x."""

    alpha: float
    rate: float
    log_likelihood: float


def fit_cutoff(mean_y: float, mean_u: float) -> Cutoff | None:
    """The maximum likelihood from the sufficient statistics mean(ln x) and mean(x − 1); None where the rate is 0.

    In y the family is exponential, with natural parameters slope = alpha − 1 and rate: the log likelihood is concave, and its
    gradient and Hessian are the means and covariances of (y, rate·(e^y − 1)), from `moments`. Newton's method, steps halved until
    the likelihood rises; the rate is kept positive. With slope 1/mean(y) > 1 and mean(x − 1) at least 1/(slope − 1), the
    likelihood falls from rate 0 on, and the power law is the maximum.
    """
    start = 1 / mean_y
    if start > 1 and mean_u >= 1 / (start - 1):
        return None
    slope, rate = 0.5 * start, 0.5 / mean_u

    def value(slope: float, rate: float) -> tuple[float, tuple[float, ...]]:
        log_total, *rest = moments(slope, rate)
        return -slope * mean_y - rate * mean_u - log_total, tuple(rest)

    best, (ey, ev, vy, cov, vv) = value(slope, rate)
    for _ in range(200):
        # In units of the present rate, v = rate·u: everything stays of order one for tails of any width.
        gy, gv = ey - mean_y, ev - rate * mean_u
        det = vy * vv - cov * cov
        if det <= 0:
            break
        step_slope, step_rate = (vv * gy - cov * gv) / det, (vy * gv - cov * gy) / det
        gain = gy * step_slope + gv * step_rate
        share = min(1.0, 0.9 / -step_rate) if step_rate < 0 else 1.0
        while share > 1e-9:
            trial, found = value(slope + share * step_slope, rate * (1 + share * step_rate))
            if trial >= best + 0.1 * share * gain - 1e-15 * abs(best):
                break
            share /= 2
        else:
            break
        slope, rate, best = slope + share * step_slope, rate * (1 + share * step_rate), trial
        ey, ev, vy, cov, vv = found
        if rate < SMALLEST_RATE:
            return None
        if gain < 1e-14:
            break
    return Cutoff(slope + 1, rate, best)


def moments(slope: float, rate: float) -> tuple[float, float, float, float, float, float]:
    """ln Z, E y, E v, Var y, Cov(y, v), Var v, for the density e^(−slope·y − v)/Z of y >= 0, v = rate·(e^y − 1), rate > 0.

    48-point Gauss-Legendre on each side of where the integrand turns, over the range where it is above e^−42 of its peak.
    """
    begin, turn, end, top = _range(slope, rate)
    left, right = (turn - begin) / 2, (end - turn) / 2
    y = np.concatenate((begin + (NODES + 1) * left, turn + (NODES + 1) * right))
    weight = np.concatenate((WEIGHTS * left, WEIGHTS * right))
    v = rate * np.expm1(y) if end < 700 else np.exp(y + math.log(rate)) - rate
    mass = weight * np.exp(np.minimum(-slope * y - v - top, 1.0))  # above 0 by rounding only, at slopes of 1e15
    total = float(mass.sum())
    mass /= total
    ey, ev = float(mass @ y), float(mass @ v)
    y -= ey
    v -= ev
    weighted = mass * y
    return math.log(total) + top, ey, ev, float(weighted @ y), float(weighted @ v), float((mass * v) @ v)


def _range(slope: float, rate: float) -> tuple[float, float, float, float]:
    """Where the integrand begins, turns and ends to matter, and its logarithm at the peak."""
    if -slope > rate:  # a peak inside, at e^y = −slope/rate; with z = y − peak the exponent is −slope·(e^z − 1 − z)
        peak, depth = math.log(-slope / rate), DEPTH / -slope
        # e^−z − 1 + z is at least z − 1, and at least z²/3 up to z = 1.
        before = math.sqrt(3 * depth) if depth < 1 / 3 else depth + 1
        return max(peak - before, 0.0), peak, peak + _rise(depth), -slope * peak + slope + rate
    end = min(math.log1p(DEPTH / rate), DEPTH / slope) if slope > 0 else _rise(DEPTH / rate)
    return 0.0, min(max(math.log1p(1 / rate), 0.3 * end), 0.9 * end), end, 0.0


def _rise(depth: float) -> float:
    """z > 0 with e^z − 1 − z = depth, from above: Newton's method on a convex function stays there."""
    log = math.log1p(depth)
    z = min(math.sqrt(2 * depth), log + math.log1p(log) + 1)
    for _ in range(20):
        step = (math.expm1(z) - z - depth) / math.expm1(z)
        z -= step
        if step < 1e-3 * z:
            break
    return z

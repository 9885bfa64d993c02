"""The power law with an exponential cutoff, at its exact maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Cutoff", "fit_cutoff", "moments"]

NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)
DEPTH = 42.0
"""The integrand is followed down to e^−42 of its peak: 6e-19."""


@dataclass(frozen=True, slots=True)
class Cutoff:
    """Density ∝ x^−alpha·e^(−rate·x) for x >= 1, in units of xmin; log_likelihood is the mean of that of y = ln x."""

    alpha: float
    rate: float
    log_likelihood: float


def fit_cutoff(mean_y: float, mean_x: float) -> Cutoff | None:
    """The maximum likelihood from the sufficient statistics mean(ln x) and mean(x); None where the rate is 0.

    In y the family is exponential, with natural parameters slope = alpha − 1 and rate: the log likelihood is concave, and its
    gradient and Hessian are the means and covariances of (y, e^y − 1), from `moments`. Newton's method, steps halved until
    the likelihood rises; the rate is kept positive. With slope 1/mean(y) > 1 and mean(x) at least slope/(slope − 1), the
    likelihood falls from rate 0 on, and the power law is the maximum.
    """
    start = 1 / mean_y
    mean_u = mean_x - 1
    if start > 1 and mean_u >= 1 / (start - 1):
        return None
    slope, rate = 0.5 * start, 0.5 / mean_u

    def value(slope: float, rate: float) -> tuple[float, tuple[float, ...]]:
        log_total, *rest = moments(slope, rate)
        return -slope * mean_y - rate * mean_u - log_total, tuple(rest)

    best, (ey, eu, vy, cov, vu) = value(slope, rate)
    for _ in range(200):
        gy, gu = ey - mean_y, eu - mean_u
        det = vy * vu - cov * cov
        if det <= 0:
            break
        step_slope, step_rate = (vu * gy - cov * gu) / det, (vy * gu - cov * gy) / det
        gain = gy * step_slope + gu * step_rate
        share = min(1.0, 0.9 * rate / -step_rate) if step_rate < 0 else 1.0
        while share > 1e-9:
            trial, found = value(slope + share * step_slope, rate + share * step_rate)
            if trial >= best + 0.1 * share * gain - 1e-15 * abs(best):
                break
            share /= 2
        else:
            break
        slope, rate, best = slope + share * step_slope, rate + share * step_rate, trial
        ey, eu, vy, cov, vu = found
        if gain < 1e-14:
            break
    return Cutoff(slope + 1, rate, best)


def moments(slope: float, rate: float) -> tuple[float, float, float, float, float, float]:
    """ln Z, E y, E u, Var y, Cov(y, u), Var u, for the density e^(−slope·y − rate·u)/Z of y >= 0, u = e^y − 1, rate > 0.

    48-point Gauss-Legendre over the range where the integrand is above e^−42 of its peak, split in two where it turns.
    """
    peak = math.log(-slope / rate) if -slope > rate else 0.0
    top = -slope * peak - rate * math.expm1(peak)
    end = _end(slope, rate, DEPTH - top)
    turn = min(max(peak, math.log1p(1 / rate), 0.3 * end), 0.9 * end)
    y = np.concatenate(((NODES + 1) * (turn / 2), turn + (NODES + 1) * ((end - turn) / 2)))
    weight = np.concatenate((WEIGHTS * (turn / 2), WEIGHTS * ((end - turn) / 2)))
    u = np.expm1(y)
    mass = weight * np.exp(-slope * y - rate * u - top)
    total = float(mass.sum())
    mass /= total
    ey, eu = float(mass @ y), float(mass @ u)
    y -= ey
    u -= eu
    weighted = mass * y
    return math.log(total) + top, ey, eu, float(weighted @ y), float(weighted @ u), float((mass * u) @ u)


def _end(slope: float, rate: float, depth: float) -> float:
    """Where slope·y + rate·(e^y − 1) reaches depth: Newton from beyond, where the function is convex and rising."""
    y = math.log1p(depth / rate)
    if slope >= 0:
        y = min(y, depth / slope) if slope > 0 else y
    else:
        for _ in range(60):
            further = math.log1p((depth - slope * y) / rate)
            if further - y < 1e-3:
                break
            y = further
        y += 1e-3
    return y

"""Power laws over integers: the zeta distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

__all__ = ["DiscreteStarts", "discrete_search"]

LOWEST, HIGHEST = 1.0 + 1e-6, 40.0
STEP = 1e-4


@dataclass(frozen=True, slots=True)
class DiscreteStarts:
    """Every start with its exponent, distance, tail size and standard error."""

    xmin: Float[np.ndarray, "c"]
    alpha: Float[np.ndarray, "c"]
    D: Float[np.ndarray, "c"]
    size: np.ndarray
    sigma: Float[np.ndarray, "c"]


def discrete_search(x: Float[np.ndarray, "n"], xmin: float | None, min_tail: int) -> DiscreteStarts | None:
    """Maximum likelihood of p(k) = k^−α / ζ(α, xmin) for every distinct xmin, and its Kolmogorov–Smirnov distance.

    The likelihood is concave in α, so its derivative is bisected, for all starts at once. Source: Clauset, Shalizi & Newman
    (2009), equation 3.5 and appendix B.
    """
    from scipy.special import zeta

    values, first, counts = np.unique(x, return_index=True, return_counts=True)
    size = x.size - first
    usable = size >= min_tail
    usable[-1] = False
    if xmin is not None:
        usable &= values == values[min(np.searchsorted(values, xmin), values.size - 1)]
    at = np.flatnonzero(usable)
    if at.size == 0:
        return None
    starts = values[at].astype(float)
    mean_log = (np.cumsum((counts * np.log(values))[::-1])[::-1] / size)[at]
    low, high = np.full(at.size, LOWEST), np.full(at.size, HIGHEST)
    for _ in range(50):
        middle = (low + high) / 2
        h = np.minimum(STEP, (middle - 1) / 2)
        slope = (np.log(zeta(middle + h, starts)) - np.log(zeta(middle - h, starts))) / (2 * h)
        rising = -slope > mean_log  # d/dα of the mean log likelihood is −slope − mean_log
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    alpha = (low + high) / 2
    D = np.empty(at.size)
    for i, start in enumerate(at):
        tail = values[start:]
        model = 1 - zeta(alpha[i], tail + 1) / zeta(alpha[i], starts[i])
        D[i] = np.abs(np.cumsum(counts[start:]) / size[start] - model).max()
    h = 1e-3
    curve = np.log(zeta(alpha + h, starts)) - 2 * np.log(zeta(alpha, starts)) + np.log(zeta(alpha - h, starts))
    sigma = np.sqrt(h**2 / (np.maximum(curve, 1e-300) * size[at]))
    return DiscreteStarts(starts, alpha, D, size[at], sigma)

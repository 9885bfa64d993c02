"""Goodness of fit of a power law by synthetic samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from querist.statistics import rank_p, stream
from querist.weights.fits._bounded import quantile
from querist.weights.fits._fit import PLFit
from querist.weights.fits._ladder import log_over
from querist.weights.fits._zeta import zeta_sum

__all__ = ["bootstrap_p", "draw_tail"]

LARGEST = 690.0
"""ln of the largest value drawn: a tail with a slope of .05 would overflow once in 1e15 draws."""


def bootstrap_p(
    x: Float[np.ndarray, "N"], fit: PLFit, refit: Callable[[np.ndarray], float | None], samples: int, seed: int
) -> float:
    """Share of synthetic samples whose distance is at least the fit's; small where the power law is implausible.

    Each sample draws each of its N values from the law with probability n_tail/N and otherwise from the observed values
    below xmin, and is fitted anew by `refit` (ascending values to D; None counts as larger). Values are independent in it:
    on spectra, whose eigenvalues repel, D is smaller than independence gives, so that p is too large.

    Source: Clauset, Shalizi & Newman (2009), section 4.1, with the rank p value (1 + #)/(1 + B).
    """
    assert fit.D is not None
    rng = stream(seed, "power-law bootstrap")
    below = x[: x.size - fit.n_tail]
    distances = []
    for _ in range(samples):
        size = int(rng.binomial(x.size, fit.n_tail / x.size)) if below.size else x.size
        body = rng.choice(below, x.size - size) if below.size else below
        D = refit(np.sort(np.concatenate([body, draw_tail(fit, size, rng)])))
        distances.append(1.0 if D is None else D)
    return rank_p(fit.D, distances)


def draw_tail(fit: PLFit, size: int, rng: np.random.Generator) -> Float[np.ndarray, "n"]:
    """Independent values from the fitted law."""
    assert fit.alpha is not None
    assert fit.xmin is not None
    assert fit.xmax is not None
    u = 1 - rng.random(size)  # in (0, 1]: the share above
    if fit.discrete:
        return _zeta_quantile(u, fit.alpha, fit.xmin)
    if fit.bounded:
        span = float(log_over(np.array([fit.xmax]), fit.xmin)[0])
        return np.minimum(fit.xmin * np.exp(quantile(u, span, fit.alpha - 1)), fit.xmax)
    return np.exp(np.minimum(np.log(fit.xmin) - np.log(u) / (fit.alpha - 1), LARGEST))


def _zeta_quantile(u: np.ndarray, alpha: float, xmin: float) -> np.ndarray:
    """The largest integer k with P(X >= k) >= u: by doubling, then by bisection on integers, for all at once."""
    total = zeta_sum(alpha, xmin)[0]

    def share(k: np.ndarray) -> np.ndarray:
        return np.exp(-alpha * np.log(k / xmin)) * zeta_sum(alpha, k)[0] / total

    low = np.full(u.size, xmin)
    high = low + 1
    grows = np.flatnonzero(share(high) >= u)
    while grows.size:
        low[grows] = high[grows]
        high[grows] *= 2
        grows = grows[(high[grows] < np.exp(LARGEST)) & (share(high[grows]) >= u[grows])]
    while (wide := np.flatnonzero(high - low > np.maximum(1, 1e-15 * low))).size:
        middle = np.floor((low[wide] + high[wide]) / 2)
        inside = share(middle) >= u[wide]
        low[wide[inside]] = middle[inside]
        high[wide[~inside]] = middle[~inside]
    return low

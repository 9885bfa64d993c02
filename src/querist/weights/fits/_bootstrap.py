"""Goodness of fit of a power law by synthetic samples."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from querist.statistics import rank_p, stream

__all__ = ["bootstrap_p"]


def bootstrap_p(
    x: Float[np.ndarray, "n"], fit, samples: int, *, discrete: bool, min_tail: int, seed: int
) -> float:  # `fit` is a PLFit; naming the type here would close an import circle
    """Share of synthetic samples whose D is at least the fit's: small where the power law is implausible.

    Each sample draws from the law with probability n_tail/n and from the observed values below xmin otherwise, and is fitted
    anew with its own xmin. Independent values are assumed: on spectra, whose eigenvalues repel, the test is liberal.

    Source: Clauset, Shalizi & Newman (2009), section 4.1, with the rank p value (1 + #)/(1 + B).
    """
    from querist.weights.fits._powerlaw import fit_powerlaw

    rng = stream(seed, "power-law bootstrap")
    below = x[x < fit.xmin]
    drawn = []
    for _ in range(samples):
        size = int(rng.binomial(x.size, fit.n_tail / x.size))
        tail = _tail(rng, fit, size, discrete)
        body = rng.choice(below, x.size - size) if below.size else _tail(rng, fit, x.size - size, discrete)
        again = fit_powerlaw(np.concatenate([body, tail]), discrete=discrete, min_tail=min_tail)
        drawn.append(again.D if again.D is not None else 1.0)
    return rank_p(fit.D, drawn)


def _tail(rng: np.random.Generator, fit, size: int, discrete: bool) -> np.ndarray:
    u = rng.random(size)
    if not discrete:
        return fit.xmin * (1 - u) ** (-1 / (fit.alpha - 1))
    return _zeta(u, fit.alpha, fit.xmin)


def _zeta(u: np.ndarray, alpha: float, xmin: float) -> np.ndarray:
    """Inverse survival function of the zeta distribution, by bisection on integers."""
    from scipy.special import zeta

    total = zeta(alpha, xmin)
    low, high = np.full(u.size, xmin), np.full(u.size, 2 * xmin)
    while (open_ := zeta(alpha, high) / total > 1 - u).any():
        low = np.where(open_, high, low)
        high = np.where(open_, high * 2, high)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        above = zeta(alpha, middle) / total > 1 - u
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return low

"""Tail estimators that need no search for xmin: Hill, Pickands, moments, and the choice of k by double bootstrap."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import TooFewRows
from querist.statistics import stream
from querist.weights.fits._values import checked

__all__ = ["double_bootstrap_k", "hill_curve", "moments_estimator", "pickands"]


def hill_curve(evals: ArrayLike) -> tuple[np.ndarray, Float[np.ndarray, "k"]]:
    """(k, density exponent) for every k from 1 to n − 1: 1 + k/Σ_{i≤k} ln(x_{n−i+1}/x_{n−k}); infinite while the top is tied.

    Source: Hill (1975), textbook form.
    """
    x, _ = checked(evals)
    logs = np.log(x[::-1])
    k = np.arange(1, x.size)
    above = np.cumsum(logs)[:-1] - k * logs[1:]
    with np.errstate(divide="ignore"):
        return k, 1 + k / np.maximum(above, 0.0)


def pickands(evals: ArrayLike, k: int | None = None) -> float:
    """Extreme value index γ from the order statistics k, 2k and 4k from the top; a power law has density exponent 1 + 1/γ.

    k defaults to n/16. Raises TooFewRows below 4k values. Source: Pickands (1975).
    """
    x, _ = checked(evals)
    k = k or max(1, x.size // 16)
    if x.size < 4 * k:
        raise TooFewRows("Too few values for Pickands' estimator", value=x.size, allowed=f"at least {4 * k}")
    top = x[::-1]
    upper, lower = top[k - 1] - top[2 * k - 1], top[2 * k - 1] - top[4 * k - 1]
    return math.log(upper / lower) / math.log(2) if upper > 0 and lower > 0 else math.nan


def moments_estimator(evals: ArrayLike, k: int | None = None) -> float:
    """Extreme value index γ by the moments of the k topmost log spacings; k defaults to n/10.

    Raises TooFewRows below k + 1 values. Source: Dekkers, Einmahl & de Haan (1989).
    """
    x, _ = checked(evals)
    k = k or max(2, x.size // 10)
    if x.size <= k:
        raise TooFewRows("Too few values for the moments estimator", value=x.size, allowed=f"more than {k}")
    spacings = np.log(x[-k:] / x[-k - 1])
    first, second = float(spacings.mean()), float((spacings**2).mean())
    if second <= 0 or second == first**2:
        return math.nan
    return first + 1 - 0.5 / (1 - first**2 / second)


def double_bootstrap_k(evals: ArrayLike, *, samples: int = 200, seed: int = 0) -> tuple[int, float]:
    """(k, density exponent) with k chosen to minimise the asymptotic error of Hill's estimator.

    Two rounds of resampling at sizes n₁ = n^.9 and n₁²/n estimate where the mean of (M₂ − 2M₁²)² is smallest, M₁ and M₂
    the first two moments of log spacings. Raises TooFewRows below 50 values.

    Source: Danielsson, de Haan, Peng & de Vries (2001).
    """
    x, _ = checked(evals)
    n = x.size
    if n < 50:
        raise TooFewRows("Too few values for a double bootstrap", value=n, allowed="at least 50")
    first = round(n**0.9)
    second = round(first**2 / n)
    k1 = _best_k(x, first, samples, seed, "first")
    k2 = _best_k(x, second, samples, seed, "second")
    rho = math.log(k1) / (2 * math.log(first) - 2 * math.log(k1)) if k1 < first else 1.0
    power = 2 * (math.log(first) - math.log(k1)) / math.log(first)
    k = round(k1**2 / k2 * ((math.log(k1) ** 2) / max((2 * math.log(first) - math.log(k1)) ** 2, 1e-12)) ** (power / 2))
    k = min(max(2, k), n - 1) if rho > 0 else max(2, n // 10)
    return k, float(hill_curve(x)[1][k - 1])


def _best_k(x: np.ndarray, size: int, samples: int, seed: int, round_name: str) -> int:
    rng = stream(seed, "double bootstrap", round_name)
    k = np.arange(1, size)
    total = np.zeros(size - 1)
    for _ in range(samples):
        logs = np.sort(np.log(rng.choice(x, size)))[::-1]
        sums, squares = np.cumsum(logs)[:-1], np.cumsum(logs**2)[:-1]
        base = logs[1:]
        m1 = sums / k - base
        m2 = squares / k - 2 * base * sums / k + base**2
        total += (m2 - 2 * m1**2) ** 2
    low, high = max(2, round(0.01 * size)), max(3, round(0.6 * size))
    return int(k[low:high][np.argmin(total[low:high])])

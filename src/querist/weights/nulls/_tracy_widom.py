"""The Tracy–Widom law of order one, and the edge of a noise matrix that it describes."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption

__all__ = ["johnstone", "tw1_cdf", "tw1_quantile", "tw1_sf", "tw_edge"]

TABLES = Path(__file__).parent / "tables"


@lru_cache(maxsize=1)
def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """s, log F and log(1 − F) on a uniform grid."""
    with np.load(TABLES / "tw1.npz", allow_pickle=False) as law:
        return law["s"], law["log_cdf"], law["log_sf"]


def _cubic(x: np.ndarray, grid: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Interpolation through the four nearest points of a uniform grid: 4e-8 off in log F at a step of .05, a line 6e-4."""
    step = (grid[-1] - grid[0]) / (grid.size - 1)
    at = np.clip(x, grid[0], grid[-1])
    i = np.clip(((at - grid[0]) / step).astype(int), 1, grid.size - 3)
    f = (at - grid[i]) / step
    weights = (
        -f * (f - 1) * (f - 2) / 6,
        (f + 1) * (f - 1) * (f - 2) / 2,
        -(f + 1) * f * (f - 2) / 2,
        (f + 1) * f * (f - 1) / 6,
    )
    return sum(weight * values[i + k] for k, weight in enumerate(weights, -1))  # type: ignore[return-value]


def _left(x: np.ndarray) -> np.ndarray:
    """log F towards −∞ up to a constant. Source: Baik, Buckingham & DiFranco (2008)."""
    z = np.maximum(-x, 1.0)
    return -(z**3) / 24 - z**1.5 / (3 * math.sqrt(2)) - np.log(z) / 16 - z**-1.5 / (24 * math.sqrt(2))


def _right(x: np.ndarray) -> np.ndarray:
    """log(1 − F) towards ∞ up to a constant: half the integral of Airy's function."""
    z = np.maximum(x, 1.0)
    return -2 / 3 * z**1.5 - 0.75 * np.log(z)


def _log_cdf(x: np.ndarray) -> np.ndarray:
    s, log_cdf, log_sf = _table()
    inside = _cubic(x, s, log_cdf)
    left = log_cdf[0] + _left(x) - _left(s[0])
    right = np.log1p(-np.exp(log_sf[-1] + _right(x) - _right(s[-1])))
    return np.where(x < s[0], left, np.where(x > s[-1], right, inside))


def _log_sf(x: np.ndarray) -> np.ndarray:
    s, log_cdf, log_sf = _table()
    inside = _cubic(x, s, log_sf)
    left = np.log1p(-np.exp(log_cdf[0] + _left(x) - _left(s[0])))
    right = log_sf[-1] + _right(x) - _right(s[-1])
    return np.where(x < s[0], left, np.where(x > s[-1], right, inside))


def tw1_cdf(x: ArrayLike) -> Float[np.ndarray, "..."]:
    """Distribution function of the Tracy–Widom law of order one; relative error below 2e-6 from −8 to 10.

    Below and above, the asymptotic expansions joined to the table: relative error 2e-5 at −9, of 1 − F 5e-3 at 11.5.

    Source: Tracy & Widom (1996); tabulated from the Fredholm determinant by the quadrature of Bornemann (2010).
    """
    return np.exp(_log_cdf(np.asarray(x, dtype=float)))


def tw1_sf(x: ArrayLike) -> Float[np.ndarray, "..."]:
    """1 − F, with the same relative error in the upper tail."""
    return np.exp(_log_sf(np.asarray(x, dtype=float)))


def tw1_quantile(p: ArrayLike) -> Float[np.ndarray, "..."]:
    """Quantiles; .95 is 0.9793 and .99 is 2.0234. Raises BadOption for p outside [1e-11, 1 − 1e-11]."""
    p = np.asarray(p, dtype=float)
    outside = p[~((p >= 1e-11) & (p <= 1 - 1e-11))]
    if outside.size:
        raise BadOption(
            "A quantile's level lies outside its range", value=float(outside.flat[0]), allowed="1e-11 to 1 − 1e-11"
        )
    s, log_cdf, log_sf = _table()
    low, target = p < 0.5, np.where(p < 0.5, np.log(p), np.log1p(-p))
    x = np.where(low, np.interp(target, log_cdf, s), np.interp(-target, -log_sf, s))
    for _ in range(3):  # secants over the width of a cell: the line's 6e-4 shrinks a hundredfold each time
        above, below = (
            np.where(low, _log_cdf(x + 0.02), _log_sf(x + 0.02)),
            np.where(low, _log_cdf(x - 0.02), _log_sf(x - 0.02)),
        )
        x = x - (np.where(low, _log_cdf(x), _log_sf(x)) - target) * 0.04 / (above - below)
    return x


def johnstone(N: int, M: int) -> tuple[float, float]:
    """Centre and scale of the largest eigenvalue at unit entry variance: (λ_N − μ)/σ tends to Tracy–Widom of order one.

    Source: Johnstone (2001), with M − 1 in place of the degrees of freedom.
    """
    N, M = min(N, M), max(N, M)
    a, b = math.sqrt(max(M - 1, 1)), math.sqrt(N)
    return (a + b) ** 2, (a + b) * (1 / a + 1 / b) ** (1 / 3)


@lru_cache(maxsize=64)
def _quantile(level: float) -> float:
    return float(tw1_quantile(level))


def tw_edge(N: int, M: int, level: float, sigma2: float = 1.0, *, count: int = 1) -> float:
    """The `level` quantile of the largest eigenvalue of `count` independent N x M noise matrices of entry variance sigma2."""
    mu, sigma = johnstone(N, M)
    return sigma2 * (mu + sigma * _quantile(level ** (1 / count)))

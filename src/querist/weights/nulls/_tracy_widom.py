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

TABLES = Path(__file__).parent / "tables" / "laws.npz"


@lru_cache(maxsize=1)
def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """s, log F and log(1 − F) on a grid of step 1/50."""
    with np.load(TABLES, allow_pickle=False) as laws:
        return laws["tw1_s"], laws["tw1_log_cdf"], laws["tw1_log_sf"]


def tw1_cdf(x: ArrayLike) -> Float[np.ndarray, "..."]:
    """Distribution function of the Tracy–Widom law of order one, to 1e-5 relative in the lower tail.

    Source: Tracy & Widom (1996); tabulated from the Fredholm determinant by the quadrature of Bornemann (2010).
    """
    s, log_cdf, _ = _table()
    return np.exp(np.interp(np.asarray(x, dtype=float), s, log_cdf, left=-np.inf, right=0.0))


def tw1_sf(x: ArrayLike) -> Float[np.ndarray, "..."]:
    """1 − F, accurate in the upper tail."""
    s, _, log_sf = _table()
    return np.exp(np.interp(np.asarray(x, dtype=float), s, log_sf, left=0.0, right=-np.inf))


def tw1_quantile(p: ArrayLike) -> Float[np.ndarray, "..."]:
    """Quantiles; .95 is 0.9793 and .99 is 2.0234. Raises BadOption for p outside (0, 1)."""
    p = np.asarray(p, dtype=float)
    if p.size and not ((p > 0) & (p < 1)).all():
        raise BadOption("A quantile's level lies outside its range", value=float(p.min()), allowed="0 < p < 1")
    s, log_cdf, log_sf = _table()
    lower = np.interp(np.log(p), log_cdf, s)
    upper = np.interp(-np.log1p(-p), -log_sf, s)
    return np.where(p < 0.5, lower, upper)


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

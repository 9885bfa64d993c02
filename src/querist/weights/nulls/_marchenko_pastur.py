"""The Marchenko–Pastur law: what the spectrum of independent entries looks like."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption

__all__ = ["mp_cdf", "mp_edges", "mp_moment", "mp_pdf", "mp_quantile", "mp_quantiles"]

GRID = 4001
"""Points in t of the tabulated distribution: its quantiles then err by less than 1e-7 of the bulk's width."""


def _ratio(q: float) -> float:
    if not 0 < q <= 1:
        raise BadOption(
            "The aspect ratio of a Marchenko–Pastur law lies outside its range", value=q, allowed="0 < q <= 1"
        )
    return float(q)


def mp_edges(q: float) -> tuple[float, float]:
    """(1 − √q)² and (1 + √q)²: the edges of λ/M at unit entry variance."""
    root = math.sqrt(_ratio(q))
    return (1 - root) ** 2, (1 + root) ** 2


def mp_pdf(x: ArrayLike, q: float) -> Float[np.ndarray, "..."]:
    """Density √((x₊−x)(x−x₋)) / (2πqx) of x = λ/M at unit entry variance, 0 outside the edges. Source: Marchenko & Pastur (1967)."""
    low, high = mp_edges(q)
    x = np.asarray(x, dtype=float)
    inside = (x > low) & (x < high) & (x > 0)
    safe = np.where(inside, x, 1.0)
    return np.where(inside, np.sqrt(np.maximum((high - safe) * (safe - low), 0.0)) / (2 * np.pi * q * safe), 0.0)


@lru_cache(maxsize=256)
def _grid(q: float) -> tuple[np.ndarray, np.ndarray]:
    """x and F(x) over t in [0, π], x = 1 + q − 2√q·cos t: the density times dx/dt is (2/π)·sin²t / x, smooth in t."""
    t = np.linspace(0.0, np.pi, GRID)
    root = math.sqrt(q)
    # 1 + q − 2√q cos t without cancellation near t = 0, where x is (1−√q)².
    x = (1 - root) ** 2 + 4 * root * np.sin(t / 2) ** 2
    # sin²t/x is 4·cos²(t/2)·sin²(t/2)/x, and at q = 1 simply cos²(t/2), also where x is 0.
    slope = (2 / np.pi) * (np.cos(t / 2) ** 2 if q == 1.0 else np.sin(t) ** 2 / x)
    cumulative = np.concatenate([[0.0], np.cumsum((slope[1:] + slope[:-1]) / 2) * (t[1] - t[0])])
    return x, cumulative / cumulative[-1]


def mp_cdf(x: ArrayLike, q: float) -> Float[np.ndarray, "..."]:
    """Distribution function of λ/M at unit entry variance, by the trapezium in t (smooth, so it converges fast)."""
    grid, cumulative = _grid(_ratio(q))
    return np.interp(np.asarray(x, dtype=float), grid, cumulative)


def mp_quantile(u: ArrayLike, q: float) -> Float[np.ndarray, "..."]:
    """Quantiles of λ/M at unit entry variance, by inverse interpolation. Raises BadOption for u outside [0, 1]."""
    u = np.asarray(u, dtype=float)
    if u.size and not ((u >= 0) & (u <= 1)).all():
        raise BadOption("A quantile's level lies outside its range", value=float(u.min()), allowed="0 to 1")
    grid, cumulative = _grid(_ratio(q))
    return np.interp(u, cumulative, grid)


@lru_cache(maxsize=256)
def _matched(N: int, M: int) -> np.ndarray:
    values = M * mp_quantile((np.arange(N) + 0.5) / N, N / M)
    values.setflags(write=False)
    return values


def mp_quantiles(N: int, M: int) -> Float[np.ndarray, "N"]:
    """The matching law's eigenvalues: M times the quantiles at (i − ½)/N, ascending; read-only, unit entry variance."""
    N, M = min(N, M), max(N, M)
    return _matched(N, M)


def mp_moment(k: int, q: float) -> float:
    """k-th moment of λ/M at unit entry variance: Σ_r q^r/(r+1)·C(k,r)·C(k−1,r). Source: Bai & Silverstein (2010), lemma 3.1."""
    return sum(_ratio(q) ** r / (r + 1) * math.comb(k, r) * math.comb(k - 1, r) for r in range(k)) if k else 1.0

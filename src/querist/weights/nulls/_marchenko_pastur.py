"""The Marchenko–Pastur law: what the spectrum of independent entries looks like."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption

__all__ = ["mp_cdf", "mp_edges", "mp_moment", "mp_pdf", "mp_quantile", "mp_quantiles"]

NEWTON = 3
"""Steps from the grid to a quantile: its relative error is then below 1e-10 at every q tried from 1e-3 to 1."""


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


def _below(t: np.ndarray, q: float) -> np.ndarray:
    """F at x = 1 + q − 2√q·cos t for t in [0, π]: the integral of (2/π)·sin²t/x, closed.

    sin²t/x = (1 + q + 2√q·cos t)/4q − (1 − q)²/(4q·x), and ∫dt/x = 2/(1 − q)·arctan((1 + √q)/(1 − √q)·tan(t/2)). A trapezium
    over 4000 points is off by up to 2e-4 for q = .9998, where sin²t/x rises within t ~ 1 − √q: that is N·|ΔF| of .8 at
    N = 4096. Rounding is about 1e-16/q.
    """
    root = math.sqrt(q)
    turn = np.arctan2((1 + root) * np.sin(t / 2), (1 - root) * np.cos(t / 2))
    return np.clip(((1 + q) * t + 2 * root * np.sin(t) - 2 * (1 - q) * turn) / (2 * np.pi * q), 0.0, 1.0)


def _at(t: np.ndarray, q: float) -> np.ndarray:
    """x at t, without the cancellation of 1 + q − 2√q·cos t where x is near (1 − √q)²."""
    root = math.sqrt(q)
    return (1 - root) ** 2 + 4 * root * np.sin(t / 2) ** 2


def mp_cdf(x: ArrayLike, q: float) -> Float[np.ndarray, "..."]:
    """Distribution function of λ/M at unit entry variance, in closed form.

    Source: the integral of the density of Marchenko & Pastur (1967) over t, x = 1 + q − 2√q·cos t.
    """
    low, _ = mp_edges(q)
    x = np.asarray(x, dtype=float)
    return _below(2 * np.arcsin(np.sqrt(np.clip((x - low) / (4 * math.sqrt(q)), 0.0, 1.0))), q)


@lru_cache(maxsize=256)
def _grid(q: float) -> tuple[np.ndarray, np.ndarray]:
    """t and F(t), dense where F bends: in powers towards both ends, where F is cubic, and around t = 1 − √q."""
    end = np.geomspace(1e-4, 1e-2, 25)
    bend = (1 - math.sqrt(q)) * np.geomspace(1e-2, 1e3, 101)
    t = np.concatenate([np.linspace(0.0, np.pi, 401), end, np.pi - end, bend[(bend > 0) & (bend < np.pi)]])
    t.sort()
    return t, np.maximum.accumulate(_below(t, q))


def mp_quantile(u: ArrayLike, q: float) -> Float[np.ndarray, "..."]:
    """Quantiles of λ/M at unit entry variance: inverse interpolation in t, then Newton inside the cell of the grid.

    Relative error below 1e-10 for u from 1e-9 to 1 − 1e-9 and q from 1e-3 to 1. Raises BadOption for u outside [0, 1].
    """
    u = np.asarray(u, dtype=float)
    outside = u[~((u >= 0) & (u <= 1))]
    if outside.size:
        raise BadOption("A quantile's level lies outside its range", value=float(outside.flat[0]), allowed="0 to 1")
    grid, cumulative = _grid(_ratio(q))
    cell = np.clip(np.searchsorted(cumulative, u, side="right"), 1, grid.size - 1)
    first, last = grid[cell - 1], grid[cell]
    t = np.interp(u, cumulative, grid)
    for _ in range(NEWTON):
        slope = (2 / np.pi) * (np.cos(t / 2) ** 2 if q == 1 else np.sin(t) ** 2 / _at(t, q))
        step = (_below(t, q) - u) / np.where(slope > 0, slope, np.inf)
        t = np.clip(t - step, first, last)
    return _at(t, q)


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

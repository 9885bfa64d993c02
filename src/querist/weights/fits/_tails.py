"""Tail indices that fit no xmin by distance: the Hill, Pickands and moment curves over the number of top values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import TooFewRows
from querist.weights.fits._ladder import log_ratio, positive

__all__ = ["TailCurve", "hill_curve", "moments_estimator", "pickands"]


@dataclass(frozen=True, eq=False)
class TailCurve:
    """One estimate of the extreme value index for every number k of top values.

    index: γ; a density exponent exists where it is positive, alpha = 1 + 1/γ, and is NaN elsewhere (γ = 0 is an exponential
    tail, γ < 0 one that ends). se: asymptotic standard error of γ for independent values. xmin: the value that the k lie above.
    low, high: alpha at γ ± 1.96 se; high is infinite, or NaN, where the interval reaches 0.
    """

    k: np.ndarray
    index: Float[np.ndarray, "k"]
    se: Float[np.ndarray, "k"]
    xmin: Float[np.ndarray, "k"]

    def __iter__(self) -> Iterator[np.ndarray]:
        """k, then alpha: `k, alpha = hill_curve(evals)`."""
        return iter((self.k, self.alpha))

    @property
    def alpha(self) -> Float[np.ndarray, "k"]:
        """1 + 1/γ where γ > 0."""
        return _exponent(self.index)

    @property
    def low(self) -> Float[np.ndarray, "k"]:
        """alpha at γ + 1.96 se."""
        return _exponent(self.index + 1.96 * self.se)

    @property
    def high(self) -> Float[np.ndarray, "k"]:
        """alpha at γ − 1.96 se."""
        return _exponent(self.index - 1.96 * self.se)

    def at(self, k: int) -> tuple[float, float]:
        """(γ, its standard error) at this k; raises TooFewRows where the curve does not have it."""
        place = int(np.searchsorted(self.k, k))
        if place == self.k.size or self.k[place] != k:
            known = f"{self.k[0]} to {self.k[-1]}" if self.k.size else "none"
            raise TooFewRows("The tail curve has no such k", value=k, allowed=known)
        return float(self.index[place]), float(self.se[place])


def _exponent(index: np.ndarray) -> np.ndarray:
    return np.where(index > 0, 1 + 1 / np.where(index > 0, index, 1.0), np.nan)


def hill_curve(evals: ArrayLike) -> TailCurve:
    """Hill's estimate for k = 1 … N − 1: γ = mean of ln(x_i/x_(N−k)) over the k largest, se γ/√k; 0 while the top is tied.

    Zeros are dropped. Raises InvalidSpectrum, and TooFewRows below two positive values. Source: Hill (1975), textbook form.
    """
    x = _enough(evals, 2)
    top = log_ratio(x)[::-1]
    k = np.arange(1, x.size)
    # Sums of gaps, all of one sign: Σ_{i<=k} (y_i − y_{k+1}) = Σ_{j<=k} j·(y_j − y_{j+1}).
    index = np.cumsum(k * (top[:-1] - top[1:])) / k
    return TailCurve(k, index, index / np.sqrt(k), x[-2::-1].copy())


def pickands(evals: ArrayLike) -> TailCurve:
    """Pickands' estimate for k = 1 … floor(N/4): γ = log2 of (x_(k) − x_(2k))/(x_(2k) − x_(4k)), values counted from the top.

    It is right for every sign of γ, and far noisier than Hill's. NaN where values are tied to within 2e-7 of their size. Zeros are dropped.
    Raises InvalidSpectrum, and TooFewRows below four positive values.

    Source: Pickands (1975); standard error by Dekkers & de Haan (1989).
    """
    x = _enough(evals, 4)
    top = x[::-1]
    k = np.arange(1, x.size // 4 + 1)
    upper, lower = top[k - 1] - top[2 * k - 1], top[2 * k - 1] - top[4 * k - 1]
    # A difference of a few roundings is a tie: its digits would depend on the unit.
    tie = 1e9 * np.finfo(np.float64).eps * top[k - 1]
    fine = (upper > tie) & (lower > tie)
    index = np.full(k.size, np.nan)
    index[fine] = np.log2(upper[fine]) - np.log2(lower[fine])
    # γ·√(2·4^γ + 1)/(2·(2^γ − 1)·ln 2), written in 2^−|γ|, which does not overflow.
    small = np.exp2(-np.abs(index))
    root = np.sqrt(np.where(index > 0, 2 + small**2, 2 * small**2 + 1))
    slope = np.where(small > 1 - 1e-9, 1 / math.log(2), np.abs(index) / np.where(small < 1, 1 - small, 1.0))
    se = slope * root / (2 * math.log(2)) / np.sqrt(k)
    return TailCurve(k, index, se, top[4 * k - 1].copy())


def moments_estimator(evals: ArrayLike) -> TailCurve:
    """The moment estimate for k = 2 … N − 1: γ = M₁ + 1 − ½/(1 − M₁²/M₂), M_r the mean of ln^r(x_i/x_(N−k)) over the k largest.

    Right for every sign of γ. NaN where the top is tied. Zeros are dropped. Raises InvalidSpectrum, and TooFewRows below three
    positive values.

    Source: Dekkers, Einmahl & de Haan (1989), with their asymptotic variance.
    """
    x = _enough(evals, 3)
    k = np.arange(1, x.size)
    first, second = log_moments(log_ratio(x)[::-1])
    k, first, second = k[1:], first[1:], second[1:]
    spread = second - first**2
    fine = spread > 1e-14 * second
    index = np.full(k.size, np.nan)
    index[fine] = first[fine] + 1 - 0.5 * second[fine] / spread[fine]
    g = np.minimum(index, 0)
    negative = (1 - g) ** 2 * (1 - 2 * g)
    negative *= 4 - 8 * (1 - 2 * g) / (1 - 3 * g) + (5 - 11 * g) * (1 - 2 * g) / ((1 - 3 * g) * (1 - 4 * g))
    se = np.sqrt(np.where(index >= 0, 1 + index**2, negative) / k)
    return TailCurve(k, index, se, x[-3::-1].copy())


def log_moments(top: Float[np.ndarray, "... N"]) -> tuple[np.ndarray, np.ndarray]:
    """M₁ and M₂ for k = 1 … N − 1 of descending log values, along the last axis."""
    k = np.arange(1, top.shape[-1])
    base = top[..., 1:]
    mean = np.cumsum(top, axis=-1)[..., :-1] / k
    square = np.cumsum(top * top, axis=-1)[..., :-1] / k
    return mean - base, np.maximum(square - 2 * base * mean + base * base, 0.0)


def _enough(evals: ArrayLike, least: int) -> np.ndarray:
    x, _ = positive(evals)
    if x.size < least:
        raise TooFewRows("Too few positive values for this tail index", value=x.size, allowed=f"{least} or more")
    return x

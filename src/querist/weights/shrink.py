"""Denoising a matrix by its singular values: what a noise of this size would leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption
from querist.weights.nulls import mp_quantile

__all__ = [
    "Shrinkage",
    "bbp_outlier",
    "bbp_overlaps",
    "bbp_threshold",
    "frobenius_shrinker",
    "hard_threshold",
    "shrink",
]


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """denoised_rank: singular values above the hard threshold (`threshold`, in the units of the singular values).
    denoised_energy: share of Σλ that the Frobenius shrinker keeps. values: shrunken singular values, in the given order."""

    denoised_rank: int
    denoised_energy: float
    threshold: float
    sigma: float
    values: Float[np.ndarray, "N"]


def hard_threshold(beta: float, *, known_sigma: bool = True) -> float:
    """Optimal hard threshold at aspect ratio beta: in units of σ√M, or without σ in units of the median singular value.

    Without σ: 2.8584 at β = 1, 2.3897 at 2/3, 1.8369 at ¼. Source: Gavish & Donoho (2014).
    """
    if not 0 < beta <= 1:
        raise BadOption("The aspect ratio lies outside its range", value=beta, allowed="0 < beta <= 1")
    known = math.sqrt(2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1)))
    return known if known_sigma else known / math.sqrt(float(mp_quantile(0.5, beta)))


def frobenius_shrinker(y: ArrayLike, beta: float) -> Float[np.ndarray, "..."]:
    """Optimal shrinkage for Frobenius loss: √((y² − β − 1)² − 4β)/y for y > 1 + √β, else 0; y in units of σ√M.

    Source: Gavish & Donoho (2017).
    """
    y = np.asarray(y, dtype=float)
    kept = y > 1 + math.sqrt(beta)
    safe = np.where(kept, y, 2.0)
    return np.where(kept, np.sqrt(np.maximum((safe**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / safe, 0.0)


def shrink(
    singular_values: Float[np.ndarray, "N"], shape: tuple[int, int], *, sigma: float | None = None, count: int = 1
) -> Shrinkage:
    """Denoise singular values (any order) of a matrix of this shape, or of `count` of them together.

    sigma: standard deviation of the noise's entries where known; otherwise taken from the median singular value.
    """
    n, m = min(shape), max(shape)
    beta = n / m
    values = np.asarray(singular_values, dtype=float)
    median = float(np.median(values))
    if sigma is None:
        threshold = hard_threshold(beta, known_sigma=False) * median
        sigma = median / math.sqrt(m * float(mp_quantile(0.5, beta)))
    else:
        threshold = hard_threshold(beta) * sigma * math.sqrt(m)
    unit = sigma * math.sqrt(m)
    shrunken = frobenius_shrinker(values / unit, beta) * unit if unit > 0 else values.copy()
    total = float(np.sum(values**2))
    energy = float(np.sum(shrunken**2)) / total if total > 0 else 0.0
    return Shrinkage(int(np.count_nonzero(values > threshold)), energy, threshold, sigma, shrunken)


def bbp_threshold(h: int, d: int) -> float:
    """Strength beyond which a rank-one term in noise of unit variance leaves the bulk: (h·d)^(1/4)."""
    return (h * d) ** 0.25


def bbp_outlier(theta: float, h: int, d: int) -> float | None:
    """Squared singular value (h + θ²)(d + θ²)/θ² of noise of unit variance plus strength θ; None below the threshold.

    Source: Baik, Ben Arous & Péché (2005); Benaych-Georges & Nadakuditi (2012).
    """
    if theta <= bbp_threshold(h, d):
        return None
    return (h + theta**2) * (d + theta**2) / theta**2


def bbp_overlaps(theta: float, beta: float) -> tuple[float, float]:
    """Squared overlaps of the outlier's singular vectors with the planted ones, short side and long side; 0 below threshold.

    Noise variance 1/M, aspect ratio β. Source: Benaych-Georges & Nadakuditi (2012).
    """
    t = theta**2
    if t * t <= beta:
        return 0.0, 0.0
    return 1 - beta * (1 + t) / (t * (t + beta)), 1 - (beta + t) / (t * (t + 1))

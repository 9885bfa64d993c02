"""Denoising a matrix by its singular values: what a noise of this size would leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, NonFinite, ShapeMismatch
from querist.weights.nulls import mp_quantile

__all__ = [
    "Shrinkage",
    "bbp_outlier",
    "bbp_overlap_long",
    "bbp_overlap_short",
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


def _ratio(beta: float) -> float:
    if not 0 < beta <= 1:
        raise BadOption("The aspect ratio lies outside its range", value=beta, allowed="0 < beta <= 1")
    return float(beta)


def hard_threshold(beta: float, *, known_sigma: bool = True) -> float:
    """Optimal hard threshold at aspect ratio beta: in units of σ√M, or without σ in units of the median singular value.

    Without σ: 2.8584 at β = 1, 2.3897 at 2/3, 1.8369 at ¼. Source: Gavish & Donoho (2014).
    """
    beta = _ratio(beta)
    known = math.sqrt(2 * (beta + 1) + 8 * beta / (beta + 1 + math.sqrt(beta**2 + 14 * beta + 1)))
    return known if known_sigma else known / math.sqrt(float(mp_quantile(0.5, beta)))


def frobenius_shrinker(y: ArrayLike, beta: float) -> Float[np.ndarray, "..."]:
    """Optimal shrinkage for Frobenius loss: √((y² − β − 1)² − 4β)/y for y > 1 + √β, else 0; y in units of σ√M.

    Source: Gavish & Donoho (2017).
    """
    y = np.asarray(y, dtype=float)
    kept = y > 1 + math.sqrt(_ratio(beta))
    safe = np.where(kept, y, 2.0)
    return np.where(kept, np.sqrt(np.maximum((safe**2 - beta - 1) ** 2 - 4 * beta, 0.0)) / safe, 0.0)


def shrink(
    W: Float[ArrayLike, "h d"] | Float[ArrayLike, "N"],
    shape: tuple[int, int] | None = None,
    *,
    sigma: float | None = None,
    count: int = 1,
) -> Shrinkage:
    """Denoise a matrix [h, d] by its singular values, or singular values [N] (any order) of a matrix of `shape`.

    sigma: standard deviation of the noise's entries where known; otherwise taken from the median singular value. count:
    how many matrices of `shape` the singular values are pooled from. Where more than half of them are 0 and sigma is not
    known, the noise is taken to be 0 and every positive value is kept. Raises ShapeMismatch, BadOption for a negative or
    non-finite sigma, NonFinite.

    Source: Gavish & Donoho (2014, 2017).
    """
    values, (n, m) = _singular_values(W, shape, count)
    beta = n / m
    median = float(np.median(values))
    law = math.sqrt(m * float(mp_quantile(0.5, beta)))
    if sigma is None:
        sigma = median / law
        threshold = hard_threshold(beta, known_sigma=False) * median
    elif 0 <= sigma < math.inf:
        threshold = hard_threshold(beta) * sigma * math.sqrt(m)
    else:
        raise BadOption("`sigma` is the standard deviation of the noise", value=sigma, allowed="0 or above, finite")
    unit = sigma * math.sqrt(m)
    shrunken = frobenius_shrinker(values / unit, beta) * unit if unit > 0 else values.copy()
    total = float(np.sum(values**2))
    energy = float(np.sum(shrunken**2)) / total if total > 0 else 0.0
    return Shrinkage(int(np.count_nonzero(values > threshold)), energy, threshold, sigma, shrunken)


def _singular_values(W: ArrayLike, shape: tuple[int, int] | None, count: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Singular values as float64, and the smaller and the larger side of one matrix."""
    values = np.asarray(W, dtype=np.float64)
    if not np.isfinite(values).all():
        raise NonFinite("The matrix holds NaN or infinite entries", mend="Mend or leave out the tensor")
    if values.ndim == 2 and values.size and shape in (None, values.shape) and count == 1:
        return np.linalg.svd(values, compute_uv=False), (min(values.shape), max(values.shape))
    if values.ndim == 1 and shape is not None and count >= 1 and 0 < values.size <= count * min(shape):
        return values, (min(shape), max(shape))
    raise ShapeMismatch(
        "Shrinkage takes a matrix, or the singular values of a matrix of a given shape",
        value=f"an array of shape {values.shape}, shape={shape}, count={count}",
        allowed="[h, d], or [N] with shape=(h, d) and N at most count times the smaller side",
    )


def bbp_threshold(h: int, d: int) -> float:
    """Strength beyond which a rank-one term in h x d noise of unit variance leaves the bulk: (h·d)^(1/4).

    In the units of the other three functions, noise of variance 1/M, that is β^(1/4): divide by √M.
    Source: Baik, Ben Arous & Péché (2005).
    """
    return (h * d) ** 0.25


def bbp_outlier(theta: float, beta: float) -> float | None:
    """Where a rank-one term of strength θ puts the largest eigenvalue: (1 + θ²)(β + θ²)/θ²; None up to θ⁴ = β.

    Noise variance 1/M, aspect ratio β. In noise of unit variance strength and eigenvalue are √M·θ and M times this.
    Source: Baik, Ben Arous & Péché (2005); Benaych-Georges & Nadakuditi (2012).
    """
    t = _squared(theta)
    return (1 + t) * (beta + t) / t if t * t > _ratio(beta) else None


def bbp_overlap_short(theta: float, beta: float) -> float:
    """Squared overlap of the outlier's singular vector with the planted one on the short side; 0 up to θ⁴ = β.

    1 − β(1 + θ²)/(θ²(θ² + β)); units as in bbp_outlier. Source: Benaych-Georges & Nadakuditi (2012).
    """
    t = _squared(theta)
    return 1 - beta * (1 + t) / (t * (t + beta)) if t * t > _ratio(beta) else 0.0


def bbp_overlap_long(theta: float, beta: float) -> float:
    """Squared overlap on the long side, 1 − (β + θ²)/(θ²(θ² + 1)); 0 up to θ⁴ = β. Source: as for the short side."""
    t = _squared(theta)
    return 1 - (beta + t) / (t * (t + 1)) if t * t > _ratio(beta) else 0.0


def _squared(theta: float) -> float:
    if not 0 <= theta < math.inf:
        raise BadOption("`theta` is the strength of a rank-one term", value=theta, allowed="0 or above, finite")
    return float(theta) ** 2

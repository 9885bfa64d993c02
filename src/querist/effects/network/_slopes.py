"""Out-of-fold slope of scores on what a model said, with a robust t."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

__all__ = ["slopes"]


def slopes(
    psi: Float[np.ndarray, "n"],
    said: Float[np.ndarray, "n"],
    weight: Float[np.ndarray, "n"] | None = None,
    cluster: Int[np.ndarray, "n"] | None = None,
) -> tuple[float, float]:
    """Weighted least-squares slope and its t by the HC0 sandwich, summed in clusters; (0, 0) where the model says one number."""
    w = np.ones(len(psi)) if weight is None else weight
    x = said - np.average(said, weights=w)
    square = float((w * x**2).sum())
    if square <= 1e-18 * float((w * said**2).sum()):
        return 0.0, 0.0
    y = psi - np.average(psi, weights=w)
    slope = float((w * x * y).sum()) / square
    score = w * x * (y - slope * x)
    if cluster is not None:
        score = np.bincount(np.unique(cluster, return_inverse=True)[1].reshape(-1), score)
    se = math.sqrt(float((score**2).sum())) / square
    return slope, slope / se if se > 0 else math.inf

"""TransRate: how much of the features' coding rate the classes account for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption
from querist.features.arrays import classes, rows

__all__ = ["coding_rate", "transrate", "transrate_of"]


def transrate(Z: Any, y: ArrayLike, eps: float = 1.0) -> float:
    """R(Z) − Σ_c (n_c/n) R(Z_c) in nats, R(Z) = ½ log det(I + d/(n·eps²) ZᵀZ), Z centred over all rows.

    Z: (n, d), y: (n,). eps: distortion allowed, in the unit of Z (hence of a typical unit's sd after `iso` normalisation).
    Classes are weighted by their rows; code in wide use weights them alike, which is right for classes of one size only, and
    its `eps` stands for our eps²/d.

    Raises LabelsNeeded, ShapeMismatch, TooFewRows, NonFinite, BadOption. Source: Huang et al. (2022).
    """
    return transrate_of(Z, eps)(y)


def transrate_of(Z: Any, eps: float = 1.0) -> Callable[[ArrayLike], float]:
    """TransRate of these rows as a function of their labels."""
    if not 0 < eps < math.inf:
        raise BadOption("The distortion eps lies outside its range", value=eps, allowed="0 < eps < inf")
    Z = rows(Z, "Z")
    centred = Z - Z.mean(axis=0, dtype=np.float64)
    whole = coding_rate(centred, eps)

    def score(y: ArrayLike) -> float:
        code, count = classes(y, len(Z))
        parts = [centred[code == k] for k in range(count)]
        return whole - sum(len(part) / len(Z) * coding_rate(part, eps) for part in parts)

    return score


def coding_rate(Z: Float[np.ndarray, "n d"], eps: float) -> float:
    """½ log det(I + d/(n·eps²) ZᵀZ), by the smaller of ZᵀZ and ZZᵀ: both have the same determinant here."""
    n, d = Z.shape
    gram = Z.T @ Z if d <= n else Z @ Z.T
    gram *= d / (n * eps**2)
    gram.flat[:: len(gram) + 1] += 1.0
    return float(np.log(np.diag(np.linalg.cholesky(gram))).sum())

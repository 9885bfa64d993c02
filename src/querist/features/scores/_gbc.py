"""Gaussian Bhattacharyya coefficient: how much the classes overlap in feature space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption
from querist.features.arrays import classes, rows
from querist.features.moments import class_moments

__all__ = ["Covariance", "gbc", "gbc_of"]

Covariance = Literal["spherical", "diagonal", "full"]
WIDTH = 64
FLOOR = 1e-9
"""Of the mean variance of all rows: the least variance a class may have along an axis, or its determinant is 0."""


def gbc(Z: Any, y: ArrayLike, covariance: Covariance = "spherical") -> float:
    """−Σ_{i≠j} exp(−B_ij) over ordered pairs of classes, B_ij the Bhattacharyya distance of their Gaussians; at most 0.

    Z: (n, d), y: (n,), two rows or more in each class. Above 64 units rows are first projected onto their 64 leading
    principal components. Covariances divide by n_c − 1: one variance per class (spherical), one per unit (diagonal), or
    whole matrices (full), shrunk after Ledoit and Wolf in classes of fewer than 2d rows.

    Raises LabelsNeeded, BadLabels for a class of one row, ShapeMismatch, TooFewRows, NonFinite, BadOption.
    Source: Pándy et al. (2022).
    """
    return gbc_of(Z, covariance)(y)


def gbc_of(Z: Any, covariance: Covariance = "spherical") -> Callable[[ArrayLike], float]:
    """GBC of these rows as a function of their labels."""
    if covariance not in ("spherical", "diagonal", "full"):
        raise BadOption("No such covariance", value=covariance, allowed="spherical, diagonal, full")
    Z = rows(Z, "Z", least=2)
    Z = (_leading(Z) if Z.shape[1] > WIDTH else Z).astype(np.float64, copy=False)
    floor = FLOOR * float(Z.var(axis=0).mean()) or np.finfo(np.float64).tiny

    def score(y: ArrayLike) -> float:
        code, count = classes(y, len(Z), least=2)
        if covariance == "full":
            found = class_moments(Z, code, count)
            coefficients = _full(found, floor)
        else:
            mean = np.stack([Z[code == k].mean(axis=0) for k in range(count)])
            variance = np.stack([Z[code == k].var(axis=0, ddof=1) for k in range(count)])
            if covariance == "spherical":
                variance = np.broadcast_to(variance.mean(axis=1, keepdims=True), variance.shape)
            coefficients = _diagonal(mean, np.maximum(variance, floor))
        return -float(coefficients.sum() - np.trace(coefficients))

    return score


def _leading(Z: np.ndarray) -> Float[np.ndarray, "n 64"]:
    centred = Z - Z.mean(axis=0, dtype=np.float64)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    return u[:, :WIDTH] * s[:WIDTH]


def _diagonal(mean: np.ndarray, variance: np.ndarray) -> Float[np.ndarray, "K K"]:
    both = (variance[:, None] + variance[None]) / 2
    logs = np.log(variance).sum(axis=1)
    shift = ((mean[:, None] - mean[None]) ** 2 / both).sum(axis=2) / 8
    return np.exp(-shift - (np.log(both).sum(axis=2) - (logs[:, None] + logs[None]) / 2) / 2)


def _full(found: list[tuple[np.ndarray, np.ndarray]], floor: float) -> Float[np.ndarray, "K K"]:
    parts = [(mean, S + floor * np.eye(len(S))) for mean, S in found]
    logs = [np.linalg.slogdet(S)[1] for _, S in parts]
    coefficients = np.eye(len(parts))
    for i, (mean, S) in enumerate(parts):
        for j in range(i):
            other, T = parts[j]
            both = (S + T) / 2
            shift = (mean - other) @ np.linalg.solve(both, mean - other) / 8
            B = shift + (np.linalg.slogdet(both)[1] - (logs[i] + logs[j]) / 2) / 2
            coefficients[i, j] = coefficients[j, i] = np.exp(-B)
    return coefficients

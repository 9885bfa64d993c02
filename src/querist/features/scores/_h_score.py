"""H-score: the share of the features' variance that lies between classes, in the features' own metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import UndefinedMetric
from querist.features.arrays import classes, rows
from querist.features.moments import moments

__all__ = ["h_score", "h_score_of"]


def h_score(Z: Any, y: ArrayLike, shrinkage: bool = False) -> float:
    """tr(cov(Z)⁺ cov(E[Z | y])), between 0 and K − 1.

    Z: (n, d), y: (n,) of K classes; both covariances over rows, divided by n. With fewer than ten rows per unit the plain
    score is near its largest value whatever the labels: `shrinkage` draws cov(Z) towards its mean variance by Ledoit and
    Wolf's weight w, and multiplies the other by 1 − w, so that the bound holds.

    Raises LabelsNeeded, ShapeMismatch, TooFewRows, NonFinite, UndefinedMetric where all rows are equal.
    Source: Bao et al. (2019); shrunk: Ibrahim et al. (2022).
    """
    return h_score_of(Z, shrinkage)(y)


def h_score_of(Z: Any, shrinkage: bool = False) -> Callable[[ArrayLike], float]:
    """H-score of these rows as a function of their labels: cov(Z) is decomposed once."""
    Z = rows(Z, "Z", least=2)
    n, d = Z.shape
    mean = Z.mean(axis=0, dtype=np.float64)
    centred = Z - mean
    weight = 0.0
    if shrinkage:
        from sklearn.covariance import ledoit_wolf_shrinkage

        weight = float(ledoit_wolf_shrinkage(centred, assume_centered=True))
    if n <= d:  # the eigenvectors with variance, without a d x d matrix
        _, s, axes = np.linalg.svd(centred, full_matrices=False)
        values = s**2 / n
    else:
        values, vectors = np.linalg.eigh(moments(Z, 0)[1])
        axes = vectors.T
    if values.max() <= (8 * np.finfo(np.float64).eps * float(np.abs(Z).max())) ** 2:
        raise UndefinedMetric("The H-score has no value: all rows are equal")
    kept = values > values.max() * max(n, d) * np.finfo(np.float64).eps
    # Class means lie in the span of the centred rows, so axes without variance never matter, shrunk or not.
    scale = (1 - weight) * values[kept] + weight * values.sum() / d
    whitened = centred @ (axes[kept].T / np.sqrt(scale))

    def score(y: ArrayLike) -> float:
        code, count = classes(y, n)
        sums = np.stack([whitened[code == k].sum(axis=0) for k in range(count)])
        sizes = np.bincount(code, minlength=count)
        return (1 - weight) * float((sums**2 / sizes[:, None]).sum()) / n

    return score

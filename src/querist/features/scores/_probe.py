"""Linear probe: cross-validated accuracy of a logistic regression on the features."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import ArrayLike

from querist.features.arrays import classes, rows
from querist.statistics import folds as split
from querist.statistics import mean_interval

__all__ = ["Probe", "probe"]

ITERATIONS = (200, 2000)


@dataclass(frozen=True, slots=True)
class Probe:
    """accuracy with its interval (t on rows, or on clusters), the majority class's share, which rows were right, their folds.

    Probes of one set of labels with one seed share their folds, so `correct` of two of them may be compared in pairs.
    converged: False where a fold's solver was stopped at 2,000 iterations.
    """

    accuracy: float
    low: float
    high: float
    majority: float
    correct: Bool[np.ndarray, "n"]
    fold: Int[np.ndarray, "n"]
    converged: bool


def probe(
    Z: Any,
    y: ArrayLike,
    *,
    folds: int = 5,
    C: float = 1.0,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Probe:
    """Accuracy of a multinomial logistic regression, each row judged by a fit that never saw its fold.

    Z: (n, d), y: (n,), 5 rows or more in each class (as many as folds). Units are scaled by mean and sd of the training rows of
    the fold; a unit that is constant there is left as 0. C: inverse strength of the ridge penalty. Folds depend on labels,
    clusters and seed only; rows of a cluster stay together.

    Raises LabelsNeeded, BadLabels, ShapeMismatch, TooFewRows, NonFinite, BadOption. Source: Alain & Bengio (2016).
    """
    Z = rows(Z, "Z", least=2)
    code, count = classes(y, len(Z), least=max(folds, 2))
    fold = split(len(Z), folds, strata=code, clusters=clusters, seed=seed)
    correct = np.zeros(len(Z), dtype=bool)
    converged = True
    for k in range(folds):
        train = fold != k
        mean, sd = Z[train].mean(axis=0, dtype=np.float64), Z[train].std(axis=0, dtype=np.float64)
        scale = np.where(sd > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float64).tiny), sd, np.inf)
        said, done = _predicted((Z[train] - mean) / scale, code[train], (Z[~train] - mean) / scale, C)
        correct[~train] = said == code[~train]
        converged &= done
    interval = mean_interval(correct.astype(float), cluster=clusters, level=level)
    low, high = max(0.0, interval.low or 0.0), min(1.0, interval.high or 0.0)
    majority = float(np.bincount(code, minlength=count).max()) / len(Z)
    return Probe(interval.estimate, low, high, majority, correct, fold, converged)


def _predicted(Z: np.ndarray, y: np.ndarray, held: np.ndarray, C: float) -> tuple[np.ndarray, bool]:
    """Classes of held rows, and whether the fit had converged; a fit that had not is begun anew with more iterations."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if np.unique(y).size == 1:  # clusters can leave one class in training
        return np.full(len(held), y[0]), True
    said: np.ndarray = y[:0]
    for iterations in ITERATIONS:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            said = LogisticRegression(C=C, max_iter=iterations).fit(Z, y).predict(held)
        if not any(issubclass(w.category, ConvergenceWarning) for w in told):
            return said, True
    return said, False

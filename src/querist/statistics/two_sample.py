"""Can a classifier tell two samples apart? A cross-fitted AUC with its permutation null."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, ShapeMismatch
from querist.statistics.arrays import finite
from querist.statistics.association import auc
from querist.statistics.folds import folds as split
from querist.statistics.permutation import permutation_test
from querist.statistics.resampling import bootstrap

__all__ = ["TwoSample", "two_sample_auc"]


@dataclass(frozen=True, slots=True)
class TwoSample:
    """AUC of cross-fitted scores (½ where the samples cannot be told apart), its interval, p, and the score of each row."""

    auc: float
    low: float
    high: float
    p: float
    scores: Float[np.ndarray, "n"]


def two_sample_auc(
    a: ArrayLike,
    b: ArrayLike,
    *,
    clusters: tuple[ArrayLike, ArrayLike] | None = None,
    pairs: bool | None = None,
    folds: int = 5,
    ridge: float = 1.0,
    permutations: int = 999,
    seed: int = 0,
) -> TwoSample:
    """Cross-fitted ridge discriminant of two samples [n, p] and [m, p], scored by the AUC of held-out rows.

    Columns are standardised on the training rows; the direction is (S + ridge·p/n·I)⁻¹(mean_b − mean_a), S the pooled
    covariance. Rows of a cluster or pair stay in one fold. p permutes labels (whole clusters; swaps within pairs) and fits
    anew; where folds are the same for all, only means and covariances change. The interval resamples held-out scores
    (clusters whole) and does not contain the fit's own variance.

    Raises ShapeMismatch, TooFewRows, NonFinite, BadOption. Source: classifier two-sample tests, Lopez-Paz & Oquab (2017).
    """
    x, y = finite(a, "a"), finite(b, "b")
    x, y = (part.reshape(len(part), -1) for part in (x, y))
    if x.shape[1] != y.shape[1]:
        raise ShapeMismatch("The samples have different columns", value=f"{x.shape[1]} and {y.shape[1]}")
    if ridge <= 0:
        raise BadOption("The ridge must be positive", value=ridge, allowed="ridge > 0")
    n, m = len(x), len(y)
    rows = np.concatenate([x, y])
    ids = None
    if clusters is not None:
        ids = np.concatenate([np.asarray(clusters[0]), np.asarray(clusters[1])])
    paired = np.concatenate([np.arange(n), np.arange(m)]) if pairs else None
    label = np.concatenate([np.zeros(n), np.ones(m)])
    # Strata would leak the observed labels into the folds, so permuted labels would not be exchangeable with them.
    fold = split(n + m, folds, clusters=ids, pairs=paired, seed=seed)
    prepared = [_prepare(rows, fold == f, ridge) for f in range(folds)]

    def scored(labels: np.ndarray) -> np.ndarray:
        scores = np.empty(n + m)
        for f, part in enumerate(prepared):
            held = fold == f
            scores[held] = part(labels[~held])
        return scores

    def statistic(first: np.ndarray, second: np.ndarray) -> float:
        labels = np.zeros(n + m)
        labels[second.astype(int)] = 1.0
        return _auc_by_fold(scored(labels), labels, fold)

    order = np.arange(n + m, dtype=float)
    test = permutation_test(
        order[:n], order[n:], statistic, clusters=clusters, pairs=pairs, permutations=permutations, seed=seed
    )
    scores = scored(label)
    units = ids if ids is not None else paired if paired is not None else np.arange(n + m)
    spread = bootstrap(
        (scores, label, fold), lambda part: _safe_auc(*part), clusters=(units,), replicates=400, seed=seed
    )
    return TwoSample(test.observed["value"], spread.low or 0.0, spread.high or 1.0, test.p["value"], scores)


def _safe_auc(scores: np.ndarray, label: np.ndarray, fold: np.ndarray) -> float:
    return _auc_by_fold(scores, label, fold) if 0 < label.sum() < label.size else 0.5


def _auc_by_fold(scores: np.ndarray, label: np.ndarray, fold: np.ndarray) -> float:
    """Mean over folds weighted by their pairs: scores of different fits are not on one scale."""
    total = pairs = 0.0
    for f in np.unique(fold):
        mine = fold == f
        positive = float(label[mine].sum())
        weight = positive * (mine.sum() - positive)
        if weight > 0:
            total += weight * auc(scores[mine], label[mine])
            pairs += weight
    return total / pairs if pairs else 0.5


def _prepare(rows: np.ndarray, held: np.ndarray, ridge: float):
    """Everything of one fold that does not depend on labels: standardised rows, their covariance's eigenvectors."""
    train, test = rows[~held], rows[held]
    mean, sd = train.mean(axis=0), train.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    train, test = (train - mean) / sd, (test - mean) / sd
    values, vectors = np.linalg.eigh(train.T @ train / len(train))
    # The total covariance takes the pooled one's place: both give the same direction (Fisher), and it needs no labels.
    root = vectors / np.sqrt(np.maximum(values, 0) + ridge * train.shape[1] / len(train))
    train, test = train @ root, test @ root

    def scores(labels: np.ndarray) -> np.ndarray:
        if not 0 < labels.sum() < labels.size:
            return np.zeros(len(test))
        return test @ (train[labels == 1].mean(axis=0) - train[labels == 0].mean(axis=0))

    return scores

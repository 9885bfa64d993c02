"""Masked agreement: are a class's rows still recognised when its most telling concepts are taken away?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from querist.concepts.data import ConceptData, class_sums
from querist.concepts.detectors._association import Association, association
from querist.statistics import folds

__all__ = ["masked_agreement"]

SMOOTHING = 0.5


def masked_agreement(
    data: ConceptData,
    *,
    size: int = 5,
    k: int = 5,
    found: Association | None = None,
    binarise: str | None = None,
    clusters: np.ndarray | None = None,
    seed: int = 0,
) -> Float[np.ndarray, "L"]:
    """A_t: share of the rows of t that naive Bayes, fitted on other folds, gives to t without the `size` concepts of largest |z|.

    Bernoulli naive Bayes with counts smoothed by ½ and the classes' frequencies as priors; the concepts of t are left out of
    the scores of all classes when a row of t is judged. clusters [n]: rows of one id, such as copies of a row in a resample, stay in
    one fold. Unknown cells add nothing. Relabelled rows are at home in their old
    classes: A falls with their share. NaN for a class without rows. Raises NotBinary, TooFewRows below k rows. Source: ours.
    """
    data = data.binary(binarise)
    z = np.nan_to_num(np.abs((found or association(data)).z))
    top = np.argsort(-z, axis=1, kind="stable")[:, : min(size, data.k)]
    fold = folds(data.n, k, clusters=clusters, seed=seed)
    ones = np.nan_to_num(data.concepts)
    known = ~np.isnan(data.concepts)
    right = np.zeros(data.n, dtype=bool)
    for f in range(k):
        train, held = fold != f, np.flatnonzero(fold == f)
        counts = np.bincount(data.codes[train], minlength=data.n_classes)
        one = class_sums(ones[train], data.codes[train], data.n_classes) + SMOOTHING
        seen = class_sums(known[train], data.codes[train], data.n_classes) + 2 * SMOOTHING
        log_one, log_zero = np.log(one / seen), np.log1p(-one / seen)
        prior = np.log((counts + SMOOTHING) / (counts.sum() + SMOOTHING * data.n_classes))
        absent = np.where(counts > 0, 0.0, -np.inf)  # a class that the other folds lack cannot be recognised
        both = np.concatenate([log_one - log_zero, log_zero], axis=1)
        rows = np.concatenate([ones[held], known[held]], axis=1)
        score = rows @ both.T + prior + absent
        for code in np.unique(data.codes[held]):
            mine = np.flatnonzero(data.codes[held] == code)
            left_out = np.concatenate([top[code], data.k + top[code]])
            judged = score[mine] - rows[np.ix_(mine, left_out)] @ both[:, left_out].T
            right[held[mine]] = judged.argmax(axis=1) == code
    sizes = data.class_sizes
    return np.where(
        sizes > 0, np.bincount(data.codes, weights=right, minlength=data.n_classes) / np.maximum(sizes, 1), np.nan
    )

"""Folds for cross-validation: balanced strata, whole clusters, unbroken pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadOption, TooFewRows
from querist.statistics.arrays import codes, same_length
from querist.statistics.streams import stream

__all__ = ["folds"]


def folds(
    n: int,
    k: int,
    *,
    strata: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    seed: int = 0,
) -> np.ndarray:
    """A fold 0 … k − 1 for each of n rows, int [n].

    Rows of a cluster, and rows that share a pair's id, stay in one fold. Each stratum is spread over the folds as evenly as its
    units allow: within one row for rows, greedily by size, largest unit first, for clusters. Raises TooFewRows where there are
    fewer units than folds, BadOption below two folds, ShapeMismatch.
    """
    if k < 2:
        raise BadOption("Cross-validation needs folds", value=k, allowed="2 or more")
    same_length(("rows", range(n)), ("strata", strata), ("clusters", clusters), ("pairs", pairs))
    unit, units = _units(n, clusters, pairs)
    if units < k:
        raise TooFewRows("There are fewer units than folds", value=units, allowed=f"{k} or more")
    stratum, count = codes(strata) if strata is not None else (np.zeros(n, dtype=int), 1)
    sizes = np.zeros((units, count))
    np.add.at(sizes, (unit, stratum), 1)
    rng = stream(seed, "folds", k)
    shuffled = rng.permutation(units)
    order = shuffled[np.argsort(-sizes[shuffled].sum(axis=1), kind="stable")]
    totals = sizes.sum(axis=0)
    load = np.zeros((k, count))
    chosen = np.empty(units, dtype=int)
    for u in order:
        # The fold that would be least full in this unit's strata, each as a share of its whole; then the smallest fold.
        mine = sizes[u] > 0
        fullness = (load[:, mine] / totals[mine]).max(axis=1)
        fold = np.lexsort((load.sum(axis=1), fullness))[0]
        chosen[u] = fold
        load[fold] += sizes[u]
    return chosen[unit]


def _units(n: int, clusters: ArrayLike | None, pairs: ArrayLike | None) -> tuple[np.ndarray, int]:
    """Connected components of rows that share a cluster or a pair."""
    if clusters is None and pairs is None:
        return np.arange(n), n
    if clusters is None or pairs is None:
        return codes(clusters if clusters is not None else pairs)  # type: ignore[arg-type]
    label, _ = codes(clusters)
    other, _ = codes(pairs)
    while True:
        lowest = np.full(other.max() + 1, n)
        np.minimum.at(lowest, other, label)
        joined = lowest[other]
        back = np.full(label.max() + 1, n)
        np.minimum.at(back, label, joined)
        merged = back[label]
        if (merged == label).all():
            return codes(label)
        label = merged

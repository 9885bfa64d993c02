"""Folds for cross-validation: balanced strata, whole clusters, unbroken pairs."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
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
) -> Int[np.ndarray, "n"]:
    """A fold 0 … k − 1 for each of n rows.

    strata, clusters, pairs: ids [n]. Rows of a cluster, and rows that share a pair's id, stay in one fold; no fold is empty.
    Each stratum is spread over the folds as evenly as its units allow: within one row where units are rows, greedily, the
    largest unit first, where they are clusters. Raises TooFewRows where there are fewer units than folds, BadOption below two
    folds, BadValues for a missing id, ShapeMismatch.
    """
    if k < 2:
        raise BadOption("Cross-validation needs folds", value=k, allowed="2 or more")
    same_length(("rows", range(n)), ("strata", strata), ("clusters", clusters), ("pairs", pairs))
    if (
        strata is None and clusters is None and pairs is None and n >= k
    ):  # what follows, where every row is like every other
        found = np.empty(n, dtype=int)
        found[stream(seed, "folds", k).permutation(n)] = np.arange(n) % k
        return found
    unit, units = _units(n, clusters, pairs)
    if units < k:
        raise TooFewRows("There are fewer independent units than folds", value=units, allowed=f"{k} or more")
    stratum, count = codes(strata, "Strata") if strata is not None else (np.zeros(n, dtype=int), 1)
    order = stream(seed, "folds", k).permutation(units)
    return _deal(_alike(unit, units, stratum, count, order), np.bincount(stratum, minlength=count), units, k)[unit]


def _alike(
    unit: np.ndarray, units: int, stratum: np.ndarray, count: int, order: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Units with the same number of rows in each stratum: (strata, rows in each, units in random order), largest first."""
    cell, rows = np.unique(unit.astype(np.int64) * count + stratum, return_counts=True)
    owner, inside = np.divmod(cell, count)
    kinds: list[tuple[np.ndarray, np.ndarray]]
    if unit.size == units:  # every unit is one row: its stratum says all
        profile, kinds = inside, [(np.array([s]), np.array([1])) for s in range(count)]
    else:
        starts = np.searchsorted(owner, np.arange(units + 1))
        seen: dict[bytes, int] = {}
        kinds, profile = [], np.empty(units, dtype=int)
        for u in range(units):
            mine = slice(starts[u], starts[u + 1])
            key = inside[mine].tobytes() + rows[mine].tobytes()
            if key not in seen:
                seen[key] = len(kinds)
                kinds.append((inside[mine], rows[mine]))
            profile[u] = seen[key]
    dealt = order[np.argsort(profile[order], kind="stable")]
    groups = np.split(dealt, np.cumsum(np.bincount(profile, minlength=len(kinds)))[:-1])
    by_size = sorted(range(len(kinds)), key=lambda g: -int(kinds[g][1].sum()))
    return [(*kinds[g], groups[g]) for g in by_size]


def _deal(
    groups: list[tuple[np.ndarray, np.ndarray, np.ndarray]], totals: np.ndarray, units: int, k: int
) -> np.ndarray:
    """Deal units that are alike round the folds: an empty fold first, then the least full in their strata, then in all."""
    load, filled = np.zeros((k, totals.size)), np.zeros(k)
    chosen = np.empty(units, dtype=int)
    for strata, rows, members in groups:
        fullness = (load[:, strata] / totals[strata]).max(axis=1)
        fold = np.lexsort((filled, fullness, filled > 0))
        chosen[members] = fold[np.arange(members.size) % k]
        dealt = np.bincount(chosen[members], minlength=k)
        load[:, strata] += dealt[:, None] * rows
        filled += dealt * rows.sum()
    return chosen


def _units(n: int, clusters: ArrayLike | None, pairs: ArrayLike | None) -> tuple[np.ndarray, int]:
    """Connected components of rows that share a cluster or a pair."""
    if clusters is None and pairs is None:
        return np.arange(n), n
    if clusters is None or pairs is None:
        return codes(clusters if clusters is not None else pairs, "Ids")
    label, _ = codes(clusters, "Clusters")
    other, _ = codes(pairs, "Pairs")
    while True:
        lowest = np.full(other.max(initial=-1) + 1, n)
        np.minimum.at(lowest, other, label)
        back = np.full(label.max(initial=-1) + 1, n)
        np.minimum.at(back, label, lowest[other])
        merged = back[label]
        if (merged == label).all():
            return codes(label)
        label = merged

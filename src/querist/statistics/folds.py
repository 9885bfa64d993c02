"""Folds for cross-validation: balanced strata, whole clusters, unbroken pairs."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from querist.errors import BadOption, TooFewRows
from querist.statistics.arrays import codes, index_type, same_length
from querist.statistics.streams import stream

__all__ = ["folds"]

FEW = 32
"""Kinds of units that are looked for one after another."""


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
    unit, units = (None, n) if clusters is None and pairs is None else _units(n, clusters, pairs)
    if units < k:
        raise TooFewRows("There are fewer independent units than folds", value=units, allowed=f"{k} or more")
    stratum, count = codes(strata, "Strata") if strata is not None else (np.zeros(n, dtype=np.uint8), 1)
    totals = np.bincount(stratum, minlength=count)
    stratum = stratum.astype(np.min_scalar_type(count), copy=False)
    # The numbers that `permutation(units)` draws, in half the bytes where they go into them.
    order = np.arange(units, dtype=index_type(units))
    stream(seed, "folds", k).shuffle(order)
    if unit is None or units == n:  # every unit is one row: its stratum says all
        profile = stratum if unit is None else stratum[np.argsort(unit)]
        kinds = [(np.array([s]), np.array([1])) for s in range(count)]
    else:
        profile, kinds = _profiles(unit, units, stratum, count)
    dealt = _deal(_alike(profile, kinds, order), totals, units, k)
    return (dealt if unit is None else dealt[unit]).astype(np.int64)


def _profiles(
    unit: np.ndarray, units: int, stratum: np.ndarray, count: int
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Which units have the same number of rows in each stratum: a number for each, and (strata, rows in each) of each number."""
    cell, rows = np.unique(unit.astype(np.int64) * count + stratum, return_counts=True)
    owner, inside = np.divmod(cell, count)
    starts = np.searchsorted(owner, np.arange(units + 1))
    seen: dict[bytes, int] = {}
    kinds: list[tuple[np.ndarray, np.ndarray]] = []
    profile = np.empty(units, dtype=int)
    for u in range(units):
        mine = slice(starts[u], starts[u + 1])
        key = inside[mine].tobytes() + rows[mine].tobytes()
        if key not in seen:
            seen[key] = len(kinds)
            kinds.append((inside[mine], rows[mine]))
        profile[u] = seen[key]
    return profile.astype(np.min_scalar_type(len(kinds))), kinds


def _alike(
    profile: np.ndarray, kinds: list[tuple[np.ndarray, np.ndarray]], order: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Units that are alike: (strata, rows in each, units in random order), largest first."""
    drawn = profile[order]
    if len(kinds) <= FEW:  # a sort's workspace would be several times the units
        groups = [order[drawn == number] for number in range(len(kinds))]
    else:
        dealt = order[np.argsort(drawn, kind="stable")]
        groups = np.split(dealt, np.cumsum(np.bincount(profile, minlength=len(kinds)))[:-1])
    by_size = sorted(range(len(kinds)), key=lambda g: -int(kinds[g][1].sum()))
    return [(*kinds[g], groups[g]) for g in by_size]


def _deal(
    groups: list[tuple[np.ndarray, np.ndarray, np.ndarray]], totals: np.ndarray, units: int, k: int
) -> np.ndarray:
    """Deal units that are alike round the folds: an empty fold first, then the least full in their strata, then in all."""
    load, filled = np.zeros((k, totals.size)), np.zeros(k)
    chosen = np.empty(units, dtype=np.min_scalar_type(k))
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

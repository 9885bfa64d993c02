"""Draws of equal size: two disjoint parts of the source and one of the target, clusters whole and pairs apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from querist.errors import TooFewRows
from querist.statistics import stream
from querist.statistics.relabelling import unit_ids

__all__ = ["LEAST", "Split", "arm_size", "groups", "splits"]

LEAST = 20
"""Images an arm must have."""


class Split(NamedTuple):
    """Numbers of pooled images: parts a and b of the source, and part t of the target."""

    a: Int[np.ndarray, "n_c"]
    b: Int[np.ndarray, "n_c"]
    t: Int[np.ndarray, "n_c"]


def arm_size(n: int, m: int) -> int:
    """n_c = min(floor(n/2), m) images per arm. Raises TooFewRows below 20."""
    size = min(n // 2, m)
    if size < LEAST:
        raise TooFewRows(
            f"Too few examples: {n} of the source and {m} of the target leave {size} per arm",
            value=size,
            allowed=f"{LEAST} or more per arm: {2 * LEAST} of the source and {LEAST} of the target",
        )
    return size


def splits(
    n: int, m: int, count: int, *, clusters: Any = None, pairs: Any = None, balanced: bool = False, seed: int = 0
) -> list[Split]:
    """`count` draws of `arm_size` images each from n source images (0 … n − 1) and m of the target (n … n + m − 1).

    clusters, pairs: as in `permutation_test`. Clusters are not cut, so parts may then fall short of n_c. With pairs the
    target's part holds the partners of b: an image never stands against its own partner, which would make the distance too
    small, and raw and null distances then differ by the partners alone. balanced: one random order turned round by equal
    steps, so that every image comes about as often in each part, and a few draws use the sets whole.
    """
    size = arm_size(n, m)
    unit, _ = unit_ids(n, m, clusters, pairs)
    paired = pairs is not None and pairs is not False
    rng = stream(seed, "splits", "balanced" if balanced else "random", n, m)
    source, target = _Order(unit[:n]), _Order(unit[n:])
    place, other = rng.permutation(source.units), rng.permutation(target.units)
    drawn = []
    for i in range(count):
        if balanced:
            order, ends = source.by((place + i * source.units // count) % source.units)
            other_order, other_ends = target.by((other + i * target.units // count) % target.units)
        else:
            order, ends = source.by(rng.permutation(source.units))
            other_order, other_ends = target.by(rng.permutation(target.units))
        first = _cut(ends, size)
        a, b = order[:first], order[first : first + _cut(ends[ends > first] - first, size)]
        partners = np.flatnonzero(np.isin(unit[n:], unit[b])) if paired else None
        t = other_order[: _cut(other_ends, size)] if partners is None else partners
        drawn.append(Split(a, b, n + t))
    return drawn


class _Order:
    """The rows of a set with their units in a given order, and where each unit ends."""

    def __init__(self, unit: np.ndarray):
        known, self._code, size = np.unique(unit, return_inverse=True, return_counts=True)
        self.units = known.size
        self._size = size

    def by(self, place: Int[np.ndarray, "units"]) -> tuple[Int[np.ndarray, "rows"], Int[np.ndarray, "units"]]:
        """place: the position of each unit."""
        return np.argsort(place[self._code], kind="stable"), np.cumsum(self._size[np.argsort(place)])


def _cut(ends: np.ndarray, size: int) -> int:
    """The last end of a unit within `size` rows; the first unit's where even that is longer."""
    within = ends[ends <= size]
    return int(within[-1] if within.size else ends[0])


def groups(
    n: int, m: int, count: int, *, clusters: Any = None, pairs: Any = None, seed: int = 0
) -> Int[np.ndarray, "n+m"]:
    """A group 0 … count − 1 for each pooled image, whole clusters and pairs in one, each set spread over all groups."""
    unit, total = unit_ids(n, m, clusters, pairs)
    rng = stream(seed, "jackknife groups", n, m)
    place = np.full(total, -1)
    for part in (unit[:n], unit[n:]):
        fresh = np.unique(part[place[part] < 0])
        place[fresh] = rng.permutation(fresh.size) % count
    return place[unit]

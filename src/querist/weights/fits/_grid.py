"""The search for xmin on spectra too long to weigh every one."""

from __future__ import annotations

import math

import numpy as np

from querist.weights.fits._pruned import Found, Tail, search

__all__ = ["GRID", "grid", "grid_search"]

GRID = 2000


def grid_search(tail: Tail, allowed: np.ndarray) -> tuple[Found, np.ndarray]:
    """The best of a grid of candidates, refined around the best until that one's neighbours are all there.

    Returns what was found and the candidates weighed. D is exact for its xmin, which is the best of its neighbourhood and
    may not be the best of all.
    """
    places = grid(allowed.size)
    while True:
        found = search(tail, allowed[places])
        at = int(np.searchsorted(allowed[places], found.index))
        low, high = int(places[max(at - 1, 0)]), int(places[min(at + 1, places.size - 1)])
        around = np.arange(low, high + 1) if high - low <= GRID else np.linspace(low, high, GRID).astype(np.intp)
        finer = np.union1d(places, around)
        if finer.size == places.size:
            return found, allowed[places]
        places = finer


def grid(count: int) -> np.ndarray:
    """At most GRID of `count` ascending places, log-spaced by their distance from the end: the topmost all, as ranks are whole."""
    if count <= GRID:
        return np.arange(count)
    whole = GRID / 10
    for _ in range(50):  # whole·(1 + ln(count/whole)) = GRID: ranks 1 … whole, and steps of rank/whole from there on
        whole = GRID / (1 + math.log(count / whole))
    ranks = np.concatenate((np.arange(1, whole), np.geomspace(whole, count, GRID - int(whole) + 1)))
    return count - np.unique(ranks.astype(np.intp))[::-1]

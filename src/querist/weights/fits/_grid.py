"""The search for xmin on spectra too long to weigh every one."""

from __future__ import annotations

import numpy as np

from querist.weights.fits._pruned import Found, Tail, search

__all__ = ["GRID", "grid_search"]

GRID = 2000


def grid_search(tail: Tail, allowed: np.ndarray) -> tuple[Found, np.ndarray]:
    """The best of a grid of candidates, log-spaced in tail size, refined around the best until its neighbours are all there.

    Returns what was found and the candidates weighed; D of the result is exact for its xmin, which may not be the best of all.
    """
    count = tail.ladder.count[allowed]
    sizes = np.geomspace(count[0], count[-1], GRID)
    places = np.unique(np.minimum(np.searchsorted(-count, -sizes), allowed.size - 1))
    while True:
        found = search(tail, allowed[places])
        at = int(np.searchsorted(allowed[places], found.index))
        low, high = int(places[max(at - 1, 0)]), int(places[min(at + 1, places.size - 1)])
        around = np.arange(low, high + 1) if high - low <= GRID else np.linspace(low, high, GRID).astype(np.intp)
        finer = np.union1d(places, around)
        if finer.size == places.size:
            return found, allowed[places]
        places = finer

"""How far a column has moved: the population stability index of shares over bins, beside what resamples of one table give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from querist.statistics import stream

__all__ = ["Moved", "bin_edges", "binned", "moved", "nulls", "stability_index"]

FLOOR = 1e-4
"""Least share of a bin: an empty one would make the index infinite."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The index, its draws where nothing moved, and the bin whose shares differ most."""

    psi: float
    draws: Float[np.ndarray, "B"]
    bin: int
    before: float
    after: float


def bin_edges(values: Float[np.ndarray, "n"], bins: int) -> Float[np.ndarray, "edges"]:
    """Inner edges at quantiles of the known values; fewer where values repeat."""
    known = values[np.isfinite(values)]
    if not known.size:
        return np.zeros(0)
    return np.unique(np.quantile(known, np.arange(1, bins) / bins, method="inverted_cdf"))


def binned(values: Float[np.ndarray, "n"], edges: Float[np.ndarray, "edges"]) -> Int[np.ndarray, "n"]:
    """The bin of each value: 0 … len(edges), missing ones in a bin of their own behind them."""
    place = np.searchsorted(edges, values, side="left")
    return np.where(np.isfinite(values), place, edges.size + 1)


def stability_index(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Σ (a − b)·ln(a/b) over the last axis, from counts; shares below 1e-4 count as 1e-4."""
    b, a = (np.maximum(counts / counts.sum(axis=-1, keepdims=True), FLOOR) for counts in (before, after))
    return ((a - b) * np.log(a / b)).sum(axis=-1)


def moved(
    before: Int[np.ndarray, "n"], after: Int[np.ndarray, "m"], *, name: str, resamples: int = 500, seed: int = 0
) -> Moved:
    """Bins of a column in both tables.

    The null draws both tables, at their sizes, from the shares of the earlier one: what sampling alone gives. Source: Siddiqi (2006)
    for the index; its usual thresholds (.1, .25) know nothing of the sizes.
    """
    count = int(max(before.max(initial=0), after.max(initial=0))) + 1
    b, a = (np.bincount(codes, minlength=count).astype(float) for codes in (before, after))
    rng = stream(seed, "drift", name)
    share = b / b.sum()
    draws = [rng.multinomial(int(size), share, size=resamples).astype(float) for size in (b.sum(), a.sum())]
    worst = int(np.argmax(np.abs(a / a.sum() - b / b.sum())))
    return Moved(
        float(stability_index(b, a)),
        stability_index(*draws),
        worst,
        float(b[worst] / b.sum()),
        float(a[worst] / a.sum()),
    )


def nulls(found: Sequence[Moved], level: float = 0.01) -> Float[np.ndarray, "columns"]:
    """What each column's index must exceed so that, where nothing moved, any of them does so in a share `level` of cases.

    Each column's own quantile, all of them raised by one factor: the quantile of the largest ratio over columns. Columns are drawn
    apart, which is cautious where they move together.
    """
    draws = np.stack([one.draws for one in found])
    own = np.maximum(np.quantile(draws, 1 - level, axis=1, method="higher"), 1e-300)
    ratio = (draws / own[:, None]).max(axis=0)
    return own * float(np.quantile(ratio, 1 - level, method="higher"))

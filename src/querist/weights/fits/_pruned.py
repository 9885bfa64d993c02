"""The xmin whose tail lies nearest to its own fit, found exactly without computing every distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from querist.weights.fits._ladder import Ladder

__all__ = ["NEAR", "TIE", "Z95", "Found", "Pareto", "Tail", "distance", "distances", "search"]

TIE = 1e-12
"""Distances closer than this are one: they differ by rounding of N·eps at N = 1e4."""

Z95 = 1.96

NEAR = 1.1
"""The interval of the exponent covers every xmin whose distance is within this factor of the least."""

SHARES = np.array([[0.06], [0.3], [0.7]])
"""Where each tail is looked at before any distance is computed: three places leave 2 to 8 exact distances to compute on
random-matrix and Pareto spectra of 384 to 10 000 values; four to twenty-four cost more than they save."""


class Tail(Protocol):
    """A fitted law for every candidate tail: the exponents, and the share it puts at or above a value."""

    @property
    def ladder(self) -> Ladder:
        """The values."""
        ...

    @property
    def slope(self) -> np.ndarray:
        """alpha − 1 of every candidate."""
        ...

    def row(self, i: int) -> np.ndarray:
        """Fitted share at or above each distinct value from i on, given that it is in the tail of i."""
        ...

    def at(self, i: np.ndarray, j: np.ndarray | int) -> np.ndarray:
        """Fitted share at or above the value j in the tail of i, elementwise; j is at or above i."""
        ...

    def sigma(self, i: int) -> float:
        """Standard error of the slope of candidate i if values were independent."""
        ...


@dataclass(frozen=True, eq=False)
class Pareto:
    """The unbounded power law: share (x_j/x_i)^-slope."""

    ladder: Ladder
    slope: np.ndarray

    def row(self, i: int) -> np.ndarray:
        """See Tail."""
        share = self.ladder.log[i:] - self.ladder.log[i]
        share *= -self.slope[i]
        return np.exp(share, out=share)

    def at(self, i: np.ndarray, j: np.ndarray | int) -> np.ndarray:
        """See Tail."""
        share = self.ladder.log[i] - self.ladder.log[j]
        share *= self.slope[i]
        return np.exp(share, out=share)

    def sigma(self, i: int) -> float:
        """See Tail."""
        return float(self.slope[i]) / math.sqrt(self.ladder.count[i])


@dataclass(frozen=True, slots=True)
class Found:
    """The best candidate: its place on the ladder, its distance, how many candidates tie with it, and the interval of the
    slope: 1.96 standard errors, widened over every candidate within the factor `NEAR` of its distance.
    """

    index: int
    D: float
    ties: int
    low: float
    high: float


def distance(tail: Tail, i: int) -> tuple[float, int]:
    """Kolmogorov-Smirnov distance of candidate i from its fit, and the place where it is reached.

    The empirical share is taken strictly below each distinct value, as Clauset, Shalizi & Newman's code and powerlaw do.
    """
    count = tail.ladder.count
    gap = tail.row(i)
    gap -= count[i:] * (1.0 / count[i])
    high, low = int(gap.argmax()), int(gap.argmin())
    return (float(gap[high]), i + high) if gap[high] >= -gap[low] else (float(-gap[low]), i + low)


def distances(tail: Tail, candidates: np.ndarray) -> np.ndarray:
    """Distance of every candidate, one after the other: the whole D curve."""
    return np.array([distance(tail, i)[0] for i in candidates.tolist()])


def search(tail: Tail, candidates: np.ndarray) -> Found:
    """The candidate of least distance; among ties, the longest tail.

    Every distance is bounded from below by the gap between data and fit at a few places of the tail. The candidate with the
    least bound is computed exactly, and the place where its own gap is widest becomes a further place at which all others
    are looked at: neighbouring tails disagree with their fits in the same place, so a handful of such witnesses shuts
    out thousands of candidates. It stops when no bound lies below the best distance, so the answer is that of the plain
    search.

    Source: exact form of Clauset, Shalizi & Newman (2009), section 3.3; the pruning by witnesses is ours.
    """
    bound = _first_bounds(tail, candidates)
    best = np.inf
    known: dict[int, float] = {}
    while candidates.size:
        at = int(bound.argmin())
        if bound[at] > best + TIE:
            break
        i = int(candidates[at])
        apart, witness = distance(tail, i)
        known[i] = apart
        best = min(best, apart)
        keep = bound <= max(best * NEAR, best + TIE)
        keep[at] = False
        candidates = candidates[keep]
        bound = np.maximum(bound[keep], _bound(tail, candidates, witness))
    tied = [i for i, apart in known.items() if apart <= best + TIE]
    index = min(tied)
    slope, margin = float(tail.slope[index]), Z95 * tail.sigma(index)
    near = [float(tail.slope[i]) for i, apart in known.items() if apart <= NEAR * best]
    candidates = candidates[bound <= NEAR * best]
    high = _reach(tail, candidates, NEAR * best, max(slope + margin, *near), 1)
    low = _reach(tail, candidates, NEAR * best, min(slope - margin, *near), -1)
    return Found(index, known[index], len(tied), low, high)


def _first_bounds(tail: Tail, candidates: np.ndarray) -> np.ndarray:
    step = SHARES * (tail.ladder.x.size - candidates)
    step += candidates
    return _gap(tail, candidates, step.astype(np.intp)).max(axis=0)


def _gap(tail: Tail, i: np.ndarray, j: np.ndarray | int) -> np.ndarray:
    count = tail.ladder.count
    gap = tail.at(i, j)
    gap -= count[j] / count[i]
    return np.abs(gap, out=gap)


def _bound(tail: Tail, candidates: np.ndarray, witness: int) -> np.ndarray:
    """Gap of each candidate at one place; nothing for candidates that begin beyond it (they are ascending)."""
    inside = int(candidates.searchsorted(witness))
    if inside == candidates.size:
        return _gap(tail, candidates, witness)
    bound = np.zeros(candidates.size)
    bound[:inside] = _gap(tail, candidates[:inside], witness)
    return bound


def _reach(tail: Tail, candidates: np.ndarray, limit: float, slope: float, sign: int) -> float:
    """The most extreme slope, in the direction of `sign`, over candidates whose distance is within `limit`."""
    candidates = candidates[sign * tail.slope[candidates] > sign * slope]
    while candidates.size:
        slopes = tail.slope[candidates]
        at = int(slopes.argmax() if sign > 0 else slopes.argmin())
        apart, witness = distance(tail, int(candidates[at]))
        if apart <= limit:
            return float(slopes[at])
        keep = _bound(tail, candidates, witness) <= limit
        keep[at] = False
        candidates = candidates[keep]
    return slope

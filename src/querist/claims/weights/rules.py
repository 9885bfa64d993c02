"""What the rules of several claims share: means over seeds with intervals, and where an interval lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from querist.claims.claim import Number
from querist.claims.judging import side_of
from querist.statistics import Estimate, mean_interval, wilson

__all__ = ["MARKS", "Interval", "above", "interval", "number", "places", "share", "spearman"]

MARKS = {"adam": "Adam", "gd": "gradient descent"}
"""Optimisers as they are written."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with both ends of its 95 % interval; `n` independent pieces."""

    estimate: float
    low: float
    high: float
    n: int

    def within(self, centre: float, margin: float) -> bool:
        """Whether the whole interval lies in centre ± margin."""
        return centre - margin <= self.low and self.high <= centre + margin

    def outside(self, centre: float, margin: float) -> bool:
        """Whether the whole interval lies on one side of centre ± margin."""
        return self.high < centre - margin or self.low > centre + margin


def places(optimizers: Sequence[str]) -> str:
    """Optimisers in words."""
    return " and ".join(MARKS.get(name, name) for name in optimizers)


def interval(values: ArrayLike, cluster: ArrayLike | None = None) -> Interval | None:
    """Mean with its t interval, rows of one seed taken together; None below two seeds."""
    x = np.asarray(values, dtype=float)
    seeds = x.size if cluster is None else np.unique(np.asarray(cluster)).size
    return _whole(mean_interval(x, cluster=cluster)) if seeds > 1 else None


def share(k: int, n: int) -> Interval | None:
    """k of n with Wilson's interval; None where n is 0."""
    return _whole(wilson(k, n)) if n > 0 else None


def _whole(found: Estimate) -> Interval | None:
    if found.low is None or found.high is None:
        return None
    return Interval(found.estimate, found.low, found.high, found.n)


def number(what: str, found: Interval | None, null: float | None = None) -> Number:
    """An estimate as one of the numbers that a rule looked at."""
    if found is None:
        return Number(what, None, None, None, null, 0)
    return Number(what, found.estimate, found.low, found.high, null, found.n)


def above(found: Interval | None, bound: float) -> bool | None:
    """True where the interval lies above the bound, False where below, None where it holds it or does not exist."""
    return None if found is None else side_of(found.low, found.high, bound)


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Spearman's rank correlation, ties averaged; None below three pairs or where one side is constant."""
    from scipy.stats import rankdata

    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    fine = np.isfinite(x) & np.isfinite(y)
    if fine.sum() < 3:
        return None
    a, b = rankdata(x[fine]), rankdata(y[fine])
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else None

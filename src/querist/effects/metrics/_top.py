"""What treating the best share of people is worth, at many shares from one sort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from querist.effects.arrays import column, lengths
from querist.effects.metrics._order import order
from querist.statistics import Estimate, mean_interval
from querist.statistics.arrays import codes, compact
from querist.statistics.intervals import t_estimate

__all__ = ["top_values"]


def top_values(
    psi: Any,
    score: Any,
    shares: Sequence[float] | np.ndarray,
    *,
    cluster: Any = None,
    block: Any = None,
    level: float = 0.95,
) -> list[Estimate]:
    """For each share u the mean over all people of ψ among the best u of a score, in outcome per person, with its t interval.

    psi: effect scores [n]; score: [n]; a tie group at the cut counts in part, each of its members alike. The intervals are those of
    `mean_interval` of ψ times each row's part, thresholds taken as given; without clusters they come from cumulated sums and
    squares of each block, one pass for all shares. Raises LengthMismatch, NonFinite, TooFewRows.
    """
    psi, score = column(psi, "psi"), column(score, "score")
    n = lengths(psi=psi, score=score, cluster=cluster, block=block)
    placed = order(score)
    cut = np.asarray(shares, dtype=float) * n
    if placed.ends is None:
        first = np.minimum(np.floor(cut).astype(int), n - 1)
        last = first + 1
    else:
        group = np.minimum(np.searchsorted(placed.ends, cut, "right"), placed.groups - 1)
        first, last = np.where(group > 0, placed.ends[group - 1], 0), placed.ends[group]
    part = np.clip((cut - first) / (last - first), 0.0, 1.0)
    of_row, blocks = (None, 1) if block is None else codes(block, "Blocks")
    of_row = None if of_row is None else compact(of_row, blocks)
    if cluster is not None or n - blocks < 1:
        return [
            mean_interval(psi * _inside(placed.rows, int(a), int(b), w), cluster=cluster, block=block, level=level)
            for a, b, w in zip(first, last, part, strict=True)
        ]
    value = psi[placed.rows]
    mark = None if of_row is None else of_row[placed.rows]
    del placed
    total, variance = np.zeros(cut.size), np.zeros(cut.size)
    lone = []
    for b in range(blocks):
        mine = value if mark is None else np.where(mark == b, value, 0.0)
        size = n if mark is None else int(np.count_nonzero(mark == b))
        once = _at(np.cumsum(mine), first, last, part)
        mine = np.multiply(mine, mine, out=mine)
        twice = _at(np.cumsum(mine), first, last, part**2)
        total += once
        if size > 1:
            variance += size / (size - 1) * np.maximum(twice - once**2 / size, 0.0) / n**2
        else:
            lone.append(once)
    mean = total / n
    for alone in lone:  # its whole deviation from the mean counts, as in `mean_interval`
        variance += ((alone - mean) / n) ** 2
    return [
        t_estimate(float(m), math.sqrt(v), n - blocks, level, n, "t on influence values")
        for m, v in zip(mean, variance, strict=True)
    ]


def _at(sums: np.ndarray, start: np.ndarray, end: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Cumulated up to a group's first row, and a part of the group."""
    before = np.where(start > 0, sums[start - 1], 0.0)
    return before + part * (sums[end - 1] - before)


def _inside(rows: np.ndarray, start: int, end: int, part: float) -> np.ndarray:
    inside = np.zeros(rows.size)
    inside[rows[:start]] = 1.0
    inside[rows[start:end]] = part
    return inside

"""From cells to answers: paired differences between arms, and how many blocks can be frozen without loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption, ShapeMismatch, TooFewRows
from querist.statistics import bootstrap, paired_t
from querist.statistics.intervals import t_estimate

__all__ = ["BreakEven", "Effect", "break_even", "paired_effect"]

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Effect:
    """Mean difference of paired cells with its t interval and two-sided p against 0; None where there are fewer than two."""

    estimate: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int


@dataclass(frozen=True, slots=True)
class BreakEven:
    """k*: the largest number of frozen blocks whose mean accuracy is within `delta` of the best number's, and its interval.

    best_k: the number with the best mean accuracy, the largest of several. low, high: percentiles of a bootstrap over cells,
    None for fewer than two cells. n: cells.
    """

    k: int
    best_k: int
    low: int | None
    high: int | None
    n: int


def paired_effect(a: Any, b: Any, *, level: float = 0.95, resolution: float = 0.0) -> Effect:
    """Mean of a − b over cells, [cells] each, paired by place; a pair with a missing value (NaN: a cell that diverged) is left out.

    Cells are (target, repeat), never layers, which are no replicates of each other. resolution: the step between two
    accuracies, 1 over the number of test rows. Two differences that are equal to the last step do not show that they never
    vary: their variance is at least that of rounding, resolution²/6. Raises ShapeMismatch, BadOption.
    """
    a, b = np.asarray(a, dtype=float).ravel(), np.asarray(b, dtype=float).ravel()
    if a.shape != b.shape:
        raise ShapeMismatch(
            "Arms are compared cell by cell", value=f"{a.size} and {b.size} cells", allowed="one number"
        )
    both = np.isfinite(a) & np.isfinite(b)
    n = int(both.sum())
    if n < 2:
        return Effect(float(a[both][0] - b[both][0]) if n else None, None, None, None, n)
    found = paired_t(a[both], b[both], level=level)
    least = resolution / math.sqrt(6 * n)
    if found.se is not None and found.se < least:
        found = t_estimate(found.estimate, least, n - 1, level, n, "paired t, variance of rounding")
    return Effect(found.estimate, found.low, found.high, found.p, n)


def break_even(
    accuracy: Any, ks: Any, *, delta: float = 0.01, level: float = 0.95, replicates: int = 2000, seed: int = 0
) -> BreakEven:
    """Break-even of accuracies [cells, len(ks)] at the numbers ks (ascending); a cell with a missing value is left out.

    Accuracies are means over cells; cells are resampled with all their numbers of blocks, which they share head, data and
    order over. The interval's ends are numbers among ks. Raises ShapeMismatch, BadOption for delta below 0 or ks that do
    not ascend, TooFewRows where no cell is whole.
    """
    values = np.atleast_2d(np.asarray(accuracy, dtype=float))
    numbers = np.asarray(ks, dtype=int)
    if values.ndim != 2 or values.shape[1] != numbers.size or not numbers.size:
        raise ShapeMismatch(
            "There is one accuracy for each number of blocks", value=values.shape, allowed="(cells, ks)"
        )
    if not (0 <= delta < math.inf) or np.any(np.diff(numbers) <= 0):
        raise BadOption(
            "delta or ks are out of range",
            value=f"delta={delta}, ks={numbers.tolist()}",
            allowed="delta >= 0, ks ascending",
        )
    values = values[np.isfinite(values).all(axis=1)]
    if not len(values):
        raise TooFewRows("No cell has an accuracy for every number of blocks", value=0, allowed="1 or more")

    def largest(rows: Float[np.ndarray, "cells ks"]) -> float:
        mean = rows.mean(axis=0)
        return float(numbers[np.flatnonzero(mean >= mean.max() - delta - _ROUNDING)[-1]])

    mean = values.mean(axis=0)
    best = int(numbers[np.flatnonzero(mean >= mean.max() - _ROUNDING)[-1]])
    if len(values) < 2:
        return BreakEven(int(largest(values)), best, None, None, len(values))
    found = bootstrap(values, largest, replicates=replicates, level=level, seed=seed)
    # An end between two numbers is the outer one, so that the interval is not shortened.
    low = None if found.low is None else int(numbers[numbers <= found.low + _ROUNDING][-1])
    high = None if found.high is None else int(numbers[numbers >= found.high - _ROUNDING][0])
    return BreakEven(int(found.estimate), best, low, high, len(values))

"""Bootstrap and jackknife: intervals from resampled rows, clusters and nested levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import ArrayLike

from querist.errors import BadOption, NonFinite, TooFewRows, UndefinedMetric
from querist.statistics.arrays import as_array, check_level, codes, refuse_nonfinite, same_length
from querist.statistics.estimate import Estimate
from querist.statistics.intervals import t_estimate
from querist.statistics.streams import stream

__all__ = ["bootstrap", "jackknife"]

UNDEFINED = 0.05
"""Largest share of resamples without a value at which an interval is still given."""


def bootstrap(
    values: Any,
    statistic: Callable[[Any], float],
    *,
    clusters: Sequence[ArrayLike] | ArrayLike = (),
    replicates: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Percentile interval of `statistic(values[rows])` over resampled rows.

    values: array [n, …], or a tuple of such arrays, which are resampled together. clusters: one id column [n], or several
    from the outermost level inwards: units of each level are drawn with replacement inside the unit drawn above it, the rows
    of the innermost unit are all kept. An id names a unit inside its parent only. `n` is the number of outermost units.

    Resamples on which the statistic raises UndefinedMetric or is not finite are left out and counted in `method`; above 5 % of
    them there is no interval (None). With few outermost units a percentile interval is too short.

    Raises TooFewRows below two units of the outermost level, NonFinite, UndefinedMetric where the statistic has no value on
    the data themselves, BadValues for a missing id, BadOption, ShapeMismatch.

    Source: Davison & Hinkley (1997), sections 2.4, 3.8 and 5.3.1.
    """
    check_level(level)
    if replicates < 20:
        raise BadOption("Too few replicates for an interval", value=replicates, allowed="20 or more")
    together = isinstance(values, tuple)
    arrays = tuple(refuse_nonfinite(as_array(part), "values") for part in (values if together else (values,)))
    n = same_length(*((f"values {i}" if together else "values", part) for i, part in enumerate(arrays)))
    units, draw = _drawer(n, _columns(clusters, n))
    if units < 2:
        raise TooFewRows("A bootstrap needs two units to draw from", value=units, allowed="2 or more")

    def value(rows: Any) -> float:
        parts = tuple(part[rows] for part in arrays)
        return float(statistic(parts if together else parts[0]))

    estimate = value(slice(None))
    if not math.isfinite(estimate):
        raise UndefinedMetric("The statistic has no value on the data themselves")
    rng = stream(seed, "bootstrap")
    drawn = np.full(replicates, np.nan)
    for b in range(replicates):
        rows = draw(rng)
        try:
            drawn[b] = value(rows)
        except UndefinedMetric:
            continue
    kept = drawn[np.isfinite(drawn)]
    method = "percentile bootstrap"
    if kept.size < replicates:
        method += f", {replicates - kept.size} of {replicates} resamples without a value"
        if kept.size < (1 - UNDEFINED) * replicates:
            return Estimate(estimate, None, None, None, None, None, units, method)
    low, high = np.quantile(kept, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(estimate, float(kept.std(ddof=1)), float(low), float(high), None, None, units, method)


def _columns(clusters: Any, n: int) -> list[np.ndarray]:
    """Id columns: one, or a sequence of them."""
    if hasattr(clusters, "ndim"):
        columns = [clusters] if clusters.ndim == 1 else list(clusters)
    else:
        one = len(clusters) > 0 and (isinstance(clusters[0], str | bytes) or not hasattr(clusters[0], "__len__"))
        columns = [clusters] if one else list(clusters)
    for column in columns:
        same_length(("values", range(n)), ("clusters", column))
    return [as_array(column) for column in columns]


def _drawer(n: int, columns: list[np.ndarray]) -> tuple[int, Callable[[np.random.Generator], Int[np.ndarray, "rows"]]]:
    """The number of outermost units, and a function that draws row numbers level by level without a loop over units."""
    if not columns:
        return n, lambda rng: rng.integers(0, n, n)
    # The children of unit u are first[u] … first[u] + size[u] − 1 in the numbering of the next level.
    parent, units = np.zeros(n, dtype=np.int64), 1
    levels: list[tuple[np.ndarray, np.ndarray]] = []
    for column in columns:
        label, count = codes(column, "Clusters")
        known, child = np.unique(parent * max(count, 1) + label, return_inverse=True)
        levels.append(_spans(known // max(count, 1), units))
        parent, units = child.reshape(-1), known.size
    order = np.argsort(parent, kind="stable")
    start, length = _spans(parent, units)

    def draw(rng: np.random.Generator) -> np.ndarray:
        chosen = np.zeros(1, dtype=np.int64)
        for first, size in levels:
            of = np.repeat(chosen, size[chosen])
            chosen = first[of] + rng.integers(0, size[of])
        take = length[chosen]
        inside = np.arange(take.sum()) - np.repeat(np.cumsum(take) - take, take)
        return order[np.repeat(start[chosen], take) + inside]

    return int(levels[0][1][0]), draw


def _spans(parents: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    size = np.bincount(parents, minlength=count)
    return np.cumsum(size) - size, size


def jackknife(
    groups: ArrayLike, statistic: Callable[[Bool[np.ndarray, "n"]], float], *, level: float = 0.95
) -> Estimate:
    """Delete-group jackknife: `statistic(keep)` with a boolean mask of the rows kept; t interval with G − 1 degrees.

    groups: id of each row [n], groups of about one size; one id per row gives the delete-one jackknife. The statistic must be
    smooth (not a quantile). p is against 0. Raises TooFewRows below two groups, NonFinite where the statistic is not finite,
    BadValues for a missing id, BadOption.

    Source: Efron & Tibshirani (1993), chapter 11; variance about the mean of the replicates, no correction of bias.
    """
    check_level(level)
    label, count = codes(groups, "Groups")
    if count < 2:
        raise TooFewRows("A jackknife needs two groups", value=count, allowed="2 or more")
    everything = float(statistic(np.ones(label.size, dtype=bool)))
    without = np.array([float(statistic(label != k)) for k in range(count)])
    every = np.r_[everything, without]
    if not np.isfinite(every).all():
        raise NonFinite(
            "The statistic must be finite with every group left out", value=float(every[~np.isfinite(every)][0])
        )
    se = math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))
    return t_estimate(everything, se, count - 1, level, count, "delete-group jackknife")

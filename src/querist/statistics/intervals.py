"""Intervals of means, paired differences and shares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadOption, BadValues, TooFewRows
from querist.statistics.arrays import codes, finite, same_length
from querist.statistics.estimate import Estimate

__all__ = ["mean_interval", "paired_t", "wilson"]


def _t(level: float, degrees: float) -> float:
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise BadOption("A level lies outside its range", value=level, allowed="0 < level < 1")
    return float(stdtrit(degrees, (1 + level) / 2))


def _p(t: float, degrees: float) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(t)))


def paired_t(a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Mean of a − b with its t interval and two-sided p against 0.

    Raises ShapeMismatch, NonFinite, TooFewRows below two pairs. Equal differences give se 0 and p 0, or 1 where they are 0.
    """
    a, b = finite(a, "a").ravel(), finite(b, "b").ravel()
    n = same_length(("a", a), ("b", b))
    if n < 2:
        raise TooFewRows("A paired comparison needs two pairs", value=n, allowed="2 or more")
    difference = a - b
    mean, se = float(difference.mean()), float(difference.std(ddof=1) / math.sqrt(n))
    half = _t(level, n - 1) * se
    p = _p(mean / se, n - 1) if se > 0 else (0.0 if mean else 1.0)
    return Estimate(mean, se, mean - half, mean + half, p, 0.0, n, "paired t")


def mean_interval(
    values: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    block: ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    """Weighted mean with its t interval from influence values, summed over clusters where there are any.

    The influence of row i is wᵢ(xᵢ − mean)/Σw; the variance G/(G − 1)·Σ over clusters of their squared sums, G clusters (or
    rows). block: strata inside which clusters were drawn: sums are centred per block, with G_b/(G_b − 1), and G − blocks
    degrees of freedom. Raises NonFinite, BadValues for negative weights or none positive, TooFewRows.

    Source: the linearisation (sandwich) variance of a ratio mean, Binder (1983); G/(G − 1) as in Cameron & Miller (2015).
    """
    x = finite(values, "values").ravel()
    w = np.ones_like(x) if weight is None else finite(weight, "weight").ravel()
    same_length(("values", x), ("weight", w), ("cluster", cluster), ("block", block))
    if (w < 0).any() or not w.sum() > 0:
        raise BadValues("Weights must not be negative, and not all zero", value=float(w.min()), allowed="0 or more")
    mean = float(w @ x / w.sum())
    influence = w * (x - mean) / w.sum()
    label, groups = codes(cluster) if cluster is not None else (np.arange(x.size), x.size)
    sums = np.bincount(label, influence, minlength=groups)
    if block is None:
        strata, blocks = np.zeros(groups, dtype=int), 1
    else:
        of_row, blocks = codes(block)
        strata = np.zeros(groups, dtype=int)
        strata[label] = of_row
        if (strata[label] != of_row).any():
            raise BadOption(
                "A cluster lies in two blocks", value="cluster and block", mend="Give every cluster one block"
            )
    degrees = groups - blocks
    if degrees < 1:
        raise TooFewRows("A mean's interval needs two independent units", value=groups, allowed=f"{blocks + 1} or more")
    variance = 0.0
    for b in range(blocks):
        mine = sums[strata == b]
        if mine.size > 1:
            centre = mine.mean() if blocks > 1 else 0.0
            variance += mine.size / (mine.size - 1) * float(((mine - centre) ** 2).sum())
    se = math.sqrt(variance)
    half = _t(level, degrees) * se
    return Estimate(mean, se, mean - half, mean + half, None, None, groups, "t on influence values")


def wilson(k: int, n: int, level: float = 0.95) -> Estimate:
    """A share k/n with Wilson's score interval. Raises BadValues unless 0 <= k <= n and n >= 1. Source: Wilson (1927)."""
    from scipy.special import ndtri

    if n < 1 or not 0 <= k <= n:
        raise BadValues("A share needs 0 <= k <= n", value=f"k={k}, n={n}", allowed="n of at least 1")
    if not 0 < level < 1:
        raise BadOption("A level lies outside its range", value=level, allowed="0 < level < 1")
    z = float(ndtri((1 + level) / 2))
    share = k / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low, high = (0.0 if k == 0 else centre - half), (1.0 if k == n else centre + half)
    return Estimate(share, math.sqrt(share * (1 - share) / n), low, high, None, None, n, "Wilson score")

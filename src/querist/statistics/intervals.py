"""Intervals of means, paired differences and shares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadOption, BadValues, TooFewRows
from querist.statistics.arrays import as_array, check_level, codes, compact, finite, in_blocks, same_length, weights_of
from querist.statistics.estimate import Estimate

__all__ = ["mean_interval", "paired_t", "t_estimate", "wilson"]


def t_estimate(estimate: float, se: float, degrees: int, level: float, n: int, method: str) -> Estimate:
    """An estimate with its t interval and two-sided p against 0; without spread p is 1 for 0, and 0 for another value."""
    from scipy.special import stdtr, stdtrit

    half = float(stdtrit(degrees, (1 + level) / 2)) * se
    p = float(2 * stdtr(degrees, -abs(estimate / se))) if se > 0 else (0.0 if estimate else 1.0)
    return Estimate(estimate, se, estimate - half, estimate + half, p, 0.0, n, method)


def paired_t(a: ArrayLike, b: ArrayLike, *, level: float = 0.95) -> Estimate:
    """Mean of a − b over pairs with its t interval and two-sided p against 0.

    Raises ShapeMismatch, NonFinite, BadOption, TooFewRows below two pairs. Equal differences give se 0 and p 0, or 1 where
    they are 0. Source: Student (1908).
    """
    check_level(level)
    a, b = finite(a, "a").ravel(), finite(b, "b").ravel()
    n = same_length(("a", a), ("b", b))
    if n < 2:
        raise TooFewRows("A paired comparison needs two pairs", value=n, allowed="2 or more")
    difference = a - b
    se = float(difference.std(ddof=1) / math.sqrt(n))
    return t_estimate(float(difference.mean()), se, n - 1, level, n, "paired t")


def mean_interval(
    values: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    cluster: ArrayLike | None = None,
    block: ArrayLike | None = None,
    level: float = 0.95,
) -> Estimate:
    """Weighted mean with its t interval, and p against 0, from influence values summed over clusters where there are any.

    The influence of row i is wᵢ(xᵢ − mean)/Σw; the variance G/(G − 1)·Σ of their squared sums over G clusters (or rows), with
    G − 1 degrees of freedom. block: strata inside which clusters were drawn: sums are centred per block, with G_b/(G_b − 1),
    and G − blocks degrees. A block of one cluster cannot tell its own spread: its whole deviation from the overall mean
    counts, which is conservative. Rows of weight 0 are as if absent. Other estimates that have influence values ψ of mean 0
    take `values = estimate + ψ`. `n` is G.

    Raises NonFinite, BadValues for negative weights or none positive, BadOption for a cluster in two blocks, ShapeMismatch,
    TooFewRows without degrees of freedom.

    Source: the linearisation (sandwich) variance of a ratio mean, Binder (1983); G/(G − 1) as in Cameron & Miller (2015).
    """
    check_level(level)
    x = finite(values, "values").ravel()
    same_length(("values", x), ("cluster", cluster), ("block", block))
    w, present = None, slice(None)
    if weight is not None:
        w = weights_of(weight, x.size)
        present = w > 0
        if x.size and not present.any():
            raise BadValues("Weights must not all be zero", value=0.0, allowed="one above 0")
        x, w = x[present], w[present]
    label, groups = codes(as_array(cluster)[present], "Clusters") if cluster is not None else (None, x.size)
    of_row, blocks = codes(as_array(block)[present], "Blocks") if block is not None else (None, 1)
    of_row = None if of_row is None else compact(of_row, blocks)
    strata = of_row if label is None or of_row is None else _block_of_cluster(label, of_row, groups)
    degrees = groups - blocks
    if degrees < 1:
        raise TooFewRows(
            "A mean's interval needs more independent units than blocks", value=groups, allowed=f"{blocks + 1} or more"
        )
    # Tables of many millions come here: nothing [n] is made that another array can be turned into.
    share = np.full(x.size, 1.0 / x.size) if w is None else w / w.sum()
    mean = float(share @ x)
    influence = x - mean
    influence *= share
    del share
    sums = influence if label is None else np.bincount(label, influence, minlength=groups)
    if strata is None:
        variance = groups / (groups - 1) * float(sums @ sums)
    else:
        size = np.bincount(strata, minlength=blocks)
        lone = size == 1
        centre = np.where(lone, 0.0, np.bincount(strata, sums, minlength=blocks) / size)
        factor = np.where(lone, 1.0, size / np.maximum(size - 1, 1))
        for rows in in_blocks(groups):  # at once, what they are looked up by would be copied whole
            part, of = sums[rows], strata[rows]
            part -= centre[of]
            part *= part
            part *= factor[of]
        variance = float(sums.sum())
    return t_estimate(mean, math.sqrt(variance), degrees, level, groups, "t on influence values")


def _block_of_cluster(label: np.ndarray, of_row: np.ndarray, groups: int) -> np.ndarray:
    strata = np.empty(groups, dtype=of_row.dtype)
    strata[label] = of_row
    if (strata[label] != of_row).any():
        raise BadOption("A cluster lies in two blocks", value="cluster and block", mend="Give every cluster one block")
    return strata


def wilson(k: int, n: int, level: float = 0.95) -> Estimate:
    """A share k/n with Wilson's score interval.

    Raises BadValues unless 0 <= k <= n and n >= 1, BadOption. Source: Wilson (1927).
    """
    from scipy.special import ndtri

    check_level(level)
    if not n >= 1 or not 0 <= k <= n:
        raise BadValues("A share needs 0 <= k <= n", value=f"k={k}, n={n}", allowed="n of at least 1")
    z = float(ndtri((1 + level) / 2))
    share = k / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low, high = (0.0 if k == 0 else centre - half), (1.0 if k == n else centre + half)
    return Estimate(share, math.sqrt(share * (1 - share) / n), low, high, None, None, int(n), "Wilson score")

"""How two columns order their rows alike: AUC and Kendall's τ, ties averaged, in O(n log n)."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from querist.errors import BadValues, UndefinedMetric
from querist.statistics.arrays import finite, same_length, weights_of

__all__ = ["auc", "column_pair_sums", "kendall", "pair_sums", "weighted_kendall"]


def auc(score: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """P(score of a positive > score of a negative) + ½P(equal), rows weighted.

    label: 0 or 1 (or bool). Raises UndefinedMetric where only one class has weight, BadValues for other labels or negative
    weights, NonFinite, ShapeMismatch. Source: Hanley & McNeil (1982).
    """
    s, y = finite(score, "score").ravel(), finite(label, "label").ravel()
    w = weights_of(weight, same_length(("score", s), ("label", y)))
    other = (y != 0) & (y != 1)
    if other.any():
        raise BadValues("Labels must be 0 or 1", value=float(y[other][0]), allowed="0 and 1, or False and True")
    positive, negative = w * y, w * (1 - y)
    if not (positive.sum() > 0 and negative.sum() > 0):
        raise UndefinedMetric("AUC needs both classes: only one has any weight")
    above, pairs = pair_sums(s, positive[:, None], negative[:, None])
    return min(1.0, float(above[0] / pairs[0]))


def pair_sums(
    score: Float[np.ndarray, "n"], positive: Float[np.ndarray, "n B"], negative: Float[np.ndarray, "n B"]
) -> tuple[Float[np.ndarray, "B"], Float[np.ndarray, "B"]]:
    """Σ of weights over pairs (score above + ½ equal), and over all pairs; one sort serves all columns of weights."""
    order = np.argsort(score)
    starts = np.flatnonzero(np.r_[True, np.diff(score[order]) != 0])
    p, n = np.add.reduceat(positive[order], starts), np.add.reduceat(negative[order], starts)
    below = np.cumsum(n, axis=0) - n
    return (p * (below + n / 2)).sum(axis=0), p.sum(axis=0) * n.sum(axis=0)


def column_pair_sums(
    scores: Float[np.ndarray, "h B"], positive: Bool[np.ndarray, "h B"]
) -> tuple[Float[np.ndarray, "B"], Float[np.ndarray, "B"]]:
    """As `pair_sums` with weights of one, each column by its own scores: from the average ranks of the positives."""
    order = np.argsort(scores, axis=0)
    s, p = np.take_along_axis(scores, order, axis=0), np.take_along_axis(positive, order, axis=0)
    size = len(s)
    rank = np.broadcast_to(np.arange(size, dtype=float)[:, None], s.shape)
    new = np.ones((size + 1, s.shape[1]), dtype=bool)
    np.not_equal(s[1:], s[:-1], out=new[1:-1])
    if not new.all():
        h = np.arange(size)[:, None]
        first = np.maximum.accumulate(np.where(new[:-1], h, 0), axis=0)
        last = np.minimum.accumulate(np.where(new[1:], h, size)[::-1], axis=0)[::-1]
        rank = (first + last) / 2
    count = p.sum(axis=0).astype(float)
    return np.where(p, rank, 0.0).sum(axis=0) - count * (count - 1) / 2, count * (size - count)


def kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's τ-b: concordant less discordant pairs, over the pairs untied in x and those untied in y.

    Raises UndefinedMetric where x or y is constant or has fewer than two rows, NonFinite, ShapeMismatch.
    Source: Kendall (1945); counted in O(n log n) as Knight (1966) does, by partition on ranks' bits in place of a merge.
    """
    x, y = finite(x, "x").ravel(), finite(y, "y").ravel()
    n = same_length(("x", x), ("y", y))
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    place = np.unique(y, return_inverse=True)[1].reshape(-1)
    new_x = np.diff(x) != 0
    pairs, tied_x, tied_y = n * (n - 1) // 2, _pairs(_runs(new_x, n)), _pairs(np.bincount(place))
    if n < 2 or pairs in (tied_x, tied_y):
        raise UndefinedMetric("Kendall's τ needs two rows and no constant column")
    both = _pairs(_runs(new_x | (np.diff(y) != 0), n))
    difference = pairs - tied_x - tied_y + both - 2 * _inversions(place)
    if tied_x == tied_y:  # the only case that reaches 1 and -1, and then exactly
        return difference / (pairs - tied_x)
    return difference / math.sqrt(pairs - tied_x) / math.sqrt(pairs - tied_y)


def _runs(new: np.ndarray, n: int) -> Int[np.ndarray, "k"]:
    """Lengths of the runs between the places where something new begins."""
    return np.diff(np.r_[0, np.flatnonzero(new) + 1, n])


def _pairs(counts: np.ndarray) -> int:
    counts = counts.astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _inversions(place: Int[np.ndarray, "n"]) -> int:
    """Pairs i < j with place[i] > place[j], places 0 … k − 1.

    Bit by bit from the highest: rows stand grouped by the bits above, each group in its first order; a one before a zero
    within a group is an inversion decided by this bit. Groups are then split stably. Every bit costs O(n), no sort.
    """
    values = place.astype(np.int64)
    n, total = values.size, 0
    rows = np.arange(n)
    for bit in range(int(values.max(initial=0)).bit_length() - 1, -1, -1):
        one = (values >> bit) & 1
        new = np.flatnonzero(np.r_[True, np.diff(values >> (bit + 1)) != 0])
        sizes = np.diff(np.r_[new, n])
        ones = np.cumsum(one) - one
        ones -= np.repeat(ones[new], sizes)  # ones before this row in its group
        total += int(ones[one == 0].sum())
        start, zeros = np.repeat(new, sizes), np.repeat(sizes - np.add.reduceat(one, new), sizes)
        moved = np.empty_like(values)
        moved[start + np.where(one == 1, zeros + ones, rows - start - ones)] = values
        values = moved
    return total


def weighted_kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Weighted τ: exchanges among large values count more, with hyperbolic weights 1/(rank + 1) of both rows added.

    The mean of the values by x's ranking and by y's, rank 0 the largest. Raises as `kendall`.
    Source: Vigna (2015), as in scipy.stats.weightedtau.
    """
    from scipy.stats import weightedtau

    x, y = finite(x, "x").ravel(), finite(y, "y").ravel()
    if same_length(("x", x), ("y", y)) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        raise UndefinedMetric("Weighted τ needs two rows and no constant column")
    value: float = weightedtau(x, y)[0]  # type: ignore[assignment]
    return float(value)

"""How two columns order their rows alike: AUC and Kendall's τ, ties averaged, in O(n log n)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadValues, UndefinedMetric
from querist.statistics.arrays import finite, same_length

__all__ = ["auc", "kendall", "weighted_kendall"]


def auc(score: ArrayLike, label: ArrayLike, weight: ArrayLike | None = None) -> float:
    """P(score of a positive > score of a negative) + ½P(equal), rows weighted.

    label: 0 or 1 (or bool). Raises UndefinedMetric where only one class has weight, BadValues for other labels or negative
    weights, NonFinite, ShapeMismatch. Source: Hanley & McNeil (1982).
    """
    s, y = finite(score, "score").ravel(), finite(label, "label").ravel()
    w = np.ones_like(s) if weight is None else finite(weight, "weight").ravel()
    same_length(("score", s), ("label", y), ("weight", w))
    if not np.isin(y, (0.0, 1.0)).all():
        raise BadValues("Labels must be 0 or 1", value=float(y[~np.isin(y, (0.0, 1.0))][0]))
    if (w < 0).any():
        raise BadValues("Weights must not be negative", value=float(w.min()))
    positive, negative = w * y, w * (1 - y)
    if not (positive.sum() > 0 and negative.sum() > 0):
        raise UndefinedMetric("AUC needs both classes: only one has any weight")
    _, place = np.unique(s, return_inverse=True)
    place = place.reshape(-1)
    p, n = np.bincount(place, positive), np.bincount(place, negative)
    below = np.cumsum(n) - n
    return float((p @ (below + n / 2)) / (p.sum() * n.sum()))


def kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Kendall's τ-b: concordant less discordant pairs, over the pairs untied in x and those untied in y.

    Raises UndefinedMetric where x or y is constant or has fewer than two rows, NonFinite, ShapeMismatch.
    Source: Kendall (1945); counted by merge sort (Knight 1966).
    """
    x, y = finite(x, "x").ravel(), finite(y, "y").ravel()
    n = same_length(("x", x), ("y", y))
    pairs = n * (n - 1) // 2
    tied_x, tied_y = _ties(x), _ties(y)
    if pairs == 0 or tied_x == pairs or tied_y == pairs:
        raise UndefinedMetric("Kendall's τ needs two rows and no constant column")
    order = np.lexsort((y, x))
    both = _ties(x + 1j * y)
    discordant = _inversions(y[order])
    difference = pairs - tied_x - tied_y + both - 2 * discordant
    return float(difference / np.sqrt(float(pairs - tied_x) * float(pairs - tied_y)))


def _ties(values: np.ndarray) -> int:
    counts = np.unique(values, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _inversions(values: np.ndarray) -> int:
    """Pairs i < j with values[i] > values[j], by bottom-up merging: each level is one stable sort by block and value."""
    place = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    n, total, width = place.size, 0, 1
    while width < n:
        block = np.arange(n) // (2 * width)
        right = (np.arange(n) // width) % 2 == 1
        # Within a block of two sorted halves, a left value passes every smaller right value: right ones sort after equals.
        order = np.lexsort((right, place, block))
        is_right = right[order]
        seen = np.cumsum(is_right)
        before = np.concatenate([[0], np.cumsum(np.bincount(block, right).astype(np.int64))])[block[order]]
        total += int((seen - before)[~is_right].sum())
        place = place[order]
        width *= 2
    return total


def weighted_kendall(x: ArrayLike, y: ArrayLike) -> float:
    """Weighted τ: exchanges near the top count more, with hyperbolic weight 1/(rank + 1) added over both rows.

    The mean of the values by x's ranking and by y's. Raises as `kendall`. Source: Vigna (2015), as in scipy.stats.weightedtau.
    """
    from scipy.stats import weightedtau

    x, y = finite(x, "x").ravel(), finite(y, "y").ravel()
    if same_length(("x", x), ("y", y)) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        raise UndefinedMetric("Weighted τ needs two rows and no constant column")
    value: float = weightedtau(x, y)[0]  # type: ignore[assignment]
    return float(value)

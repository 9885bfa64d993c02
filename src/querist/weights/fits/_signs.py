"""Signs that a tail is not what its fit assumes: topmost values that stand apart, or a tail that ends too early."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

__all__ = ["MOST", "ends_early", "fingers"]

LEVEL = 0.01
MOST = 10
"""Largest finger looked for, the limit that removal of fingers has elsewhere."""
CROWDED = 0.4
"""A crowd of k whose gaps sum to more than .4·k is common: P(Gamma(k − 1) <= .4·k) is at least .02 for k up to 10."""
WIDE = 5.0
"""A gap up to this is common: e^−5 is .0067, and the level at most .0034."""


def fingers(top: Float[np.ndarray, "m"], slope: float) -> int:
    """How many of the topmost values stand apart from the law as a finger; 0 where none do.

    top: ln x of the topmost MOST + 1 values or fewer, ascending; slope: α − 1. Under the power law the gap between the j-th and
    (j+1)-th largest ln x, times j·slope, is a standard exponential (Rényi). The k largest are a finger where the gap below
    them is too wide, or where they crowd together: the sum of the k − 1 gaps between them is Gamma(k − 1). Up to 19 such
    tests are made, and the smallest probability must be below .01/19.

    Source: ours; the word is WeightWatcher's.
    """
    logs = top[::-1].tolist()
    count = len(logs) - 1
    if count < 2:
        return 0
    level = LEVEL / (2 * count - 1)
    best, finger, total = level, 0, 0.0
    for k in range(1, count + 1):
        gap = k * slope * (logs[k - 1] - logs[k])
        if total < CROWDED * k and k > 1:
            p = _gamma_below(k - 1, total)
            if p <= best:
                best, finger = p, k
        if gap > WIDE and math.exp(-gap) < best:
            best, finger = math.exp(-gap), k
        total += gap
    return finger


def _gamma_below(shape: int, value: float) -> float:
    """P(Gamma(shape) <= value), by its series, which does not cancel where it is small; a lower bound once above LEVEL."""
    if value <= 0:
        return 0.0
    term = math.exp(-value + shape * math.log(value) - math.lgamma(shape + 1))
    total, n = term, shape
    while total < LEVEL and term > 1e-16 * total:
        n += 1
        term *= value / n
        total += term
    return min(1.0, total)


def ends_early(span: float, slope: float, n_tail: int) -> float:
    """Probability that the largest of n_tail values from the law lies within e^span of xmin, as the largest seen does.

    Small where the tail ends at some xmax that the fit does not know.
    """
    beyond = math.exp(-slope * span)
    return math.exp(n_tail * math.log1p(-beyond)) if beyond < 1 else 0.0

"""One scalar root, bracketed."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["root"]


def root(f: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-13) -> float:
    """Where f changes sign between low and high, to a bracket of tolerance·(1 + |low| + |high|) at most.

    Source: Chandrupatla (1997): inverse quadratic interpolation where three points promise it, bisection where not; a quarter of the
    evaluations that false position takes on the moments of a cut normal.
    """
    at_low, at_high = f(low), f(high)
    if at_low == 0:
        return low
    if at_high == 0:
        return high
    a, b, at_a, at_b, share = low, high, at_low, at_high, 0.5
    for _ in range(200):
        middle = a + share * (b - a)
        value = f(middle)
        if value == 0:
            return middle
        # a: the newest point; b: the other end of the bracket; c: the point before.
        if (value > 0) == (at_a > 0):
            c, at_c = a, at_a
        else:
            c, at_c, b, at_b = b, at_b, a, at_a
        a, at_a = middle, value
        width = abs(b - a)
        least = 0.5 * tolerance * (1 + abs(a) + abs(b))
        if width <= 2 * least:
            break
        share = 0.5
        xi, phi = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
        if phi * phi < xi and (1 - phi) ** 2 < 1 - xi:
            share = at_a / (at_b - at_a) * at_c / (at_b - at_c) + (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (
                at_c - at_b
            )
        edge = least / width
        share = min(1 - edge, max(edge, share)) if math.isfinite(share) else 0.5
    return a if abs(at_a) < abs(at_b) else b

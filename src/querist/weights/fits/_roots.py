"""One scalar root, bracketed."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["root"]


def root(f: Callable[[float], float], low: float, high: float, *, tolerance: float = 1e-13) -> float:
    """Where f changes sign between low and high: false position with the Illinois change, bisection where that stalls."""
    at_low, at_high = f(low), f(high)
    if at_low == 0:
        return low
    if at_high == 0:
        return high
    for step in range(200):
        middle = (low * at_high - high * at_low) / (at_high - at_low) if step % 3 < 2 else (low + high) / 2
        if not min(low, high) < middle < max(low, high):
            middle = (low + high) / 2
        value = f(middle)
        if value == 0:
            return middle
        if (value > 0) == (at_high > 0):
            high, at_high = middle, value
            at_low /= 2
        else:
            low, at_low = middle, value
            at_high /= 2
        if abs(high - low) <= tolerance * (1 + abs(low) + abs(high)):
            break
    return (low + high) / 2

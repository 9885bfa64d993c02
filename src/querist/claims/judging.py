"""What the rules of all rooms share: on which side of a bound an interval lies, and what several sides say together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from querist.claims.claim import ClaimVerdict

__all__ = ["Direction", "side_of", "verdict_of"]

Direction = Literal["below", "above"]


def side_of(low: float | None, high: float | None, bound: float, direction: Direction = "above") -> bool | None:
    """True where the interval lies wholly on the claimed side of the bound, False on the other, None where it holds it or is none."""
    if low is None or high is None:
        return None
    above = True if low > bound else False if high < bound else None
    return above if direction == "above" or above is None else not above


def verdict_of(sides: Sequence[bool | None]) -> ClaimVerdict:
    """Holds where every side is True, fails where one is False, else it cannot be told; nothing of no side."""
    if sides and all(side is True for side in sides):
        return "holds"
    return "fails" if any(side is False for side in sides) else "cannot say"

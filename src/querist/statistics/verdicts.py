"""From an interval to one of three verdicts."""

from __future__ import annotations

from typing import Literal

__all__ = ["verdict"]


def verdict(
    low: float | None,
    high: float | None,
    *,
    yes_above: float | None = None,
    yes_below: float | None = None,
    no_within: tuple[float, float] | None = None,
) -> Literal["yes", "no", "cannot say"]:
    """yes where the whole interval lies above `yes_above` or below `yes_below`; no where it lies inside `no_within`.

    Without `no_within`, no is the whole interval on the other side of the bounds that were given. An interval that does not
    exist, or that straddles a bound, cannot say.

    >>> verdict(0.2, 0.4, yes_above=0.1), verdict(-0.2, 0.05, yes_above=0.1), verdict(0, 0.3, yes_above=0.1)
    ('yes', 'no', 'cannot say')
    """
    if low is None or high is None or low != low or high != high:
        return "cannot say"
    if (yes_above is not None and low > yes_above) or (yes_below is not None and high < yes_below):
        return "yes"
    if no_within is not None:
        return "no" if no_within[0] <= low and high <= no_within[1] else "cannot say"
    below = yes_above is None or high <= yes_above
    above = yes_below is None or low >= yes_below
    return "no" if below and above and (yes_above is not None or yes_below is not None) else "cannot say"

"""From an interval to one of three verdicts."""

from __future__ import annotations

import math
from typing import Literal

from querist.errors import BadOption, BadValues

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
    exist (an end None or NaN), or that straddles a bound, cannot say; a one-sided interval has an infinite end. Raises
    BadOption without any bound, or where yes and no overlap, BadValues for low above high.

    >>> verdict(0.2, 0.4, yes_above=0.1), verdict(-0.2, 0.05, yes_above=0.1), verdict(0, 0.3, yes_above=0.1)
    ('yes', 'no', 'cannot say')
    """
    _check_bounds(yes_above, yes_below, no_within)
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "cannot say"
    if low > high:
        raise BadValues("An interval's ends are the wrong way round", value=f"{low}, {high}", allowed="low <= high")
    if (yes_above is not None and low > yes_above) or (yes_below is not None and high < yes_below):
        return "yes"
    if no_within is not None:
        return "no" if no_within[0] <= low and high <= no_within[1] else "cannot say"
    below = yes_above is None or high <= yes_above
    above = yes_below is None or low >= yes_below
    return "no" if below and above else "cannot say"


def _check_bounds(yes_above: float | None, yes_below: float | None, no_within: tuple[float, float] | None) -> None:
    if yes_above is None and yes_below is None and no_within is None:
        raise BadOption("A verdict needs a bound", value="none", allowed="yes_above, yes_below, no_within")
    if yes_above is not None and yes_below is not None and yes_below > yes_above:
        raise BadOption(
            "Every interval would say yes", value=f"{yes_above}, {yes_below}", allowed="yes_below <= yes_above"
        )
    if no_within is not None:
        start, stop = no_within
        apart = (yes_above is None or stop <= yes_above) and (yes_below is None or start >= yes_below)
        if start > stop or not apart:
            raise BadOption("no_within overlaps yes, or is empty", value=no_within, mend="Keep it between the bounds")

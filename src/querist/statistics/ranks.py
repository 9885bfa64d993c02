"""Rank p values: where an observed value stands among draws from its null."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadOption, NonFinite

__all__ = ["rank_p"]


def rank_p(observed: float, null: ArrayLike, side: Literal["greater", "less", "two-sided"] = "greater") -> float:
    """(1 + #{null >= observed}) / (1 + B), valid at every B: under the null P(p <= t) <= t.

    `side` "less" counts null <= observed; "two-sided" doubles the smaller of both, at most 1. Ties count against the
    observed value. Raises NonFinite for NaN or infinity, BadOption for an unknown side or no draws.

    Source: Davison & Hinkley (1997), section 4.2; Phipson & Smyth (2010).
    """
    draws = np.asarray(null, dtype=float).ravel()
    if not np.isfinite(observed) or not np.isfinite(draws).all():
        raise NonFinite(
            "A rank needs finite values", value=observed if not np.isfinite(observed) else "a draw of the null"
        )
    if draws.size == 0:
        raise BadOption("A rank needs at least one draw of the null", value=0, allowed="one or more")
    greater = (1 + np.count_nonzero(draws >= observed)) / (1 + draws.size)
    less = (1 + np.count_nonzero(draws <= observed)) / (1 + draws.size)
    if side == "greater":
        return float(greater)
    if side == "less":
        return float(less)
    if side == "two-sided":
        return float(min(1.0, 2 * min(greater, less)))
    raise BadOption("No such side", value=side, allowed="greater, less, two-sided")

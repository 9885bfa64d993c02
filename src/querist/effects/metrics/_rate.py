"""Rank-weighted average effects (autoc, qini) with intervals from influence values."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.effects.arrays import column, lengths
from querist.effects.metrics._curves import harmonic_number
from querist.effects.metrics._order import order
from querist.errors import BadOption
from querist.statistics import Estimate, mean_interval

__all__ = ["rate", "rate_difference", "rate_values_of"]

Weighting = Literal["qini", "autoc"]


def rate(
    psi: Any, score: Any, *, weighting: Weighting = "qini", cluster: Any = None, block: Any = None, level: float = 0.95
) -> Estimate:
    """Rank-weighted average effect of a score, in outcome per person; 0 where the score ranks no better than chance.

    psi: effect scores [n], Γ_m − Γ_0 of a nuisance that never saw row i; score: [n], not fitted on these rows. With TOC(u) the
    mean of ψ over the best share u minus the mean of all, "autoc" is the mean of TOC(j/n), "qini" that of (j/n)·TOC(j/n), which
    is mean ψ(½ − r), r = (rank − ½)/n. In a tie group ψ is replaced by its mean: a constant score gives exactly 0. The interval
    is t on influence values, which hold the score's ranks as random too, summed in clusters, centred in blocks.

    Where arms were given in fixed numbers, or propensities are their shares, ψ varies less than under coins of known probability.
    For a score that follows the natural response the interval is then too wide (a 5 % test rejects 3 % of true nulls); block = the
    arm of each row takes the arms' means out, and gives 5 %.

    Raises LengthMismatch, NonFinite, TooFewRows, BadOption.

    Source: Yadlowsky, Fleming, Shah, Brunskill & Wager (2025), sections 2 and 3; the influence of ranks in closed form instead of
    their half-sample bootstrap.
    """
    theta, influence = rate_values_of(psi, score, weighting=weighting)
    return mean_interval(theta + influence, cluster=cluster, block=block, level=level)


def rate_difference(
    psi: Any,
    a: Any,
    b: Any,
    *,
    weighting: Weighting = "qini",
    cluster: Any = None,
    block: Any = None,
    level: float = 0.95,
) -> Estimate:
    """The number of score a minus that of score b, from paired influence values; 0 where both rank alike. Raises as `rate`."""
    first, one = rate_values_of(psi, a, weighting=weighting)
    second, other = rate_values_of(psi, b, weighting=weighting)
    return mean_interval(first - second + one - other, cluster=cluster, block=block, level=level)


def rate_values_of(psi: Any, score: Any, *, weighting: Weighting = "qini") -> tuple[float, Float[np.ndarray, "n"]]:
    """The number, and each row's influence on it (mean 0): w(r)ψ − θ, and what the row's score does to the others' ranks."""
    if weighting not in ("qini", "autoc"):
        raise BadOption("No such weighting of ranks", value=weighting, allowed="qini, autoc")
    psi, score = column(psi, "psi"), column(score, "score")
    n = lengths(psi=psi, score=score)
    placed = order(score)
    start, end = placed.spans()
    size = end - start
    if size.size == 1:
        return 0.0, np.zeros(n)
    value = psi[placed.rows]
    total = np.add.reduceat(value, start)
    if weighting == "qini":
        weight = 0.5 - (start + end) / (2 * n)
        moved = total  # Σ ψ over a group, which a score above it pushes down
    else:
        # Σ over places of TOC gives the place j the weight H(n) − H(j − 1) − 1; a group has the mean over its places.
        below = end * harmonic_number(end.astype(float)) - end - (start * harmonic_number(start.astype(float)) - start)
        weight = harmonic_number(np.array([float(n)]))[0] - 1 - below / size
        moved = total / size * np.add.reduceat(n / (np.arange(n) + 0.5), start)
    theta = float(weight @ total) / n
    after = moved.sum() - np.cumsum(moved) + moved / 2  # half a group lies below each of its members
    pushed = after / n
    group = np.repeat(np.arange(size.size), size)
    influence = np.empty(n)
    influence[placed.rows] = weight[group] * value - pushed[group]
    return theta, influence - influence.mean()

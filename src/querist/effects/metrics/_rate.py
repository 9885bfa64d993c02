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
    theta, values = rate_values_of(psi, score, weighting=weighting)
    values += theta
    return mean_interval(values, cluster=cluster, block=block, level=level)


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
    first, values = rate_values_of(psi, a, weighting=weighting)
    second, other = rate_values_of(psi, b, weighting=weighting)
    values += first - second
    values -= other
    del other
    return mean_interval(values, cluster=cluster, block=block, level=level)


def rate_values_of(psi: Any, score: Any, *, weighting: Weighting = "qini") -> tuple[float, Float[np.ndarray, "n"]]:
    """The number, and each row's influence on it (mean 0): w(r)ψ − θ, and what the row's score does to the others' ranks."""
    if weighting not in ("qini", "autoc"):
        raise BadOption("No such weighting of ranks", value=weighting, allowed="qini, autoc")
    psi, score = column(psi, "psi"), column(score, "score")
    n = lengths(psi=psi, score=score)
    placed = order(score)
    if placed.groups == 1:
        return 0.0, np.zeros(n)
    # Beside ψ and the score five arrays [n] are held at most, whatever the ties: tables of many millions come here.
    value = psi[placed.rows]
    weight = np.empty(placed.groups)
    total = value if placed.ends is None else np.empty(placed.groups)
    moved = total if weighting == "qini" else np.empty(placed.groups)
    whole, below = harmonic_number(np.array([float(n)]))[0], 0.0
    for part, start, end in placed.pieces():
        here = slice(int(start[0]), int(end[-1]))
        if placed.ends is not None:
            total[part] = np.add.reduceat(value[here], start - here.start)
        if weighting == "qini":
            weight[part] = 0.5 - (start + end) / (
                2 * n
            )  # `moved` is Σ ψ over a group, which a score above it pushes down
            continue
        # Σ over places of TOC gives the place j the weight H(n) − H(j − 1) − 1; a group has the mean over its places.
        up_to = end * harmonic_number(end.astype(float)) - end
        inside, size = up_to - np.r_[below, up_to[:-1]], end - start
        below = up_to[-1]
        weight[part] = whole - 1 - inside / size
        heights = n / (np.arange(here.start, here.stop) + 0.5)
        moved[part] = total[part] / size * np.add.reduceat(heights, start - here.start)
    theta = float(weight @ total) / n
    all_moved, after = moved.sum(), np.cumsum(moved)
    for part, start, end in placed.pieces():
        here, size = slice(int(start[0]), int(end[-1])), end - start
        pushed = (all_moved - after[part] + moved[part] / 2) / n  # half a group lies below each of its members
        value[here] = np.repeat(weight[part], size) * value[here] - np.repeat(pushed, size)
    del weight, total, moved, after
    influence = np.empty(n)
    influence[placed.rows] = value
    influence -= influence.mean()
    return theta, influence

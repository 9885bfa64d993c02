"""Doubly robust scores: every row's outcome under every arm without bias, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from querist.effects.arrays import arm_codes, column, lengths, matrix
from querist.effects.design._propensity import arm_shares, propensities
from querist.errors import BadOption, BadValues, ShapeMismatch
from querist.statistics import Estimate, mean_interval
from querist.statistics.arrays import finite, in_blocks

__all__ = ["aipw_scores", "ate", "component_scores", "corrected", "effect_scores", "gamma", "tier_weights_of"]


def aipw_scores(
    arm: Any,
    y: Any,
    *,
    propensity: Any = "share",
    mu: Any = "arm",
    control: Any,
    arms: Sequence[Any] | None = None,
) -> Float[np.ndarray, "n arms"]:
    """Γ_m = μ_m(x) + 1{A = m}/e_m(x)·(y − μ_m(x)) for control and every arm, control first.

    arm: labels [n]; y: [n], one outcome without missing values; propensity: as `propensities` takes it; mu: [n, M+1] of a model
    that never saw row i, "arm" for constant arm means, None for inverse propensity weighting. Without a model "arm" is the
    choice: plain weighting changes when a constant is added to y. With known propensities the mean of Γ_m is without bias
    for any mu of a model (arm means use the row itself: a bias of order 1/n where propensities vary).

    Raises ControlAbsent, NoTreated, ArmMissing, PropensityRange, NonFinite, ShapeMismatch, LengthMismatch.
    Source: Robins, Rotnitzky & Zhao (1994).
    """
    labels, codes = arm_codes(arm, control, arms)
    y = column(y, "y")
    lengths(arm=codes, y=y)
    return gamma(codes, y, propensities(propensity, labels, codes), mu)


def gamma(
    codes: Int[np.ndarray, "n"], y: Float[np.ndarray, "n"], e: Float[np.ndarray, "n arms"], mu: Any = "arm"
) -> Float[np.ndarray, "n arms"]:
    """`aipw_scores` for arms as codes and propensities as an array."""
    n, arms = e.shape
    if isinstance(mu, str):
        if mu != "arm":
            raise BadOption("No such nuisance", value=mu, allowed='"arm", None, or an array (n, M+1)')
        counts = np.bincount(codes, minlength=arms)
        if not counts.all():
            raise BadValues(
                "An arm without rows has no mean", value=f"arm {int(np.argmin(counts))}", allowed="rows in every arm"
            )
        means = np.bincount(codes, y, minlength=arms) / counts
        found = np.tile(means, (n, 1))
    elif mu is None:
        found = np.zeros((n, arms))
    else:
        found = matrix(mu, "mu", (n, arms)).copy()
    return corrected(found, codes, y, e)


def corrected(
    mu: Float[np.ndarray, "n arms"],
    codes: Int[np.ndarray, "n"],
    y: Float[np.ndarray, "n"],
    e: Float[np.ndarray, "n arms"],
) -> Float[np.ndarray, "n arms"]:
    """Γ of responses μ, in their place: the array that is given is changed. Places and differences are not held of all rows."""
    for part in in_blocks(codes.size):
        found, arm, own = mu[part], codes[part], e[part]
        rows = np.arange(arm.size)
        found[rows, arm] += (y[part] - found[rows, arm]) / own[rows, arm]
    return mu


def effect_scores(scores: Float[np.ndarray, "n arms"]) -> Float[np.ndarray, "n M"]:
    """ψ_m = Γ_m − Γ_0 for the arms other than control."""
    return scores[:, 1:] - scores[:, :1]


def tier_weights_of(codes: Int[np.ndarray, "n"], arms: int, weight: Any = None) -> Float[np.ndarray, "M"]:
    """Shares of the treated rows by arm: the weights under which increments cancel."""
    shares = arm_shares(codes, arms, weight)[1:]
    return shares / shares.sum()


def component_scores(
    psi: Float[np.ndarray, "n M"],
    component: Literal["total", "base", "incremental"],
    tier_weights: Float[np.ndarray, "M"] | None = None,
) -> Float[np.ndarray, "n columns"]:
    """Effect scores of one part of the effect: total [n, M], base [n, 1], incremental [n, M].

    base = Σ w_m ψ_m, incremental = ψ_m − base. tier_weights: sum to 1; equal where left out. A reference tier has weight 1 on its
    arm. Raises BadOption, ShapeMismatch, BadValues.
    """
    arms = psi.shape[1]
    if component not in ("total", "base", "incremental"):
        raise BadOption("No such part of an effect", value=component, allowed="total, base, incremental")
    if component == "total":
        return psi
    w = np.full(arms, 1 / arms) if tier_weights is None else finite(tier_weights, "tier_weights")
    if w.shape != (arms,):
        raise ShapeMismatch("One tier weight per arm", value=w.shape, allowed=f"({arms},)")
    if (w < 0).any() or abs(w.sum() - 1) > 1e-9:
        raise BadValues("Tier weights must be shares", value=w.tolist(), allowed="0 or more, with sum 1")
    base = (psi @ w)[:, None]
    return base if component == "base" else psi - base


def ate(psi: Any, *, cluster: Any = None, block: Any = None, level: float = 0.95) -> Estimate:
    """Average effect: the mean of effect scores [n] with its t interval and p against 0.

    cluster: ids [n] of the units that were assigned together: scores are summed inside them, with G/(G − 1). block: strata inside
    which units were assigned; block means are taken out. Raises NonFinite, LengthMismatch, TooFewRows.
    """
    psi = column(psi, "psi")
    lengths(psi=psi, cluster=cluster, block=block)
    return mean_interval(psi, cluster=cluster, block=block, level=level)

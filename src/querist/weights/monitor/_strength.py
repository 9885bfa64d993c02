"""Is an update strong enough to stand out of the bulk it is added to? One-step theory on a matrix that is watched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from querist.weights.laboratory import outlier, regime_of
from querist.weights.nulls import johnstone

__all__ = ["FINITE", "REGIMES", "Strength", "bulk_variance", "strength"]

REGIMES = ("random", "spike", "heavy")
FINITE = 0.15
"""What finite size may do to the ratio θ_e/θ_c."""


@dataclass(frozen=True, slots=True)
class Strength:
    """The strongest direction of an update beside what it takes to be an outlier.

    theta: its singular value at unit entry variance of the bulk; theta_effective: θ_e, √(θ² + 2θ·uᵀWv), 0 where that is
    negative (the update takes away more of the bulk than it adds); theta_critical: θ_c = (hd)^¼; ratio: θ_e/θ_c.
    lambda_predicted: the largest eigenvalue afterwards at unit variance, (h+θ_e²)(d+θ_e²)/θ_e² above θ_c, else the edge of
    the bulk. relative: ‖update‖_F/‖W‖_F. regime: "heavy" where that is at least ½, else "spike" where θ_e > θ_c, else
    "random".
    """

    theta: float
    theta_effective: float
    theta_critical: float
    ratio: float
    lambda_predicted: float
    relative: float
    regime: str


def strength(shape: tuple[int, int], sigma: float, inner: float, variance: float, relative: float) -> Strength:
    """From the top triplet (sigma, u, v) of an update to a matrix [h, d].

    inner: uᵀWv with W the weights before the update, without their spikes; variance: of the entries of that bulk;
    relative: ‖update‖_F/‖W‖_F. A bulk without variance is outdone by any update.

    Source: one-step theory of `laboratory.outlier`. Taking the spikes of W out of uᵀWv is ours: with them in it the strength
    of what is already there would be counted as the update's.
    """
    h, d = shape
    critical = (h * d) ** 0.25
    if variance <= 0 < sigma:
        return Strength(math.inf, math.inf, critical, math.inf, math.inf, relative, "heavy")
    scale = math.sqrt(variance) or 1.0
    theta = sigma / scale
    squared, predicted, _ = outlier(h, d, theta, inner / scale)
    effective = math.sqrt(max(squared, 0.0))
    regime = regime_of(effective > critical, relative)
    return Strength(theta, effective, critical, effective / critical, predicted, relative, regime)


def bulk_variance(total: float, top: Sequence[float], shape: tuple[int, int]) -> tuple[float, int]:
    """Entry variance of what is left of ‖W‖_F² = `total` without the values among `top` that lie beyond its own edge.

    top: the largest eigenvalues, descending. Returns the variance and how many were taken out (all of them, where the
    bulk begins below the last one known). An estimate from a few values, for events without a whole spectrum; its bias on a
    matrix without spikes is nil, and a spike's share of the bulk, λ₊ at most, is lost with it.
    """
    h, d = shape
    low, high = min(h, d), max(h, d)
    centre, scale = johnstone(low, high)
    edge = centre + 2.0234 * scale
    left, cells = total, float(h * d)
    for count, value in enumerate(top):
        variance = left / cells
        if value <= variance * edge:
            return variance, count
        left = max(left - value, 0.0)
        cells = float((low - count - 1) * (high - count - 1))
        if cells <= 0:
            return 0.0, count + 1
    return left / cells, len(top)

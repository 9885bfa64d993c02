"""The ablation of a refit by slopes: each part its mean plus what the networks said times their out-of-fold slope."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.effects.network._evidence import SPREAD, Evidence, Pair, taken
from querist.effects.network._linear import Linear

__all__ = ["slope_model", "slopes"]


def slope_model(
    found: Evidence,
    name: str,
    pair: Pair,
    known: Bool[np.ndarray, "C"],
    constant: Float[np.ndarray, "C"] | None,
    names: list[tuple[int | None, int]],
) -> tuple[Linear, list[dict[str, Any]]]:
    """Columns of scores on what the networks said of each, a slope shrunk by max(0, 1 − 1/t²) and never below 0; rows of the table.

    known: columns that are modelled; constant: means to use, else those of the scores; names: (arm or None, outcome) of each.
    """
    columns, p = len(names), found.p
    centre, scale = np.zeros(p + columns), np.ones(p + columns)
    coefficients, means, table = np.zeros((p + columns, columns)), np.zeros(columns), []
    for c in np.flatnonzero(known):
        m, k = names[c]
        rows = found.seen(k)
        y, said = (
            np.concatenate([one(part)[:, 0] for part in one.slices()])
            for one in (found.blocks(lambda part, c=c, j=j: pair(part)[j][:, [c]], rows) for j in (0, 1))
        )
        weight = taken(found.weight, rows)
        # As columns of the linear model: a slope on rounding would make rounding an effect.
        spread = np.sqrt(np.cov(said, aweights=weight, ddof=0))
        slope, t = slopes(y, said, weight, taken(found.cluster, rows)) if spread > SPREAD * found.sd[k] else (0.0, 0.0)
        factor = max(0.0, 1 - 1 / t**2) if slope > 0 and t > 0 else 0.0
        centre[p + c] = np.average(said, weights=weight)
        coefficients[p + c, c] = slope * factor
        means[c] = np.average(y, weights=weight) if constant is None else constant[c]
        table.append({"part": name, "arm": m, "outcome": k, "slope": slope, "t": t, "factor": factor})
    return Linear(centre, scale, coefficients, means), table


def slopes(
    psi: Float[np.ndarray, "n"],
    said: Float[np.ndarray, "n"],
    weight: Float[np.ndarray, "n"] | None = None,
    cluster: Int[np.ndarray, "n"] | None = None,
) -> tuple[float, float]:
    """Weighted least-squares slope and its t by the HC0 sandwich, summed in clusters; (0, 0) where the model says one number."""
    w = np.ones(len(psi)) if weight is None else weight
    x = said - np.average(said, weights=w)
    square = float((w * x**2).sum())
    if square <= 1e-18 * float((w * said**2).sum()):
        return 0.0, 0.0
    y = psi - np.average(psi, weights=w)
    slope = float((w * x * y).sum()) / square
    score = w * x * (y - slope * x)
    if cluster is not None:
        score = np.bincount(np.unique(cluster, return_inverse=True)[1].reshape(-1), score)
    se = math.sqrt(float((score**2).sum())) / square
    return slope, slope / se if se > 0 else math.inf

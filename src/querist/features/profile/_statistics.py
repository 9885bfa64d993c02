"""Four numbers that say how laws change over layers: change, order, contraction, concordance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import TooFewRows, UndefinedMetric
from querist.features.arrays import rows
from querist.features.errors import DimensionMismatch
from querist.statistics import kendall, mean_interval
from querist.statistics.arrays import finite, same_length

__all__ = ["LEAST_LAYERS", "Association", "association", "change", "concordance", "slope"]

LEAST_LAYERS = 4
"""A slope through fewer layers says nothing."""


def change(E_source: ArrayLike, E_target: ArrayLike) -> float:
    """C = mean |E_l^S − E_l^T| / mean E_l^S: how differently two sets evolve, 0 where alike.

    Raises ShapeMismatch, NonFinite, UndefinedMetric where the source does not evolve.
    """
    S, T = finite(E_source, "E of the source").ravel(), finite(E_target, "E of the target").ravel()
    same_length(("E of the source", S), ("E of the target", T))
    if not S.size or S.mean() <= 0:
        raise UndefinedMetric("C has no value: the source's law is the same in every layer")
    return float(np.abs(S - T).mean() / S.mean())


def slope(excess: ArrayLike, index: ArrayLike | None = None) -> float | None:
    """Least-squares slope b of log excess on the layers' index (0, 1, … where left out); below 0 the gap contracts.

    Layers without excess are left out; None where fewer than four remain. Raises ShapeMismatch, NonFinite.
    """
    values = finite(excess, "excess").ravel()
    at = np.arange(values.size, dtype=float) if index is None else finite(index, "index").ravel()
    same_length(("excess", values), ("index", at))
    kept = values > 0
    if np.count_nonzero(kept) < LEAST_LAYERS:
        return None
    at, logs = at[kept] - at[kept].mean(), np.log(values[kept])
    return float(at @ logs / (at @ at))


def concordance(profiles: Sequence[ArrayLike]) -> float | None:
    """κ, the median Kendall τ-b of excess profiles over pairs of targets; None below two targets.

    A pair with a constant profile counts as 0. Raises ShapeMismatch, NonFinite.
    """
    taus = []
    for x, y in combinations(profiles, 2):
        try:
            taus.append(kendall(x, y))
        except UndefinedMetric:
            taus.append(0.0)
    return float(np.median(taus)) if taus else None


@dataclass(frozen=True, slots=True)
class Association:
    """Does the distance predict the probe, and better than depth? Means over cells.

    tau_w_probe, tau_depth_probe: Kendall τ over layers of excess, and of depth, with probe accuracy. difference =
    −tau_w_probe − |tau_depth_probe|, above 0 where small distances go with good probes more than depth alone does. low, high: t
    interval over cells; None for one cell. by_cell: the differences.
    """

    tau_w_probe: float
    tau_depth_probe: float
    difference: float
    low: float | None
    high: float | None
    n_layers: int
    by_cell: Float[np.ndarray, "cells"]


def association(
    excess: ArrayLike, probe: ArrayLike, depth: ArrayLike | None = None, level: float = 0.95
) -> Association:
    """Kendall τ between excess and probe accuracy over layers, beside that of depth, in each (target, seed) cell.

    excess, probe: (cells, layers), or (layers,) for one cell; depth: (layers,), 0, 1, … where left out. Layers are no
    replicates: only cells give an interval. A constant column has τ 0.

    Raises TooFewRows below three layers, ShapeMismatch, DimensionMismatch, NonFinite.
    """
    W = rows(np.atleast_2d(np.asarray(excess, dtype=float)), "excess")
    A = rows(np.atleast_2d(np.asarray(probe, dtype=float)), "probe")
    if W.shape != A.shape:
        raise DimensionMismatch(
            "Excess and probe have other cells or layers",
            value=f"{W.shape} and {A.shape}",
            allowed="one shape (cells, layers)",
        )
    layers = W.shape[1]
    if layers < 3:
        raise TooFewRows("An association needs three layers", value=layers, allowed="3 or more")
    at = np.arange(layers, dtype=float) if depth is None else finite(depth, "depth").ravel()
    same_length(("layers", range(layers)), ("depth", at))
    of_w = np.array([_tau(w, a) for w, a in zip(W, A, strict=True)])
    of_depth = np.array([_tau(at, a) for a in A])
    difference = -of_w - np.abs(of_depth)
    low = high = None
    if len(W) > 1:
        found = mean_interval(difference, level=level)
        low, high = found.low, found.high
    return Association(
        float(of_w.mean()), float(of_depth.mean()), float(difference.mean()), low, high, layers, difference
    )


def _tau(x: np.ndarray, y: np.ndarray) -> float:
    return 0.0 if np.ptp(x) == 0 or np.ptp(y) == 0 else kendall(x, y)

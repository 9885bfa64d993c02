"""Does a score rank candidates as the truth does, and better than depth alone?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.errors import ShapeMismatch, UndefinedMetric
from querist.features.arrays import rows
from querist.statistics import bootstrap, weighted_kendall

__all__ = ["Agreement", "agreement"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Weighted τ of score and truth, mean over cells; its lead over the baseline's; intervals from a bootstrap over cells.

    Intervals are None for one cell, which cannot tell how other targets and seeds would come out. by_cell: τ of each cell.
    """

    tau_w: float
    low: float | None
    high: float | None
    difference: float
    diff_low: float | None
    diff_high: float | None
    by_cell: Float[np.ndarray, "cells"]


def agreement(
    score: Any, truth: Any, baseline: Any, *, replicates: int = 2000, level: float = 0.95, seed: int = 0
) -> Agreement:
    """Weighted Kendall τ between a score and the truth over candidates, in each cell, beside the same of a baseline (depth).

    score, truth, baseline: (cells, candidates); a cell is a (target, seed), a candidate a model's layer; one row (candidates,)
    is one cell. Larger is better in all three. A constant score ranks nothing: its τ is 0. Cells, never candidates, are
    resampled: adjacent layers are no replicates.

    Raises ShapeMismatch, NonFinite, UndefinedMetric where the truth of a cell is constant or has one candidate.
    """
    tables = [
        rows(np.atleast_2d(np.asarray(v, dtype=float)), name)
        for v, name in ((score, "score"), (truth, "truth"), (baseline, "baseline"))
    ]
    if len({table.shape for table in tables}) > 1:
        raise ShapeMismatch(
            "Score, truth and baseline must have the same cells and candidates",
            value=", ".join(str(table.shape) for table in tables),
            allowed="one shape (cells, candidates)",
        )
    taus, base = (np.array([_tau(s, t) for s, t in zip(table, tables[1], strict=True)]) for table in tables[::2])
    lead = taus - base
    if len(taus) < 2:
        return Agreement(float(taus[0]), None, None, float(lead[0]), None, None, taus)
    own = bootstrap(taus, _mean, replicates=replicates, level=level, seed=seed)
    over = bootstrap(lead, _mean, replicates=replicates, level=level, seed=seed)
    return Agreement(own.estimate, own.low, own.high, over.estimate, over.low, over.high, taus)


def _mean(values: np.ndarray) -> float:
    return float(values.mean())


def _tau(score: np.ndarray, truth: np.ndarray) -> float:
    if truth.size < 2 or np.ptp(truth) == 0:
        raise UndefinedMetric("Agreement needs two candidates whose truth differs")
    return 0.0 if np.ptp(score) == 0 else weighted_kendall(score, truth)

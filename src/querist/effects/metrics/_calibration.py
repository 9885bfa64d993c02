"""Are predicted effects true in size? The regression of effect scores on predictions, and bins."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.arrays import column, lengths
from querist.effects.metrics._order import order
from querist.errors import BadOption, TooFewRows, UndefinedMetric
from querist.statistics import Estimate, mean_interval
from querist.statistics.arrays import codes as id_codes
from querist.statistics.arrays import index_type
from querist.statistics.intervals import t_estimate

__all__ = ["Calibration", "CalibrationBins", "calibration"]


@dataclass(frozen=True, slots=True)
class CalibrationBins:
    """Bins by predicted effect, lowest first: rows, mean prediction, mean effect score with its standard error and interval."""

    n: Int[np.ndarray, "bins"]
    predicted: Float[np.ndarray, "bins"]
    effect: Float[np.ndarray, "bins"]
    se: Float[np.ndarray, "bins"]
    low: Float[np.ndarray, "bins"]
    high: Float[np.ndarray, "bins"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """`intercept` and `slope` (ideal 0 and 1; p of both against 0), `bins`, and `error`, squared and free of the bins' noise."""

    intercept: Estimate
    slope: Estimate
    bins: CalibrationBins
    error: float


def calibration(
    psi: Any, predicted: Any, *, bins: int = 10, cluster: Any = None, block: Any = None, level: float = 0.95
) -> Calibration:
    """Regress effect scores [n] on predicted effects [n].

    Standard errors are HC1, or summed within clusters with G/(G − 1)·(n − 1)/(n − 2); with block, of influence values without
    block means, as in `rate`. Bins have about equal counts, tie groups
    whole; `error` = Σ s_b[(p̄_b − ψ̄_b)² − se_b²] with the bins' shares s_b, which may fall below 0.

    Raises UndefinedMetric where predictions are all alike (no slope), TooFewRows below three rows (or clusters) or two in a bin,
    BadOption, NonFinite, LengthMismatch. Source: Chernozhukov et al. (2018), best linear predictor; MacKinnon & White (1985), HC1.
    """
    psi, x = column(psi, "psi"), column(predicted, "predicted")
    n = lengths(psi=psi, predicted=x, cluster=cluster, block=block)
    if not isinstance(bins, int | np.integer) or not 1 <= bins <= n:
        raise BadOption("The number of bins lies outside its range", value=bins, allowed=f"1 to {n}")
    if n < 3:
        raise TooFewRows("A slope's interval needs three rows", value=n, allowed="3 or more")
    intercept, slope = _line(psi, x, cluster, block, level)
    found = _bins(psi, x, bins, cluster, level)
    error = float(found.n / n @ ((found.predicted - found.effect) ** 2 - found.se**2))
    return Calibration(intercept, slope, found, error)


def _line(psi: np.ndarray, x: np.ndarray, cluster: Any, block: Any, level: float) -> tuple[Estimate, Estimate]:
    """Intercept and slope. What is made [n] is turned into what follows from it: tables of many millions come here."""
    n = x.size
    centre = x - x.mean()
    spread = float(centre @ centre)
    if math.sqrt(spread / n) <= 1e-12 * max(float(x.max()), -float(x.min())):
        raise UndefinedMetric("Predicted effects are all alike: their slope has no value")
    slope = float(centre @ psi) / spread
    intercept = float(psi.mean() - slope * x.mean())
    of_intercept = psi - intercept  # the residual, before it becomes the influence on the intercept
    of_intercept -= slope * x
    of_slope = centre
    of_slope *= of_intercept
    of_slope /= spread
    of_intercept /= n
    of_intercept -= x.mean() * of_slope
    if block is not None:
        found = []
        for value, part in ((intercept, of_intercept), (slope, of_slope)):
            part *= n
            part += value
            found.append(mean_interval(part, cluster=cluster, block=block, level=level))
        return found[0], found[1]
    factor, degrees, units, method = n / (n - 2), n - 2, n, "t, HC1"
    if cluster is not None:
        label, units = id_codes(cluster, "Clusters")
        if units < 3:
            raise TooFewRows("A slope's interval needs three clusters", value=units, allowed="3 or more")
        of_slope, of_intercept = (np.bincount(label, values, minlength=units) for values in (of_slope, of_intercept))
        factor, degrees, method = units / (units - 1) * (n - 1) / (n - 2), units - 1, "t, clustered"
    found = [
        t_estimate(value, math.sqrt(factor * float(part @ part)), degrees, level, units, method)
        for value, part in ((intercept, of_intercept), (slope, of_slope))
    ]
    return found[0], found[1]


def _bins(psi: np.ndarray, x: np.ndarray, bins: int, cluster: Any, level: float) -> CalibrationBins:
    placed = order(-x)
    of_group = np.empty(placed.groups, dtype=index_type(bins))
    for part, start, end in placed.pieces():
        middle = (start + end) / 2  # of a tie group, which goes whole to the bin that holds it
        of_group[part] = np.minimum((bins * middle / x.size).astype(int), bins - 1)
    cuts = np.flatnonzero(of_group[1:] != of_group[:-1]) + 1
    edges = [0, *(cuts if placed.ends is None else placed.ends[cuts - 1]).tolist(), x.size]
    ids = None if cluster is None else id_codes(cluster, "Clusters")[0]
    rows = []
    for low, high in itertools.pairwise(edges):
        mine = placed.rows[low:high]
        mean = mean_interval(psi[mine], cluster=None if ids is None else ids[mine], level=level)
        rows.append((mine.size, x[mine].mean(), mean.estimate, mean.se, mean.low, mean.high))
    n, *rest = (np.array(values) for values in zip(*rows, strict=True))
    return CalibrationBins(n, *rest)

"""How far below the other classes an inverted trigger lies, and whether clean retrains go as far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, NonFinite, TooFewRows
from querist.statistics import rank_p

__all__ = ["LEAST_CLASSES", "CleanseTest", "anomaly_index", "cleanse_test"]

NORMAL = 1.4826
"""1.4826·MAD estimates the standard deviation of a normal sample."""
LEAST_RETRAINS, LEAST_CLASSES = 19, 5


@dataclass(frozen=True, slots=True)
class CleanseTest:
    """The largest index `observed` beside those of `runs` clean retrains: rank `p`, their `median` and central 90 %."""

    observed: float
    p: float
    runs: int
    median: float
    low: float
    high: float


def anomaly_index(
    norms: ArrayLike, *, floor: float = 0.0, names: Sequence[object] | None = None
) -> Float[np.ndarray, "c"]:
    """(median − norm)/(1.4826·max(MAD, floor)): positive below the median, where a planted trigger lies.

    The median of an even number is the mean of the middle two. Without spread and floor the index is 0 at the median and infinite
    away from it. Raises NonFinite naming the class whose norm is not a number (an inversion that diverged gives no verdict), and
    TooFewRows without classes.

    Source: Wang et al. (2019), section IV; the sign kept, because only small triggers are suspicious.
    """
    values = np.asarray(norms, dtype=float)
    if values.ndim != 1 or not values.size:
        raise TooFewRows("An anomaly index needs classes", value=values.shape, allowed="one norm per class")
    broken = np.flatnonzero(~np.isfinite(values))
    if broken.size:
        name = int(broken[0]) if names is None else names[int(broken[0])]
        raise NonFinite(
            "The inverted trigger of a class is not finite",
            value=f"class {name}: norm {values[broken[0]]}",
            mend="Lower the learning rate of the inversion, or check the range of the concepts",
        )
    gap = np.median(values) - values
    spread = NORMAL * max(float(np.median(np.abs(gap))), floor)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(gap == 0, 0.0, gap / spread)


def cleanse_test(index: ArrayLike, null: ArrayLike) -> CleanseTest:
    """p = (1 + #{clean retrains whose largest index >= the model's})/(1 + B).

    index [c]: of the model's classes; null [B]: the largest index of each clean retrain. An index above 2, the published bound,
    is no verdict: clean models pass it routinely. Raises BadOption below 19 retrains, where no p could reach 5 %, and below 5
    classes, among which an outlier has no meaning; NonFinite.
    """
    values, draws = np.asarray(index, dtype=float), np.asarray(null, dtype=float)
    if len(draws) < LEAST_RETRAINS:
        raise BadOption(
            "A test against clean retrains needs them", value=len(draws), allowed=f"{LEAST_RETRAINS} or more"
        )
    if len(values) < LEAST_CLASSES:
        raise BadOption("An outlier among classes needs classes", value=len(values), allowed=f"{LEAST_CLASSES} or more")
    if np.isnan(values).any() or np.isnan(draws).any():
        raise NonFinite("An anomaly index is not a number", value=str(values[np.isnan(values)]), mend="Invert again")
    observed = float(values.max())
    low, median, high = np.quantile(draws, [0.05, 0.5, 0.95], method="closest_observation")
    return CleanseTest(observed, rank_p(observed, draws), len(draws), float(median), float(low), float(high))

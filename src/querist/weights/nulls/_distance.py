"""How far a spectrum lies from those of its resampled copies, beside how far these lie from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

__all__ = ["BINS", "ShuffleDistance", "jensen_shannon", "shuffle_distance"]

BINS = 100


@dataclass(frozen=True, slots=True)
class ShuffleDistance:
    """distance: mean over copies of the distance to each (`draws`); sd over copies, None for one copy; null: distances
    between every two copies, ascending, empty for one copy; null_sd over them, None below three copies. All in [0, 1]."""

    distance: float
    sd: float | None
    draws: Float[np.ndarray, "r"]
    null: Float[np.ndarray, "pairs"]

    @property
    def null_sd(self) -> float | None:
        """Standard deviation of the distances between copies."""
        return float(self.null.std(ddof=1)) if len(self.null) > 1 else None


def jensen_shannon(p: Float[np.ndarray, "bins"], q: Float[np.ndarray, "bins"]) -> float:
    """Jensen-Shannon distance, root and base 2, of two histograms (normalised here): 0 equal, 1 disjoint."""
    p, q = p / p.sum(), q / q.sum()
    middle = (p + q) / 2
    divergence = sum(float(np.sum(part[part > 0] * np.log2(part[part > 0] / middle[part > 0]))) for part in (p, q)) / 2
    return float(np.sqrt(min(max(divergence, 0.0), 1.0)))


def shuffle_distance(
    evals: Float[np.ndarray, "N"], replicas: Sequence[Float[np.ndarray, "N"]]
) -> ShuffleDistance | None:
    """Distance between a spectrum and its copies' on 100 common bins of log10 λ over the union of all positive values.

    evals, replicas: eigenvalues, any order. Values at rounding level (below eps·N times the largest of their own
    spectrum, so that a zero is not placed by its rounding error) share one further bin: a matrix that lost rank is far
    from its copies, which did not. None where there is no copy or no positive value.

    Source: WeightWatcher's distance between a spectrum and its randomised one; the common bins, the bin of zeros and
    the distances between copies as its null are ours.
    """
    spectra = [np.asarray(values, dtype=np.float64) for values in (evals, *replicas)]
    positive = [_positive(values) for values in spectra]
    filled = [values for values in positive if len(values)]
    if len(spectra) < 2 or not filled:
        return None
    logs = np.log10(np.concatenate(filled))
    low, high = float(logs.min()), float(logs.max())
    high = high if high > low else low + 1.0
    counts = [
        np.append(np.histogram(np.log10(kept), bins=BINS, range=(low, high))[0], len(values) - len(kept)).astype(float)
        for values, kept in zip(spectra, positive, strict=True)
    ]
    draws = np.array([jensen_shannon(counts[0], copy) for copy in counts[1:]])
    null = np.sort([jensen_shannon(a, b) for a, b in combinations(counts[1:], 2)])
    sd = float(draws.std(ddof=1)) if len(draws) > 1 else None
    return ShuffleDistance(float(draws.mean()), sd, draws, null)


def _positive(evals: np.ndarray) -> np.ndarray:
    return evals[evals > np.finfo(np.float64).eps * len(evals) * max(float(evals.max(initial=0.0)), 0.0)]

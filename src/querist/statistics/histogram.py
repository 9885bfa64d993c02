"""A histogram of a stream of values, mergeable, with bounded error of its quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, ShapeMismatch, UndefinedMetric
from querist.statistics.arrays import finite, weights_of
from querist.statistics.moments import pieces

__all__ = ["Histogram"]


class Histogram:
    """Counts over fixed edges, with everything below, above and not a number counted apart.

    Values equal to an inner edge belong to the bin above it; the last edge belongs to the last bin. numpy or torch values,
    counted on their own device. `low` and `high` are the least and the largest value seen.
    """

    def __init__(self, edges: ArrayLike):
        self.edges = finite(edges, "edges").ravel().copy()
        if self.edges.size < 2 or (np.diff(self.edges) <= 0).any():
            raise BadOption(
                "Edges must rise", value=self.edges.tolist()[:5], allowed="two or more, each above the last"
            )
        self.counts = np.zeros(self.edges.size - 1)
        self.below = self.above = self.missing = 0.0
        self.low, self.high = np.inf, -np.inf

    @classmethod
    def quantile_edges(cls, sample: ArrayLike, bins: int = 10) -> Histogram:
        """An empty histogram with edges at the quantiles of a sample, ties merged: the usual bins of a stability index."""
        if bins < 1:
            raise BadOption("A histogram needs bins", value=bins, allowed="1 or more")
        values = finite(sample, "sample").ravel()
        if not values.size:
            raise UndefinedMetric("A sample without values has no quantiles")
        edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
        return cls(edges if edges.size > 1 else [edges[0], np.nextafter(edges[0], np.inf)])

    @property
    def n(self) -> float:
        """Values counted, those outside the edges included, missing ones not."""
        return float(self.counts.sum() + self.below + self.above)

    def update(self, values: Any, weight: ArrayLike | None = None) -> Histogram:
        """Add values of any shape; returns itself. NaN counts as missing, infinities as below or above.

        weight: one per value. Raises NonFinite and BadValues for bad weights, ShapeMismatch.
        """
        values = values.reshape(-1) if hasattr(values, "detach") else np.asarray(values).ravel()
        weights = None if weight is None else weights_of(weight, len(values))
        done = 0
        for x in pieces(values, 1):
            self._add(x, None if weights is None else weights[done : done + len(x)])
            done += len(x)
        return self

    def _add(self, x: Any, w: np.ndarray | None) -> None:
        place, low, high = (_place_torch if hasattr(x, "detach") else _place_numpy)(x, self.edges)
        slots = self.edges.size + 2  # below, the bins, above, missing
        if hasattr(place, "detach"):
            # Weighted counts of a CUDA tensor are not the same from run to run: those are made on the CPU.
            place = (place.bincount(minlength=slots) if w is None else place).cpu().numpy()
            counts = place if w is None else np.bincount(place, w, minlength=slots)
        else:
            counts = np.bincount(place, w, minlength=slots)
        self.below += float(counts[0])
        self.counts += counts[1:-2]
        self.above += float(counts[-2])
        self.missing += float(counts[-1])
        self.low, self.high = min(self.low, low), max(self.high, high)

    def merge(self, other: Histogram) -> Histogram:
        """Add another's counts; returns itself. Raises ShapeMismatch for other edges."""
        self._same_edges(other)
        self.counts = self.counts + other.counts
        self.below, self.above = self.below + other.below, self.above + other.above
        self.missing += other.missing
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        return self

    def _same_edges(self, other: Histogram) -> None:
        if not np.array_equal(self.edges, other.edges):
            raise ShapeMismatch(
                "Histograms must have the same edges",
                value=f"{self.counts.size} bins from {self.edges[0]:.6g}, {other.counts.size} from {other.edges[0]:.6g}",
                mend="Make both from the same edges",
            )

    def quantile(self, p: ArrayLike) -> Float[np.ndarray, "..."]:
        """Quantiles, in the shape of p, by linear interpolation inside the bin that holds the p·n-th value.

        Off by at most that bin's width; the outer bins reach to the least and the largest value, so that p 0 and 1 are exact. A
        quantile in an outer bin that holds an infinity is that infinity. Raises UndefinedMetric where nothing was counted,
        BadOption for p outside [0, 1].
        """
        p = np.asarray(p, dtype=float)
        wrong = ~((p >= 0) & (p <= 1))
        if wrong.any():
            raise BadOption(
                "A quantile's level lies outside its range", value=float(p[wrong].flat[0]), allowed="0 to 1"
            )
        counts = np.concatenate([[self.below], self.counts, [self.above]])
        upto = np.cumsum(counts)
        if not upto[-1] > 0:
            raise UndefinedMetric("A histogram without values has no quantiles")
        target = p * upto[-1]
        full = np.flatnonzero(counts > 0)
        at = full[np.minimum(np.searchsorted(upto[full], target), full.size - 1)]
        edges = np.concatenate([[self.low], self.edges, [self.high]])
        left, right = np.maximum(edges[at], self.low), np.minimum(edges[at + 1], self.high)
        share = np.clip((target - (upto[at] - counts[at])) / counts[at], 0.0, 1.0)
        infinite = np.where(np.isinf(left), left, right)
        inside = np.isfinite(left) & np.isfinite(right)
        left, right = np.where(inside, left, 0.0), np.where(inside, right, 0.0)
        return np.where(inside, np.where(share < 1, left + share * (right - left), right), infinite)

    def psi(self, other: Histogram, *, floor: float = 1e-4) -> float:
        """Population stability index Σ(a − b)·ln(a/b) over bins, outside ones and missing.

        Shares below `floor` are raised to it. Symmetric; 0 for equal shares. Raises UndefinedMetric where one is empty,
        ShapeMismatch for other edges, BadOption. Source: Lewis (1994); Yurdakul (2018) for its null.
        """
        if not 0 < floor < 1:
            raise BadOption("The floor of a share lies outside its range", value=floor, allowed="0 < floor < 1")
        self._same_edges(other)
        shares = []
        for one in (self, other):
            counts = np.concatenate([[one.below], one.counts, [one.above, one.missing]])
            if not counts.sum() > 0:
                raise UndefinedMetric("A histogram without values has no stability index")
            shares.append(np.maximum(counts / counts.sum(), floor))
        a, b = shares
        return float(((a - b) * np.log(a / b)).sum())


def _place_numpy(x: np.ndarray, edges: np.ndarray) -> tuple[Any, float, float]:
    """0 below, 1 … bins, bins + 1 above, bins + 2 missing; least and largest value."""
    place = np.searchsorted(edges, x, side="right")
    place[x == edges[-1]] = edges.size - 1
    known = ~np.isnan(x)
    if not known.all():
        place[~known] = edges.size + 1
        x = x[known]
    return place, *((float(x.min()), float(x.max())) if x.size else (np.inf, -np.inf))


def _place_torch(x: Any, edges: np.ndarray) -> tuple[Any, float, float]:
    import torch

    at = torch.as_tensor(edges, dtype=x.dtype, device=x.device)
    missing = x.isnan()
    place = torch.bucketize(x, at, right=True)
    place = place.masked_fill(x == at[-1], edges.size - 1).masked_fill(missing, edges.size + 1)
    x = x[~missing]
    return place, *((float(x.min()), float(x.max())) if x.numel() else (np.inf, -np.inf))

"""A histogram of a stream of values, mergeable, with bounded error of its quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadOption, ShapeMismatch, UndefinedMetric
from querist.statistics.arrays import finite, to_numpy

__all__ = ["Histogram"]


class Histogram:
    """Counts over fixed edges, with everything below, above and not a number counted apart.

    Values equal to an inner edge belong to the bin above it; the last edge belongs to the last bin. numpy or torch values.
    """

    def __init__(self, edges: ArrayLike):
        self.edges = finite(edges, "edges").ravel()
        if self.edges.size < 2 or (np.diff(self.edges) <= 0).any():
            raise BadOption(
                "Edges must rise", value=self.edges.tolist()[:5], allowed="two or more, each above the last"
            )
        self.counts = np.zeros(self.edges.size - 1)
        self.below = self.above = self.missing = 0.0
        self.low, self.high = np.inf, -np.inf

    @classmethod
    def quantile_edges(cls, sample: ArrayLike, bins: int = 10) -> Histogram:
        """Edges at the quantiles of a sample (ties merged): the usual bins of a stability index."""
        values = finite(sample, "sample").ravel()
        edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
        return cls(edges if edges.size > 1 else np.array([edges[0], edges[0] + 1]))

    @property
    def n(self) -> float:
        """Values counted, those outside the edges included, missing ones not."""
        return float(self.counts.sum() + self.below + self.above)

    def update(self, values: Any, weight: ArrayLike | None = None) -> Histogram:
        """Add values of any shape. NaN counts as missing, infinities as below or above."""
        x = to_numpy(values).ravel()
        w = np.ones_like(x) if weight is None else finite(weight, "weight").ravel()
        missing = np.isnan(x)
        self.missing += float(w[missing].sum())
        x, w = x[~missing], w[~missing]
        place = np.searchsorted(self.edges, x, side="right") - 1
        place[x == self.edges[-1]] = self.edges.size - 2
        self.below += float(w[place < 0].sum())
        self.above += float(w[place >= self.counts.size].sum())
        inside = (place >= 0) & (place < self.counts.size)
        self.counts += np.bincount(place[inside], w[inside], minlength=self.counts.size)
        if x.size:
            self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        return self

    def merge(self, other: Histogram) -> Histogram:
        """Add another's counts. Raises ShapeMismatch for other edges."""
        if self.edges.shape != other.edges.shape or (self.edges != other.edges).any():
            raise ShapeMismatch(
                "Histograms with different edges do not merge", value=f"{self.counts.size}, {other.counts.size}"
            )
        self.counts = self.counts + other.counts
        self.below, self.above = self.below + other.below, self.above + other.above
        self.missing += other.missing
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        return self

    def quantile(self, p: ArrayLike) -> np.ndarray:
        """Quantiles by linear interpolation inside bins; off by at most the width of the bin they fall into.

        Raises UndefinedMetric where nothing was counted, BadOption for p outside [0, 1].
        """
        p = np.asarray(p, dtype=float)
        if p.size and not ((p >= 0) & (p <= 1)).all():
            raise BadOption("A quantile's level lies outside its range", value=float(p.min()), allowed="0 to 1")
        if self.n == 0:
            raise UndefinedMetric("A histogram without values has no quantiles")
        counts = np.concatenate([[self.below], self.counts, [self.above]])
        low, high = min(self.low, self.edges[0]), max(self.high, self.edges[-1])
        edges = np.concatenate([[low], self.edges, [high]])
        cumulative = np.concatenate([[0.0], np.cumsum(counts)]) / self.n
        return np.clip(np.interp(p, cumulative, edges), self.low, self.high)

    def psi(self, other: Histogram, *, floor: float = 1e-4) -> float:
        """Population stability index Σ(a − b)·ln(a/b) over bins, outside ones and missing; shares below `floor` are raised to it.

        Symmetric; 0 for equal shares. Raises UndefinedMetric where one is empty. Source: Lewis (1994); Yurdakul (2018) for its null.
        """
        if (self.edges.shape != other.edges.shape) or (self.edges != other.edges).any():
            raise ShapeMismatch(
                "Histograms with different edges do not compare", value=f"{self.counts.size}, {other.counts.size}"
            )
        shares = []
        for one in (self, other):
            counts = np.concatenate([[one.below], one.counts, [one.above, one.missing]])
            if counts.sum() == 0:
                raise UndefinedMetric("A histogram without values has no stability index")
            shares.append(np.maximum(counts / counts.sum(), floor))
        a, b = shares
        used = (a > floor) | (b > floor)
        return float(((a - b) * np.log(a / b))[used].sum())

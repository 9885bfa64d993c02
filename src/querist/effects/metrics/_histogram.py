"""Uplift numbers of tables beyond memory: counts by score bin, mergeable, with a bound on what the bins hide."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from querist.effects.arrays import column, flags, lengths
from querist.effects.metrics._curves import areas_of
from querist.effects.metrics._named import named_numbers
from querist.effects.metrics._order import Points
from querist.errors import BadOption, UndefinedMetric

__all__ = ["ScoreHistogram"]

BINS = 65_536


class ScoreHistogram:
    """Sums of treated flags and outcomes in bins of equal width between `low` and `high`; scores outside go to the end bins.

    Rows of a bin count as a tie group, so every number is that of the binned score. Filled batch by batch or merged from parts, in
    any order, the counts are the same (outcomes other than whole numbers up to rounding).
    """

    def __init__(self, low: float, high: float, *, bins: int = BINS):
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise BadOption("A histogram needs a range", value=(low, high), allowed="low < high, both finite")
        if bins < 2:
            raise BadOption("A histogram needs bins", value=bins, allowed="2 or more")
        self.low, self.high, self.bins = float(low), float(high), int(bins)
        # n, N_t, Y_t, Y_c, and the squares of the outcomes of treated and controls, by bin.
        self.sums: Float[np.ndarray, "6 bins"] = np.zeros((6, self.bins))
        self.binary = True

    def update(self, y: Any, treated: Any, score: Any) -> ScoreHistogram:
        """Add rows [n]. Raises NonFinite, BadValues, LengthMismatch."""
        y, score, t = column(y, "y"), column(score, "score"), flags(treated)
        lengths(y=y, treated=t, score=score)
        place = np.clip((score - self.low) * (self.bins / (self.high - self.low)), 0, self.bins - 1).astype(np.int64)
        for row, values in zip(self.sums, (None, t, y * t, y * ~t, y**2 * t, y**2 * ~t), strict=True):
            row += np.bincount(place, values, minlength=self.bins)
        self.binary &= bool(((y == 0) | (y == 1)).all())
        return self

    def merge(self, other: ScoreHistogram) -> ScoreHistogram:
        """Add another histogram's rows. Raises BadOption for other bins."""
        mine, theirs = ((h.low, h.high, h.bins) for h in (self, other))
        if mine != theirs:
            raise BadOption("Histograms of other bins do not merge", value=theirs, allowed=f"{mine}")
        self.sums += other.sums
        self.binary &= other.binary
        return self

    def points(self) -> Points:
        """Cumulated n, N_t, Y_t, Y_c from the highest bin that holds rows, opening with zeros."""
        held = self._held()
        return np.concatenate([np.zeros((4, 1)), np.cumsum(held[:4], axis=1)], axis=1)

    def numbers(self) -> dict[str, float | UndefinedMetric]:
        """The numbers of `numbers`, for the binned score. Raises UndefinedMetric where a group is empty."""
        return named_numbers(areas_of([self.points()]), self.binary)

    def qini_bound(self) -> float:
        """The most by which the rate qini of the binned score can differ from that of the score itself.

        In a bin of n_b rows the qini loses the covariance of ψ and rank: by Cauchy and Schwarz at most
        √(Σ(ψ − ψ̄)²·n_b(n_b² − 1)/12)/n². Scores beyond the range are held to the same bound.
        """
        held = self._held()
        n, t, yt, yc, yt2, yc2 = held
        size, treated, total_t, total_c = held[:4].sum(axis=1)
        if not 0 < treated < size:
            raise UndefinedMetric("An uplift metric needs both groups: one is empty")
        e, mean_t, mean_c = treated / size, total_t / treated, total_c / (size - treated)
        tau, c = mean_t - mean_c, n - t
        linear = tau * n + (yt - mean_t * t) / e - (yc - mean_c * c) / (1 - e)
        deviations_t, deviations_c = yt - mean_t * t, yc - mean_c * c
        squares_t = yt2 - 2 * mean_t * yt + mean_t**2 * t
        squares_c = yc2 - 2 * mean_c * yc + mean_c**2 * c
        squares = (
            tau**2 * n
            + 2 * tau * (deviations_t / e - deviations_c / (1 - e))
            + squares_t / e**2
            + squares_c / (1 - e) ** 2
        )
        spread = np.maximum(squares - linear**2 / n, 0.0)
        return float(np.sqrt(spread * n * (n**2 - 1) / 12).sum() / size**2)

    def _held(self) -> Float[np.ndarray, "6 filled"]:
        sums = self.sums[:, ::-1]
        return sums[:, sums[0] > 0]

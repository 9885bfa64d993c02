"""Moments of a stream of rows, mergeable."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from querist.errors import ShapeMismatch
from querist.statistics.arrays import to_numpy

__all__ = ["Moments"]


class Moments:
    """Count, mean and covariance of columns, batch after batch; numpy or torch rows, float64 inside.

    Non-finite entries raise NonFinite through `update` unless `skip_nonfinite`; then each column counts its own. With
    `covariance=False` only variances are kept. Source: Chan, Golub & LeVeque (1983).
    """

    def __init__(self, columns: int, *, covariance: bool = False, skip_nonfinite: bool = False):
        self.columns = columns
        self.covariance = covariance
        self.skip_nonfinite = skip_nonfinite
        self.n = np.zeros(columns)
        self.mean = np.zeros(columns)
        self.m2 = np.zeros((columns, columns) if covariance else columns)
        self.low = np.full(columns, np.inf)
        self.high = np.full(columns, -np.inf)
        if covariance and skip_nonfinite:
            raise ShapeMismatch(
                "A covariance needs whole rows", value="skip_nonfinite=True", mend="Leave one option out"
            )

    def update(self, rows: Any) -> Moments:
        """Add rows [n, columns] (or [n] for one column)."""
        x = to_numpy(rows)
        x = x.reshape(-1, 1) if x.ndim == 1 else x
        if x.ndim != 2 or x.shape[1] != self.columns:
            raise ShapeMismatch("Rows have another number of columns", value=x.shape, allowed=f"[n, {self.columns}]")
        good = np.isfinite(x)
        if not self.skip_nonfinite and not good.all():
            from querist.statistics.arrays import finite

            finite(x, "rows")
        if len(x):
            self.merge(self._of(x, good))
        return self

    def _of(self, x: np.ndarray, good: np.ndarray) -> Moments:
        part = Moments(self.columns, covariance=self.covariance, skip_nonfinite=self.skip_nonfinite)
        part.n = good.sum(axis=0).astype(float)
        filled = np.where(good, x, 0.0)
        part.mean = filled.sum(axis=0) / np.maximum(part.n, 1)
        centred = np.where(good, x - part.mean, 0.0)
        part.m2 = centred.T @ centred if self.covariance else (centred**2).sum(axis=0)
        part.low = np.where(good, x, np.inf).min(axis=0)
        part.high = np.where(good, x, -np.inf).max(axis=0)
        return part

    def merge(self, other: Moments) -> Moments:
        """Add what another has seen; equal to having seen all rows, up to rounding."""
        if other.columns != self.columns or other.covariance != self.covariance:
            raise ShapeMismatch(
                "Moments of different columns do not merge", value=f"{self.columns} and {other.columns}"
            )
        total = self.n + other.n
        safe = np.maximum(total, 1)
        gap = other.mean - self.mean
        if self.covariance:
            self.m2 = self.m2 + other.m2 + np.outer(gap, gap) * (self.n[0] * other.n[0] / safe[0])
        else:
            self.m2 = self.m2 + other.m2 + gap**2 * (self.n * other.n / safe)
        self.mean = self.mean + gap * (other.n / safe)
        self.n = total
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return self

    @property
    def variance(self) -> Float[np.ndarray, "columns"]:
        """Unbiased variances; NaN below two rows."""
        m2 = np.diag(self.m2) if self.covariance else self.m2
        return np.where(self.n > 1, m2 / np.maximum(self.n - 1, 1), np.nan)

    @property
    def sd(self) -> Float[np.ndarray, "columns"]:
        """Standard deviations."""
        return np.sqrt(self.variance)

    @property
    def cov(self) -> Float[np.ndarray, "columns columns"]:
        """Unbiased covariance matrix. Raises ShapeMismatch without `covariance`."""
        if not self.covariance:
            raise ShapeMismatch("Only variances were kept", value="covariance=False", mend="Use covariance=True")
        return self.m2 / max(float(self.n[0]) - 1, 1)

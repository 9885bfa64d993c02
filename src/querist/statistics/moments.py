"""Moments of a stream of rows, mergeable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption, ShapeMismatch
from querist.statistics.arrays import finite

__all__ = ["Moments", "pieces"]

PIECE = 1 << 22
"""Numbers turned to float64 at a time: 32 MiB, whatever the size and dtype of a batch."""


def pieces(values: Any, width: int) -> Iterator[Any]:
    """Slices of the first axis of about PIECE numbers, `width` of them a row, in float64 on the values' own device.

    Devices without float64 (MPS) hand their values to the CPU.
    """
    step = max(1, PIECE // width)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        if hasattr(part, "detach"):
            part = part.detach()
            yield (part.cpu() if part.device.type == "mps" else part).double()
        else:
            yield np.asarray(part, dtype=float)


class Moments:
    """Count, mean, variance (with `covariance` also covariances), least and largest of columns, batch after batch.

    numpy or torch rows of any dtype, summed in float64 on their own device and kept as numpy; a batch is never copied whole.
    A value that is not finite raises NonFinite; with `skip_nonfinite` it is left out, and each column counts its own `n`.

    Source: Chan, Golub & LeVeque (1983).
    """

    def __init__(self, columns: int, *, covariance: bool = False, skip_nonfinite: bool = False):
        if columns < 1:
            raise BadOption("Moments need columns", value=columns, allowed="1 or more")
        if covariance and skip_nonfinite:
            raise BadOption("A covariance needs whole rows", value="skip_nonfinite", mend="Leave one option out")
        self.columns = columns
        self.covariance = covariance
        self.skip_nonfinite = skip_nonfinite
        self.n = np.zeros(columns)
        self.mean = np.zeros(columns)
        self.m2 = np.zeros((columns, columns) if covariance else columns)
        self.low = np.full(columns, np.inf)
        self.high = np.full(columns, -np.inf)

    def update(self, rows: Any) -> Moments:
        """Add rows [n, columns] (or [n] for one column); returns itself. Raises NonFinite, ShapeMismatch."""
        rows = rows if hasattr(rows, "detach") else np.asarray(rows)
        rows = rows.reshape(-1, 1) if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[1] != self.columns:
            raise ShapeMismatch(
                "Rows have another number of columns", value=tuple(rows.shape), allowed=f"[n, {self.columns}]"
            )
        batch = self._empty()
        for part in pieces(rows, self.columns):
            batch.merge(self._of(part))
        return self.merge(batch)  # only now, when all of the batch is known to be finite

    def _empty(self) -> Moments:
        return Moments(self.columns, covariance=self.covariance, skip_nonfinite=self.skip_nonfinite)

    def _of(self, x: Any) -> Moments:
        part = self._empty()
        sums = [v.cpu().numpy() for v in self._sums_torch(x)] if hasattr(x, "detach") else self._sums_numpy(x)
        part.n, part.mean, part.m2, part.low, part.high = sums
        return part

    def _sums_numpy(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        good = np.isfinite(x)
        if good.all():
            mean = x.mean(axis=0)
            centred = x - mean
            m2 = centred.T @ centred if self.covariance else np.einsum("ij,ij->j", centred, centred)
            return np.full(self.columns, float(len(x))), mean, m2, x.min(axis=0), x.max(axis=0)
        if not self.skip_nonfinite:
            finite(x, "rows")
        n = good.sum(axis=0).astype(float)
        mean = np.where(good, x, 0.0).sum(axis=0) / np.maximum(n, 1)
        centred = np.where(good, x, mean) - mean
        low, high = np.where(good, x, np.inf).min(axis=0), np.where(good, x, -np.inf).max(axis=0)
        return n, mean, np.einsum("ij,ij->j", centred, centred), low, high

    def _sums_torch(self, x: Any) -> tuple[Any, ...]:
        good = x.isfinite()
        if not self.skip_nonfinite and not bool(good.all()):
            finite(x, "rows")
        n = good.sum(0).double()
        mean = x.where(good, 0.0).sum(0) / n.clamp(min=1)
        centred = x.where(good, mean) - mean
        m2 = centred.T @ centred if self.covariance else (centred**2).sum(0)
        return n, mean, m2, x.where(good, np.inf).amin(0), x.where(good, -np.inf).amax(0)

    def merge(self, other: Moments) -> Moments:
        """Add what another has seen: equal to having seen all rows, up to rounding. Returns itself; raises ShapeMismatch."""
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
        """Standard deviations; NaN below two rows."""
        return np.sqrt(self.variance)

    @property
    def cov(self) -> Float[np.ndarray, "columns columns"]:
        """Unbiased covariance matrix; NaN below two rows. Raises BadOption without `covariance`."""
        if not self.covariance:
            raise BadOption("Only variances were kept", value="covariance=False", mend="Use covariance=True")
        n = float(self.n[0])
        return self.m2 / (n - 1) if n > 1 else np.full(self.m2.shape, np.nan)

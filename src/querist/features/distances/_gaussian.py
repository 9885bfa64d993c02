"""Distances of first and second moments: Gaussian (Bures, Fréchet) and spectrum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, BadValues, NumericalFailure, ShapeMismatch
from querist.features.arrays import device_rows, line, on_device, pair, rows, same_width
from querist.features.distances._distance import Distance
from querist.features.errors import DimensionMismatch
from querist.features.moments import moments

__all__ = ["bures", "clamped", "gaussian_w2", "gaussian_w2_moments", "root", "spectrum_distance"]

TOLERANCE = 1e-8
"""Of the scale (the sum of the traces): a squared distance this far below 0 is rounding, further down it is a failure."""
ROWS_PER_UNIT = 10


def gaussian_w2(X: Any, Y: Any, ddof: int = 1) -> Distance:
    """W_2 between the Gaussian laws with the moments of X and Y, in the unit of the rows; `power` is the usual squared number.

    X: (n, d), Y: (m, d). ddof: 1 divides covariances by n − 1; 0 by n, as must be wherever this is compared with an empirical
    W_2, of which it is then a lower bound. A set with no more rows than units has its d x d matrix never formed. The estimate is
    biased upwards by the noise of the covariances, about in proportion to d²/n: below ten rows per unit a warning says so.

    Raises ShapeMismatch, DimensionMismatch, TooFewRows, NonFinite, BadOption, NumericalFailure.
    Source: Dowson & Landau (1982); Gelbrich (1990) for the bound.
    """
    least = _least(ddof)
    if on_device(X, Y):
        X, Y = device_rows(X, "X", least), device_rows(Y, "Y", least)
        same_width(X, Y)
    else:
        X, Y = pair(X, Y, least=least)
    n, m, d = len(X), len(Y), int(X.shape[1])
    by_rows = min(n, m) <= d
    power = _from_rows(_host(X), _host(Y), ddof) if by_rows else _from_moments(*moments(X, ddof), *moments(Y, ddof))
    warnings = ()
    if min(n, m) < ROWS_PER_UNIT * d:
        warnings = (
            f"{min(n, m)} rows for {d} units: a Gaussian distance of so few rows is biased upwards; read its null.",
        )
    return Distance(math.sqrt(power), power, 2.0, None, n, m, d, f"Gaussian, ddof {ddof}", warnings)


def gaussian_w2_moments(m1: ArrayLike, S1: ArrayLike, m2: ArrayLike, S2: ArrayLike) -> float:
    """W_2 (not squared) between Gaussian laws with means m1, m2 (d,) and covariances S1, S2 (d, d).

    Raises ShapeMismatch, DimensionMismatch, NonFinite, BadValues for a covariance that is not symmetric or has a negative
    eigenvalue, NumericalFailure.
    """
    a, b = line(m1, "m1"), line(m2, "m2")
    if a.size != b.size:
        raise DimensionMismatch("m1 and m2 have different units", value=f"{a.size} and {b.size}", allowed="one width")
    return math.sqrt(_from_moments(a, _covariance(S1, a.size, "S1"), b, _covariance(S2, b.size, "S2")))


def spectrum_distance(X: Any, Y: Any, ddof: int = 1) -> float:
    """(Σ_i (√λ_i − √μ_i)²)^(1/2) of the covariances' eigenvalues, both descending, the shorter padded with zeros.

    X: (n, d), Y: (m, d'), widths may differ: it is the covariance part of the Gaussian distance minimised over all
    rotations, hence for nets whose units are not matched. In the unit of the rows; means do not enter.

    Raises ShapeMismatch, TooFewRows, NonFinite, BadOption.
    """
    least = _least(ddof)
    a = deviations(rows(X, "X", least=least), ddof)
    b = a if Y is X else deviations(rows(Y, "Y", least=least), ddof)
    size = max(a.size, b.size)
    gap = np.pad(a, (0, size - a.size)) - np.pad(b, (0, size - b.size))
    return float(np.linalg.norm(gap))


def deviations(X: Float[np.ndarray, "n d"], ddof: int) -> Float[np.ndarray, "k"]:
    """Square roots of the covariance's eigenvalues, descending: standard deviations along its axes; at most min(n, d)."""
    n, d = X.shape
    if n <= d:
        return np.linalg.svd(_centred(X), compute_uv=False) / math.sqrt(n - ddof)
    return np.sqrt(np.clip(np.linalg.eigvalsh(moments(X, ddof)[1])[::-1], 0, None))


def _from_moments(m1: np.ndarray, S1: np.ndarray, m2: np.ndarray, S2: np.ndarray) -> float:
    shift = m1 - m2
    return float(shift @ shift) + bures(root(S1), S1, S2)


def root(S: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """A matrix R with R Rᵀ = S, columns ascending in length; eigenvalues below 0 count as 0."""
    values, vectors = np.linalg.eigh(S)
    return vectors * np.sqrt(np.clip(values, 0, None))


def bures(R1: Float[np.ndarray, "d d"], S1: Float[np.ndarray, "d d"], S2: Float[np.ndarray, "d d"]) -> float:
    """tr S1 + tr S2 − 2 tr (S1^½ S2 S1^½)^½, with R1 = root(S1): R1ᵀ S2 R1 has the inner matrix's eigenvalues.

    No matrix square root is ever taken: its iteration fails on singular covariances.
    """
    if S1 is S2 or np.array_equal(S1, S2):
        return 0.0
    inner = R1.T @ S2 @ R1
    values = np.linalg.eigvalsh((inner + inner.T) / 2)
    return clamped(np.trace(S1) + np.trace(S2), 2 * float(np.sqrt(np.clip(values, 0, None)).sum()))


def clamped(scale: float, cross: float) -> float:
    """scale − cross, which cannot be negative but for rounding. Raises NumericalFailure further below 0 than that."""
    value = float(scale) - float(cross)
    if value < -TOLERANCE * float(scale) or not math.isfinite(value):
        raise NumericalFailure(
            f"The Gaussian distance came out as {value:g} of a scale of {scale:g}; it cannot be negative."
        )
    return max(value, 0.0)


def _from_rows(X: np.ndarray, Y: np.ndarray, ddof: int) -> float:
    """Where a covariance is singular: tr (S1^½ S2 S1^½)^½ is the nuclear norm of A Bᵀ for any factors AᵀA = S1, BᵀB = S2.

    Centred rows over √(n − ddof) are such a factor, without a d x d matrix; and eigenvalues that should be 0 add no roots of
    their rounding errors.
    """
    if X is Y or np.array_equal(X, Y):
        return 0.0
    shift = X.mean(axis=0, dtype=np.float64) - Y.mean(axis=0, dtype=np.float64)
    a, b = _factor(X, ddof), _factor(Y, ddof)
    cross = np.linalg.svd(a @ b.T, compute_uv=False).sum()
    return float(shift @ shift) + clamped(float((a * a).sum() + (b * b).sum()), 2 * float(cross))


def _factor(X: np.ndarray, ddof: int) -> Float[np.ndarray, "k d"]:
    n, d = X.shape
    return _centred(X) / math.sqrt(n - ddof) if n <= d else root(moments(X, ddof)[1]).T


def _centred(X: np.ndarray) -> Float[np.ndarray, "n d"]:
    return X - X.mean(axis=0, dtype=np.float64)


def _host(X: Any) -> np.ndarray:
    return X.cpu().numpy() if hasattr(X, "detach") else X


def _least(ddof: Any) -> int:
    if isinstance(ddof, bool) or ddof not in (0, 1):
        raise BadOption("A covariance divides by n or n − 1", value=ddof, allowed="ddof of 0 or 1")
    return 1 + int(ddof)


def _covariance(S: Any, d: int, name: str) -> Float[np.ndarray, "d d"]:
    matrix = rows(S, name).astype(np.float64)
    if matrix.shape != (d, d):
        raise ShapeMismatch(f"{name} does not fit its mean", value=matrix.shape, allowed=f"({d}, {d})")
    largest = float(np.abs(matrix).max())
    if float(np.abs(matrix - matrix.T).max()) > 1e-6 * largest:
        raise BadValues(
            f"{name} is not symmetric", value=float(np.abs(matrix - matrix.T).max()), allowed="a covariance"
        )
    matrix = (matrix + matrix.T) / 2
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -1e-6 * largest:
        raise BadValues(
            f"{name} has a negative eigenvalue", value=lowest, allowed="a covariance, eigenvalues of 0 or more"
        )
    return matrix

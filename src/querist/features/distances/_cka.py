"""Linear CKA, biased and unbiased."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.errors import ShapeMismatch, UndefinedMetric
from querist.features.arrays import rows

__all__ = ["cka"]


def cka(X: Any, Y: Any, unbiased: bool = True) -> float:
    """Linear centred kernel alignment of two representations of the same rows; 1 for equal ones up to rotation and scale.

    X: (n, d), Y: (n, d'), row i of both from the same input. The unbiased estimate may be below 0 and is never clipped; the
    biased one grows with d/n whatever the rows hold. float64; neither a matrix of rows by rows nor one of all units by all
    units is kept where the other is smaller.

    Raises ShapeMismatch for another number of rows, TooFewRows below 4 rows (2 for the biased), NonFinite, UndefinedMetric
    for a constant representation.
    Source: Kornblith et al. (2019); unbiased HSIC of Song et al. (2012).
    """
    least = 4 if unbiased else 2
    X = rows(X, "X", least=least)
    Y = rows(Y, "Y", least=least)
    if len(X) != len(Y):
        raise ShapeMismatch(
            "CKA compares representations of the same rows",
            value=f"{len(X)} and {len(Y)} rows",
            allowed="one number of rows",
            mend="Take both from the same inputs in the same order",
        )
    a, b = _centred(X, "X"), _centred(Y, "Y")
    both, of_a, of_b = (_hsic(u, v, unbiased) for u, v in ((a, b), (a, a), (b, b)))
    if not (of_a > 0 and of_b > 0):
        raise UndefinedMetric(
            "CKA has no value: too few rows to tell a representation's similarity to itself from chance"
        )
    return both / math.sqrt(of_a) / math.sqrt(of_b)


def _centred(X: np.ndarray, name: str) -> Float[np.ndarray, "n d"]:
    largest = float(np.abs(X).max())
    X = X - X.mean(axis=0, dtype=np.float64)
    size = float(np.linalg.norm(X))
    if size <= 8 * np.finfo(np.float64).eps * largest * math.sqrt(X.size):  # no more than the rounding of the mean
        raise UndefinedMetric(f"CKA has no value: {name} is constant over the rows")
    return X / size * math.sqrt(len(X))


def _hsic(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "n e"], unbiased: bool) -> float:
    """HSIC of two linear kernels of centred rows, up to a factor that depends on n alone.

    With centred rows the row sums of the kernels are 0, so without their diagonals they are minus the diagonals: all that the
    unbiased estimate needs is ‖aᵀb‖² and the diagonals. (The estimate does not change when rows are centred.)
    """
    n = len(a)
    square = _cross(a, b)
    if not unbiased:
        return square
    k, l = np.einsum("ij,ij->i", a, a), np.einsum("ij,ij->i", b, b)  # noqa: E741
    dot = float(k @ l)
    return square - dot + float(k.sum()) * float(l.sum()) / ((n - 1) * (n - 2)) - 2 / (n - 2) * dot


def _cross(a: np.ndarray, b: np.ndarray) -> float:
    """‖aᵀb‖² = Σ (aaᵀ)∘(bbᵀ), by the smaller matrices."""
    n = len(a)
    if a.shape[1] * b.shape[1] <= n * n:
        product = a.T @ b
        return float(np.vdot(product, product))
    return float(np.vdot(a @ a.T, b @ b.T))

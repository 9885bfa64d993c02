"""How much of one set of directions lies in another, beside what random directions would give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from querist.errors import BadOption, BadValues, ShapeMismatch
from querist.statistics.arrays import as_array, refuse_nonfinite

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

__all__ = [
    "block_average",
    "overlap_matrix",
    "overlap_null",
    "overlap_quantile",
    "principal_angles",
    "subspace_overlap",
]

ORTHONORMAL = 1e-3
"""Largest entry of |AᵀA − I| that passes: float32 singular vectors reach 1e-5, vectors that were never normalised do not."""


def overlap_matrix(
    A: Float[Tensor, "n k"] | ArrayLike, B: Float[Tensor, "n l"] | ArrayLike
) -> Float[np.ndarray, "k l"]:
    """Squared inner products (aᵢᵀbⱼ)² of the orthonormal columns of A [n, k] and B [n, l], in float64.

    Between random directions each entry has mean 1/n (`overlap_null`) and the law Beta(1/2, (n−1)/2) (`overlap_quantile`).

    Raises ShapeMismatch, NonFinite, BadValues for complex or not orthonormal columns.
    """
    a, b = _pair(A, B)
    return (a.T @ b) ** 2


def block_average(O: Float[ArrayLike, "k l"], size: int = 64) -> Float[np.ndarray, "r c"]:  # noqa: E741
    """Means over blocks of nearly equal sides, so that at most `size` rows and columns are left.

    A matrix that fits is returned as a copy. The mean over all entries is kept where the sides are multiples of `size`.
    Raises BadOption for size < 1, ShapeMismatch for anything but a non-empty matrix.
    """
    if size < 1:
        raise BadOption("`size` counts blocks", value=size, allowed="1 or above")
    cells = np.array(as_array(O), dtype=float)
    if cells.ndim != 2 or not cells.size:
        raise ShapeMismatch("Blocks are averaged over a matrix", value=f"shape {cells.shape}", allowed="[k, l]")
    for axis, side in enumerate(cells.shape):
        if side > size:
            edges = np.linspace(0, side, size + 1).astype(int)
            sums = np.add.reduceat(cells, edges[:-1], axis=axis)
            cells = sums / np.expand_dims(np.diff(edges), 1 - axis)
    return cells


def subspace_overlap(A: Float[Tensor, "n k"] | ArrayLike, B: Float[Tensor, "n l"] | ArrayLike) -> float:
    """Share of A's span that lies in B's: ‖AᵀB‖_F²/k, between 0 and 1, for orthonormal columns A [n, k], B [n, l].

    Where B's span is random its mean is l/n (`overlap_null`); for k = 1 its law is Beta(l/2, (n−l)/2)
    (`overlap_quantile(u, l, n)`); for larger k it is narrower than that. Raises as `overlap_matrix`.
    """
    a, b = _pair(A, B)
    return float(min(np.sum((a.T @ b) ** 2) / a.shape[1], 1.0))


def overlap_null(k: int, l: int, side: int) -> float:  # noqa: E741 - the two dimensions of the docstring's spans
    """Mean of `subspace_overlap` between a k- and an l-dimensional span of which one is random in `side` dimensions: l/side.

    It does not depend on k. `overlap_null(1, 1, side)` = 1/side is the mean of a single squared inner product.
    Raises BadOption.
    """
    _dimension("k", k, side)
    return _dimension("l", l, side) / side


def overlap_quantile(u: ArrayLike, k: int, side: int) -> Float[np.ndarray, "..."]:
    """Quantiles of the squared length of a random unit vector's projection on a k-dimensional span in `side` dimensions.

    Beta(k/2, (side−k)/2); k = 1 is the law of the squared inner product of two directions. u: levels in [0, 1], any
    shape; the quantiles have that shape. Raises BadOption.

    Source: the squared entries of a uniform unit vector are Dirichlet(1/2, …, 1/2).
    """
    from scipy.special import betaincinv

    levels = np.asarray(u, dtype=float)
    if not ((levels >= 0) & (levels <= 1)).all():
        raise BadOption("A level lies outside its range", value=u, allowed="0 <= u <= 1")
    if _dimension("k", k, side) == side:
        return np.ones_like(levels)
    return np.asarray(betaincinv(k / 2, (side - k) / 2, levels))


def principal_angles(
    A: Float[Tensor, "n k"] | ArrayLike, B: Float[Tensor, "n l"] | ArrayLike
) -> Float[np.ndarray, "min(k,l)"]:
    """Principal angles between the spans of orthonormal A [n, k] and B [n, l], in radians, ascending.

    Angles below 45° are taken from their sines (singular values of the part of B outside A), the rest from their cosines:
    arccos alone loses half of the digits of a small angle. Raises as `overlap_matrix`.

    Source: Björck & Golub (1973); Knyazev & Argentati (2002).
    """
    a, b = (np.linalg.qr(columns)[0] for columns in _pair(A, B))
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    inner = a.T @ b
    cosines = np.clip(np.linalg.svd(inner, compute_uv=False), 0.0, 1.0)
    sines = np.clip(np.linalg.svd(b - a @ inner, compute_uv=False)[::-1], 0.0, 1.0)
    return np.where(cosines > np.sqrt(0.5), np.arcsin(sines), np.arccos(cosines))


def _pair(A: Any, B: Any) -> tuple[np.ndarray, np.ndarray]:
    a, b = _columns(A, "A"), _columns(B, "B")
    if a.shape[0] != b.shape[0]:
        raise ShapeMismatch(
            "Directions of different spaces have no overlap",
            value=f"A of shape {a.shape}, B of shape {b.shape}",
            allowed="[n, k] and [n, l]",
        )
    return a, b


def _columns(values: Any, name: str) -> np.ndarray:
    array = as_array(values)
    if array.ndim != 2 or not array.size or array.shape[1] > array.shape[0]:
        raise ShapeMismatch(
            f"{name} must hold orthonormal columns",
            value=f"an array of shape {array.shape}",
            allowed="[n, k] with 1 <= k <= n",
        )
    if array.dtype.kind not in "fiu":
        raise BadValues(f"{name} must be real", value=str(array.dtype), allowed="a floating-point dtype")
    columns = refuse_nonfinite(np.asarray(array, dtype=np.float64), name)
    error = float(np.abs(columns.T @ columns - np.eye(columns.shape[1])).max())
    if error > ORTHONORMAL:
        raise BadValues(
            f"The columns of {name} are not orthonormal",
            value=f"largest entry of |AᵀA − I| {error:.3g}",
            allowed=f"at most {ORTHONORMAL:g}",
            mend="Take a QR decomposition first",
        )
    return columns


def _dimension(name: str, value: int, side: int) -> int:
    if not 1 <= value <= side:
        raise BadOption(f"`{name}` is the dimension of a span in {side} dimensions", value=value, allowed="1 to side")
    return value

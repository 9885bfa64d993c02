"""Does an update lie along its matrix's leading directions? Overlaps beside those of random directions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from querist.statistics import stream
from querist.weights.delta._matrices import frobenius
from querist.weights.overlaps import overlap_matrix, principal_angles
from querist.weights.spectrum import Blocks, Triplets, product, transposed_product

__all__ = ["Energy", "Side", "energy", "random_angles", "side_overlap", "span_p", "span_quantile"]


@dataclass(frozen=True, slots=True)
class Side:
    """One side (left: outputs, right: inputs) of an update beside its matrix.

    overlap: mean squared length of the update's l leading directions inside the span of the matrix's k leading ones; null:
    its mean for random directions, k/side; p: P(random >= overlap). matrix: the squared inner products [k, l], of random
    mean 1/side. angles: principal angles in degrees, ascending.
    """

    overlap: float
    null: float
    p: float
    side: int
    matrix: Float[np.ndarray, "k l"]
    angles: Float[np.ndarray, "l"]


def side_overlap(W: Float[ArrayLike, "side k"], D: Float[ArrayLike, "side l"]) -> Side:
    """Overlap of the update's directions D with the matrix's W: orthonormal columns, l <= k < side."""
    squared = overlap_matrix(W, D)
    k, l = squared.shape  # noqa: E741
    side = int(np.shape(W)[0])
    overlap = min(1.0, float(squared.sum()) / l)
    angles = np.degrees(principal_angles(W, D))
    return Side(overlap, k / side, span_p(overlap, k, l, side), side, squared, angles)


def span_p(overlap: float, k: int, l: int, side: int) -> float:  # noqa: E741
    """P(overlap of a random l-dimensional span with k fixed directions >= overlap) in `side` dimensions.

    The mean is k/side and the variance 2k(n−k)(n−l)/(l·n²(n−1)(n+2)), n = side; a Beta law with these two. Exact for l = 1,
    where it is Beta(k/2, (n−k)/2).

    Source: moments of ‖AᵀQB‖_F² for Haar Q; the Beta law with these moments is ours, held to simulation by a test.
    """
    from scipy.special import betainc

    shape = _beta(k, l, side)
    if shape is None:
        return float(overlap <= k / side)
    # The upper tail by the symmetry of the incomplete beta function: 1 − F would end at 1e-16.
    return float(betainc(shape[1], shape[0], 1 - min(max(overlap, 0.0), 1.0)))


def span_quantile(u: float, k: int, l: int, side: int) -> float:  # noqa: E741
    """The overlap that a random span stays below with probability u: the inverse of `span_p`."""
    from scipy.special import betaincinv

    shape = _beta(k, l, side)
    return k / side if shape is None else float(betaincinv(*shape, u))


def _beta(k: int, l: int, n: int) -> tuple[float, float] | None:  # noqa: E741
    """The law's two parameters; None where the overlap cannot vary."""
    if k >= n or l >= n:
        return None
    mean = k / n
    variance = 2 * k * (n - k) * (n - l) / (l * n * n * (n - 1) * (n + 2))
    size = mean * (1 - mean) / variance - 1
    return mean * size, (1 - mean) * size


DRAWS = 400


@lru_cache(maxsize=512)
def random_angles(k: int, l: int, side: int) -> Float[np.ndarray, "3 l"]:  # noqa: E741
    """.05, .5 and .95 quantiles of the principal angles, in degrees, of a random l-dimensional span with k fixed directions.

    Simulated from 400 spans: cos² are the eigenvalues of G(G + H)⁻¹ with Wishart G (k degrees of freedom) and H (side − k),
    drawn by their triangular factors. l <= k <= side − l.

    Source: Bartlett (1934); James (1954).
    """
    rng = stream(0, "angles", k, l, side)
    inside = rng.standard_normal((DRAWS, k, l))
    G = inside.transpose(0, 2, 1) @ inside
    R = np.triu(rng.standard_normal((DRAWS, l, l)), 1)
    freedom = side - k - np.arange(l)
    R[:, np.arange(l), np.arange(l)] = np.sqrt(rng.chisquare(freedom, (DRAWS, l)))
    H = R.transpose(0, 2, 1) @ R
    root = np.linalg.inv(np.linalg.cholesky(G + H))
    cosines = np.linalg.eigvalsh(root @ G @ root.transpose(0, 2, 1))[:, ::-1]
    angles = np.degrees(np.arccos(np.sqrt(np.clip(cosines, 0.0, 1.0))))
    return np.quantile(angles, (0.05, 0.5, 0.95), axis=0)


@dataclass(frozen=True, slots=True)
class Energy:
    """Shares of ‖ΔW‖_F² by where they lie in W: `spikes` inside its s leading directions on both sides, `bulk` outside of
    them on both sides. spikes_null, bulk_null: the same of an update without a preferred direction."""

    spikes: float
    bulk: float
    spikes_null: float
    bulk_null: float


def energy(update: Tensor | Blocks | Triplets, spikes: Triplets) -> Energy:
    """Energy of an update (a matrix [h, d], held or streamed, or its triplets) in the spikes of a matrix and outside them.

    P = U·Uᵀ and Q = V·Vᵀ of the s spikes: ‖PΔQ‖² and ‖(I − P)Δ(I − Q)‖² over ‖Δ‖², beside s²/(hd) and (1 − s/h)(1 − s/d).
    """
    U, V = spikes.U, spikes.V
    h, d, s = len(U), len(V), U.shape[1]
    if isinstance(update, Triplets):
        left, right = U.T @ update.U, V.T @ update.V
        total = float(update.S.square().sum())
        inside = float(((left * update.S) @ right.T).square().sum())
        rows, columns = (float((part * update.S).square().sum()) for part in (left, right))
    else:
        seen = product(update, V)
        total, rows = frobenius(update) ** 2, float(transposed_product(update, U).square().sum())
        columns, inside = float(seen.square().sum()), float((U.T @ seen).square().sum())
    if not total > 0:
        return Energy(math.nan, math.nan, s * s / (h * d), (1 - s / h) * (1 - s / d))
    outside = max(0.0, total - rows - columns + inside)
    return Energy(min(1.0, inside / total), outside / total, s * s / (h * d), (1 - s / h) * (1 - s / d))

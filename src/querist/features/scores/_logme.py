"""LogME: the evidence of a Bayesian linear regression of the labels on the features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.features.arrays import classes, rows

__all__ = ["best_evidence", "logme", "logme_of"]

_GRID = 129
_DECADES = 16
_GOLDEN = (math.sqrt(5) - 1) / 2


def logme(Z: Any, y: ArrayLike) -> float:
    """Log evidence of the best Bayesian linear regression of each one-hot class column on Z, per row, mean over classes.

    Z: (n, d), not centred, no intercept; y: (n,). The prior precision α of the weights and the precision β of the noise are
    those of the largest evidence. It depends on them through λ = α/β alone once β is solved for, so the maximum is sought
    along one line, from the singular values of Z: a grid over 32 decades, then golden sections. That is the global maximum
    where the usual fixed point α ← γ/m'm, β ← (n − γ)/‖y − Zm‖² can stop at another, or drift for ever towards α = ∞.

    Raises LabelsNeeded, ShapeMismatch, TooFewRows, NonFinite. Source: You et al. (2021); MacKay (1992) for the evidence.
    """
    return logme_of(Z)(y)


def logme_of(Z: Any) -> Callable[[ArrayLike], float]:
    """LogME of these rows as a function of their labels: one singular value decomposition serves all."""
    Z = rows(Z, "Z", least=2)
    n = len(Z)
    u, s, _ = np.linalg.svd(Z.astype(np.float64, copy=False), full_matrices=False)
    kept = s > (s[0] if s.size else 0.0) * max(Z.shape) * np.finfo(np.float64).eps
    u, squares = u[:, kept], s[kept] ** 2

    def score(y: ArrayLike) -> float:
        code, count = classes(y, n)
        sizes = np.bincount(code, minlength=count).astype(float)
        along = np.stack([u[code == k].sum(axis=0) for k in range(count)]) ** 2
        return float(best_evidence(squares, along, sizes, n).mean()) / n

    return score


def best_evidence(
    squares: Float[np.ndarray, "r"], along: Float[np.ndarray, "K r"], total: Float[np.ndarray, "K"], n: int
) -> Float[np.ndarray, "K"]:
    """Largest log evidence of each target. squares: s²; along: squared coordinates of the target on the left singular
    vectors; total: its squared length."""
    if not squares.size:  # Z is 0: the noise explains everything
        return _constant(n) - n / 2 * np.log(total / n)
    outside = np.maximum(total - along.sum(axis=1), 0.0)
    outside[outside < 1e-12 * total] = 0.0  # within the span of Z, but for rounding

    def evidence(log_ratio: np.ndarray) -> np.ndarray:
        """At λ = s²_max·e^log_ratio, [K, g]."""
        ratio = squares[0] * np.exp(log_ratio)[..., None]
        shrink = ratio / (ratio + squares)
        residual = outside[:, None] + np.einsum(
            "kgr,kr->kg", np.broadcast_to(shrink, (len(along), *shrink.shape[1:])), along
        )
        logs = np.log(shrink).sum(axis=-1) / 2
        return _constant(n) + logs - n / 2 * np.log(np.maximum(residual, 1e-300) / n)

    width = _DECADES * math.log(10)
    grid = np.linspace(-width, width, _GRID)
    values = np.concatenate([evidence(part[None, :]) for part in np.array_split(grid, 8)], axis=1)
    at = values.argmax(axis=1)
    low, high = grid[np.maximum(at - 1, 0)], grid[np.minimum(at + 1, _GRID - 1)]
    best = values.max(axis=1)
    for _ in range(60):
        inner = np.stack([high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)], axis=1)
        pair = evidence(inner)
        left = pair[:, 0] > pair[:, 1]
        low, high = np.where(left, low, inner[:, 0]), np.where(left, inner[:, 1], high)
        best = np.maximum(best, pair.max(axis=1))
    return best


def _constant(n: int) -> float:
    return -n / 2 * (math.log(2 * math.pi) + 1)

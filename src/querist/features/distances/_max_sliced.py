"""Max-sliced Wasserstein distance: the direction along which two laws differ most, by gradient ascent from many starts."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from querist.features.arrays import counted, order, pair
from querist.features.distances._directions import random_directions
from querist.features.distances._distance import Distance
from querist.features.distances._one_dim import Knots, knots, sorted_distances

__all__ = ["max_sliced_wasserstein"]

_SCREENED = 256
_STEPS = 500
_SMALL = 1e-9
"""Gain, relative to the value, below which a climb may end, once its angle is below this root as well."""


def max_sliced_wasserstein(X: Any, Y: Any, p: float = 2.0, restarts: int = 8, seed: int = 0) -> Distance:
    """max over directions θ of W_p(θ·x, θ·y), in the unit of the rows: a lower bound of the maximum, found by climbing.

    X: (n, d), Y: (m, d). Of 256 random directions, the difference of means and the leading directions of the difference of
    covariances, the best `restarts` (8 or more) are climbed on the sphere; `direction` is the best end. The maximum over
    directions of two samples of one law is well above 0 and grows with d: it tells nothing without its null, and a warning
    says so. float64 throughout; in one dimension exact.

    Raises ShapeMismatch, DimensionMismatch, TooFewRows, NonFinite, BadOption.
    Source: Deshpande et al. (2019); gradient of the sorted coupling as in Kolouri et al. (2019).
    """
    p = order(p)
    restarts = counted(restarts, "The number of restarts", 8)
    X, Y = (rows.astype(np.float64, copy=False) for rows in pair(X, Y))
    climb = _Climb(X, Y, p)
    starts = _starts(X, Y, seed)
    best = np.argsort(-climb.values(starts), kind="stable")[:restarts]
    ends, values = climb.climb(starts[best])
    winner = int(np.argmax(values))
    value = float(values[winner])
    return Distance(
        value=value,
        power=value**p,
        p=p,
        mc_se=None,
        n=len(X),
        m=len(Y),
        d=X.shape[1],
        method="max-sliced, a lower bound",
        warnings=(
            "A maximum over directions is biased upwards: read it beside the same maximum for two halves of one set.",
        ),
        direction=ends[winner],
    )


def _starts(X: np.ndarray, Y: np.ndarray, seed: int) -> Float[np.ndarray, "s d"]:
    d = X.shape[1]
    starts = [random_directions(d, _SCREENED, seed).vectors]
    shift = X.mean(axis=0) - Y.mean(axis=0)
    if np.linalg.norm(shift) > 0:
        starts.append(shift[None] / np.linalg.norm(shift))
    if 1 < d <= 1024 and min(len(X), len(Y)) > 1:
        values, vectors = np.linalg.eigh(np.cov(X.T) - np.cov(Y.T))
        leading = np.argsort(-np.abs(values))[:4]
        starts.append(vectors[:, leading].T)
    return np.concatenate(starts)


class _Climb:
    """W_p of projections and its gradient for several directions at once."""

    def __init__(self, X: np.ndarray, Y: np.ndarray, p: float):
        self.X, self.Y, self.p = X, Y, p
        n, m = len(X), len(Y)
        self.shared = knots(n, m)
        self.pieces = self.shared or Knots(np.arange(n), np.arange(n), np.full(n, 1 / n))
        # Where the pieces of each sorted row begin: pieces are in order, so a row's share is a run.
        self.runs_x = np.flatnonzero(np.diff(self.pieces.x, prepend=-1))
        self.runs_y = np.flatnonzero(np.diff(self.pieces.y, prepend=-1))

    def values(self, theta: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s"]:
        return sorted_distances(
            np.sort(theta @ self.X.T, axis=1), np.sort(theta @ self.Y.T, axis=1), self.p, self.shared
        )

    def with_gradient(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """W_p of each direction (s,), and its gradient with the coupling held, without its part along the direction."""
        px, py = theta @ self.X.T, theta @ self.Y.T
        by_x, by_y = np.argsort(px, axis=1), np.argsort(py, axis=1)
        xs, ys = np.take_along_axis(px, by_x, 1), np.take_along_axis(py, by_y, 1)
        gap = xs[:, self.pieces.x] - ys[:, self.pieces.y]
        value = sorted_distances(xs, ys, self.p, self.shared)
        scale = np.where(value > 0, value, 1.0)[:, None]
        slope = np.sign(gap) * (np.abs(gap) / scale) ** (self.p - 1) * self.pieces.width
        to_x, to_y = np.empty_like(px), np.empty_like(py)
        np.put_along_axis(to_x, by_x, np.add.reduceat(slope, self.runs_x, axis=1), 1)
        np.put_along_axis(to_y, by_y, np.add.reduceat(slope, self.runs_y, axis=1), 1)
        gradient = to_x @ self.X - to_y @ self.Y
        return value, gradient - (gradient * theta).sum(axis=1, keepdims=True) * theta

    def climb(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Walk along great circles while the value grows by at least a ten-thousandth of what the gradient promises."""
        theta = theta.copy()
        value, gradient = self.with_gradient(theta)
        angle = np.full(len(theta), 0.5)
        alive = np.arange(len(theta))
        for _ in range(_STEPS):
            norm = np.linalg.norm(gradient[alive], axis=1)
            going = (angle[alive] > _SMALL**0.5) | (angle[alive] * norm > _SMALL * value[alive])
            going &= (angle[alive] > 1e-12) & (norm > 0)
            alive, norm = alive[going], norm[going]
            if not alive.size:
                break
            a = angle[alive][:, None]
            moved = np.cos(a) * theta[alive] + np.sin(a) * gradient[alive] / norm[:, None]
            moved /= np.linalg.norm(moved, axis=1, keepdims=True)
            new_value, new_gradient = self.with_gradient(moved)
            better = new_value > value[alive] + 1e-4 * angle[alive] * norm
            chosen = alive[better]
            theta[chosen], value[chosen], gradient[chosen] = moved[better], new_value[better], new_gradient[better]
            angle[alive] = np.where(better, np.minimum(angle[alive] * 2, np.pi / 4), angle[alive] / 2)
        return theta, value

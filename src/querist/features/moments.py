"""Means and covariances of rows and of classes, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.statistics import Moments

__all__ = ["class_moments", "moments", "shrunk"]


def moments(X: Any, ddof: int) -> tuple[Float[np.ndarray, "d"], Float[np.ndarray, "d d"]]:
    """Mean and covariance of finite rows (n, d), numpy or torch on any device, a few megabytes at a time."""
    seen = Moments(int(X.shape[1]), covariance=True).update(X)
    return seen.mean, seen.m2 / (len(X) - ddof)


def shrunk(X: Float[np.ndarray, "n d"], S: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """S drawn towards its mean variance times the identity by Ledoit and Wolf's (2004) weight for these rows."""
    from sklearn.covariance import ledoit_wolf_shrinkage

    weight = float(ledoit_wolf_shrinkage(X.astype(np.float64)))
    return (1 - weight) * S + weight * np.trace(S) / len(S) * np.eye(len(S))


def class_moments(
    X: Float[np.ndarray, "n d"], code: Int[np.ndarray, "n"], count: int
) -> list[tuple[Float[np.ndarray, "d"], Float[np.ndarray, "d d"]]]:
    """Mean and covariance (ddof 1) of each class 0 … count − 1, shrunk in classes of fewer than 2d rows."""
    found = []
    for k in range(count):
        mine = X[code == k]
        mean, S = moments(mine, 1)
        found.append((mean, shrunk(mine, S) if len(mine) < 2 * X.shape[1] else S))
    return found

"""Columns and outcomes as arrays (numbers only, until tables are read by `sources.rows`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Columns", "Encoded", "Outcomes", "columns_of", "prepare_outcomes"]


@dataclass(frozen=True)
class Encoded:
    """Columns as numbers, where they are missing, and category codes."""

    numbers: np.ndarray
    missing: np.ndarray
    codes: np.ndarray


class Columns:
    """How columns become numbers."""

    def __init__(self, names, centre, scale):
        self.names, self.centre, self.scale = tuple(names), centre, scale

    def encode(self, X):
        """z-scores, 0 where missing."""
        z = (np.asarray(X, dtype=float) - self.centre) / self.scale
        missing = np.isnan(z)
        return Encoded(
            np.where(missing, 0, np.clip(z, -8, 8)).astype(np.float32), missing, np.zeros((len(z), 0), dtype=int)
        )

    def dense(self, encoded):
        """One matrix."""
        return encoded.numbers


@dataclass(frozen=True)
class Outcomes:
    """Outcomes with their kinds."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: np.ndarray
    observed: np.ndarray


def columns_of(X: Any, names=None):
    """Columns of an array."""
    X = np.asarray(X, dtype=float)
    sd = np.nanstd(X, axis=0)
    return Columns([f"x{i}" for i in range(X.shape[1])], np.nanmean(X, axis=0), np.where(sd > 0, sd, 1))


def prepare_outcomes(Y: Any, kinds=None):
    """Outcomes of an array."""
    Y = np.asarray(Y, dtype=float)
    Y = Y[:, None] if Y.ndim == 1 else Y
    names = tuple(f"y{i}" for i in range(Y.shape[1]))
    found = (
        tuple("binary" if np.isin(c[~np.isnan(c)], (0, 1)).all() else "continuous" for c in Y.T)
        if kinds is None
        else tuple(kinds.values())
    )
    return Outcomes(names, found, Y, ~np.isnan(Y))

"""Columns and outcomes as arrays (numbers only, until tables are read by `sources.rows`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Outcomes", "prepare_outcomes"]


@dataclass(frozen=True)
class Outcomes:
    """Outcomes with their kinds."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    values: np.ndarray
    observed: np.ndarray


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

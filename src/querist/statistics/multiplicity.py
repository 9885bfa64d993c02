"""Adjustments of p values for families of tests. A null entry (None or NaN) stays null and is not counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import BadValues

__all__ = ["benjamini_hochberg", "holm", "max_t"]


def _split(p: Sequence[float | None] | ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    values = np.array([np.nan if v is None else float(v) for v in np.asarray(p, dtype=object).ravel()], dtype=float)
    known = ~np.isnan(values)
    if ((values[known] < 0) | (values[known] > 1)).any():
        bad = values[known][(values[known] < 0) | (values[known] > 1)][0]
        raise BadValues("A p value lies outside its range", value=float(bad), allowed="0 to 1, or null")
    return values, known


def benjamini_hochberg(p: Sequence[float | None] | ArrayLike) -> np.ndarray:
    """Adjusted p values [n] that control the false discovery rate; NaN where p is null.

    Raises BadValues for a p outside [0, 1]. Source: Benjamini & Hochberg (1995), step-up, as adjusted p.
    """
    values, known = _split(p)
    kept = values[known]
    order = np.argsort(kept)[::-1]
    ranks = np.arange(kept.size, 0, -1)
    adjusted = np.empty_like(kept)
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(kept[order] * kept.size / ranks))
    values[known] = adjusted
    return values


def holm(p: Sequence[float | None] | ArrayLike) -> np.ndarray:
    """Adjusted p values [n] that control the family-wise error rate; NaN where p is null.

    Raises BadValues for a p outside [0, 1]. Source: Holm (1979), step-down, as adjusted p.
    """
    values, known = _split(p)
    kept = values[known]
    order = np.argsort(kept)
    adjusted = np.empty_like(kept)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(kept[order] * np.arange(kept.size, 0, -1)))
    values[known] = adjusted
    return values


def max_t(observed: Mapping[str, float] | ArrayLike, null: Mapping[str, ArrayLike] | ArrayLike) -> np.ndarray:
    """Single-step max-T p values [k]: each statistic against the largest of all statistics in each draw.

    observed: [k]; null: [B, k], every row one joint draw; or both as mappings from name to value and to [B]. NaN in
    `observed` stays NaN, and its column is left out of the maximum. Source: Westfall & Young (1993), section 2.3.
    """
    if isinstance(observed, Mapping):
        names = list(observed)
        columns = null if isinstance(null, Mapping) else dict(zip(names, np.asarray(null, dtype=float).T, strict=True))
        values = np.array([observed[name] for name in names], dtype=float)
        draws = np.column_stack([np.asarray(columns[name], dtype=float) for name in names])
    else:
        values, draws = np.asarray(observed, dtype=float), np.atleast_2d(np.asarray(null, dtype=float))
    known = ~np.isnan(values)
    result = np.full(values.shape, np.nan)
    if known.any():
        largest = draws[:, known].max(axis=1)
        result[known] = (1 + (largest[:, None] >= values[known]).sum(axis=0)) / (1 + len(largest))
    return result

"""Adjustments of p values for families of tests. A null entry (None or NaN) stays null and is not counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch

__all__ = ["benjamini_hochberg", "holm", "max_t"]


def _split(p: Sequence[float | None] | ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(p, np.ndarray) and p.dtype.kind == "f":  # no None in it: a hundred times faster
        values = np.array(p, dtype=float).ravel()
    else:
        values = np.array([np.nan if v is None else float(v) for v in np.asarray(p, dtype=object).ravel()], dtype=float)
    known = ~np.isnan(values)
    outside = known & ~((values >= 0) & (values <= 1))
    if outside.any():
        raise BadValues("A p value lies outside its range", value=float(values[outside][0]), allowed="0 to 1, or null")
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


@overload
def max_t(
    observed: Mapping[str, float | None], null: Mapping[str, ArrayLike], *, standardise: bool = False
) -> dict[str, float]: ...
@overload
def max_t(observed: ArrayLike, null: ArrayLike, *, standardise: bool = False) -> Float[np.ndarray, "k"]: ...
def max_t(observed: Any, null: Any, *, standardise: bool = False) -> Any:
    """Single-step max-T p values: each statistic against the largest of all statistics in each joint draw.

    observed: [k]; null: [B, k], every row one joint draw. Or mappings from name to value and to [B], which give a mapping.
    standardise: first subtract each statistic's mean and divide by its sd over the draws and the observed value together,
    so that no statistic rules the maximum by its scale; as all B + 1 enter alike, p stays valid. A null entry in `observed`
    stays null, and its column is left out of the maximum. Raises ShapeMismatch, NonFinite for a draw that is not finite,
    BadOption without draws.

    Source: Westfall & Young (1993), section 2.3, p as (1 + #)/(1 + B) of Phipson & Smyth (2010).
    """
    if isinstance(observed, Mapping):
        if not isinstance(null, Mapping) or null.keys() != observed.keys():
            raise ShapeMismatch(
                "Statistics and their draws must have the same names",
                value=f"{sorted(observed)} and {sorted(null) if isinstance(null, Mapping) else type(null).__name__}",
                mend="Give one array of draws per name",
            )
        columns = [np.asarray(null[name], dtype=float).ravel() for name in observed]
        if len({column.size for column in columns}) > 1:
            raise ShapeMismatch(
                "All statistics need the same joint draws", value=f"{[column.size for column in columns]} draws"
            )
        draws = np.column_stack(columns) if columns else np.empty((1, 0))
        return dict(zip(observed, _max_t(list(observed.values()), draws, standardise).tolist(), strict=True))
    return _max_t(observed, np.asarray(null, dtype=float), standardise)


def _max_t(observed: Any, draws: np.ndarray, standardise: bool) -> np.ndarray:
    values = np.array([np.nan if v is None else float(v) for v in np.asarray(observed, dtype=object).ravel()], float)
    if draws.ndim != 2 or draws.shape[1] != values.size:
        raise ShapeMismatch(
            "The draws must have one column per statistic", value=draws.shape, allowed=f"[B, {values.size}]"
        )
    if not len(draws):
        raise BadOption("A rank needs at least one draw of the null", value=0, allowed="1 or more")
    known = ~np.isnan(values)
    result = np.full(values.shape, np.nan)
    every = np.vstack([values[known], draws[:, known]])
    if not np.isfinite(every).all():
        raise NonFinite("A rank needs finite values", value=float(every[~np.isfinite(every)][0]))
    if known.any():
        if standardise:
            spread = every.std(axis=0)
            every = (every - every.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        largest = every[1:].max(axis=1)
        result[known] = (1 + (largest[:, None] >= every[0]).sum(axis=0)) / (1 + len(largest))
    return result

"""What every statistic is given: finite arrays, and labels as small integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from querist.errors import NonFinite, ShapeMismatch

__all__ = ["codes", "finite", "same_length", "to_numpy"]


def to_numpy(values: Any) -> np.ndarray:
    """An array or a torch tensor as float64, without importing torch."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=float)


def finite(values: ArrayLike, what: str) -> np.ndarray:
    """float64 values, or NonFinite with the first index of NaN or infinity."""
    array = to_numpy(values)
    bad = ~np.isfinite(array)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        shown = at[0] if len(at) == 1 else at
        raise NonFinite(
            f"{what} must be finite", value=f"{array[at]} at index {shown}", mend="Mend or leave out these rows"
        )
    return array


def same_length(*named: tuple[str, Any]) -> int:
    """The common length, or ShapeMismatch naming both."""
    first, length = named[0][0], len(named[0][1])
    for name, values in named[1:]:
        if values is not None and len(values) != length:
            raise ShapeMismatch(f"{first} and {name} must have the same length", value=f"{length} and {len(values)}")
    return length


def codes(labels: ArrayLike) -> tuple[np.ndarray, int]:
    """Labels of any type as 0 … k − 1, and k."""
    _, inverse = np.unique(np.asarray(labels), return_inverse=True)
    inverse = inverse.reshape(-1)
    return inverse, int(inverse.max()) + 1 if inverse.size else 0

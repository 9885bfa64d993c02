"""What a fit is given: checked, zeros dropped and counted, sorted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.weights.errors import InvalidSpectrum

__all__ = ["checked"]


def checked(evals: ArrayLike) -> tuple[Float[np.ndarray, "n"], int]:
    """Positive values ascending, and how many zeros were dropped.

    Raises InvalidSpectrum for complex, NaN, infinite or negative values, with the first index and value.
    """
    values = np.asarray(evals)
    if np.iscomplexobj(values):
        raise InvalidSpectrum("A spectrum is real", value=str(values.dtype), mend="Fit the absolute squares")
    values = values.astype(float, copy=False).ravel()
    total = float(values.sum())
    lowest = float(values.min()) if values.size else 0.0
    if not (np.isfinite(total) and lowest >= 0):
        bad = ~np.isfinite(values) | (values < 0)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            raise InvalidSpectrum(
                "A spectrum holds a value that no squared singular value has",
                value=f"{values[at]} at index {at}",
                allowed="finite numbers from 0 on",
            )
    if values.size > 1 and (values[1:] < values[:-1]).any():
        values = np.sort(values)
    zeros = int(np.searchsorted(values, 0.0, side="right"))
    return values[zeros:], zeros

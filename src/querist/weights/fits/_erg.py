"""The ERG condition: how many of the largest eigenvalues multiply to one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.weights.errors import InvalidSpectrum
from querist.weights.fits._ladder import log_ratio, positive

__all__ = ["ERG", "erg", "erg_count"]


@dataclass(frozen=True, slots=True)
class ERG:
    """n_erg of a spectrum of n_values; n_erg_null is the count that the null's share means for n_values, None without a null."""

    n_erg: int
    n_values: int
    n_erg_null: float | None = None

    @property
    def share(self) -> float:
        """n_erg over n_values."""
        return self.n_erg / self.n_values

    @property
    def share_null(self) -> float | None:
        """n_erg_null over n_values."""
        return None if self.n_erg_null is None else self.n_erg_null / self.n_values


def erg_count(evals: Float[np.ndarray, "N"]) -> int:
    """With Σλ = N, cumulate ln λ from the top: the count up to and including the first negative sum.

    All N where no sum is negative: then all λ are equal, as the arithmetic mean exceeds the geometric one otherwise. A zero
    has logarithm −∞, so the count ends there at the latest. Raises as `erg`.
    """
    x, zeros = positive(evals)
    if x.size == 0:
        raise InvalidSpectrum(
            "A spectrum of zeros has no ERG count", value=f"{zeros} zeros", allowed="a positive value"
        )
    n = x.size + zeros
    shift = math.log(n) - math.log(float((x / x[-1]).sum()))
    sums = (log_ratio(x)[::-1] + shift).cumsum()
    # Equal values sum to rounding errors of either sign; n·eps·10 is far below the first true term of any spectrum.
    below = sums < -10 * n * np.finfo(float).eps
    return int(below.argmax()) + 1 if below.any() else min(x.size + 1, n)


def erg(evals: ArrayLike, shape: tuple[int, int] | None = None, *, null_evals: ArrayLike | None = None) -> ERG:
    """The count for a spectrum [N], beside that of its null: a random bulk alone gives .73 N to .81 N.

    shape: sides of the matrix, only checked against N. null_evals: eigenvalues of the null in any number and unit, such as the
    Marchenko-Pastur quantiles at (i − ½)/N for the same q; their share counts, times N.

    Raises InvalidSpectrum for negative, NaN, infinite or complex values and where all are zero, and for more values than
    the shorter side of `shape` holds.

    Source: the trace-log condition of Martin & Mahoney (SETOL, 2025); the null is ours.
    """
    values = np.asarray(evals)
    count = erg_count(values)
    if shape is not None and values.size % min(shape):
        raise InvalidSpectrum(
            "The spectrum does not belong to a matrix of this shape",
            value=f"{values.size} values, shape {tuple(shape)}",
            allowed=f"{min(shape)} values, or a multiple where matrices of one shape are pooled",
        )
    null = None
    if null_evals is not None:
        other = np.asarray(null_evals)
        null = erg_count(other) * values.size / other.size
    return ERG(count, int(values.size), null)

"""What every fit starts from: checked positive values in order, their distinct steps, and the log ratios between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.weights.errors import InvalidSpectrum

__all__ = ["Ladder", "Values", "build", "log_over", "log_ratio", "positive"]


class Values(NamedTuple):
    """Positive values, ascending, and how many zeros were left out."""

    x: np.ndarray
    n_dropped: int


def positive(evals: ArrayLike) -> Values:
    """Ascending positive float64 values [N]; zeros are dropped and counted.

    Raises InvalidSpectrum with the index and the value for a negative, NaN, infinite or complex one, and for anything
    that is not one-dimensional and numeric.
    """
    given = np.asarray(evals)
    if given.ndim != 1:
        raise InvalidSpectrum("A spectrum is a vector", value=f"shape {given.shape}", allowed="one dimension")
    if given.size == 0:
        raise InvalidSpectrum("The spectrum is empty", allowed="at least two distinct positive values")
    if given.dtype.kind not in "fiu":
        imaginary = np.imag(given) if given.dtype.kind == "c" else np.zeros(1)
        i = int(np.argmax(imaginary != 0))
        raise InvalidSpectrum(
            "A spectrum holds real numbers", value=f"index {i}: {given[i]} ({given.dtype})", allowed="float or integer"
        )
    x = given.astype(np.float64, copy=False)
    if not (x.min() >= 0 and x.max() < np.inf):
        i = int(np.flatnonzero(~((x >= 0) & (x < np.inf)))[0])
        raise InvalidSpectrum(
            "A spectrum holds finite values that are not negative",
            value=f"index {i}: {x[i]}",
            allowed="0 or above; zeros are dropped and counted",
            mend="Eigenvalues of a Gram matrix that rounding made negative are zeros: clip them before",
        )
    if x.size > 1 and (x[1:] < x[:-1]).any():
        x = np.sort(x)
    n_dropped = int(np.searchsorted(x, 0.0, side="right"))
    return Values(x[n_dropped:], n_dropped)


@dataclass(frozen=True, eq=False)
class Ladder:
    """Distinct values [K], ascending, with what every candidate tail is computed from.

    x: the distinct values; log: ln(x / x[-1]), so never positive; count: how many values lie at or above each (float);
    above: Σ ln(λ/x_i) over the values λ at or above each x_i.
    """

    x: Float[np.ndarray, "K"]
    log: Float[np.ndarray, "K"]
    count: Float[np.ndarray, "K"]
    above: Float[np.ndarray, "K"]

    @property
    def slope(self) -> Float[np.ndarray, "K-1"]:
        """α_i − 1 of the tail at or above each distinct value but the largest."""
        return self.count[:-1] / self.above[:-1]


def build(x: Float[np.ndarray, "N"], start: float | None = None) -> Ladder | None:
    """The ladder of ascending positive values [N]; None where fewer than two distinct values are left.

    With `start`, only values from it on count, and it is the first rung whether or not a value lies there: the candidate 0
    is then the tail with that xmin.

    Log ratios are taken to the largest value, by log1p where the two are close, and Σ ln(λ/x_i) is summed from gaps that
    are all positive: every exponent has a relative error of about N·eps, also for values that agree to ten digits.
    """
    if start is not None:
        x = x[int(np.searchsorted(x, start)) :]
        if x.size and x[0] > start:
            tail = build(x) if x[0] < x[-1] else Ladder(x[-1:], np.zeros(1), np.array([float(x.size)]), np.zeros(1))
            assert tail is not None  # two distinct values, or one that was made here
            return _with_rung(tail, start)
    n = x.size
    if n < 2 or x[0] == x[-1]:
        return None
    count = np.arange(n, 0, -1, dtype=np.float64)
    step = x[1:] != x[:-1]
    if not step.all():
        first = np.concatenate(([0], np.flatnonzero(step) + 1))
        x, count = x[first], count[first]
    log = log_ratio(x)
    gaps = log[1:] - log[:-1]
    gaps *= count[1:]
    above = np.zeros(x.size)
    above[:-1] = gaps[::-1].cumsum()[::-1]
    return Ladder(x, log, count, above)


def _with_rung(tail: Ladder, start: float) -> Ladder:
    below = -float(log_ratio(np.array([start, tail.x[0]]))[0])
    return Ladder(
        np.concatenate(([start], tail.x)),
        np.concatenate(([tail.log[0] - below], tail.log)),
        np.concatenate((tail.count[:1], tail.count)),
        np.concatenate(([tail.above[0] + tail.count[0] * below], tail.above)),
    )


def log_ratio(x: Float[np.ndarray, "N"]) -> Float[np.ndarray, "N"]:
    """ln(x / x[-1]) of ascending positive values; accurate where they are close and where the quotient underflows."""
    top = x[-1]
    near = int(np.searchsorted(x, top / 2))
    log = np.empty_like(x)
    if x[0] / top > 1e-300:
        np.log(x[:near] / top, out=log[:near])
    else:  # the quotient underflows; the difference of logarithms does not
        np.subtract(np.log(x[:near]), np.log(top), out=log[:near])
    np.log1p((x[near:] - top) / top, out=log[near:])
    return log


def log_over(x: Float[np.ndarray, "N"], start: float) -> Float[np.ndarray, "N"]:
    """ln(x / start) of values in any order; accurate where they are close and where the quotient would overflow."""
    y = np.log(x) - np.log(start)
    near = x < 2 * start
    y[near] = np.log1p((x[near] - start) / start)
    return y

"""What every statistic is given: finite arrays, and labels as small integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch

__all__ = [
    "BLOCK",
    "as_array",
    "check_level",
    "codes",
    "compact",
    "finite",
    "in_blocks",
    "index_type",
    "numbered",
    "refuse_nonfinite",
    "same_length",
    "to_numpy",
    "weights_of",
]

BLOCK = 1 << 16
"""Rows that are looked at together where all are: what is worked on beside them stays small."""


def as_array(values: Any) -> np.ndarray:
    """An array or a torch tensor as an array of its own dtype (bfloat16 as float32), without importing torch."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        values = (values.float() if "bfloat16" in str(values.dtype) else values).numpy()
    return np.asarray(values)


def to_numpy(values: Any) -> np.ndarray:
    """An array or a torch tensor as float64."""
    return np.asarray(as_array(values), dtype=float)


def finite(values: Any, what: str) -> np.ndarray:
    """float64 values, or NonFinite with the first index of NaN or infinity."""
    return refuse_nonfinite(to_numpy(values), what)


def refuse_nonfinite(array: np.ndarray, what: str) -> np.ndarray:
    """The array itself; NonFinite where it holds NaN or infinity. Arrays that are not of floats pass."""
    if array.dtype.kind not in "fc":
        return array
    good = np.isfinite(array)
    if not good.all():
        at = np.unravel_index(int(np.argmin(good)), array.shape)
        place = ", ".join(str(int(i)) for i in at)
        raise NonFinite(
            f"{what} must be finite", value=f"{array[at]} at index {place}", mend="Mend or leave out these rows"
        )
    return array


def weights_of(weight: ArrayLike | None, n: int) -> Float[np.ndarray, "n"]:
    """Weights of n rows, ones where none are given. Raises NonFinite, ShapeMismatch, BadValues for a negative one."""
    if weight is None:
        return np.ones(n)
    w = finite(weight, "weight").ravel()
    same_length(("values", range(n)), ("weight", w))
    if (w < 0).any():
        raise BadValues("Weights must not be negative", value=float(w.min()), allowed="0 or more")
    return w


def same_length(*named: tuple[str, Any]) -> int:
    """The common length, or ShapeMismatch naming both."""
    first, length = named[0][0], len(named[0][1])
    for name, values in named[1:]:
        if values is not None and len(values) != length:
            raise ShapeMismatch(
                f"{first} and {name} must have the same length",
                value=f"{length} and {len(values)}",
                mend="Give one entry per row",
            )
    return length


def codes(labels: Any, what: str = "Labels") -> tuple[Int[np.ndarray, "n"], int]:
    """Labels of any type as 0 … k − 1, and k. Raises BadValues where one is missing (None or NaN)."""
    array = as_array(labels).ravel()
    missing = np.zeros(array.size, dtype=bool)
    if array.dtype.kind == "f":
        missing = np.isnan(array)
    elif array.dtype.kind == "O":
        missing = np.array([label is None or label != label for label in array], dtype=bool)
    if missing.any():
        raise BadValues(
            f"{what} must not be missing", value=f"row {int(np.argmax(missing))}", mend="Give every row an id"
        )
    if array.dtype.kind == "O":
        array = np.array([str(label) for label in array])
    known, inverse = numbered(array)
    return inverse, known.size


def numbered(labels: np.ndarray) -> tuple[np.ndarray, Int[np.ndarray, "n"]]:
    """What `np.unique(labels, return_inverse=True)` gives: small whole numbers are counted instead of sorted."""
    if labels.dtype.kind in "iub" and labels.size:
        low = labels.min()
        span = int(labels.max()) - int(low)
        if span <= 2 * labels.size:
            if labels.dtype.itemsize < 8:
                place = labels.astype(np.int64)
                place -= int(low)
            else:
                place = (labels - low).astype(np.int64, copy=False)
            seen = np.bincount(place, minlength=span + 1) > 0
            known = np.flatnonzero(seen).astype(labels.dtype)
            known += low
            return known, place if seen.all() else (np.cumsum(seen) - 1)[place]
    known, inverse = np.unique(labels, return_inverse=True)
    return known, inverse.reshape(-1)


def in_blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """n rows, `size` at a time."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def index_type(n: int) -> type[np.signedinteger]:
    """The type in which numbers of n rows are kept: half the bytes where they go into them."""
    return np.int32 if n < 2**31 else np.int64


def compact(numbers: Int[np.ndarray, "n"], count: int) -> Int[np.ndarray, "n"]:
    """Codes 0 … count − 1 in the smallest signed type that holds them."""
    return numbers.astype(np.result_type(np.int8, np.min_scalar_type(-max(count, 1))), copy=False)


def check_level(level: float) -> None:
    """BadOption unless 0 < level < 1."""
    if not 0 < level < 1:
        raise BadOption("A level lies outside its range", value=level, allowed="0 < level < 1")

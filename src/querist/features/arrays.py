"""What every distance and score is given: finite rows of one float type, weights that sum to one, labels as small integers."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, TooFewRows
from querist.features.errors import BadLabels, BadWeights, DimensionMismatch, LabelsNeeded
from querist.statistics.arrays import as_array, codes

__all__ = ["classes", "common", "counted", "line", "on_device", "order", "pair", "rows", "weights"]


def rows(values: Any, name: str = "X", *, least: int = 1) -> Float[np.ndarray, "n d"]:
    """Rows of units as a float32 or float64 array, not copied where they are one already.

    values: (n, d) numpy, torch (any device), polars or Arrow. Half, bfloat16, 8 and 16 bit integers become float32, wider
    integers float64. Raises ShapeMismatch unless there are two axes, TooFewRows below `least` rows, NonFinite with the count
    and the first rows, BadValues for what is not numbers.
    """
    array = _floats(_table(values), name)
    _two_axes(array, name, least)
    _refuse_nonfinite(array, name)
    return array


def pair(
    X: Any, Y: Any, *, least: int = 1, names: tuple[str, str] = ("X", "Y")
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "m d"]]:
    """Two sets of rows of one width and one float type. Raises DimensionMismatch beside what `rows` raises."""
    left = rows(X, names[0], least=least)
    right = left if Y is X else rows(Y, names[1], least=least)
    same_width(left, right, names)
    return common(left, right)


def common(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both arrays in the wider of their float types."""
    dtype = np.result_type(left, right)
    return left.astype(dtype, copy=False), right.astype(dtype, copy=False)


def same_width(left: Any, right: Any, names: tuple[str, str] = ("X", "Y")) -> None:
    """Raises DimensionMismatch unless both have as many units."""
    if left.shape[1] != right.shape[1]:
        raise DimensionMismatch(
            f"{names[0]} and {names[1]} have different units, which are matched by position",
            value=f"{left.shape[1]} and {right.shape[1]} units",
            allowed="one width",
            mend="Compare nets of other widths by spectrum_distance, by cka, or by their pooled values",
        )


def on_device(*values: Any) -> bool:
    """Are these float tensors on one CUDA device, so that the work may stay there?"""
    return all(hasattr(v, "is_cuda") and v.is_cuda and v.is_floating_point() for v in values) and (
        len({v.device for v in values}) == 1
    )


def device_rows(values: Any, name: str, least: int = 1) -> Any:
    """As `rows`, for a tensor that stays where it is."""
    tensor = values.detach()
    tensor = tensor.float() if tensor.element_size() < 4 else tensor
    _two_axes(tensor, name, least)
    if not bool(tensor.isfinite().all()):
        _refuse_nonfinite(tensor.cpu().numpy(), name)
    return tensor


def line(values: Any, name: str) -> Float[np.ndarray, "n"]:
    """One column of numbers in float64. Raises ShapeMismatch for rows of several, TooFewRows, NonFinite."""
    array = _floats(_table(values), name)
    if array.ndim != 1:
        raise ShapeMismatch(
            f"{name} must be one column of numbers (n,)",
            value=array.shape,
            allowed="(n,)",
            mend="Rows (n, d) go to sliced_wasserstein, per_unit_wasserstein or exact_wasserstein",
        )
    if not array.size:
        raise TooFewRows(f"{name} is empty", value=0, allowed="1 or more")
    _refuse_nonfinite(array, name)
    return array.astype(np.float64, copy=False)


def order(p: Any, *, infinite: bool = False) -> float:
    """The order p of a distance as a float. Raises BadOption outside [1, inf), or [1, inf] where infinity is allowed."""
    number = float(p) if isinstance(p, numbers.Real) and not isinstance(p, bool) else math.nan
    if not number >= 1 or (math.isinf(number) and not infinite):
        raise BadOption(
            "The order of a Wasserstein distance lies outside its range",
            value=p,
            allowed="1 <= p <= inf" if infinite else "1 <= p < inf",
            mend=None if infinite else "p = inf is there for wasserstein_1d and per_unit_wasserstein",
        )
    return number


def counted(value: Any, what: str, least: int = 1) -> int:
    """A whole number of at least `least`, or BadOption."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise BadOption(f"{what} lies outside its range", value=value, allowed=f"a whole number, {least} or more")
    return int(value)


def weights(values: Any, n: int, name: str) -> tuple[Float[np.ndarray, "n"], float]:
    """Weights of n rows that sum to one in float64, and the total they had (n where there are none).

    Raises BadWeights for a negative, NaN or infinite weight (with its index) and where all are zero, ShapeMismatch.
    """
    if values is None:
        return np.full(n, 1.0 / n), float(n)
    w = np.asarray(as_array(values), dtype=np.float64)
    if w.shape != (n,):
        raise ShapeMismatch(f"{name} must hold one weight per row", value=w.shape, allowed=f"({n},)")
    bad = ~(np.isfinite(w) & (w >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise BadWeights(
            f"{name} must be finite and not negative",
            value=f"{w[at]} at index {at}, the sum is {w.sum()}",
            allowed="0 or more",
        )
    largest = float(w.max())
    if largest == 0:
        raise BadWeights(f"{name} must not all be zero", value="the sum is 0.0", allowed="a positive sum")
    share = w / largest  # so that neither a sum of huge weights nor of tiny ones leaves float64
    return share / share.sum(), float(w.sum())


def classes(labels: ArrayLike | None, n: int, name: str = "y", *, least: int = 1) -> tuple[Int[np.ndarray, "n"], int]:
    """Labels of any type as 0 … K − 1, and K. Raises LabelsNeeded, ShapeMismatch, BadLabels for a class below `least` rows."""
    if labels is None:
        raise LabelsNeeded(
            f"{name} is missing: this needs a label for every row", value="None", mend="Give one label per row"
        )
    array = as_array(labels)
    if array.shape not in ((n,), (n, 1)):
        raise ShapeMismatch(f"{name} must hold one label per row", value=array.shape, allowed=f"({n},)")
    code, count = codes(array, "Labels")
    sizes = np.bincount(code, minlength=count)
    if sizes.min() < least:
        small = int(sizes.argmin())
        label = array.ravel()[int(np.argmax(code == small))]
        raise BadLabels(
            f"A class of {name} has too few rows",
            value=f"class {label} has {sizes[small]}",
            allowed=f"{least} or more in each class",
            mend="Leave the class out or add rows",
        )
    return code, count


def _table(values: Any) -> np.ndarray:
    home = type(values).__module__.split(".", 1)[0]
    if home == "pyarrow" and hasattr(values, "columns"):
        return np.column_stack([np.asarray(column) for column in values.columns])
    if home == "polars" or (home == "pyarrow" and not hasattr(values, "detach")):
        return np.asarray(values.to_numpy())
    return as_array(values)


def _floats(array: np.ndarray, name: str) -> np.ndarray:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "f":
        return array if size in (4, 8) else array.astype(np.float32 if size == 2 else np.float64)
    if kind in "biu":
        return array.astype(np.float32 if size <= 2 else np.float64)
    raise BadValues(f"{name} must hold real numbers", value=str(array.dtype), allowed="floats and integers")


def _two_axes(array: Any, name: str, least: int) -> None:
    shape = tuple(array.shape)
    if len(shape) != 2:
        raise ShapeMismatch(
            f"{name} must be rows of units (n, d)",
            value=shape,
            allowed="(n, d)",
            mend="One column (n,) goes to wasserstein_1d, or reshape it to (n, 1)",
        )
    if shape[0] < least:
        raise TooFewRows(f"{name} of shape {shape} has too few rows (n, d)", value=shape[0], allowed=f"{least} or more")
    if shape[1] < 1:
        raise ShapeMismatch(f"{name} has no units", value=shape, allowed="(n, d) with d of at least 1")


def _refuse_nonfinite(array: np.ndarray, name: str) -> None:
    good = np.isfinite(array)
    if good.all():
        return
    bad = np.flatnonzero(~good.reshape(len(array), -1).all(axis=1))
    first = ", ".join(str(row) for row in bad[:5])
    raise NonFinite(
        f"{name} holds NaN or infinity",
        value=f"{int(good.size - np.count_nonzero(good))} values in {bad.size} rows, the first rows: {first}",
        mend="Mend or leave out these rows",
    )

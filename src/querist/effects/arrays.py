"""What every part of the room is given: outcomes, treated flags, scores, and arms as small integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from querist.effects.errors import ArmMissing, ControlAbsent, LengthMismatch, NoControl, NoTreated
from querist.errors import BadValues, ShapeMismatch, TooFewRows, near
from querist.statistics.arrays import as_array, compact, finite, in_blocks, numbered

__all__ = [
    "arm_codes",
    "as_they_appear",
    "codes_among",
    "column",
    "flags",
    "labels_of",
    "lengths",
    "matrix",
]


def column(values: Any, what: str) -> Float[np.ndarray, "n"]:
    """One finite number a row. Raises NonFinite, ShapeMismatch, TooFewRows for none."""
    array = finite(_plain(values), what)
    if array.ndim != 1:
        raise ShapeMismatch(f"{what} must be one column", value=array.shape, allowed="(n,)")
    if not array.size:
        raise TooFewRows(f"{what} has no rows", value=0, allowed="1 or more")
    return array


def matrix(values: Any, what: str, shape: tuple[int | None, ...]) -> Float[np.ndarray, "..."]:
    """Finite numbers of a shape; None leaves an axis free. Raises NonFinite, ShapeMismatch."""
    array = finite(_plain(values), what)
    if array.ndim != len(shape) or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
        shown = ", ".join("any" if want is None else str(want) for want in shape)
        raise ShapeMismatch(f"{what} has another shape", value=array.shape, allowed=f"({shown})")
    return array


def lengths(**named: Any) -> int:
    """The common number of rows. Raises LengthMismatch with the numbers."""
    sizes = {name: len(values) for name, values in named.items() if values is not None}
    if len(set(sizes.values())) > 1:
        raise LengthMismatch(
            "Columns have other numbers of rows",
            value=", ".join(f"{name} {size}" for name, size in sizes.items()),
            mend="Give one entry per row",
        )
    return next(iter(sizes.values()))


def flags(treated: Any) -> Bool[np.ndarray, "n"]:
    """Treated or not, from booleans or 0 and 1. Raises BadValues for anything else, ShapeMismatch."""
    array = as_array(_plain(treated))
    if array.ndim != 1:
        raise ShapeMismatch("treated must be one column", value=array.shape, allowed="(n,)")
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iuf":
        one = array == 1
        if (one | (array == 0)).all():
            return one
    seen = list(dict.fromkeys(array.tolist()))[:5]
    raise BadValues(
        "treated must be a flag of two values",
        value=f"values {seen}",
        allowed="0 and 1, or False and True",
        mend="With several arms give the rows of control and of one arm at a time",
    )


def labels_of(values: Any, what: str) -> np.ndarray:
    """Labels [n] of strings, integers or booleans. Raises ArmMissing for None or NaN, ShapeMismatch."""
    array = as_array(_plain(values))
    if array.ndim != 1:
        raise ShapeMismatch(f"{what} must be one column", value=array.shape, allowed="(n,)")
    missing = np.zeros(array.size, dtype=bool)
    if array.dtype.kind == "f":
        missing = np.isnan(array)
        if (whole := array[~missing]).size and (whole == np.rint(whole)).all() and not missing.any():
            array = array.astype(np.int64)
    elif array.dtype.kind == "O":
        missing = np.array([label is None or label != label for label in array], dtype=bool)
    if missing.any():
        rows = np.flatnonzero(missing)
        raise ArmMissing(
            f"{what} is missing in {rows.size} of {array.size} rows",
            value=f"first at row {rows[0]}",
            allowed="a label in every row",
            mend="Leave these rows out (--drop-missing-arm)",
        )
    if array.dtype.kind == "O":
        kinds = {type(label) for label in array}
        if kinds <= {bool, np.bool_}:
            array = array.astype(bool)
        elif all(issubclass(kind, int | np.integer) for kind in kinds):
            array = array.astype(np.int64)
        else:
            array = np.array([str(label) for label in array])
    return array


def arm_codes(arm: Any, control: Any, arms: Sequence[Any] | None = None) -> tuple[list[Any], Int[np.ndarray, "n"]]:
    """Labels, control first, and the number of each row's arm: 0 for control, 1 … M for the others.

    arms: their labels in the wished order; sorted where left out. Raises ControlAbsent with the nearest spelling, NoControl
    where the named labels leave none, NoTreated, ArmMissing, BadValues for a label outside `arms`.
    """
    array = labels_of(arm, "arm")
    if not array.size:
        raise TooFewRows("arm has no rows", value=0, allowed="1 or more")
    labels, codes = codes_among(*numbered(array), control, arms)
    return labels, codes.astype(np.int64)


def codes_among(
    known: np.ndarray, inverse: Int[np.ndarray, "n"], control: Any, arms: Sequence[Any] | None = None
) -> tuple[list[Any], Int[np.ndarray, "n"]]:
    """`arm_codes` of labels that have been numbered: the distinct ones, sorted, and the place of each row's among them.

    The codes are in the smallest signed type that holds them.
    """
    seen, counts = known.tolist(), np.bincount(inverse)
    shown = ", ".join(f"{label} ({count})" for label, count in zip(seen, counts.tolist(), strict=True))
    control = control.item() if isinstance(control, np.generic) else control
    if control not in seen:
        if arms is not None and control in list(arms):
            raise NoControl("No row is under control", value=control, allowed=f"rows of it beside {shown}")
        raise ControlAbsent(
            "The control is not among the arms",
            value=control,
            allowed=shown,
            mend=f"The nearest label is {near(str(control), map(str, seen), 1)}",
        )
    others = [label for label in seen if label != control] if arms is None else [a for a in arms if a != control]
    if not any(label in seen for label in others):
        raise NoTreated("No row is treated", value=shown, allowed="control and at least one other arm")
    labels = [control, *others]
    strange = [label for label in seen if label not in labels]
    if strange:
        raise BadValues("Rows of an arm that is not listed", value=strange[0], allowed=", ".join(map(str, labels)))
    position = compact(np.array([labels.index(label) for label in seen]), len(labels))
    return labels, position[inverse]


def as_they_appear(codes: Int[np.ndarray, "n"]) -> list[int]:
    """The different numbers among the rows in the order in which they are first met, looked for block by block."""
    found: dict[int, None] = {}
    for part in in_blocks(len(codes)):
        seen, first = np.unique(codes[part], return_index=True)
        found |= dict.fromkeys(seen[np.argsort(first)].tolist())
    return list(found)


def _plain(values: Any) -> Any:
    """Columns of polars, pandas and Arrow as arrays; anything else as it is."""
    if hasattr(values, "to_numpy") and not isinstance(values, np.ndarray):
        try:
            return values.to_numpy()
        except (ValueError, NotImplementedError):  # Arrow: dictionaries and columns with nulls are not zero-copy
            return np.asarray(values.to_pylist(), dtype=object)
    return values

"""What a table of concepts must be: shapes, values, labels and names, checked once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from querist.concepts.errors import DuplicateName
from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, TooFewRows, UnknownName, near
from querist.statistics.arrays import as_array

__all__ = [
    "SPACES",
    "Space",
    "check_values",
    "cut_of",
    "labels_of",
    "same_rows",
    "some",
    "table_of",
    "unique",
]

Space = Literal["hard", "prob", "logit"]
SPACES: tuple[Space, ...] = ("hard", "prob", "logit")
LISTED = 8
"""Names that a message lists before it counts the rest."""


def table_of(concepts: Any) -> np.ndarray:
    """A copy of the concepts as float32 (float64 where given so) [n k]. Raises ShapeMismatch, TooFewRows, BadValues for text."""
    array = as_array(concepts)
    if array.ndim != 2:
        raise ShapeMismatch("Concepts must be a table of rows and columns", value=array.shape, allowed="[n k]")
    if 0 in array.shape:
        raise TooFewRows(
            "The table of concepts is empty", value=str(array.shape), allowed="one row and one column or more"
        )
    if array.dtype.kind not in "biuf":
        raise BadValues(
            "Concepts must be numbers", value=str(array.dtype), mend="Read tables with from_table(one_hot=True)"
        )
    return np.array(array, dtype=np.float64 if array.dtype == np.float64 else np.float32, order="C")


def same_rows(values: np.ndarray, **others: Any) -> None:
    """Raises ShapeMismatch, with every shape, unless all have one entry per row of `values`."""
    shapes = {name: np.shape(other) for name, other in others.items() if other is not None}
    if any(not shape or shape[0] != len(values) for shape in shapes.values()):
        said = ", ".join(f"{name} {shape}" for name, shape in {"concepts": values.shape, **shapes}.items())
        raise ShapeMismatch("Everything must have one entry per row", value=said, mend="Give arrays of one length")


def check_values(values: np.ndarray, names: tuple[str, ...], space: Space) -> None:
    """Raises NonFinite for an infinite value and BadValues for one outside [0, 1] in spaces hard and prob."""
    infinite = np.isinf(values)
    if infinite.any():
        row, column = np.unravel_index(int(np.argmax(infinite)), values.shape)
        raise NonFinite(
            "A concept is infinite", value=f"row {row}, column {names[column]}", allowed="numbers, NaN = unknown"
        )
    outside = (values < 0) | (values > 1)
    if space != "logit" and outside.any():
        row, column = np.unravel_index(int(np.argmax(outside)), values.shape)
        raise BadValues(
            "A concept lies outside [0, 1]: this looks like logits",
            value=f"{values[row, column]:g} in row {row}, column {names[column]}",
            allowed=f"0 to 1 in space {space}",
            mend="Pass space='logit', or scale the values",
        )


def labels_of(given: np.ndarray, class_names: Sequence[Any] | None) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Codes [n] and the classes that they count. Raises ShapeMismatch, BadValues, UnknownName, DuplicateName."""
    if given.ndim != 1:
        raise ShapeMismatch("Labels must be one per row", value=given.shape, allowed="[n]")
    if given.dtype.kind == "f":
        if not np.isfinite(given).all() or (given != np.rint(given)).any():
            odd = given[~np.isfinite(given) | (given != np.rint(given))]
            raise BadValues(
                "Labels must be whole numbers or text", value=float(odd[0]), mend="Leave rows without a label out"
            )
        given = given.astype(np.int64)
    if given.dtype.kind == "O":
        given = np.array([str(label) for label in given])
    if class_names is None:
        known, codes = np.unique(given, return_inverse=True)
        return codes.reshape(-1).astype(np.int64), tuple(known.tolist())
    classes = tuple(class_names)
    unique(classes, "Classes")
    if given.dtype.kind in "iub":
        wrong = (given < 0) | (given >= len(classes))
        if wrong.any():
            raise UnknownName(
                "A label is no position in class_names", value=int(given[wrong][0]), allowed=f"0 to {len(classes) - 1}"
            )
        return given.astype(np.int64), classes
    place = {str(name): code for code, name in enumerate(classes)}
    for label in np.unique(given):
        if str(label) not in place:
            raise UnknownName("A label is not among class_names", value=str(label), allowed=near(str(label), place))
    return np.array([place[str(label)] for label in given], dtype=np.int64), classes


def cut_of(values: np.ndarray, rule: str) -> Any:
    """Where a value becomes 1: a number for all, or a quantile of each concept [k]. Raises BadOption."""
    kind, _, number = rule.rpartition(":")
    try:
        at = float(number)
    except ValueError:
        at = float("nan")
    if kind not in ("", "quantile") or not np.isfinite(at) or (kind and not 0 < at < 1):
        raise BadOption(
            "No such rule to make concepts binary", value=rule, allowed='a number, or "quantile:q" with 0 < q < 1'
        )
    if not kind:
        return at
    known = ~np.isnan(values).all(axis=0)
    cut = np.full(values.shape[1], np.inf)
    cut[known] = np.nanquantile(values[:, known], at, axis=0)
    return cut


def unique(names: Iterable[Any], what: str) -> None:
    """Raises DuplicateName where two have one text."""
    seen: dict[str, int] = {}
    for name in names:
        seen[str(name)] = seen.get(str(name), 0) + 1
    if twice := [name for name, count in seen.items() if count > 1]:
        raise DuplicateName(f"{what} share a name", value=some(twice), mend="Give each its own")


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")

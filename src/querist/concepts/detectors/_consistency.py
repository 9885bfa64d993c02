"""Class-level tables: all rows of a class are equal, so a row that deviates is found exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import ArrayLike

from querist.concepts.data import ConceptData
from querist.errors import ShapeMismatch

__all__ = ["ConsistencyCheck", "consistency_check"]

AGREEING = 0.5
"""Share of rows that must equal their class's commonest row for the table to be class-level."""
MIXED = 0.2
"""Share of classes (one of them always) that may hold a deviating row: a trigger touches the rows of one class, or moves rows to one,
whereas in tables annotated row by row nearly every class varies, even where most rows equal their class's commonest."""


@dataclass(frozen=True, slots=True, eq=False)
class ConsistencyCheck:
    """`deviating` [n] rows, the `cells` [n k] in which they deviate, and the class codes concerned.

    class_level: whether most rows equal the commonest row of their class, and all rows do in four of five classes (of two rows
    or more; in all but one of few classes); where it is False nothing is reported. `undecided`: codes of classes without a commonest
    row (a draw), whose rows cannot be judged without the matrix.
    """

    class_level: bool
    deviating: Bool[np.ndarray, "n"]
    cells: Bool[np.ndarray, "n k"]
    classes: Int[np.ndarray, "c"]
    undecided: Int[np.ndarray, "u"]


def consistency_check(
    data: ConceptData, matrix: ArrayLike | None = None, *, declared: bool = False
) -> ConsistencyCheck:
    """Rows that differ from their class's row in `matrix` [L k], or without one from the commonest row of their class.

    With the matrix every edit is found and nothing else. Without it, a class edited as a whole agrees with itself, and where
    poisoned rows outnumber the honest ones of a class the honest ones deviate: the class is named either way. Unknown cells
    deviate from nothing. declared: whoever gives the table says that it is class-level; then most rows must agree, not most classes.
    Raises ShapeMismatch.
    """
    if matrix is not None:
        truth = np.asarray(matrix, dtype=float)
        if truth.shape != (data.n_classes, data.k):
            raise ShapeMismatch(
                "The matrix must have a row per class", value=truth.shape, allowed=f"({data.n_classes}, {data.k})"
            )
        return _found(data, truth[data.codes], np.zeros(0, dtype=int), True)
    expected = np.full((data.n, data.k), np.nan)
    undecided = []
    for code in np.flatnonzero(data.class_sizes):
        rows = np.flatnonzero(data.codes == code)
        profiles, count = np.unique(data.concepts[rows], axis=0, return_counts=True, equal_nan=True)
        if len(count) > 1 and (count == count.max()).sum() > 1:
            undecided.append(int(code))
        else:
            expected[rows] = profiles[count.argmax()]
    made = _found(data, expected, np.array(undecided, dtype=int), True)
    judged = ~np.isin(data.codes, undecided)
    if not judged.any() or made.deviating[judged].mean() > AGREEING or not (declared or _whole(data, made)):
        nothing = np.zeros((data.n, data.k), dtype=bool)
        return ConsistencyCheck(False, nothing[:, 0], nothing, np.zeros(0, dtype=int), made.undecided)
    return made


def _whole(data: ConceptData, made: ConsistencyCheck) -> bool:
    """Whether nearly all classes agree as a whole; a class of one row agrees with itself, which says nothing."""
    several = np.flatnonzero(data.class_sizes > 1)
    mixed = int(np.isin(several, np.concatenate([made.classes, made.undecided])).sum())
    return len(several) >= 2 and mixed <= max(1, MIXED * len(several))


def _found(data: ConceptData, expected: np.ndarray, undecided: np.ndarray, class_level: bool) -> ConsistencyCheck:
    cells = (data.concepts != expected) & ~np.isnan(data.concepts) & ~np.isnan(expected)
    deviating = cells.any(axis=1)
    return ConsistencyCheck(class_level, deviating, cells, np.unique(data.codes[deviating]), undecided)

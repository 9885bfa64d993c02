"""What all detectors share: they are fitted to a table, say what they found in one form, and are judged only afterwards."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from querist.concepts.data import ConceptData
from querist.concepts.detectors._evaluate import Detection, evaluate
from querist.concepts.triggers import Poisoned, Trigger
from querist.errors import BadOption, UnknownName, near

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Detector", "Findings", "codes_in"]


@dataclass(frozen=True, slots=True, eq=False)
class Findings:
    """Row `scores` [n] (larger is more suspicious, NaN unknown) and `flags` [n]; the `classes` (labels) and `concepts` (names) that
    are named; the detector's `table`; the `pattern` it names, if one; and why nothing could be flagged, or how far flags are to be
    trusted (`reason`), else None.
    """

    data: ConceptData
    scores: Float[np.ndarray, "n"]
    flags: Bool[np.ndarray, "n"]
    classes: tuple[Any, ...]
    concepts: tuple[str, ...]
    table: pl.DataFrame
    pattern: Trigger | None = None
    reason: str | None = None


class Detector:
    """`fit(data, model=None, reference=None)` returns the detector; what it found is in its properties.

    data: the table under suspicion. model: a head or CBM, where the detector reads one. reference: rows that are trusted. None of
    these says where poison is: the truth is given to `evaluate` alone, afterwards. Every property raises BadOption before `fit`.
    """

    method = ""
    _found: Findings | None = None

    @property
    def found(self) -> Findings:
        """Everything at once."""
        if self._found is None:
            raise BadOption(f"{type(self).__name__} has not been fitted", value="no table", mend="Call fit(data) first")
        return self._found

    @property
    def scores(self) -> Float[np.ndarray, "n"]:
        """Suspicion of each row, larger is more; NaN where the detector cannot say."""
        return self.found.scores

    @property
    def flags(self) -> Bool[np.ndarray, "n"]:
        """Rows that are reported."""
        return self.found.flags

    @property
    def classes(self) -> tuple[Any, ...]:
        """Labels of the classes that are named."""
        return self.found.classes

    @property
    def concepts(self) -> tuple[str, ...]:
        """Names of the concepts that are named."""
        return self.found.concepts

    @property
    def table(self) -> pl.DataFrame:
        """The evidence, in the detector's own columns."""
        return self.found.table

    @property
    def reason(self) -> str | None:
        """Why nothing could be flagged, or how far flags are to be trusted; None where the detector could decide."""
        return self.found.reason

    @property
    def rows(self) -> pl.DataFrame:
        """row, id, label, method, score, flag, reason."""
        import polars as pl

        found = self.found
        n = found.data.n
        return pl.DataFrame(
            {
                "row": range(n),
                "id": [None] * n if found.data.ids is None else found.data.ids.tolist(),
                "label": [str(label) for label in found.data.labels],
                "method": [self.method] * n,
                "score": [float(s) if np.isfinite(s) else None for s in found.scores],
                "flag": found.flags.tolist(),
                "reason": [found.reason] * n,
            },
            schema_overrides={"row": pl.Int64, "id": pl.String, "score": pl.Float64, "reason": pl.String},
        )

    def evaluate(self, truth: Poisoned | Bool[np.ndarray, "n"], *, trigger: Trigger | None = None) -> pl.DataFrame:
        """One row: method and the fields of `Detection`. truth: the poisoned rows, or the `Poisoned` that knows them and the trigger.

        Raises ShapeMismatch.
        """
        import polars as pl

        mask = truth.mask if isinstance(truth, Poisoned) else np.asarray(truth, dtype=bool)
        planted = truth.trigger if isinstance(truth, Poisoned) and trigger is None else trigger
        judged = evaluate(self.scores, self.flags, mask, pattern=self.found.pattern, trigger=planted)
        values = {field.name: getattr(judged, field.name) for field in fields(Detection)}
        return pl.DataFrame(
            [{"method": self.method} | values],
            schema={"method": pl.String} | {name: pl.Int64 if name == "flagged" else pl.Float64 for name in values},
        )


def codes_in(data: ConceptData, other: ConceptData) -> np.ndarray:
    """Codes of the other table's rows among the classes of this one. Raises UnknownName for a label that it lacks."""
    place = {str(label): code for code, label in enumerate(data.classes)}
    present = np.unique(other.codes)
    for code in present:
        if str(other.classes[code]) not in place:
            label = str(other.classes[code])
            raise UnknownName("The reference has a class that the table lacks", value=label, allowed=near(label, place))
    return np.array([place.get(str(label), -1) for label in other.classes])[other.codes]

"""What a selector gives back, and the checks that all selectors share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float, Int

from querist.concepts.data import ConceptData
from querist.concepts.triggers._trigger import Trigger
from querist.errors import BadOption

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Selection", "Value", "auto_values", "checked"]

Value = Literal["auto", 0, 1]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A trigger of class code `target` and how it was chosen; arrays [s] in the order of the picks.

    `cnt`: rows of other classes that carry the trigger so far; `saturated_at`: the first step that leaves none (None if no step
    does). `coef_abs` is None where no filter was fitted; `rank_spread`: standard deviation of the filter's ranks over its draws.
    """

    trigger: Trigger
    target: int
    selector: str
    seed: int | None
    mean_in: Float[np.ndarray, "s"]
    mean_out: Float[np.ndarray, "s"]
    cnt: Int[np.ndarray, "s"]
    score: Float[np.ndarray, "s"] | None
    coef_abs: Float[np.ndarray, "s"] | None
    concept_names: tuple[str, ...]
    rank_spread: Float[np.ndarray, "s"] | None = None
    warnings: tuple[str, ...] = ()

    @property
    def saturated_at(self) -> int | None:
        """The step, from 1, at which no row of another class carries the trigger any more."""
        none = np.flatnonzero(self.cnt == 0)
        return int(none[0]) + 1 if none.size else None

    def first(self, size: int) -> Selection:
        """The trigger of the first `size` picks: what the selector gives when it is asked for that size. Raises BadOption."""
        if not 1 <= size <= len(self.trigger):
            raise BadOption("No trigger has this size here", value=size, allowed=f"1 to {len(self.trigger)}")
        cut = {name: getattr(self, name) for name in ("mean_in", "mean_out", "cnt", "score", "coef_abs", "rank_spread")}
        return replace(
            self,
            trigger=Trigger(self.trigger.index[:size], self.trigger.values[:size]),
            **{name: None if values is None else values[:size] for name, values in cut.items()},
        )

    @property
    def table(self) -> pl.DataFrame:
        """step, concept, index, value, coef_abs, mean_in, mean_out, cnt, score, saturated."""
        import polars as pl

        steps = len(self.trigger)
        nothing = [None] * steps
        return pl.DataFrame(
            {
                "step": range(1, steps + 1),
                "concept": [self.concept_names[i] for i in self.trigger.index],
                "index": self.trigger.index,
                "value": self.trigger.values,
                "coef_abs": nothing if self.coef_abs is None else self.coef_abs.tolist(),
                "mean_in": self.mean_in.tolist(),
                "mean_out": self.mean_out.tolist(),
                "cnt": self.cnt.tolist(),
                "score": nothing if self.score is None else self.score.tolist(),
                "saturated": (self.cnt == 0).tolist(),
            },
            schema_overrides={"coef_abs": pl.Float64, "score": pl.Float64, "value": pl.Int64, "index": pl.Int64},
        ).with_columns(pl.col("coef_abs", "mean_in", "mean_out", "score").fill_nan(None))


def checked(data: ConceptData, size: int, constants: str) -> Int[np.ndarray, "u"]:
    """The usable concepts. Raises BadOption unless 1 <= size <= their number."""
    usable = data.usable(constants)
    if not 1 <= size <= len(usable):
        raise BadOption("No trigger has this size here", value=size, allowed=f"1 to {len(usable)}, the usable concepts")
    return usable


def auto_values(data: ConceptData, value: Any) -> Int[np.ndarray, "k"]:
    """The value of each concept: "auto" is 1 in a table whose mean is below ½ (there presence is rare), else 0."""
    if isinstance(value, str):
        if value != "auto":
            raise BadOption("No such value rule", value=value, allowed="auto, 0, 1, or one value per concept")
        return np.full(data.k, int((data.density or 0) < 0.5))
    values = np.asarray(value)
    if values.ndim == 0:
        values = np.full(data.k, values)
    if values.shape != (data.k,) or not np.isin(values, (0, 1)).all():
        raise BadOption("Values must be 0 or 1, one in all or one per concept", value=str(value), allowed=f"[{data.k}]")
    return values.astype(int)


def described(data: ConceptData, trigger: Trigger, target: int, **fields: Any) -> Selection:
    """A selection with its means and counts worked out from the table, where the caller has not got them already."""
    inside = data.codes == target
    cells = data.concepts[:, list(trigger.index)].astype(float)
    match = np.logical_and.accumulate(cells == np.array(trigger.values), axis=1)
    return Selection(
        trigger,
        target,
        mean_in=_means(cells[inside]),
        mean_out=_means(cells[~inside]),
        cnt=match[~inside].sum(axis=0),
        concept_names=data.concept_names,
        **fields,
    )


def _means(cells: np.ndarray) -> np.ndarray:
    known = ~np.isnan(cells)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, cells, 0).sum(axis=0) / np.maximum(count, 1), np.nan)

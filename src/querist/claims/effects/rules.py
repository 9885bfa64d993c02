"""What the rules share: paired contrasts over seeds or splits, what their intervals say together, and one way to draw them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from querist.claims.claim import ClaimVerdict, Judgement, Number
from querist.claims.judging import Direction, side_of, verdict_of
from querist.results.charts import Axes, Chart, Mark, by_depth, stack
from querist.results.figure import Figure
from querist.statistics import Estimate, paired_t

__all__ = ["PAPER", "Contrast", "contrast", "figure", "judge", "least", "mean_of", "panels", "said"]

PAPER = "arXiv 2408.12803."


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference with its 95 % interval over n pairs; without values where there are fewer than two pairs."""

    what: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    p: float | None = None

    @classmethod
    def of(cls, what: str, found: Estimate) -> Contrast:
        """An estimate under a name."""
        return cls(what, found.estimate, found.low, found.high, found.n, found.p)

    def side(self, direction: Direction, bound: float = 0.0) -> bool | None:
        """True where the interval lies wholly on the claimed side of the bound, False on the other, None where it holds it."""
        return side_of(self.low, self.high, bound, direction)

    def number(self, null: float | None = 0.0) -> Number:
        """The contrast as one of the numbers that a rule looked at."""
        return Number(self.what, self.estimate, self.low, self.high, null, self.n)


def contrast(
    what: str,
    rows: pl.DataFrame,
    a: str,
    b: str,
    column: str,
    *,
    log: bool = False,
    by: Sequence[str] = ("repeat",),
    name: str = "model",
) -> Contrast:
    """The column of model a less that of b (of logarithms where log), paired over `by`; pairs that lack a side are left out.

    Rows that agree in `by` and model are meaned first: arms of one split are no independent pairs.
    """
    values = pl.col(column).log() if log else pl.col(column)
    mine = rows.drop_nulls(column).with_columns(value=values)
    one, other = (mine.filter(pl.col(name) == m).group_by(list(by)).agg(pl.col("value").mean()) for m in (a, b))
    both = one.join(other, on=list(by), suffix="_other").sort(list(by))
    x, y = both["value"].to_numpy(), both["value_other"].to_numpy()
    fine = np.isfinite(x) & np.isfinite(y)
    if fine.sum() < 2:
        return Contrast(what, n=int(fine.sum()))
    return Contrast.of(what, paired_t(x[fine], y[fine]))


def mean_of(what: str, values: Iterable[float | None], null: float | None = None) -> Number:
    """The mean of known values as a number, with its interval where there are two."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Number(what, known[0] if known else None, null=null, n=len(known))
    found = paired_t(known, np.zeros(len(known)))
    return Number(what, found.estimate, found.low, found.high, null, found.n)


def least(contrasts: Sequence[Contrast], direction: Direction) -> Contrast | None:
    """The contrast that speaks least for the claim."""
    known = [(one.estimate, place) for place, one in enumerate(contrasts) if one.estimate is not None]
    if not known:
        return None
    return contrasts[(min(known) if direction == "above" else max(known))[1]]


def judge(
    contrasts: Sequence[Contrast],
    direction: Direction,
    because: str,
    numbers: Iterable[Number] = (),
    *,
    bound: float = 0.0,
    verdict: ClaimVerdict | None = None,
) -> Judgement:
    """The judgement of contrasts that must all lie on one side; its estimate is that which speaks least for the claim."""
    told = (*(one.number(bound) for one in contrasts), *numbers)
    worst = least(contrasts, direction)
    decided = verdict or verdict_of([one.side(direction, bound) for one in contrasts])
    if worst is None:
        return Judgement("cannot say", None, None, None, bound, because, numbers=told)
    return Judgement(decided, worst.estimate, worst.low, worst.high, bound, because, worst.p, told)


def said(found: Contrast | Number, form: str = "+.3f") -> str:
    """Estimate and interval in words."""
    value = found.estimate if isinstance(found, Contrast) else found.value
    if value is None:
        return "unknown"
    if found.low is None or found.high is None:
        return f"{value:{form}}"
    return f"{value:{form}} [{found.low:{form}}, {found.high:{form}}]"


def figure(name: str, title: str, caption: str, axis: str, groups: Mapping[str, Contrast], table: str) -> Figure:
    """Contrasts by label with their intervals, beside 0."""
    data, layout = _chart(groups, axis)
    return Figure(name, title, caption, data, layout, table)


def panels(
    name: str, title: str, caption: str, axis: str, groups: Mapping[str, Mapping[str, Contrast]], table: str
) -> Figure:
    """The same, a panel for each group of contrasts."""
    data, layout = stack([(panel, _chart(mine, axis)) for panel, mine in groups.items()])
    return Figure(name, title, caption, data, layout, table)


def _chart(groups: Mapping[str, Contrast], axis: str) -> Chart:
    values = {
        end: [math.nan if (x := getattr(one, end)) is None else x for one in groups.values()]
        for end in ("estimate", "low", "high")
    }
    return by_depth(
        {"difference": values["estimate"]},
        list(groups),
        Axes("", axis),
        low=values["low"],
        high=values["high"],
        marks=[Mark("no difference", 0.0, "y")],
    )

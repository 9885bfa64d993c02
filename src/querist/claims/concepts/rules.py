"""What the rules of several claims share: means over targets and repeats with their bootstrap, and where an interval lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from querist.claims.claim import Judgement, Number
from querist.claims.judging import side_of, verdict_of
from querist.errors import TooFewRows
from querist.statistics import bootstrap

__all__ = ["Interval", "above", "below", "both", "number", "of_cell", "over", "paired", "plain", "said"]

Statistic = Callable[[np.ndarray], float]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval over `n` targets; without ends where one target has none."""

    estimate: float
    low: float | None
    high: float | None
    n: int


def over(rows: pl.DataFrame, column: str, statistic: Statistic | None = None) -> Interval | None:
    """The mean of a column (or another statistic of its values): targets drawn with replacement, then repeats inside each.

    Null values are left out; None where nothing is left.
    """
    rows = rows.drop_nulls(column)
    if not rows.height:
        return None
    of = statistic or _mean
    targets = [f"{table}: {target}" for table, target in rows.select("table", "target").iter_rows()]
    values, ids = rows[column].to_numpy(), [np.array(targets), np.array([str(r) for r in rows["repeat"]])]
    try:
        found = bootstrap(values, of, clusters=ids)
    except TooFewRows:
        return Interval(of(values), None, None, 1)
    return Interval(found.estimate, found.low, found.high, len(set(targets)))


def of_cell(rows: pl.DataFrame, setting: str, selector: str, size: int | None, rate: float, mode: str) -> pl.DataFrame:
    """The rows of one cell; size None: whatever it is."""
    chosen = (pl.col("setting") == setting) & (pl.col("selector") == selector) & (pl.col("mode") == mode)
    chosen &= (pl.col("rate") - rate).abs() < 1e-9
    return rows.filter(chosen if size is None else chosen & (pl.col("size") == size))


def paired(first: pl.DataFrame, second: pl.DataFrame, column: str = "asr") -> pl.DataFrame:
    """Rows table, target, repeat, difference: first less second in the same target and repeat."""
    place = ["table", "target", "repeat"]
    both = first.select(*place, column).join(second.select(*place, column), on=place, suffix="_other")
    return both.sort(place).with_columns(difference=pl.col(column) - pl.col(f"{column}_other"))


def above(found: Interval | None, bound: float) -> bool | None:
    """True where the interval lies above the bound, False where below, None where it holds it or does not exist."""
    return None if found is None else side_of(found.low, found.high, bound)


def below(found: Interval | None, bound: float) -> bool | None:
    """`above` with sides exchanged."""
    return None if found is None else side_of(found.low, found.high, bound, "below")


def number(what: str, found: Interval | None, null: float | None = None) -> Number:
    """An estimate as one of the numbers that a rule looked at."""
    if found is None:
        return Number(what, None, None, None, null, 0)
    return Number(what, found.estimate, found.low, found.high, null, found.n)


def plain(what: str, rows: pl.DataFrame, column: str) -> Number:
    """The mean of a column that decides nothing, without an interval."""
    known = rows[column].drop_nulls()
    return Number(what, float(known.to_numpy().mean()) if len(known) else None, n=len(known))


def said(found: Interval | None) -> str:
    """The estimate with its interval, in words."""
    if found is None:
        return "unknown"
    if found.low is None or found.high is None:
        return f"{found.estimate:.3f} (one target, no interval)"
    return f"{found.estimate:.3f} [{found.low:.3f}, {found.high:.3f}]"


def both(
    sides: Sequence[bool | None],
    found: Mapping[str, Interval | None],
    bound: float,
    because: str,
    numbers: Sequence[Number],
    *,
    worst: Callable[[Sequence[float]], float] = min,
) -> Judgement:
    """Holds where every side is True, fails where one is False; the estimate is the one that speaks least for the claim."""
    known = [one for one in found.values() if one is not None]
    if not known:
        return Judgement("cannot say", None, None, None, bound, because, numbers=tuple(numbers))
    least = worst([one.estimate for one in known])
    one = next(one for one in known if one.estimate == least)
    return Judgement(verdict_of(sides), one.estimate, one.low, one.high, bound, because, numbers=tuple(numbers))


def _mean(values: np.ndarray) -> float:
    return float(values.mean())

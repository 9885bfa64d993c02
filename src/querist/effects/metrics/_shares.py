"""Uplift among the best share of rows, and by bins of the ranking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from querist.effects.arrays import column, flags, lengths
from querist.effects.errors import ShareRange
from querist.effects.metrics._order import Order, Ranked, order, ranked
from querist.errors import BadOption, UndefinedMetric

if TYPE_CHECKING:
    import polars as pl

__all__ = ["UpliftBins", "uplift_at_k", "uplift_bins", "uplift_of", "weighted_average_uplift"]

Strategy = Literal["overall", "by_group"]


@dataclass(frozen=True, slots=True)
class UpliftBins:
    """Rows and mean outcomes of treated and controls in bins of the ranking, best first; `uplift` is the difference.

    Counts are fractions where a tie group is cut.
    """

    n_treated: Float[np.ndarray, "bins"]
    n_control: Float[np.ndarray, "bins"]
    mean_treated: Float[np.ndarray, "bins"]
    mean_control: Float[np.ndarray, "bins"]

    @property
    def uplift(self) -> Float[np.ndarray, "bins"]:
        """mean_treated − mean_control."""
        return self.mean_treated - self.mean_control

    def table(self) -> pl.DataFrame:
        """One row per bin from the best on, and the row "total" of all of them: bin, n_treated, n_control, means, uplift."""
        import polars as pl

        columns: dict[str, list[Any]] = {"bin": [*map(str, range(1, len(self.n_treated) + 1)), "total"]}
        for group, means in (("treated", self.mean_treated), ("control", self.mean_control)):
            counts = self.n_treated if group == "treated" else self.n_control
            columns[f"n_{group}"] = [*counts.tolist(), float(counts.sum())]
            columns[f"mean_{group}"] = [*means.tolist(), float(means @ counts / counts.sum())]
        frame = pl.DataFrame(columns).with_columns(uplift=pl.col("mean_treated") - pl.col("mean_control"))
        return frame.select("bin", "n_treated", "n_control", "mean_treated", "mean_control", "uplift")


def uplift_at_k(y: Any, treated: Any, score: Any, k: float, *, strategy: Strategy = "overall") -> float:
    """Mean outcome of treated minus controls among the floor(n·k) best rows (by_group: the best floor of each group).

    k: share in (0, 1). The tie group at the cut enters with the fraction that fits: the average over its orders. k is taken as
    it is written in decimals: .29 of 100 rows are 29, though the product of doubles lies below. Raises ShareRange,
    UndefinedMetric where a group is empty among these rows, BadValues, NonFinite, LengthMismatch.
    """
    _strategy(strategy)
    k = _share(k)
    if strategy == "overall":
        return uplift_of(ranked(y, treated, score), k)
    means = []
    for group, (outcome, placed) in zip(("treated", "control"), _groups(y, treated, score), strict=True):
        m = _floor(outcome.size, k)
        if m < 1:
            raise UndefinedMetric(f"The best {k:g} of {outcome.size} {group} rows are none")
        means.append(float(_placed(outcome, placed, np.array([m]))[0] / m))
    return means[0] - means[1]


def uplift_of(rows: Ranked, k: float, weight: np.ndarray | None = None) -> float:
    """`uplift_at_k` of rows that are sorted already. weight: whole numbers [n] in sorted order, repeated rows; the rows' own weights
    are left out of account."""
    k = _share(k)
    if weight is None:
        n, m = rows.n, _floor(rows.n, k)
        part = np.array([m])
        sums = (
            [_placed(mark, rows.order, part)[0] for mark in (rows.treated, rows.y_treated, rows.y_control)] if m else []
        )
    else:
        counted = np.cumsum(weight, dtype=np.int64)
        n, m = int(counted[-1]), _floor(int(counted[-1]), k)
        ends = np.arange(1, rows.n + 1) if rows.order.ends is None else rows.order.ends
        at = int(np.searchsorted(counted if rows.order.ends is None else counted[ends - 1], m)) if m else 0
        first, last = (int(ends[at - 1]) if at else 0), int(ends[at])
        before = int(counted[first - 1]) if first else 0
        inside = (m - before) / (int(counted[last - 1]) - before) if m else 0.0
        whole, cut = weight[:first].astype(float), weight[first:last] * inside
        marks = (rows.treated, rows.y_treated, rows.y_control)
        sums = [float(whole @ mark[:first] + cut @ mark[first:last]) for mark in marks]
    if m < 1:
        raise UndefinedMetric(f"The best {k:g} of {n} rows are none")
    t, yt, yc = (float(value) for value in sums)
    if t < 1e-9 or m - t < 1e-9:
        raise UndefinedMetric(f"The best {k:g} of {n} rows hold no {'treated' if t < 1e-9 else 'control'} row")
    return yt / t - yc / (m - t)


def uplift_bins(y: Any, treated: Any, score: Any, *, bins: int = 10, strategy: Strategy = "overall") -> UpliftBins:
    """Bins of equal count along the ranking of all rows (by_group: of each group); the first n mod bins hold one row more.

    A tie group on an edge enters both bins by fractions. Raises UndefinedMetric naming a bin without treated or without
    controls, BadOption for fewer than one bin or more than rows.
    """
    _strategy(strategy)
    n = len(column(y, "y"))
    if not isinstance(bins, int | np.integer) or not 1 <= bins <= n:
        raise BadOption("The number of bins lies outside its range", value=bins, allowed=f"1 to {n}")
    if strategy == "overall":
        rows = ranked(y, treated, score)
        edges = _edges(rows.n, bins)
        sums = [_placed(mark, rows.order, edges) for mark in (rows.treated, rows.y_treated, rows.y_control)]
        t, yt, yc = (np.diff(values, prepend=0.0) for values in sums)
        c = np.diff(edges, prepend=0) - t
    else:
        counts, totals = [], []
        for outcome, placed in _groups(y, treated, score):
            edges = _edges(outcome.size, bins)
            counts.append(np.diff(edges, prepend=0).astype(float))
            totals.append(np.diff(_placed(outcome, placed, edges), prepend=0.0))
        (t, c), (yt, yc) = counts, totals
    for number, (a, b) in enumerate(zip(t, c, strict=True)):
        if min(a, b) < 1e-9:
            group = "treated" if a < 1e-9 else "control"
            raise UndefinedMetric(f"Bin {number + 1} of {bins} holds no {group} row: its uplift has no value")
    return UpliftBins(t, c, yt / t, yc / c)


def weighted_average_uplift(
    y: Any, treated: Any, score: Any, *, bins: int = 10, strategy: Strategy = "overall"
) -> float:
    """Mean uplift of the bins, weighted by their treated rows: Σ N_t,b·(mean_t − mean_c)_b / Σ N_t,b.

    Raises as `uplift_bins`. Source: scikit-uplift.
    """
    found = uplift_bins(y, treated, score, bins=bins, strategy=strategy)
    return float(found.n_treated @ found.uplift / found.n_treated.sum())


def _groups(y: Any, treated: Any, score: Any) -> list[tuple[np.ndarray, Order]]:
    y, score, t = column(y, "y"), column(score, "score"), flags(treated)
    lengths(y=y, treated=t, score=score)
    if t.all() or not t.any():
        raise UndefinedMetric(f"An uplift metric needs both groups: no row is {'control' if t.all() else 'treated'}")
    found = []
    for group in (t, ~t):
        placed = order(score[group])
        found.append((y[group][placed.rows], placed))
    return found


def _placed(mark: np.ndarray, placed: Order, counts: np.ndarray) -> np.ndarray:
    """Sums of sorted values over the first rows, for each of some counts; a cut tie group enters by its fraction."""
    ends = placed.ends
    if ends is None:
        return np.array([mark[:count].sum(dtype=float) for count in counts])
    last = np.searchsorted(ends, counts)
    first = np.where(last > 0, ends[last - 1], 0)
    return np.array(
        [
            mark[:a].sum(dtype=float) + mark[a:b].sum(dtype=float) * (count - a) / (b - a)
            for a, b, count in zip(first, ends[last], counts, strict=True)
        ]
    )


def _edges(n: int, bins: int) -> np.ndarray:
    sizes = np.full(bins, n // bins)
    sizes[: n % bins] += 1
    return np.cumsum(sizes)


def _floor(n: int, k: float) -> int:
    return math.floor(n * k * (1 + 1e-12))


def _share(k: float) -> float:
    if isinstance(k, bool) or not isinstance(k, int | float | np.number) or not 0 < k < 1:
        raise ShareRange("k is a share of the rows", value=k, allowed="0 < k < 1")
    return float(k)


def _strategy(strategy: str) -> None:
    if strategy not in ("overall", "by_group"):
        raise BadOption("No such strategy", value=strategy, allowed="overall, by_group")

"""One sort of a score, and counts cumulated along it in blocks with points at the ends of tie groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from querist.effects.arrays import column, flags, lengths
from querist.errors import UndefinedMetric
from querist.statistics.arrays import weights_of

__all__ = ["BLOCK", "Order", "Points", "Ranked", "order", "points", "ranked", "totals", "walk"]

BLOCK = 1 << 17
"""Rows of a block: its cumulated counts stay in the second-level cache."""

Points = Float[np.ndarray, "4 points"]
"""Rows: count n, treated N_t, outcome sum of the treated Y_t, of the controls Y_c."""


@dataclass(frozen=True, slots=True)
class Order:
    """`rows`, best score first; `ends`, the counts at which groups of equal scores end, None where no two are equal."""

    rows: Int[np.ndarray, "n"]
    ends: Int[np.ndarray, "groups"] | None

    @property
    def groups(self) -> int:
        """Number of tie groups."""
        return self.rows.size if self.ends is None else self.ends.size

    def pieces(self, block: int = 0) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """`spans` of some tie groups at a time, with their places among the groups: at most `block` (or `BLOCK`) of them."""
        for low in range(0, self.groups, block or BLOCK):
            part = slice(low, min(low + (block or BLOCK), self.groups))
            if self.ends is None:
                yield part, np.arange(part.start, part.stop), np.arange(part.start + 1, part.stop + 1)
            else:
                end = self.ends[part]
                yield part, np.r_[self.ends[low - 1] if low else 0, end[:-1]], end

    def spans(self) -> tuple[Int[np.ndarray, "groups"], Int[np.ndarray, "groups"]]:
        """First count (exclusive) and last count of every tie group."""
        ends = np.arange(1, self.rows.size + 1) if self.ends is None else self.ends
        return np.r_[0, ends[:-1]], ends


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows of control and one arm in order of a score: flags as bytes, outcomes as bytes where they are 0 and 1."""

    order: Order
    treated: UInt8[np.ndarray, "n"]
    y_treated: np.ndarray
    y_control: np.ndarray
    binary: bool
    weight: Float[np.ndarray, "n"] | None

    @property
    def n(self) -> int:
        """Rows."""
        return self.treated.size


def order(score: Float[np.ndarray, "n"]) -> Order:
    """Sort by descending score, once. Equal scores form a group whose inner order never matters."""
    rows = np.argsort(score)[::-1]
    placed = score[rows]
    last = np.ones(placed.size, dtype=bool)
    np.not_equal(placed[1:], placed[:-1], out=last[:-1])
    del placed
    if last.all():
        return Order(rows, None)
    ends = np.flatnonzero(last)
    ends += 1
    return Order(rows, ends)


def ranked(y: Any, treated: Any, score: Any, weight: Any = None) -> Ranked:
    """Check and sort the rows of a binary comparison.

    y, treated, score, weight: [n]. Raises LengthMismatch, NonFinite, BadValues for a flag of other values and for negative
    weights, UndefinedMetric where a group is empty.
    """
    y, score, t = column(y, "y"), column(score, "score"), flags(treated)
    lengths(y=y, treated=t, score=score, weight=weight)
    w = None if weight is None else weights_of(weight, y.size)
    share = t if w is None else w[t]
    whole = t.size if w is None else w.sum()
    part = float(share.sum())
    if not 0 < part < whole:
        group = "treated" if part == 0 else "control"
        raise UndefinedMetric(f"An uplift metric needs both groups: no row is {group} among {t.size}")
    placed = order(score)
    at = placed.rows
    binary = bool(((y == 0) | (y == 1)).all())
    if binary:
        # One gather of a byte: random access costs more than the arithmetic that follows.
        code = (2 * t.view(np.uint8) + (y == 1))[at]
        marks: tuple[np.ndarray, ...] = (code >> 1, (code == 3).view(np.uint8), (code == 1).view(np.uint8))
    else:
        flag, value = t[at], y[at]
        marks = (flag.view(np.uint8), np.where(flag, value, 0.0), np.where(flag, 0.0, value))
    return Ranked(placed, *marks, binary, None if w is None else w[at])


def walk(rows: Ranked, weight: np.ndarray | None = None, block: int = BLOCK) -> Iterator[Points]:
    """Cumulated counts, block by block, at the ends of tie groups only; each block opens with the last point before it.

    weight: [n] in sorted order, in place of the rows' own; bytes are multiplied as bytes.
    """
    weight = rows.weight if weight is None else weight
    ends = rows.order.ends
    carry = point = np.zeros((4, 1))
    for start in range(0, rows.n, block):
        part = slice(start, min(start + block, rows.n))
        counts = np.empty((4, part.stop - start + 1))
        counts[:, :1] = carry
        marks: list[np.ndarray] = [rows.treated[part], rows.y_treated[part], rows.y_control[part]]
        if weight is None:
            counts[0] = np.arange(start, part.stop + 1)
        else:
            w = weight[part]
            marks = [w, *(w * mark for mark in marks)]
        first = 4 - len(marks)
        for row, mark in enumerate(marks, first):
            np.cumsum(mark, dtype=float, out=counts[row, 1:])
        counts[first:, 1:] += carry[first:]
        carry = counts[:, -1:].copy()
        if ends is not None:
            inside = ends[np.searchsorted(ends, start, "right") : np.searchsorted(ends, part.stop, "right")]
            counts = np.concatenate([point, counts[:, inside - start]], axis=1)
        point = counts[:, -1:].copy()
        yield counts


def points(rows: Ranked) -> Points:
    """All points at once, from (0, 0, 0, 0)."""
    return next(walk(rows, block=rows.n))


def totals(rows: Ranked, weight: np.ndarray | None = None) -> tuple[float, float, float, float]:
    """n, N_t, Y_t and Y_c of all rows, weighted."""
    weight = rows.weight if weight is None else weight
    marks: tuple[Bool[np.ndarray, "n"] | np.ndarray, ...] = (rows.treated, rows.y_treated, rows.y_control)
    if weight is None:
        t, yt, yc = (float(mark.sum(dtype=float)) for mark in marks)
        return float(rows.n), t, yt, yc
    w = weight.astype(float)
    t, yt, yc = (float(w @ mark) for mark in marks)
    return float(w.sum()), t, yt, yc

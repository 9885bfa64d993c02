"""Values of the gain curves at cumulated counts, the areas under all of them in one pass, and perfect curves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from querist.effects.metrics._order import Points, Ranked, walk
from querist.errors import UndefinedMetric

__all__ = [
    "Areas",
    "areas",
    "areas_of",
    "interpolated_gain",
    "interpolated_qini",
    "perfect_qini",
    "perfect_uplift",
    "qini_values",
    "rate_values",
    "small",
    "trapezoid",
    "uplift_values",
]

RELATIVE = 1e-12
"""A denominator below this share of what it is the difference of is 0."""

Values = Float[np.ndarray, "points"]


@dataclass(frozen=True, slots=True)
class Areas:
    """Totals n, N_t, Y_t, Y_c, and trapezoid areas over n.

    `qini`, `uplift`: with an empty group's mean as 0. `qini_from`, `gain_from`: with the undefined beginning interpolated.
    `level`, `harmonic`: of the cumulated N_t, Y_t, Y_c: the trapezoid area, and the sum over places j of value/j.
    """

    n: float
    treated: float
    y_treated: float
    y_control: float
    qini: float
    uplift: float
    qini_from: float
    gain_from: float
    level: Float[np.ndarray, "3"] | None
    harmonic: Float[np.ndarray, "3"] | None

    @property
    def control(self) -> float:
        """N_c."""
        return self.n - self.treated

    @property
    def last_qini(self) -> float:
        """The Qini curve's last value, Y_t − Y_c·N_t/N_c."""
        return self.y_treated - self.y_control * self.treated / self.control

    @property
    def last_gain(self) -> float:
        """The gain curve's last value, n(mean_t − mean_c)."""
        return (self.y_treated / self.treated - self.y_control / self.control) * self.n

    def cells(self) -> Float[np.ndarray, "2 2"]:
        """Weights by treated flag and outcome of a binary outcome."""
        return np.array(
            [[self.control - self.y_control, self.y_control], [self.treated - self.y_treated, self.y_treated]]
        )


def qini_values(p: Points) -> Values:
    """Y_t − Y_c·N_t/N_c; the second term is 0 while no control has come. Source: Radcliffe (2007)."""
    control = p[0] - p[1]
    ratio = np.divide(p[1], control, out=np.zeros_like(control), where=control > 0)
    return p[2] - p[3] * ratio


def uplift_values(p: Points) -> Values:
    """(mean_t − mean_c)·n, with an empty group's mean as 0."""
    control = p[0] - p[1]
    zero = np.zeros_like(control)
    treated_mean = np.divide(p[2], p[1], out=zero.copy(), where=p[1] > 0)
    return (treated_mean - np.divide(p[3], control, out=zero, where=control > 0)) * p[0]


def interpolated_qini(p: Points) -> Values:
    """The Qini curve whose part without controls is a straight line from 0 to its first defined value."""
    values = qini_values(p)
    first = _first(p[0] - p[1] > 0)
    values[:first] = values[first] * p[0, :first] / p[0, first]
    return values


def interpolated_gain(p: Points) -> Values:
    """(mean_t − mean_c)·n, the lift interpolated linearly from 0 to its first defined value."""
    first = _first((p[1] > 0) & (p[0] - p[1] > 0))
    values = uplift_values(p)
    values[:first] = values[first] * (p[0, :first] / p[0, first]) ** 2
    return values


def rate_values(p: Points) -> Values:
    """Cumulated ψ over all n, with arm means as nuisance and the treated share as propensity."""
    n, treated, y_treated, y_control = p[:, -1]
    mean_t, mean_c, e = y_treated / treated, y_control / (n - treated), treated / n
    gained = (p[2] - mean_t * p[1]) / e - (p[3] - mean_c * (p[0] - p[1])) / (1 - e)
    return ((mean_t - mean_c) * p[0] + gained) / n


def _first(defined: np.ndarray) -> int:
    return int(np.argmax(defined))


def trapezoid(n: Values, values: Values) -> float:
    """Area under straight lines between points."""
    return float(np.dot(np.diff(n), values[1:] + values[:-1])) / 2


def areas(rows: Ranked, weight: np.ndarray | None = None, *, rate: bool = True) -> Areas:
    """All areas of one ranking, in one pass over its blocks.

    weight: [n] in sorted order, in place of the rows' own; whole weights are repeated rows. rate: also what the rate numbers
    need. Raises UndefinedMetric where the weights leave a group empty.
    """
    unit = weight is None and rows.weight is None and rows.order.ends is None
    return areas_of(walk(rows, weight), unit=unit, rate=rate)


def areas_of(parts: Iterable[Points], *, unit: bool = False, rate: bool = True) -> Areas:
    """All areas under points that come in parts, each opening with the last point before it.

    unit: every step is one row. Raises UndefinedMetric where a group is empty.
    """
    lead: list[Points] = []
    leading, qini, uplift = True, 0.0, 0.0
    level, harmonic = np.zeros(3), np.zeros(3)
    p = np.zeros((4, 1))
    for p in parts:
        if rate:
            _add_rate(p, unit, level, harmonic)
        rest = p
        if leading:  # until both groups have come, curves have conventions of their own: kept whole for the end
            both = (p[1] > 0) & (p[0] > p[1])
            leading = not both[-1]
            first = p.shape[1] - 1 if leading else _first(both)
            lead.append(p[:, : first + 1])
            if leading:
                continue
            rest = p[:, first:]
        curve = rest[1] / (rest[0] - rest[1])
        curve *= rest[3]
        np.subtract(rest[2], curve, out=curve)
        qini += _area(rest[0], curve, unit)
        curve *= rest[0]
        curve /= rest[1]
        uplift += _area(rest[0], curve, unit)
    if leading:
        raise UndefinedMetric("An uplift metric needs both groups: one is empty")
    start = np.concatenate(lead, axis=1)
    added = [trapezoid(start[0], f(start)) for f in (qini_values, uplift_values, interpolated_qini, interpolated_gain)]
    n, treated, y_treated, y_control = (float(value) for value in p[:, -1])
    return Areas(
        n,
        treated,
        y_treated,
        y_control,
        qini=qini + added[0],
        uplift=uplift + added[1],
        qini_from=qini + added[2],
        gain_from=uplift + added[3],
        level=level if rate else None,
        harmonic=harmonic if rate else None,
    )


def _area(n: Values, values: Values, unit: bool) -> float:
    """Trapezoid area; over steps of one, a sum without temporaries."""
    if unit:
        return float(values.sum() - (values[0] + values[-1]) / 2)
    step = np.diff(n)
    return float(step @ values[1:] + step @ values[:-1]) / 2


def _add_rate(p: Points, unit: bool, level: np.ndarray, harmonic: np.ndarray) -> None:
    """Areas of N_t, Y_t, Y_c, and Σ value/j over places j, between points read off straight lines."""
    if unit:
        level += p[1:].sum(axis=1) - (p[1:, 0] + p[1:, -1]) / 2
        harmonic += p[1:, 1:] @ (1 / p[0, 1:])
        return
    step = np.diff(p[0])
    level += (p[1:, 1:] @ step + p[1:, :-1] @ step) / 2
    before = p[0, :-1]
    heights = np.diff(harmonic_number(p[0]))
    share = np.where(step > 0, 1 - before * heights / np.where(step > 0, step, 1.0), 0.0)
    harmonic += p[1:, 1:] @ share + p[1:, :-1] @ (heights - share)


def harmonic_number(x: Values) -> Values:
    """H(x) = 1 + ½ + … + 1/x, continued to real x as digamma(x + 1) + γ."""
    from scipy.special import digamma

    return digamma(x + 1) + np.euler_gamma


def small(denominator: float, *parts: float) -> bool:
    """Whether a difference is 0 but for rounding, beside the parts that it was made of."""
    return abs(denominator) <= RELATIVE * max((abs(part) for part in parts), default=0.0)


def perfect_qini(a: Areas, *, negative_effect: bool = True) -> Float[np.ndarray, "nodes 2"]:
    """Nodes (n, value) of the best Qini curve of a binary outcome.

    With negative effects: treated who respond first, controls who respond last. Without: straight to the whole effect r, then
    level. Raises UndefinedMetric for r ≤ 0 without negative effects.
    """
    if negative_effect:
        return _nodes(a.cells(), np.array([[0, -1], [0, 1]]), qini_values)
    r = a.last_qini
    if r <= 0:
        raise UndefinedMetric(f"Without negative effects the perfect curve needs a positive effect; it is {r:.6g}")
    return np.array([[0.0, 0.0], [r, r], [a.n, r]])


def perfect_uplift(a: Areas) -> Float[np.ndarray, "nodes 2"]:
    """Nodes (n, value) of the best uplift curve of a binary outcome, by the key of scikit-uplift."""
    cells = a.cells()
    same = np.array([[2, 0], [0, 2]])
    second = np.array([[0, 1], [0, 1]]) if cells[0, 1] > cells[1, 0] else np.array([[0, 0], [1, 1]])
    return _nodes(cells, same + second, uplift_values)


def _nodes(cells: np.ndarray, key: np.ndarray, curve) -> np.ndarray:
    t, y = np.array([[0, 0], [1, 1]]), np.array([[0, 1], [0, 1]])
    p = np.zeros((4, 1))
    for level in sorted(set(key[cells > 0].tolist()), reverse=True):
        w = np.where(key == level, cells, 0.0)
        step = [w.sum(), (w * t).sum(), (w * t * y).sum(), (w * (1 - t) * y).sum()]
        p = np.c_[p, p[:, -1] + step]
    return np.column_stack([p[0], curve(p)])

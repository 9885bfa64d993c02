"""Exact transport between two samples: assignment where sizes agree, a linear program where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from querist.errors import BadValues, InvariantBroken, ShapeMismatch
from querist.features.arrays import order, pair, rows, weights
from querist.features.distances._distance import Distance, Plan
from querist.features.distances._program import linear_program, network_simplex
from querist.features.errors import BadWeights

__all__ = ["assigned", "exact_wasserstein", "plan_of", "squared_distances", "transported"]

ASSIGNED = 5000
"""Rows up to which an assignment is solved: its matrix then takes 200 MB."""
PROGRAMMED = 250_000
"""Pairs up to which the general linear program is solved; above, a network simplex."""
TOTALS = 1e-6
RANGE = 1e20
"""Largest over smallest positive cost. Rounding of distances alone makes 1e17; beyond 1e20 it is a marker for 'forbidden'."""
RESOLVED = 1e12
DIMENSIONS = 8
_PRODUCT = 2_000_000_000


def exact_wasserstein(
    X: Any,
    Y: Any,
    p: float = 2.0,
    wx: ArrayLike | None = None,
    wy: ArrayLike | None = None,
    cost: ArrayLike | None = None,
) -> Distance:
    """W_p between two weighted samples as they are: the least Σ mass·‖x − y‖^p over all plans, its root in the rows' unit.

    X: (n, d), Y: (m, d). wx (n,), wy (m,): weights >= 0, equal where left out; where both are given their totals may differ
    by 1e-6 of themselves and each is normalised. cost (n, m): non-negative costs of pairs in place of ‖x − y‖^p (already to
    the power p); X and Y may then be None. `plan` holds the pairs that carry mass (at most n + m − 1) and their masses.

    Equal weights and n = m up to 5,000: assignment. Else a linear program up to 250,000 pairs (HiGHS), above that the network
    simplex of POT (extra `transport`). Masses are checked to 1e-9 and a solver that did not finish raises NumericalFailure.

    A warning above 8 units: there the exact distance of two samples measures their size, not their laws (it falls as
    n^(−1/d)). Raises ShapeMismatch, DimensionMismatch, TooFewRows, NonFinite, BadWeights, BadOption, BadValues for a
    negative cost or costs that span more than float64 resolves, MissingExtra.
    """
    p = order(p)
    given = cost is not None
    C, X, Y = _cost(X, Y, cost, p)
    n, m = C.shape
    a, total_x = weights(wx, n, "wx")
    b, total_y = weights(wy, m, "wy")
    if wx is not None and wy is not None and abs(total_x - total_y) > TOTALS * max(total_x, total_y):
        raise BadWeights(
            "wx and wy carry different masses",
            value=f"the sums are {total_x:g} and {total_y:g}",
            allowed=f"sums that agree to {TOTALS:g} of themselves",
            mend="Normalise both; wasserstein_1d does so itself",
        )
    uniform = n == m and np.ptp(a) == 0 and np.ptp(b) == 0
    plan, method = transported(C, a, b, uniform)
    power = float(plan.mass @ _costs_of(C, X, Y, plan, p, given))
    d = 0 if X is None else X.shape[1]
    return Distance(power ** (1 / p), power, p, None, n, m, d, method, _warnings(C, d, n, m, given), plan=plan)


def transported(
    C: Float[np.ndarray, "n m"], a: Float[np.ndarray, "n"], b: Float[np.ndarray, "m"], uniform: bool
) -> tuple[Plan, str]:
    """The best plan for these costs and masses, and how it was found."""
    n, m = C.shape
    if uniform and n <= ASSIGNED:
        return assigned(C), "exact, assignment"
    keep_x, keep_y = np.flatnonzero(a > 0), np.flatnonzero(b > 0)
    small = C if keep_x.size == n and keep_y.size == m else C[np.ix_(keep_x, keep_y)]
    a, b = a[keep_x], b[keep_y]
    if small.size <= PROGRAMMED:
        flow, method = linear_program(small, a, b), "exact, linear program"
    else:
        flow, method = network_simplex(small, a, b), "exact, network simplex"
    return plan_of(flow, a, b, keep_x, keep_y), method


def assigned(C: Float[np.ndarray, "n n"]) -> Plan:
    """The best one-to-one plan of equal masses."""
    from scipy.optimize import linear_sum_assignment

    i, j = linear_sum_assignment(C)
    return Plan(np.column_stack([i, j]), np.full(len(i), 1.0 / len(i)))


def plan_of(flow: Any, a: np.ndarray, b: np.ndarray, keep_x: np.ndarray, keep_y: np.ndarray) -> Plan:
    """Pairs with mass of a flow over the kept rows, its marginals checked to 1e-9."""
    off = max(float(np.abs(flow.sum(axis=1) - a).max()), float(np.abs(flow.sum(axis=0) - b).max()))
    if off > 1e-9 or float(flow.min()) < -1e-12:
        raise InvariantBroken(f"A transport plan misses its marginals by {off:g} (smallest mass {flow.min():g}).")
    i, j = np.nonzero(flow > 0)
    return Plan(np.column_stack([keep_x[i], keep_y[j]]), flow[i, j])


def squared_distances(X: Float[np.ndarray, "n d"], Y: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "n m"]:
    """‖x − y‖² in float64, by differences where that is affordable, else by centred products (rounding 1e-15 of the scale)."""
    if len(X) * len(Y) * X.shape[1] <= _PRODUCT:
        from scipy.spatial.distance import cdist

        return cdist(X, Y, "sqeuclidean")
    centre = X.mean(axis=0, dtype=np.float64)
    X, Y = X - centre, Y - centre
    squares = X @ Y.T
    squares *= -2
    squares += np.einsum("ij,ij->i", X, X)[:, None]
    squares += np.einsum("ij,ij->i", Y, Y)
    return np.maximum(squares, 0, out=squares)


def _cost(X: Any, Y: Any, cost: Any, p: float) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    if cost is None:
        X, Y = pair(X, Y)
        squares = squared_distances(X, Y)
        return (squares if p == 2 else squares ** (p / 2)), X, Y
    C = rows(cost, "cost").astype(np.float64, copy=False)
    if X is not None or Y is not None:
        X, Y = pair(X, Y)
        if C.shape != (len(X), len(Y)):
            raise ShapeMismatch("cost does not fit the rows", value=C.shape, allowed=f"({len(X)}, {len(Y)})")
    if C.min() < 0:
        raise BadValues("cost must not be negative", value=float(C.min()), allowed="0 or more")
    if _span(C) > RANGE:
        raise BadValues(
            "cost spans a larger dynamic range than float64 resolves",
            value=f"{C[C > 0].min():g} to {C.max():g}",
            allowed=f"a ratio of at most {RANGE:g}",
            mend="Forbid a pair by a cost of a hundred times the largest ordinary one",
        )
    return C, X, Y


def _span(C: np.ndarray) -> float:
    positive = C[C > 0]
    return float(positive.max() / positive.min()) if positive.size else 1.0


def _costs_of(C: np.ndarray, X: Any, Y: Any, plan: Plan, p: float, given: bool) -> Float[np.ndarray, "k"]:
    """Costs of the plan's pairs, by differences of rows: free of the cancellation that centred products bring."""
    i, j = plan.pairs.T
    if given:
        return C[i, j]
    gap = X[i].astype(np.float64) - Y[j]
    squares = np.einsum("ij,ij->i", gap, gap)
    return squares if p == 2 else squares ** (p / 2)


def _warnings(C: np.ndarray, d: int, n: int, m: int, given: bool) -> tuple[str, ...]:
    told = []
    if d > DIMENSIONS:
        told.append(
            f"Exact transport of {min(n, m)} rows in {d} dimensions measures the number of rows more than the laws: "
            f"project to {DIMENSIONS} dimensions or fewer, or use the sliced distance."
        )
    if given and _span(C) > RESOLVED:
        told.append("The costs span more than twelve orders of magnitude: the smallest are lost in rounding.")
    return tuple(told)

"""One budget by bisection on its price: rows are read in blocks and never sorted, for tables beyond memory."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from querist.effects.budget._hull import BLOCK, Steps, hull
from querist.effects.budget._path import ROUNDING, Allocation, filled, finished
from querist.statistics.arrays import in_blocks

__all__ = ["dual"]

PASSES = 60


def dual(reward: Float[np.ndarray, "n M"], cost: Float[np.ndarray, "n M"], budget: float) -> Allocation:
    """The price λ at which everybody's best of ρ − λc spends the budget, then one pass over the people who tie at it.

    At most 60 passes halve the interval of λ; what is left of the budget goes to the steps whose slope lies inside. The bound is
    that of the divisible optimum; whole steps below λ are not tried, so the gap may exceed that of the path but not one step.
    Source: Lagrangian duality, Sinha & Zoltners (1979).
    """
    low, high = 0.0, _steepest(reward, cost)
    arm_low, spent_low = _picked(reward, cost, low)
    if spent_low <= budget * (1 + ROUNDING):
        value = float(_own(reward, arm_low).sum())
        return finished(arm_low, reward, cost, budget, value, 0.0, None, "dual")
    arm_high, spent_high = _picked(reward, cost, high)
    for _ in range(PASSES):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        arm, spent = _picked(reward, cost, middle)
        if spent > budget:
            low, arm_low = middle, arm
        else:
            high, arm_high, spent_high = middle, arm, spent
            if spent == budget:
                break
    arm, rest = arm_high.copy(), budget * (1 + ROUNDING) - spent_high
    tied = np.flatnonzero(arm_low != arm_high)
    steps = _between(hull(reward[tied], cost[tied]), arm_high[tied], low)
    placed = np.argsort(-steps.slope, kind="stable")
    row, new, step, gain = (a[placed] for a in (tied[steps.row], steps.arm, steps.cost, steps.reward))
    whole = int(np.searchsorted(np.cumsum(step), rest, "right"))
    bound = float(_own(reward, arm_high).sum() + gain[:whole].sum())
    fractional, price = None, high
    if whole < row.size:
        left = rest - float(step[:whole].sum())
        share = max(left - budget * ROUNDING, 0.0) / float(step[whole])
        bound += share * float(gain[whole])
        price = float(steps.slope[placed][whole])
        if share > ROUNDING:
            fractional = (int(row[whole]), int(new[whole]), share)
    for number, label in zip(*filled(row, new, step, rest), strict=True):
        arm[number] = label
    return finished(arm, reward, cost, budget, bound, price, fractional, "dual")


def _steepest(reward: np.ndarray, cost: np.ndarray) -> float:
    """A price at which nobody buys."""
    top = 0.0
    for part in in_blocks(len(reward), BLOCK):
        r, c = reward[part], cost[part]
        paid = c > 0
        if paid.any():
            top = max(top, float((r[paid] / c[paid]).max()))
    return 2 * top + 1


def _picked(reward: np.ndarray, cost: np.ndarray, price: float) -> tuple[Int[np.ndarray, "n"], float]:
    """Everybody's best arm at a price, the cheapest of equals, and what it costs in all."""
    arm, spent = np.zeros(len(reward), dtype=np.int64), 0.0
    for part in in_blocks(len(reward), BLOCK):
        r, c = reward[part], cost[part]
        net = r - price * c
        pick = net.argmax(axis=1)
        line = np.arange(len(pick))
        best = net[line, pick]
        same = (net == best[:, None]).sum(axis=1) > 1
        if same.any():
            pick[same] = np.where(net[same] == best[same, None], c[same], np.inf).argmin(axis=1)
        bought = best > 0
        arm[part] = np.where(bought, pick + 1, 0)
        spent += float(c[line, pick] @ bought)
    return arm, spent


def _own(reward: np.ndarray, arm: np.ndarray) -> np.ndarray:
    return np.where(arm > 0, reward[np.arange(arm.size), np.maximum(arm, 1) - 1], 0.0)


def _between(steps: Steps, start: np.ndarray, low: float) -> Steps:
    """The steps of each person after the arm held already, down to a slope."""
    # Along a person's steps a walk has reached `start` once a step began there; first steps come first in the list.
    reached = np.zeros(start.size, dtype=bool)
    keep = np.zeros(steps.row.size, dtype=bool)
    edges = np.flatnonzero(np.diff(steps.row) <= 0) + 1
    for begin, end in zip(np.r_[0, edges], np.r_[edges, steps.row.size], strict=True):
        rows = steps.row[begin:end]
        reached[rows] |= steps.previous[begin:end] == start[rows]
        keep[begin:end] = reached[rows] & (steps.slope[begin:end] >= low * (1 - 1e-12))
    return Steps(
        steps.row[keep],
        steps.arm[keep],
        steps.previous[keep],
        steps.cost[keep],
        steps.reward[keep],
        steps.slope[keep],
        steps.initial,
    )

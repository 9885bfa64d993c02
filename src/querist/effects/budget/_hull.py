"""For every person the arms worth buying: the upper hull of (cost, reward), as steps of falling reward per cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.arrays import matrix
from querist.effects.errors import BudgetRange, CostRange
from querist.errors import ShapeMismatch
from querist.statistics.arrays import compact, in_blocks, to_numpy

__all__ = ["BLOCK", "Steps", "budget_of", "costs_of", "hull", "rewards_of"]

BLOCK = 1 << 14
"""Rows of a block: five arms' costs and rewards of a block stay in the second-level cache."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps from one arm of a person to the next on the hull: `cost` and `reward` that it adds, both above 0, and their `slope`.

    `initial` [n]: the best free arm of each person, 0 for none. Steps of a person come in order, first steps of all people before
    second ones; slopes never rise within a person.
    """

    row: Int[np.ndarray, "steps"]
    arm: Int[np.ndarray, "steps"]
    previous: Int[np.ndarray, "steps"]
    cost: Float[np.ndarray, "steps"]
    reward: Float[np.ndarray, "steps"]
    slope: Float[np.ndarray, "steps"]
    initial: Int[np.ndarray, "n"]


def rewards_of(reward: Any) -> Float[np.ndarray, "n M"]:
    """Rewards of M arms for n people. Raises NonFinite, ShapeMismatch."""
    return matrix(reward, "reward", (None, None))


def costs_of(cost: Any, shape: tuple[int, ...]) -> Float[np.ndarray, "n M"]:
    """Costs [n, M], or [M] for all alike. Raises CostRange for a negative cost or NaN (0 is allowed), ShapeMismatch."""
    array = to_numpy(cost)
    if array.shape not in (shape, shape[1:]):
        raise ShapeMismatch("cost has another shape", value=array.shape, allowed=f"{shape} as reward, or {shape[1:]}")
    wrong = ~((array >= 0) & np.isfinite(array))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise CostRange("A cost lies outside its range", value=f"{array[at]} at {at}", allowed="0 or more")
    return np.broadcast_to(array, shape)


def budget_of(budget: Any) -> float:
    """A budget, infinite allowed. Raises BudgetRange for a negative one or NaN."""
    value = float(budget)
    if not value >= 0:
        raise BudgetRange("A budget lies outside its range", value=value, allowed="0 or more")
    return value


def hull(reward: Float[np.ndarray, "n M"], cost: Float[np.ndarray, "n M"]) -> Steps:
    """The hull of every person, from (0, 0) or the best free arm; dominated arms and arms below the hull have no step.

    Of arms on one edge all have a step, so that a whole answer can stop between. O(n·M²) in blocks.
    """
    n, arms = reward.shape
    small = compact(np.zeros(0, dtype=np.int64), arms + 1).dtype
    initial = np.zeros(n, dtype=small)
    found: list[list[tuple[np.ndarray, ...]]] = [[] for _ in range(arms)]
    for part in in_blocks(n, BLOCK):
        r, c = reward[part], cost[part]
        size = len(r)
        free = np.where(c == 0, r, -np.inf)
        now = free.argmax(axis=1)
        start = np.maximum(free[np.arange(size), now], 0.0)
        initial[part] = now = np.where(start > 0, now + 1, 0)
        rows, at_c, at_r, last = np.arange(size), np.zeros(size), start, np.full(size, np.inf)
        for steps in found:
            dc, dr = c - at_c[:, None], r - at_r[:, None]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                slope = np.where((dc > 0) & (dr > 0), dr / dc, 0.0)
            best = slope.max(axis=1, initial=0.0)
            going = best > 0
            if not going.any():
                break
            if not going.all():
                rows, c, r, dc, dr, slope = (a[going] for a in (rows, c, r, dc, dr, slope))
                best, now, last, at_c, at_r = (a[going] for a in (best, now, last, at_c, at_r))
            pick = np.where(slope == best[:, None], dc, np.inf).argmin(axis=1)
            line = np.arange(rows.size)
            last = np.minimum(last, best)  # rounding must not put a step before the one it stands on
            who = ((rows + part.start).astype(np.int32), (pick + 1).astype(small), now.astype(small))
            steps.append((*who, dc[line, pick], dr[line, pick], last))
            at_c, at_r, now = c[line, pick], r[line, pick], pick + 1
    flat = [list(step) for steps in found for step in steps]
    if not flat:
        row, none, empty = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=small), np.zeros(0)
        return Steps(row, none, none, empty, empty, empty, initial)
    del (
        found
    )  # one column at a time, its pieces gone before the next is joined: steps are most of an allocation's memory
    row, arm, previous, dearer, better, slopes = (_joined(flat) for _ in range(6))
    return Steps(row, arm, previous, dearer, better, slopes, initial)


def _joined(pieces: list[list[np.ndarray]]) -> Any:
    """The first column of the pieces, which lose it."""
    return np.concatenate([piece.pop(0) for piece in pieces])

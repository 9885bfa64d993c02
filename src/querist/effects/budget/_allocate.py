"""Who gets which arm under a budget."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from querist.effects.arrays import lengths
from querist.effects.budget._dual import dual
from querist.effects.budget._hull import budget_of, costs_of, hull, rewards_of
from querist.effects.budget._milp import SEGMENTS, Sides, milp
from querist.effects.budget._path import Allocation, along, sorted_path
from querist.effects.errors import BudgetRange, CostRange, LengthMismatch
from querist.errors import BadOption, ShapeMismatch
from querist.statistics.arrays import codes, to_numpy

__all__ = ["allocate"]


def allocate(
    reward: Any,
    cost: Any,
    budget: Any,
    *,
    capacity: Any = None,
    group: Any = None,
    group_min: Any = None,
    net: bool = False,
    method: Literal["auto", "path", "dual", "milp"] = "auto",
) -> Allocation:
    """An arm, or none, for every person: the largest total reward under a budget.

    reward: [n, M] of each arm against none; cost: [n, M] or [M], 0 or more; budget: a total, infinite allowed, or several [Q] with
    costs [n, M, Q]. capacity: most people per arm [M], infinite for no limit. group [n], group_min: the least share of each
    group's people to be treated, one number or a mapping from group. net: subtract the (first) cost from the reward.

    method "path" (hulls and one sort; the bound is exact, the whole answer at most one step below), "dual" (bisection on the
    price, in blocks), "milp" (HiGHS, exact up to 2,000 people, on segments beyond; alone takes several budgets, capacities and
    groups), "auto": milp where such constraints are given, else path.

    Raises CostRange, BudgetRange, Infeasible naming the constraint, BadOption, ShapeMismatch, LengthMismatch, NonFinite.
    """
    reward = rewards_of(reward)
    n, arms = reward.shape
    if method not in ("auto", "path", "dual", "milp"):
        raise BadOption("No such method", value=method, allowed="auto, path, dual, milp")
    several = np.ndim(budget) > 0
    if several:
        budgets = np.array([budget_of(b) for b in budget])
        costs = _several(cost, (n, arms, budgets.size))
    else:
        budgets = np.array([budget_of(budget)])
        costs = costs_of(cost, (n, arms))[:, :, None]
    if net:
        reward = reward - costs[:, :, 0]
    sided = several or capacity is not None or group_min is not None
    if group_min is None and group is not None:
        raise BadOption("A group needs its least share", value="group", allowed="group and group_min together")
    if sided and method not in ("auto", "milp"):
        raise BadOption(f"The {method} takes one budget and no side constraint", value=method, allowed="auto, milp")
    if sided or method == "milp":
        if not sided and n > SEGMENTS:
            raise BadOption(
                f"The exact answer is for at most {SEGMENTS} people",
                value=n,
                allowed="path or dual, within one step of it",
            )
        return milp(reward, _sides(budgets, costs, arms, capacity, group, group_min))
    plain = costs[:, :, 0]
    if method == "dual":
        return dual(reward, plain, float(budgets[0]))
    return along(sorted_path(hull(reward, plain), reward), reward, plain, float(budgets[0]))


def _several(cost: Any, shape: tuple[int, int, int]) -> Float[np.ndarray, "n M Q"]:
    array = to_numpy(cost)
    if array.shape != shape:
        raise ShapeMismatch("Several budgets need costs of each", value=array.shape, allowed=f"{shape}")
    if not ((array >= 0) & np.isfinite(array)).all():
        raise CostRange("A cost lies outside its range", value=float(np.nanmin(array)), allowed="0 or more")
    return array


def _sides(budgets: np.ndarray, costs: np.ndarray, arms: int, capacity: Any, group: Any, group_min: Any) -> Sides:
    most = None
    if capacity is not None:
        most = to_numpy(capacity)
        if most.shape != (arms,):
            raise ShapeMismatch("One capacity per arm", value=most.shape, allowed=f"({arms},)")
        if not (most >= 0).all():
            raise BadOption("A capacity lies outside its range", value=float(most.min()), allowed="0 or more")
        most = np.floor(most)
    if group_min is None:
        return Sides(budgets, costs, most)
    if group is None:
        raise BadOption("A least share needs groups", value=group_min, allowed="group and group_min together")
    names = np.asarray(group)
    if len(names) != len(costs):
        raise LengthMismatch("group has other rows", value=f"{lengths(group=names)}", allowed=f"{len(costs)}")
    of, count = codes(names, "Groups")
    known = np.unique(names)
    if isinstance(group_min, dict):
        strange = [name for name in group_min if name not in known]
        if strange:
            raise BadOption("No such group", value=strange[0], allowed=", ".join(map(str, known)))
        least = np.array([float(group_min.get(name, 0.0)) for name in known.tolist()])
    else:
        least = np.full(count, float(group_min))
    if not ((least >= 0) & (least <= 1)).all():
        raise BudgetRange("A least share lies outside its range", value=least.tolist(), allowed="0 to 1")
    return Sides(budgets, costs, most, of, least, tuple(known.tolist()))

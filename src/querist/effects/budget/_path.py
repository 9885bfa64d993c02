"""The best use of every budget at once, and the whole answer at one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.budget._hull import Steps, costs_of, hull, rewards_of

__all__ = ["ROUNDING", "Allocation", "Path", "along", "budget_path", "filled", "finished", "sorted_path"]

ROUNDING = 1e-12
"""Of the budget: what a sum of costs may exceed it by and still be the budget."""


@dataclass(frozen=True, slots=True)
class Path:
    """Steps in order of falling `shadow_price` (reward per cost): who (`row`) goes from arm `previous` to `arm` (0: none).

    `spend` and `value` [steps + 1] are totals over people before the first step and after each; between them the best value is a
    straight line. `initial` [n]: the free arm that each person has from the beginning, worth `value[0]` in all.
    """

    spend: Float[np.ndarray, "steps+1"]
    value: Float[np.ndarray, "steps+1"]
    shadow_price: Float[np.ndarray, "steps"]
    row: Int[np.ndarray, "steps"]
    arm: Int[np.ndarray, "steps"]
    previous: Int[np.ndarray, "steps"]
    initial: Int[np.ndarray, "n"]

    def best(self, budget: Any) -> Any:
        """The largest value that a budget (or each of several) can buy, people divisible. Concave in the budget."""
        return np.interp(budget, self.spend, self.value)


@dataclass(frozen=True, slots=True)
class Allocation:
    """An arm for every person (0: none), what it is worth and costs, and how far from the best it can be.

    `lp_bound`: no allocation is worth more; `gap` = lp_bound − value. `shadow_price`: reward of one more unit of budget.
    `fractional`: (row, arm, share) of the one person whom the divisible optimum would treat in part. `counts` [M + 1]: people
    by arm, none first. `aggregation_gap`: by how much the value over segments differs from the real one, None without them.
    `feasible`: whether budgets and side constraints are met.
    """

    arm: Int[np.ndarray, "n"]
    reward: Float[np.ndarray, "n"]
    cost: Float[np.ndarray, "n"]
    budget: float
    spent: float
    value: float
    lp_bound: float
    gap: float
    shadow_price: float
    counts: Int[np.ndarray, "M+1"]
    fractional: tuple[int, int, float] | None
    feasible: bool
    method: str
    aggregation_gap: float | None = None


def budget_path(reward: Any, cost: Any) -> Path:
    """The best allocation for every budget, from one sort: exact for divisible people, at most one of them divided.

    reward: [n, M] of each arm against none; cost: [n, M] or [M], 0 or more. Raises NonFinite, ShapeMismatch, CostRange.

    Source: the multiple-choice knapsack, Sinha & Zoltners (1979); its path, Sverdrup, Wu, Athey & Wager (2025).
    """
    reward = rewards_of(reward)
    return sorted_path(hull(reward, costs_of(cost, reward.shape)), reward)


def sorted_path(steps: Steps, reward: Float[np.ndarray, "n M"]) -> Path:
    """Steps of all people merged by slope; those of equal slope keep their order, so no person takes two in the wrong one."""
    placed = np.argsort(-steps.slope, kind="stable")
    free = np.flatnonzero(steps.initial)
    start = float(reward[free, steps.initial[free] - 1].sum())
    # A column of steps goes as soon as it has been put in order, where nobody else holds them: they are most of what is held here.
    columns = [steps.initial, steps.previous, steps.arm, steps.row, steps.slope, steps.reward, steps.cost]
    del steps
    spend, value = _sums(0.0, columns.pop(), placed), _sums(start, columns.pop(), placed)
    slope, row, arm, previous = (columns.pop()[placed] for _ in range(4))
    return Path(spend, value, slope, row, arm, previous, columns.pop())


def _sums(start: float, values: np.ndarray, placed: np.ndarray) -> np.ndarray:
    found = np.empty(values.size + 1)
    found[0] = 0.0
    np.cumsum(values[placed], out=found[1:])
    found += start
    return found


def along(path: Path, reward: Float[np.ndarray, "n M"], cost: Float[np.ndarray, "n M"], budget: float) -> Allocation:
    """The whole answer at a budget: every step that fits in turn; the first that does not is left out, later ones still tried.

    A person whose step was left out takes no later one. The gap is at most the reward of one step.
    """
    limit = budget * (1 + ROUNDING)
    whole = int(np.searchsorted(path.spend, limit, "right")) - 1
    arm = path.initial.copy()
    arm[path.row[:whole]] = path.arm[:whole]  # of a repeated row the last step stays
    rest, fractional, bound, price = limit - path.spend[whole], None, float(path.value[whole]), 0.0
    if whole < path.row.size:
        step = float(path.spend[whole + 1] - path.spend[whole])
        price = float(path.shadow_price[whole])
        share = max(budget - float(path.spend[whole]), 0.0) / step
        bound += share * float(path.value[whole + 1] - path.value[whole])
        if share > ROUNDING:
            fractional = (int(path.row[whole]), int(path.arm[whole]), share)
            costs = np.diff(path.spend[whole:])
            for row, new in zip(*filled(path.row[whole:], path.arm[whole:], costs, rest), strict=True):
                arm[row] = new
    return finished(arm, reward, cost, budget, bound, price, fractional, "path")


def filled(row: np.ndarray, arm: np.ndarray, cost: np.ndarray, rest: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows and arms of the steps that fit into the rest of a budget, taken greedily in order."""
    rows, arms = [], []
    while row.size:
        # What does not fit now never will; with it go the later steps of the same person.
        unfit = np.unique(row[cost > rest])
        if unfit.size:
            first = np.full(int(row.max()) + 1, row.size)
            places = np.flatnonzero(cost > rest)[::-1]
            first[row[places]] = places
            keep = np.arange(row.size) < first[row]
            row, arm, cost = row[keep], arm[keep], cost[keep]
        take = int(np.searchsorted(np.cumsum(cost), rest, "right"))
        if not take:
            break
        rows.append(row[:take])
        arms.append(arm[:take])
        rest -= float(cost[:take].sum())
        row, arm, cost = row[take:], arm[take:], cost[take:]
    none = np.zeros(0, dtype=np.int64)
    return (np.concatenate(rows), np.concatenate(arms)) if rows else (none, none)


def finished(
    arm: Int[np.ndarray, "n"],
    reward: Float[np.ndarray, "n M"],
    cost: Float[np.ndarray, "n M"],
    budget: float,
    bound: float,
    price: float,
    fractional: tuple[int, int, float] | None,
    method: str,
    *,
    feasible: bool | None = None,
    aggregated: float | None = None,
) -> Allocation:
    """An allocation from the arm of every person."""
    rows = np.arange(arm.size)
    treated = arm > 0
    own_reward = np.where(treated, reward[rows, np.maximum(arm, 1) - 1], 0.0)
    own_cost = np.where(treated, cost[rows, np.maximum(arm, 1) - 1], 0.0)
    value, spent = float(own_reward.sum()), float(own_cost.sum())
    bound = max(bound, value) if value - bound < 1e-9 * max(abs(value), 1.0) else bound
    return Allocation(
        arm,
        own_reward,
        own_cost,
        budget,
        spent,
        value,
        bound,
        bound - value,
        price,
        np.bincount(arm, minlength=reward.shape[1] + 1),
        fractional,
        spent <= budget * (1 + 1e-9) if feasible is None else feasible,
        method,
        None if aggregated is None else aggregated - value,
    )

"""The multi-armed Qini: what a model's order of spending is worth beside spending on average effects."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from querist.effects.arrays import lengths, matrix
from querist.effects.budget._hull import budget_of, costs_of, hull, rewards_of
from querist.effects.budget._path import Path, budget_path, sorted_path
from querist.effects.errors import BudgetRange
from querist.errors import UndefinedMetric
from querist.statistics import Estimate, mean_interval

__all__ = ["SpendCurve", "multi_arm_qini", "spend_curve"]

SpendCurve = tuple[Float[np.ndarray, "points"], Float[np.ndarray, "points"], Float[np.ndarray, "points"]]


def multi_arm_qini(
    reward: Any, psi: Any, cost: Any, *, max_spend: float | None = None, cluster: Any = None, block: Any = None
) -> Estimate:
    """Mean vertical distance, over mean spends 0 to `max_spend`, of the model's curve above that of average effects.

    reward [n, M]: predicted, decides who comes when; psi [n, M]: effect scores of a nuisance that never saw row i, value what was
    bought; cost: [n, M] or [M]. The curve is the value (per person) minus that of all-control along the model's budget path. The
    reference spends on everybody alike along the path of mean predicted rewards and mean costs. People whose steps tie are taken
    in part alike. With one arm of cost 1 and max_spend 1 it is the rate qini. max_spend: in cost per person, where left out the
    end of the model's path. p is against 0; the interval holds the path's thresholds as random.

    Raises UndefinedMetric where nothing can be bought, BudgetRange, CostRange, NonFinite, ShapeMismatch, LengthMismatch.

    Source: Sverdrup, Wu, Athey & Wager (2025), Qini curves for multi-armed treatment rules; influence values in closed form
    in place of their bootstrap.
    """
    reward = rewards_of(reward)
    n, arms = reward.shape
    psi = matrix(psi, "psi", (n, arms))
    cost = costs_of(cost, reward.shape)
    lengths(reward=reward, psi=psi, cluster=cluster, block=block)
    path = budget_path(reward, cost)
    end = float(path.spend[-1]) / n
    most = end if max_spend is None else budget_of(max_spend)
    if not np.isfinite(most) or most == 0:
        if max_spend is None:
            raise UndefinedMetric("No arm is worth buying for anybody: there is no curve to compare")
        raise BudgetRange("max_spend lies outside its range", value=most, allowed="above 0, finite")
    area, influence = _model(path, psi, n, most)
    other, reference = _reference(reward, psi, cost, most)
    values = (area - other + influence - reference) / most
    return mean_interval(values, cluster=cluster, block=block)


def spend_curve(reward: Any, psi: Any, cost: Any) -> SpendCurve:
    """Mean spend, the model's value there, and the reference's: points at the ends of groups of equal price."""
    reward = rewards_of(reward)
    n, arms = reward.shape
    psi = matrix(psi, "psi", (n, arms))
    cost = costs_of(cost, reward.shape)
    path = budget_path(reward, cost)
    start, end, gains, _ = _groups(path, psi)
    spend = np.r_[0.0, path.spend[end]] / n
    value = np.r_[0.0, np.cumsum(np.add.reduceat(gains, start) if start.size else gains)] / n + _free(path, psi).mean()
    nodes, heights, _ = _nodes(reward, psi, cost)
    return spend, value, np.interp(spend, nodes, heights)


def _free(path: Path, psi: np.ndarray) -> np.ndarray:
    rows = np.arange(len(psi))
    return np.where(path.initial > 0, psi[rows, np.maximum(path.initial, 1) - 1], 0.0)


def _groups(path: Path, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """First and last step (exclusive) of each group of equal slope; each step's gain in ψ, and its group."""
    price = path.shadow_price
    new = np.r_[True, price[1:] != price[:-1]] if price.size else np.zeros(0, dtype=bool)
    start = np.flatnonzero(new)
    end = np.r_[start[1:], price.size] if start.size else start
    before = np.where(path.previous > 0, psi[path.row, np.maximum(path.previous, 1) - 1], 0.0)
    return start, end, psi[path.row, path.arm - 1] - before, np.cumsum(new) - 1


def _model(path: Path, psi: np.ndarray, n: int, most: float) -> tuple[float, Float[np.ndarray, "n"]]:
    """Area under the model's curve and each row's influence on it (mean 0).

    At a mean spend B the rows above a price are treated, and that price moves with the sample so that B is spent: a row adds its
    own ψ and takes from the margin what its cost buys there. Integrated over B, the margin's worth is a difference of values.
    """
    free = _free(path, psi)
    start, end, gains, group = _groups(path, psi)
    values = free * most
    if start.size:
        left, right = path.spend[start] / n, path.spend[end] / n
        total = np.add.reduceat(gains, start) / n
        inside = np.clip((most - left) / (right - left), 0.0, 1.0)
        length = inside * (most - left - inside * (right - left) / 2)
        reached = np.cumsum(total * inside)
        middle = reached - total * inside / 2
        margin = np.where(inside > 0, inside * (reached[-1] - middle), 0.0)
        step = np.diff(path.spend)
        values += np.bincount(path.row, gains * length[group] - step * margin[group], minlength=n)
        area = free.mean() * most + float(total @ length)
    else:
        area = float(free.mean()) * most
    return float(area), values - values.mean()


def _nodes(reward: np.ndarray, psi: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Mean spend and value at the arms (0: none) that average effects would buy in turn."""
    mean = reward.mean(axis=0, keepdims=True)
    steps = sorted_path(hull(mean, cost.mean(axis=0, keepdims=True)), mean)
    order = [int(steps.initial[0]), *steps.arm.tolist()]
    spend, value = (np.r_[0.0, a.mean(axis=0)][order] for a in (cost, psi))
    return spend, value, order


def _reference(reward: np.ndarray, psi: np.ndarray, cost: np.ndarray, most: float) -> tuple[float, np.ndarray]:
    """Area under the reference's curve, straight between its nodes and level after the last; and influence by its nodes' means."""
    x, v, order = _nodes(reward, psi, cost)
    dx, dv, area = np.zeros(x.size), np.zeros(x.size), 0.0
    for k in range(x.size - 1):
        if x[k] >= most:
            break
        length, rise = x[k + 1] - x[k], v[k + 1] - v[k]
        if x[k + 1] <= most:
            area += length * (v[k] + v[k + 1]) / 2
            dv[k : k + 2] += length / 2
            dx[k : k + 2] += np.array([-1, 1]) * (v[k] + v[k + 1]) / 2
        else:  # the last spend cuts this stretch at a distance y
            y = most - x[k]
            area += v[k] * y + rise * y**2 / (2 * length)
            dv[k : k + 2] += y - y**2 / (2 * length), y**2 / (2 * length)
            dx[k : k + 2] += -v[k] - rise * (y / length - y**2 / (2 * length**2)), -rise * y**2 / (2 * length**2)
    if x[-1] < most:
        area += v[-1] * (most - x[-1])
        dv[-1] += most - x[-1]
        dx[-1] -= v[-1]
    values = np.zeros(len(psi))
    for k, arm in enumerate(order):
        if arm:
            values += dv[k] * psi[:, arm - 1] + dx[k] * cost[:, arm - 1]
    return float(area), values - values.mean()

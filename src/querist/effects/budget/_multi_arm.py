"""The multi-armed Qini: what a model's order of spending is worth beside spending on average effects."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.arrays import lengths, matrix
from querist.effects.budget._hull import BLOCK, budget_of, costs_of, hull, rewards_of
from querist.effects.budget._path import budget_path, sorted_path
from querist.effects.errors import BudgetRange
from querist.errors import UndefinedMetric
from querist.statistics import Estimate, mean_interval
from querist.statistics.arrays import in_blocks

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
    area, values, most = _model(reward, psi, cost, max_spend)
    other, reference = _reference(reward, psi, cost, most)
    values += area - other
    values -= reference
    values /= most
    del reference
    return mean_interval(values, cluster=cluster, block=block)


def spend_curve(reward: Any, psi: Any, cost: Any) -> SpendCurve:
    """Mean spend, the model's value there, and the reference's: points at the ends of groups of equal price."""
    reward = rewards_of(reward)
    n, arms = reward.shape
    psi = matrix(psi, "psi", (n, arms))
    cost = costs_of(cost, reward.shape)
    path = budget_path(reward, cost)
    edges, gains = _groups(path.shadow_price), _gains(path.row, path.arm, path.previous, psi)
    spend = np.r_[0.0, path.spend[edges[1:]]] / n
    won = np.add.reduceat(gains, edges[:-1]) if gains.size else gains
    value = np.r_[0.0, np.cumsum(won)] / n + _free(path.initial, psi).mean()
    nodes, heights, _ = _nodes(reward, psi, cost)
    return spend, value, np.interp(spend, nodes, heights)


def _gains(row: np.ndarray, arm: np.ndarray, previous: np.ndarray, psi: np.ndarray) -> Float[np.ndarray, "steps"]:
    """What each step adds to ψ. Steps are looked up a block at a time, as places of all of them would be as wide as what is found."""
    found = np.empty(row.size)
    for part in in_blocks(row.size, BLOCK):
        who, before = row[part], previous[part]
        held = np.where(before > 0, psi[who, np.maximum(before, 1) - 1], 0.0)
        found[part] = psi[who, arm[part] - 1] - held
    return found


def _free(initial: np.ndarray, psi: np.ndarray) -> Float[np.ndarray, "n"]:
    """ψ of the arm that each person has for nothing."""
    found = np.zeros(initial.size)
    free = np.flatnonzero(initial)
    found[free] = psi[free, initial[free] - 1]
    return found


def _groups(price: np.ndarray) -> Int[np.ndarray, "groups+1"]:
    """First step of each group of equal slope, and the number of steps."""
    return np.flatnonzero(np.concatenate([[True], price[1:] != price[:-1], [True]])) if price.size else np.zeros(1, int)


def _model(
    reward: np.ndarray, psi: np.ndarray, cost: np.ndarray, max_spend: float | None
) -> tuple[float, Float[np.ndarray, "n"], float]:
    """Area under the model's curve, each row's influence on it (mean 0), and the largest mean spend. Raises as `multi_arm_qini`.

    At a mean spend B the rows above a price are treated, and that price moves with the sample so that B is spent: a row adds its
    own ψ and takes from the margin what its cost buys there. Integrated over B, the margin's worth is a difference of values.
    """
    n, path = len(psi), budget_path(reward, cost)
    spend, row = path.spend, path.row
    end = float(spend[-1]) / n
    most = end if max_spend is None else budget_of(max_spend)
    if not np.isfinite(most) or most == 0:
        if max_spend is None:
            raise UndefinedMetric("No arm is worth buying for anybody: there is no curve to compare")
        raise BudgetRange("max_spend lies outside its range", value=most, allowed="above 0, finite")
    gains, edges = _gains(row, path.arm, path.previous, psi), _groups(path.shadow_price)
    values = _free(path.initial, psi)
    del path  # of what follows the largest arrays are as long as it: beside it they would be half of all that is held
    area = float(values.mean()) * most
    values *= most
    if gains.size:
        count = edges.size - 1
        inside, length = np.empty(count), np.empty(count)
        for part in in_blocks(count, BLOCK):
            left, right = spend[edges[part]] / n, spend[edges[part.start + 1 : part.stop + 1]] / n
            inside[part] = cut = np.clip((most - left) / (right - left), 0.0, 1.0)
            length[part] = cut * (most - left - cut * (right - left) / 2)
        total = np.add.reduceat(gains, edges[:-1])
        total /= n
        area += float(total @ length)
        total *= inside
        reached = np.cumsum(total)
        whole = reached[-1]
        for part in in_blocks(count, BLOCK):
            middle = reached[part] - total[part] / 2
            margin = np.where(inside[part] > 0, inside[part] * (whole - middle), 0.0)
            first, last = int(edges[part.start]), int(edges[part.stop])
            steps, size = slice(first, last), np.diff(edges[part.start : part.stop + 1])
            gains[steps] *= np.repeat(length[part], size)
            gains[steps] -= np.diff(spend[first : last + 1]) * np.repeat(margin, size)
        del inside, length, total, reached, edges, spend
        values += np.bincount(row, gains, minlength=n)
    values -= values.mean()
    return area, values, most


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
    for part in in_blocks(len(psi), BLOCK):
        for k, arm in enumerate(order):
            if arm:
                values[part] += dv[k] * psi[part, arm - 1] + dx[k] * cost[part, arm - 1]
    values -= values.mean()
    return float(area), values

"""Exact allocation with side constraints by HiGHS: on every person where they are few, else on segments of like people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from querist.effects.budget._path import Allocation, budget_path, finished
from querist.effects.errors import Infeasible
from querist.errors import NumericalFailure

__all__ = ["SEGMENTS", "Sides", "milp"]

SEGMENTS = 2000
"""People are treated one by one up to so many; beyond, so many segments."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What an allocation must keep to: several budgets with their costs, people per arm, and a least treated share by group."""

    budgets: Float[np.ndarray, "Q"]
    costs: Float[np.ndarray, "n M Q"]
    capacity: Float[np.ndarray, "M"] | None = None
    group: Int[np.ndarray, "n"] | None = None
    group_min: Float[np.ndarray, "groups"] | None = None
    labels: tuple[Any, ...] = ()


def milp(reward: Float[np.ndarray, "n M"], sides: Sides, *, segments: int = SEGMENTS) -> Allocation:
    """The best whole allocation under all constraints: max Σρz, z whole, at most one arm a person.

    Above `segments` people, like people (in rewards and costs, inside their group) are treated as one segment and the answer is
    handed down to people; `aggregation_gap` tells what that changed and `lp_bound` is then that of the budgets alone. Raises
    Infeasible naming the constraint, NumericalFailure where the solver ends without an answer.
    """
    n = len(reward)
    exact = n <= segments
    of = np.arange(n) if exact else _segments(reward, sides, segments)
    size = np.bincount(of)
    mean = [_means(values, of, size) for values in (reward, *np.moveaxis(sides.costs, 2, 0))]
    group = None if sides.group is None else sides.group[np.unique(of, return_index=True)[1]]
    small = Sides(sides.budgets, np.stack(mean[1:], axis=2), sides.capacity, group, sides.group_min, sides.labels)
    answer = _solve(mean[0], small, size, whole=True)
    counts = np.rint(answer.x[: mean[0].size].reshape(mean[0].shape)).astype(int)
    if exact:
        arm = np.where(counts.any(axis=1), counts.argmax(axis=1) + 1, 0)
        relaxed = _solve(mean[0], small, size, whole=False)
        bound, aggregated = -float(relaxed.fun), None
        price = float(-relaxed.ineqlin.marginals[0]) if np.isfinite(sides.budgets[0]) else 0.0
    else:
        arm = _handed_down(counts, of, reward)
        _repair(arm, reward, sides)
        aggregated = float((counts * mean[0]).sum())
        bound = min(float(budget_path(reward, sides.costs[:, :, q]).best(b)) for q, b in enumerate(sides.budgets))
        price = 0.0
    first = np.ascontiguousarray(sides.costs[:, :, 0])
    return finished(
        arm,
        reward,
        first,
        float(sides.budgets[0]),
        bound,
        price,
        None,
        "milp" if exact else "milp on segments",
        feasible=_kept(arm, sides),
        aggregated=aggregated,
    )


def _means(values: np.ndarray, of: np.ndarray, size: np.ndarray) -> np.ndarray:
    return np.stack([np.bincount(of, column) / size for column in values.T], axis=1)


def _rows(reward: np.ndarray, sides: Sides, size: np.ndarray):
    """Upper bounds of the linear program: budgets, people, capacities, groups; and the name of each row's kind."""
    from scipy import sparse

    n, arms = reward.shape
    every = sparse.kron(sparse.identity(n), np.ones((1, arms)))
    parts, limits, kinds = [], [], []
    for q, budget in enumerate(sides.budgets):
        if np.isfinite(budget):
            parts.append(sparse.csr_array(sides.costs[:, :, q].reshape(1, -1)))
            limits.append([budget])
            kinds.append("budget" if sides.budgets.size == 1 else f"budget {q}")
    parts.append(sparse.csr_array(every))
    limits.append(size)
    kinds.append("people")
    if sides.capacity is not None:
        held = np.isfinite(sides.capacity)
        parts.append(sparse.csr_array(sparse.kron(np.ones((1, n)), sparse.identity(arms)).tocsr()[held]))
        limits.append(sides.capacity[held])
        kinds.append("capacity")
    if sides.group is not None and sides.group_min is not None:
        groups = sides.group_min.size
        member = sparse.csr_array((np.ones(n), (sides.group, np.arange(n))), shape=(groups, n))
        people = np.bincount(sides.group, size, minlength=groups)
        parts.append(-(member @ sparse.csr_array(every)))
        limits.append(-np.ceil(sides.group_min * people - 1e-9))
        kinds.append("group_min")
    return parts, limits, kinds


def _solve(reward: np.ndarray, sides: Sides, size: np.ndarray, *, whole: bool) -> Any:
    from scipy import optimize, sparse

    parts, limits, _ = _rows(reward, sides, size)
    upper = sparse.vstack(parts).tocsr()
    limit = np.concatenate([np.asarray(part, dtype=float) for part in limits])
    most = np.repeat(size, reward.shape[1]).astype(float)
    if whole:
        answer = optimize.milp(
            -reward.ravel(),
            integrality=np.ones(reward.size),
            bounds=optimize.Bounds(0, most),  # pyright: ignore[reportArgumentType] - its stubs know numbers alone
            constraints=optimize.LinearConstraint(upper, -np.inf, limit),  # pyright: ignore[reportArgumentType]
            options={"mip_rel_gap": 0.0},
        )
    else:
        answer = optimize.linprog(
            -reward.ravel(), A_ub=upper, b_ub=limit, bounds=np.column_stack([np.zeros(most.size), most]), method="highs"
        )
    if answer.status == 2:
        raise _infeasible(reward, sides, size)
    if answer.x is None:
        raise NumericalFailure(f"The solver found no allocation: {answer.message}")
    return answer


def _infeasible(reward: np.ndarray, sides: Sides, size: np.ndarray) -> Infeasible:
    """Which constraint stands in the way: the largest common fraction of the groups' minima that can be met, and what limits it."""
    from scipy import optimize, sparse

    parts, limits, kinds = _rows(reward, sides, size)
    # Variables z, then t: the treated of every group are at least t times what was asked.
    asked = -np.asarray(limits[-1], dtype=float)
    rest = sparse.vstack([sparse.hstack([part, sparse.csr_array((part.shape[0], 1))]) for part in parts[:-1]])
    upper = sparse.vstack([rest, sparse.hstack([parts[-1], sparse.csr_array(asked[:, None])])]).tocsr()
    limit = np.concatenate([np.asarray(part, dtype=float) for part in limits[:-1]] + [np.zeros(asked.size)])
    aim = np.r_[np.zeros(reward.size), -1.0]
    answer = optimize.linprog(aim, A_ub=upper, b_ub=limit, bounds=[(0, None)] * reward.size + [(0, 1)], method="highs")
    best = float(answer.x[-1])
    tight = [-float(m) > 1e-12 for m in answer.ineqlin.marginals]
    spans = np.cumsum([0] + [part.shape[0] for part in parts[:-1]])
    binding = [k for k, a, b in zip(kinds, spans, spans[1:], strict=False) if any(tight[a:b])] or ["whole people"]
    least = np.zeros(1) if sides.group_min is None else sides.group_min
    best = abs(max(best, 0.0))
    largest = float((least * best).max())
    return Infeasible(
        f"No allocation treats the least share of every group: {' and '.join(binding)} stands in the way",
        value=f"group_min {np.unique(least).tolist()}",
        allowed=f"at most {largest:.4g} ({best:.4g} of what was asked)",
        mend="Lower the least share, or raise what stands in the way",
    )


def _segments(reward: np.ndarray, sides: Sides, count: int) -> Int[np.ndarray, "n"]:
    """Segments of about equal size of like people: groups cut at medians of their widest direction, the largest first."""
    features = np.concatenate([reward, sides.costs.reshape(len(reward), -1)], axis=1)
    scale = features.std(axis=0)
    features = features / np.where(scale > 0, scale, 1.0)
    start = sides.group if sides.group is not None else np.zeros(len(reward), dtype=np.int64)
    heap = [np.flatnonzero(start == g) for g in np.unique(start)]
    while len(heap) < count:
        heap.sort(key=len)
        split = []
        room = count - len(heap)
        for rows in heap[::-1]:
            part = features[rows]
            width = np.ptp(part, axis=0) if rows.size > 1 else np.zeros(1)
            if len(split) >= 2 * room or width.max() == 0:
                split.append(rows)
                continue
            line = part[:, int(width.argmax())]
            placed = np.argsort(line, kind="stable")
            split += [rows[placed[: rows.size // 2]], rows[placed[rows.size // 2 :]]]
        if len(split) == len(heap):
            break
        heap = split
    of = np.empty(len(reward), dtype=np.int64)
    for number, rows in enumerate(heap):
        of[rows] = number
    return of


def _handed_down(counts: np.ndarray, of: np.ndarray, reward: np.ndarray) -> Int[np.ndarray, "n"]:
    """Inside a segment an arm goes to those whom it serves best beside the other arms in use there."""
    arm = np.zeros(of.size, dtype=np.int64)
    order = np.argsort(of, kind="stable")
    edges = np.searchsorted(of[order], np.arange(len(counts) + 1))
    for number in np.flatnonzero(counts.any(axis=1)):
        rows = order[edges[number] : edges[number + 1]]
        used, spare = np.flatnonzero(counts[number]), counts[number].sum() < rows.size
        for label in used[np.argsort(-counts[number, used], kind="stable")]:
            others = [other for other in used if other != label]
            instead = reward[np.ix_(rows, others)].max(axis=1, initial=0.0 if spare else -np.inf)
            regret = reward[rows, label] - (instead if others else 0.0)
            chosen = np.argsort(-regret, kind="stable")[: counts[number, label]]
            arm[rows[chosen]] = label + 1
            rows = np.delete(rows, chosen)
    return arm


def _repair(arm: np.ndarray, reward: np.ndarray, sides: Sides) -> None:
    """Take arms away, least reward per cost first, until every budget is kept; no group falls below its minimum."""
    for q, budget in enumerate(sides.budgets):
        cost = sides.costs[:, :, q]
        rows = np.flatnonzero(arm)
        own = cost[rows, arm[rows] - 1]
        over = own.sum() - budget
        if over <= 0:
            continue
        worth = reward[rows, arm[rows] - 1] / np.maximum(own, 1e-300)
        room = None
        if sides.group is not None and sides.group_min is not None:
            people = np.bincount(sides.group, minlength=sides.group_min.size)
            treated = np.bincount(sides.group[rows], minlength=people.size)
            room = treated - np.ceil(sides.group_min * people - 1e-9).astype(int)
        for place in np.argsort(worth, kind="stable"):
            if over <= 0:
                break
            row = rows[place]
            if own[place] <= 0 or (room is not None and sides.group is not None and room[sides.group[row]] <= 0):
                continue
            if room is not None and sides.group is not None:
                room[sides.group[row]] -= 1
            arm[row] = 0
            over -= own[place]


def _kept(arm: np.ndarray, sides: Sides) -> bool:
    rows = np.flatnonzero(arm)
    spent = sides.costs[rows, arm[rows] - 1].sum(axis=0)
    kept = bool((spent <= sides.budgets * (1 + 1e-9) + 1e-12).all())
    if sides.capacity is not None:
        kept &= bool((np.bincount(arm, minlength=sides.capacity.size + 1)[1:] <= sides.capacity).all())
    if sides.group is not None and sides.group_min is not None:
        people = np.bincount(sides.group, minlength=sides.group_min.size)
        treated = np.bincount(sides.group[rows], minlength=people.size)
        kept &= bool((treated >= sides.group_min * people - 1e-9).all())
    return kept

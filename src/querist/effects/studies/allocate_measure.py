"""The allocation itself, the path of all budgets, and what it is worth by outcomes that are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from querist.effects.budget import Allocation, Path, allocate, budget_path
from querist.effects.configs import AllocateConfig
from querist.effects.design import arm_shares, effect_scores, gamma
from querist.effects.studies.allocate_inputs import Known, Wanted
from querist.statistics import mean_interval

__all__ = ["measure"]

POINTS = 101
"""Budgets at which curves are told."""
ALL = "all arms"
ALLOCATION, SINGLE, DIFFERENCE = "allocation", "best single arm", "difference"


def measure(config: AllocateConfig, wanted: Wanted) -> Mapping[str, Any]:
    """Every table."""
    found = allocate(
        wanted.reward,
        wanted.cost,
        wanted.budget,
        capacity=wanted.capacity,
        group=wanted.group,
        group_min=config.group_min,
        net=config.net,
        method=config.method,
    )
    reward = wanted.reward - wanted.cost if config.net else wanted.reward
    path = budget_path(reward, wanted.cost)
    return {
        "solved": [_solved(wanted, found)],
        "allocation": _rows(wanted, found),
        "allocation_arms": list(_arms(wanted, found)),
        "budget_path": list(_curves(wanted, reward, path)),
        "gains": [] if wanted.known is None else _gains(config, wanted, reward, found, wanted.known),
    }


def _solved(wanted: Wanted, found: Allocation) -> dict[str, Any]:
    names = ("budget", "spent", "value", "lp_bound", "gap", "shadow_price", "feasible", "method", "aggregation_gap")
    row = {name: getattr(found, name) for name in names}
    if found.fractional is not None:
        person, arm, share = found.fractional
        row |= {"fractional_row": person, "fractional_arm": wanted.arms[arm - 1], "fractional_share": share}
    return row


def _rows(wanted: Wanted, found: Allocation) -> Any:
    import polars as pl

    names = np.array([wanted.control, *wanted.arms], dtype=object)
    return pl.DataFrame(
        {
            "row": np.arange(found.arm.size),
            "id": pl.Series(wanted.ids if wanted.ids is not None else [None] * found.arm.size, dtype=pl.String()),
            "arm": pl.Series(names[found.arm].tolist(), dtype=pl.String()),
            "reward": found.reward,
            "cost": found.cost,
        }
    )


def _arms(wanted: Wanted, found: Allocation) -> Iterator[dict[str, Any]]:
    for code, name in enumerate((wanted.control, *wanted.arms)):
        mine = found.arm == code
        yield {
            "arm": name,
            "people": int(mine.sum()),
            "spent": float(found.cost[mine].sum()),
            "value": float(found.reward[mine].sum()),
        }


def _curves(wanted: Wanted, reward: np.ndarray, path: Path) -> Iterator[dict[str, Any]]:
    """Worth along the path of all budgets and of each arm alone, and the shares of arms along the first."""
    end = float(path.spend[-1])
    last = max(end, min(wanted.budget, end) if np.isfinite(wanted.budget) else end)
    spends = np.unique(np.r_[np.linspace(0.0, last, POINTS), min(wanted.budget, last)])
    prices = np.r_[path.shadow_price, 0.0]
    at = np.searchsorted(path.spend, spends, "right") - 1
    for spend, value, price in zip(spends, path.best(spends), prices[np.minimum(at, prices.size - 1)], strict=True):
        yield {"line": ALL, "part": None, "spend": float(spend), "value": float(value), "shadow_price": float(price)}
    for m, arm in enumerate(wanted.arms):
        alone = budget_path(reward[:, [m]], wanted.cost[:, [m]])
        for spend, value in zip(spends, alone.best(spends), strict=True):
            yield {
                "line": f"{arm} alone",
                "part": None,
                "spend": float(spend),
                "value": float(value),
                "shadow_price": None,
            }
    arm = path.initial.copy()
    done = 0
    for spend, steps in zip(spends, at, strict=True):
        arm[path.row[done:steps]] = path.arm[done:steps]
        done = max(done, int(steps))
        shares = np.bincount(arm, minlength=len(wanted.arms) + 1) / arm.size
        for name, share in zip((wanted.control, *wanted.arms), shares, strict=True):
            yield {"line": ALL, "part": name, "spend": float(spend), "value": float(share), "shadow_price": None}


def _gains(
    config: AllocateConfig, wanted: Wanted, reward: np.ndarray, found: Allocation, known: Known
) -> list[dict[str, Any]]:
    """Doubly robust worth of the allocation over control, of the best single arm at equal spend, and of their difference.

    The single arm is the one whose own path predicts most at what the allocation spends; people whom its budget reaches in part are
    treated in part.
    """
    arms = len(wanted.arms) + 1
    e = np.broadcast_to(arm_shares(known.codes, arms), (known.codes.size, arms))
    psi = effect_scores(gamma(known.codes, known.y, e, "arm" if known.mu is None else known.mu))
    if config.net:
        psi = psi - wanted.cost
    rows = np.arange(found.arm.size)
    own = np.where(found.arm > 0, psi[rows, np.maximum(found.arm, 1) - 1], 0.0)
    single, best, predicted = None, -np.inf, 0.0
    for m in range(arms - 1):
        path = budget_path(reward[:, [m]], wanted.cost[:, [m]])
        if (worth := float(path.best(found.spent))) > best:
            best, predicted = worth, worth
            single = (m, _share(path, found.spent, rows.size))
    assert single is not None
    other = single[1] * psi[:, single[0]]
    block = known.codes if known.cluster is None else None
    told = []
    for policy, values, arm, expected in (
        (ALLOCATION, own, None, float(found.reward.mean())),
        (SINGLE, other, wanted.arms[single[0]], predicted / rows.size),
        (DIFFERENCE, own - other, wanted.arms[single[0]], float(found.reward.mean()) - predicted / rows.size),
    ):
        value = mean_interval(values, cluster=known.cluster, block=block, level=1 - config.level)
        told.append(
            {
                "policy": policy,
                "arm": arm,
                "value": value.estimate,
                "low": value.low,
                "high": value.high,
                "p": value.p,
                "predicted": expected,
            }
        )
    return told


def _share(path: Path, spend: float, n: int) -> np.ndarray:
    """How far each person is treated when so much is spent along a path of one arm."""
    share = (path.initial > 0).astype(float)
    whole = int(np.searchsorted(path.spend, spend * (1 + 1e-12), "right")) - 1
    share[path.row[:whole]] = 1.0
    if whole < path.row.size:
        step = float(path.spend[whole + 1] - path.spend[whole])
        share[path.row[whole]] = max(0.0, (spend - float(path.spend[whole])) / step)
    return share

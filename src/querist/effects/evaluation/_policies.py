"""What it is worth to follow a model: its choice of arms beside control, single arms, chance and natural response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from querist.effects.arrays import lengths
from querist.effects.budget import multi_arm_qini
from querist.effects.evaluation._averages import Row
from querist.effects.evaluation._crossed import with_choice
from querist.effects.evaluation._given import Cell, Given, Scored
from querist.effects.metrics import best_arm_crossed, natural_like, random_like, single_arm
from querist.errors import UndefinedMetric
from querist.statistics import Estimate, mean_interval

__all__ = ["Worth", "chosen_arms", "multi_arm_rows", "policy_rows", "worths"]

ALL_CONTROL, BEST, CHANCE, NATURAL = (
    "all control",
    "best single arm",
    "random, same shares",
    "natural response, same counts",
)
METHODS = ("dr", "ips", "snips")


@dataclass(frozen=True)
class Worth:
    """What policies are valued by: one outcome, or outcomes weighed together (`k` None), less what arms cost.

    gamma [m, M+1] are net effect scores, y [m] the net outcome seen, reward [M per score] is net too, all in the same unit.
    """

    name: str
    cell: Cell
    gamma: Float[np.ndarray, "m arms"]
    y: Float[np.ndarray, "m"]
    rewards: Mapping[str, Float[np.ndarray, "m M"]]
    natural: Float[np.ndarray, "m"] | None


def worths(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    value: Mapping[str, float] | None = None,
    cost: Float[np.ndarray, "n arms"] | None = None,
) -> Iterator[Worth]:
    """Each outcome alone, and all of them weighed by `value` less `cost` [n, M+1] where a value is stated and all are seen.

    More of an outcome counts as better. One whose stated value is below 0 does not stand alone: a policy that raises it is none."""
    predicting = {name: score for name, score in scores.items() if score.effects}
    natural = next((score.natural for score in scores.values() if score.natural is not None), None)
    for cell in rows.cells:
        if any(cell.reasons) or (value or {}).get(cell.name, 0.0) < 0:
            continue
        rewards = _whole({name: score.total[cell.rows, :, cell.k] for name, score in predicting.items()})
        yield Worth(
            cell.name, cell, cell.gamma, cell.y, rewards, None if natural is None else natural[cell.rows, cell.k]
        )
    if not value and cost is None:
        return
    weights = np.array([(value or {}).get(cell.name, 0.0 if value else 1.0) for cell in rows.cells])
    used = [cell for cell in rows.cells if weights[cell.k] != 0]
    if not used or any(any(cell.reasons) for cell in used):
        return
    seen = used[0].rows
    for cell in used[1:]:
        seen = np.intersect1d(seen, cell.rows)
    places = [np.searchsorted(cell.rows, seen) for cell in used]
    spent = np.zeros((seen.size, len(rows.labels))) if cost is None else cost[seen]
    first = used[0]
    gamma = sum((weights[cell.k] * cell.gamma[at] for cell, at in zip(used, places, strict=True)), -spent)
    y = sum((weights[cell.k] * cell.y[at] for cell, at in zip(used, places, strict=True)), np.zeros(seen.size))
    arm = first.arm[places[0]]
    whole = Cell(
        -1,
        "value",
        seen,
        y,
        arm,
        first.e[places[0]],
        gamma,
        None if first.cluster is None else first.cluster[places[0]],
        None if first.block is None else first.block[places[0]],
        (None,) * len(rows.arms),
    )
    columns = [cell.k for cell in used]
    worth = weights[columns]
    net = _whole(
        {
            name: score.total[seen][:, :, columns] @ worth - (spent[:, 1:] - spent[:, :1])
            for name, score in predicting.items()
        }
    )
    y_net = y - spent[np.arange(seen.size), arm]
    yield Worth("value", whole, gamma, y_net, net, None if natural is None else natural[seen][:, columns] @ worth)


def _whole(rewards: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those without an empty arm: a model that has no effect for an arm chooses nothing."""
    return {name: reward for name, reward in rewards.items() if np.isfinite(reward).all()}


def chosen_arms(reward: Float[np.ndarray, "m M"]) -> Float[np.ndarray, "m arms"]:
    """The arm of the largest predicted reward, control where none is above 0; the first of equals."""
    policy = np.zeros((reward.shape[0], reward.shape[1] + 1))
    best = np.argmax(reward, axis=1)
    rows = np.arange(reward.shape[0])
    policy[rows, np.where(reward[rows, best] > 0, best + 1, 0)] = 1.0
    return policy


def policy_rows(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    value: Mapping[str, float] | None = None,
    cost: Float[np.ndarray, "n arms"] | None = None,
    methods: Sequence[str] = METHODS,
    level: float = 0.95,
) -> list[Row]:
    """Rows of table `policies`: each policy's value, and each model's difference from the references, paired.

    Values are in outcome per person (`value`: in its own unit, net of cost). The best single arm is chosen on one half of the rows
    and valued on the other, both ways: chosen where it is valued, it would flatter itself. Differences are doubly robust; that
    from the best single arm has the interval of `with_choice`.
    """
    found: list[Row] = []
    for worth in worths(scores, rows, value=value, cost=cost):
        lengths(gamma=worth.gamma, y=worth.y)
        count, arms = worth.gamma.shape
        best, picks = best_arm_crossed(worth.gamma, cluster=worth.cell.cluster, seed=rows.seed)
        references = {ALL_CONTROL: single_arm(count, arms, 0)}
        references |= {f"all {rows.labels[code]}": single_arm(count, arms, code) for code in range(1, arms)}
        references[BEST] = best
        for name, policy in references.items():
            detail = (
                name
                if name != BEST
                else f"{BEST} ({', '.join(str(rows.labels[pick]) for pick in dict.fromkeys(picks))})"
            )
            found += [_alone(worth, detail, policy, method, level) for method in methods]
        for name, reward in worth.rewards.items():
            policy = chosen_arms(reward)
            found += [_alone(worth, name, policy, method, level) for method in methods]
            against = dict(references)
            against[CHANCE] = random_like(policy)
            if worth.natural is not None:
                against[NATURAL] = natural_like(policy, worth.natural)
            found += [
                _difference(worth, name, policy, versus, other, level, rows.seed) for versus, other in against.items()
            ]
    return found


def _alone(worth: Worth, name: str, policy: np.ndarray, method: str, level: float) -> Row:
    row: Row = {"policy": name, "outcome": worth.name, "method": method, "versus": None}
    row |= dict.fromkeys(("value", "low", "high", "difference", "difference_low", "difference_high", "p"))
    value = _estimate(_values(worth, policy, method), worth.cell, level)
    if value is not None:
        row |= {"value": value.estimate, "low": value.low, "high": value.high}
    return row


def _difference(
    worth: Worth, name: str, policy: np.ndarray, versus: str, other: np.ndarray, level: float, seed: int
) -> Row:
    row = _alone(worth, name, policy, "dr", level) | {"versus": versus}
    value = _estimate(((policy - other) * worth.gamma).sum(axis=1), worth.cell, level)
    if value is not None and versus == BEST:
        followed = (policy * worth.gamma).sum(axis=1)
        value = with_choice(value, followed, worth.gamma, worth.cell.dependence, seed)
    if value is not None:
        row |= {
            "difference": value.estimate,
            "difference_low": value.low,
            "difference_high": value.high,
            "p": value.p,
        }
    return row


def _values(worth: Worth, policy: np.ndarray, method: str) -> Float[np.ndarray, "m"] | None:
    """Each row's value plus influence; None where no row got the arm that the policy names."""
    if method == "dr":
        return (policy * worth.gamma).sum(axis=1)
    rows = np.arange(worth.y.size)
    weight = policy[rows, worth.cell.arm] / worth.cell.e[rows, worth.cell.arm]
    if method == "ips":
        return weight * worth.y
    mean = float(weight.mean())
    if mean == 0:
        return None
    value = float(weight @ worth.y) / (worth.y.size * mean)
    return value + weight * (worth.y - value) / mean


def _estimate(values: Any, cell: Cell, level: float) -> Estimate | None:
    return None if values is None or values.size < 2 else mean_interval(values, level=level, **cell.dependence)


def multi_arm_rows(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    value: Mapping[str, float] | None = None,
    cost: np.ndarray | None = None,
) -> list[Row]:
    """The multi-armed Qini of every predicting score, by outcome and by value: spending along a model beside average effects."""
    found: list[Row] = []
    for worth in worths(scores, rows, value=value, cost=None):
        spent = np.ones((worth.y.size, len(rows.arms))) if cost is None else cost[worth.cell.rows][:, 1:]
        for name, reward in worth.rewards.items():
            row: Row = {"score": name, "outcome": worth.name} | dict.fromkeys(
                ("estimate", "low", "high", "p", "max_spend", "reason")
            )
            try:
                number: Estimate = multi_arm_qini(reward, worth.cell.psi, spent, **worth.cell.dependence)
            except UndefinedMetric as error:
                row["reason"] = str(error)
            else:
                row |= {"estimate": number.estimate, "low": number.low, "high": number.high, "p": number.p}
            found.append(row)
    return found

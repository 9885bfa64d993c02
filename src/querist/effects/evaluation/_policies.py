"""What it is worth to follow a model: its choice of arms beside control, single arms, chance and natural response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from querist.effects.budget import multi_arm_qini
from querist.effects.design import effect_scores
from querist.effects.evaluation._averages import Row
from querist.effects.evaluation._crossed import with_choice
from querist.effects.evaluation._given import Cell, Given, Scored
from querist.effects.metrics import best_arms, highest
from querist.errors import UndefinedMetric
from querist.statistics import Estimate, mean_interval
from querist.statistics.arrays import compact, in_blocks

__all__ = ["Worth", "chosen_arms", "multi_arm_rows", "policy_rows", "worths"]

ALL_CONTROL, BEST, CHANCE, NATURAL = (
    "all control",
    "best single arm",
    "random, same shares",
    "natural response, same counts",
)
METHODS = ("dr", "ips", "snips")
Which = Literal["alone", "together", "both"]
"""Outcomes each alone, weighed together, or the one after the other."""


@dataclass(frozen=True)
class Worth:
    """What policies are valued by: one outcome, or outcomes weighed together (`k` None), less what arms cost.

    The cell's gamma [m, M+1] are net effect scores; y [m] the net outcome seen, reward [M per score] is net too, all in the same
    unit.
    """

    name: str
    cell: Cell
    y: Float[np.ndarray, "m"]
    rewards: Mapping[str, Float[np.ndarray, "m M"]]
    natural: Float[np.ndarray, "m"] | None


def worths(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    value: Mapping[str, float] | None = None,
    cost: Float[np.ndarray, "n arms"] | None = None,
    which: Which = "both",
) -> Iterator[Worth]:
    """Each outcome alone, and all of them weighed by `value` less `cost` [n, M+1] where a value is stated and all are seen.

    More of an outcome counts as better. One whose stated value is below 0 does not stand alone: a policy that raises it is none."""
    predicting = {name: score for name, score in scores.items() if score.effects}
    natural = next((score.natural for score in scores.values() if score.natural is not None), None)
    for cell in rows.cells if which != "together" else ():
        if any(cell.reasons) or (value or {}).get(cell.name, 0.0) < 0:
            continue
        rewards = _whole({name: score.total[cell.rows, :, cell.k] for name, score in predicting.items()})
        yield Worth(cell.name, cell, cell.y, rewards, None if natural is None else natural[cell.rows, cell.k])
    if which == "alone" or (not value and cost is None):
        return
    weights = np.array([(value or {}).get(cell.name, 0.0 if value else 1.0) for cell in rows.cells])
    used = [cell for cell in rows.cells if weights[cell.k] != 0]
    if not used or any(any(cell.reasons) for cell in used):
        return
    seen = used[0].numbers
    for cell in used[1:]:
        seen = np.intersect1d(seen, cell.numbers)
    places = [np.searchsorted(cell.numbers, seen) for cell in used]
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
        partial(_same, gamma),
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
    yield Worth("value", whole, y_net, net, None if natural is None else natural[seen][:, columns] @ worth)


def _whole(rewards: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those without an empty arm: a model that has no effect for an arm chooses nothing."""
    return {name: reward for name, reward in rewards.items() if np.isfinite(reward).all()}


def _same(values: np.ndarray) -> np.ndarray:
    return values


def chosen_arms(reward: Float[np.ndarray, "m M"]) -> Int[np.ndarray, "m"]:
    """The arm of the largest predicted reward, control (0) where none is above 0; the first of equals."""
    chosen = np.zeros(len(reward), dtype=compact(np.zeros(0, dtype=int), reward.shape[1] + 1).dtype)
    for part in in_blocks(len(reward)):
        best = np.argmax(reward[part], axis=1)
        chosen[part] = np.where(reward[part][np.arange(best.size), best] > 0, best + 1, 0)
    return chosen


@dataclass(frozen=True)
class Rule:
    """A policy, of which the chances of arms are made a block of rows at a time.

    An arm for each row (`code`); or treatment of a part of each row (`treated`), arms at the shares `mix`; or the same `shares` of
    arms for all.
    """

    arms: int
    code: Int[np.ndarray, "m"] | None = None
    treated: Float[np.ndarray, "m"] | None = None
    mix: Float[np.ndarray, "M"] | None = None
    shares: Float[np.ndarray, "arms"] | None = None

    def at(self, part: slice, size: int) -> Float[np.ndarray, "b arms"]:
        """Chances of the arms for some rows."""
        if self.code is not None:
            chances = np.zeros((size, self.arms))
            chances[np.arange(size), self.code[part]] = 1.0
            return chances
        if self.treated is not None and self.mix is not None:
            treated = self.treated[part]
            return np.column_stack([1 - treated, treated[:, None] * self.mix])
        assert self.shares is not None
        return np.tile(self.shares, (size, 1))

    @classmethod
    def single(cls, arms: int, arm: int) -> Rule:
        """Everybody gets one arm."""
        return cls(arms, shares=np.eye(arms)[arm])


def policy_rows(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    value: Mapping[str, float] | None = None,
    cost: Float[np.ndarray, "n arms"] | None = None,
    methods: Sequence[str] = METHODS,
    level: float = 0.95,
    which: Which = "both",
) -> list[Row]:
    """Rows of table `policies`: each policy's value, and each model's difference from the references, paired.

    Values are in outcome per person (`value`: in its own unit, net of cost). The best single arm is chosen on one half of the rows
    and valued on the other, both ways: chosen where it is valued, it would flatter itself. Differences are doubly robust; that
    from the best single arm has the interval of `with_choice`.
    """
    found: list[Row] = []
    for worth in worths(scores, rows, value=value, cost=cost, which=which):
        gamma = worth.cell.gamma
        count, arms = gamma.shape
        half, picks = best_arms(gamma, cluster=worth.cell.cluster, seed=rows.seed)
        references = {ALL_CONTROL: Rule.single(arms, 0)}
        references |= {f"all {rows.labels[code]}": Rule.single(arms, code) for code in range(1, arms)}
        references[BEST] = Rule(arms, compact(np.array(picks), arms)[1 - half])  # what the other half chose
        for name, policy in references.items():
            detail = (
                name
                if name != BEST
                else f"{BEST} ({', '.join(str(rows.labels[pick]) for pick in dict.fromkeys(picks))})"
            )
            found += [_alone(worth, gamma, detail, policy, method, level) for method in methods]
        for name, reward in worth.rewards.items():
            policy = Rule(arms, chosen_arms(reward))
            alone = {method: _alone(worth, gamma, name, policy, method, level) for method in (*methods, "dr")}
            found += [alone[method] for method in methods]
            counts = np.bincount(chosen_arms(reward), minlength=arms)
            against = dict(references)
            against[CHANCE] = Rule(arms, shares=counts / count)
            if worth.natural is not None:
                treated = int(counts[1:].sum())
                mix = counts[1:] / treated if treated else np.zeros(arms - 1)
                against[NATURAL] = Rule(arms, treated=highest(worth.natural, float(treated)), mix=mix)
            for versus, other in against.items():
                difference = _difference(worth, gamma, policy, other, versus == BEST, level, rows.seed)
                found.append(alone["dr"] | {"versus": versus} | difference)
    return found


def _alone(worth: Worth, gamma: np.ndarray, name: str, policy: Rule, method: str, level: float) -> Row:
    row: Row = {"policy": name, "outcome": worth.name, "method": method, "versus": None}
    row |= dict.fromkeys(("value", "low", "high", "difference", "difference_low", "difference_high", "p"))
    value = _estimate(_values(worth, gamma, policy, method), worth.cell, level)
    if value is not None:
        row |= {"value": value.estimate, "low": value.low, "high": value.high}
    return row


def _difference(
    worth: Worth, gamma: np.ndarray, policy: Rule, other: Rule, chosen: bool, level: float, seed: int
) -> Row:
    """Columns of a policy's difference from another; `chosen`: that one is the best single arm."""
    value = _estimate(_followed(gamma, policy, other), worth.cell, level)
    if value is not None and chosen:
        value = with_choice(value, _followed(gamma, policy), gamma, worth.cell.dependence, seed)
    if value is None:
        return {}
    return {
        "difference": value.estimate,
        "difference_low": value.low,
        "difference_high": value.high,
        "p": value.p,
    }


def _followed(gamma: Float[np.ndarray, "m arms"], policy: Rule, other: Rule | None = None) -> Float[np.ndarray, "m"]:
    """Σ_m π_m Γ_m of each row, or that of the difference of two policies."""
    found = np.empty(len(gamma))
    for part in in_blocks(len(gamma)):
        size = part.stop - part.start
        chances = policy.at(part, size)
        if other is not None:
            chances -= other.at(part, size)
        chances *= gamma[part]
        found[part] = chances.sum(axis=1)
    return found


def _values(worth: Worth, gamma: np.ndarray, policy: Rule, method: str) -> Float[np.ndarray, "m"] | None:
    """Each row's value plus influence; None where no row got the arm that the policy names."""
    if method == "dr":
        return _followed(gamma, policy)
    weight = np.empty(worth.y.size)
    for part in in_blocks(weight.size):
        arm = worth.cell.arm[part]
        rows = np.arange(arm.size)
        weight[part] = policy.at(part, arm.size)[rows, arm] / worth.cell.e[part][rows, arm]
    if method == "ips":
        weight *= worth.y
        return weight
    mean = float(weight.mean())
    if mean == 0:
        return None
    value = float(weight @ worth.y) / (worth.y.size * mean)
    weight *= worth.y - value
    weight /= mean
    weight += value
    return weight


def _estimate(values: Any, cell: Cell, level: float) -> Estimate | None:
    return None if values is None or values.size < 2 else mean_interval(values, level=level, **cell.dependence)


def multi_arm_rows(
    scores: Mapping[str, Scored],
    rows: Given,
    *,
    value: Mapping[str, float] | None = None,
    cost: np.ndarray | None = None,
    which: Which = "both",
) -> list[Row]:
    """The multi-armed Qini of every predicting score, by outcome and by value: spending along a model beside average effects."""
    found: list[Row] = []
    for worth in worths(scores, rows, value=value, cost=None, which=which):
        spent = np.ones(len(rows.arms)) if cost is None else cost[worth.cell.rows][:, 1:]
        psi = effect_scores(worth.cell.gamma)
        for name, reward in worth.rewards.items():
            row: Row = {"score": name, "outcome": worth.name} | dict.fromkeys(
                ("estimate", "low", "high", "p", "max_spend", "reason")
            )
            try:
                number: Estimate = multi_arm_qini(reward, psi, spent, **worth.cell.dependence)
            except UndefinedMetric as error:
                row["reason"] = str(error)
            else:
                row |= {"estimate": number.estimate, "low": number.low, "high": number.high, "p": number.p}
            found.append(row)
    return found

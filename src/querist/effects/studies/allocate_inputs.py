"""What an allocation is made from: rewards of scores, costs, limits, and outcomes where they are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int

from querist.effects.arrays import arm_codes
from querist.effects.configs import AllocateConfig, named_numbers
from querist.effects.errors import BudgetRange, CostRange
from querist.effects.reading import arm_labels
from querist.effects.serving.names import score_columns
from querist.errors import BadOption, UnknownName, near
from querist.sources.rows import Rows
from querist.sources.rows.values import numbers

__all__ = ["Known", "Wanted", "wanted_of"]


@dataclass(frozen=True)
class Known:
    """Outcomes of the same people: arms as codes, worth of what happened [n], responses that scores predict where they do."""

    codes: Int[np.ndarray, "n"]
    y: Float[np.ndarray, "n"]
    mu: Float[np.ndarray, "n arms"] | None
    cluster: np.ndarray | None


@dataclass(frozen=True)
class Wanted:
    """reward [n, M] in worth over control, before costs; cost [n, M]; limits; ids as text."""

    arms: tuple[str, ...]
    control: str
    reward: Float[np.ndarray, "n M"]
    cost: Float[np.ndarray, "n M"]
    budget: float
    capacity: Float[np.ndarray, "M"] | None
    group: np.ndarray | None
    ids: list[str] | None
    worth: Mapping[str, float]
    known: Known | None


def wanted_of(config: AllocateConfig, rows: Rows) -> Wanted:
    """Read and check everything. Raises BadOption, UnknownName, CostRange, BudgetRange and what the table's reading raises."""
    scores = score_columns(rows.names, rows.origin)
    worth = _worth(config, scores.outcomes)
    used = [name for name in scores.outcomes if worth.get(name, 0.0) != 0]
    columns = [f for arm in scores.arms for f in _columns("total", used, arm)]
    table = rows.table(columns)
    reward = np.zeros((table.num_rows, len(scores.arms)))
    for m, arm in enumerate(scores.arms):
        for outcome, column in zip(used, _columns("total", used, arm), strict=True):
            reward[:, m] += worth[outcome] * _column(table, column)
    gone = ~np.isfinite(reward)
    if gone.any():
        row, m = np.argwhere(gone)[0]
        raise BadOption(
            "A score is missing",
            value=f"row {row}, arm {scores.arms[m]}",
            allowed="a number",
            mend="Leave out what the model cannot estimate",
        )
    if config.budget is None:
        raise BadOption("The budget is not named", allowed="0 or more, inf for none", mend="Give --budget N")
    if not config.budget >= 0:
        raise BudgetRange(
            "The budget lies outside its range", value=config.budget, allowed="0 or more, inf for no limit"
        )
    return Wanted(
        scores.arms,
        _control(rows),
        reward,
        _costs(config, rows, scores.arms, table.num_rows),
        float(config.budget),
        _capacity(config, scores.arms),
        _group(config, rows),
        None if config.id is None else _texts(rows, config.id),
        worth,
        _known(config, rows, scores.arms, used, worth, reward),
    )


def _columns(part: str, outcomes: list[str], arm: str) -> list[str]:
    from querist.effects.serving.names import column_name

    return [column_name(part, outcome, arm) for outcome in outcomes]


def _column(table: pa.Table, name: str) -> np.ndarray:
    return np.asarray(numbers(table.column(name), name), dtype=float)


def _worth(config: AllocateConfig, outcomes: tuple[str, ...]) -> dict[str, float]:
    stated = named_numbers(config.value, "--value")
    for name in stated:
        if name not in outcomes:
            raise UnknownName("--value: no such outcome among the scores", value=name, allowed=near(name, outcomes, 8))
    if not stated and len(outcomes) > 1:
        raise BadOption(
            "Several outcomes need their worth",
            value=", ".join(outcomes),
            allowed="OUTCOME=NUMBER",
            mend="Give --value",
        )
    worth = stated or dict.fromkeys(outcomes, 1.0)
    if not any(worth.values()):
        raise BadOption("No outcome is worth anything", value=", ".join(config.value), allowed="a number other than 0")
    return worth


def _costs(config: AllocateConfig, rows: Rows, arms: tuple[str, ...], n: int) -> Float[np.ndarray, "n M"]:
    stated = named_numbers(config.cost, "--cost")
    named: dict[str, str] = {}
    for pair in config.cost_column:
        arm, sign, column = pair.rpartition("=")
        if not (sign and arm):
            raise BadOption("--cost-column is not spelled as an arm and a column", value=pair, allowed="ARM=COLUMN")
        named[arm] = column
    for arm in (*stated, *named):
        if arm not in arms:
            raise UnknownName("A cost names no arm of the scores", value=arm, allowed=near(arm, arms, 8))
    twice = sorted(set(stated) & set(named))
    if twice:
        raise BadOption("An arm has two costs", value=twice[0], allowed="--cost or --cost-column")
    for arm in arms:
        if arm not in stated and arm not in named:
            raise BadOption(
                "An arm has no cost",
                value=arm,
                allowed="0 or more for every arm",
                mend="Give --cost ARM=NUMBER, 0 where it is free",
            )
    cost = np.empty((n, len(arms)))
    for m, arm in enumerate(arms):
        if arm in stated:
            cost[:, m] = stated[arm]
        else:
            cost[:, m] = _column(rows.table([named[arm]]), named[arm])
    wrong = ~(np.isfinite(cost) & (cost >= 0))
    if wrong.any():
        row, m = np.argwhere(wrong)[0]
        raise CostRange(
            "A cost lies outside its range", value=f"{cost[row, m]:g} of {arms[m]} in row {row}", allowed="0 or more"
        )
    return cost


def _capacity(config: AllocateConfig, arms: tuple[str, ...]) -> Float[np.ndarray, "M"] | None:
    stated = named_numbers(config.capacity, "--capacity")
    for arm in stated:
        if arm not in arms:
            raise UnknownName("--capacity names no arm of the scores", value=arm, allowed=near(arm, arms, 8))
    return np.array([stated.get(arm, np.inf) for arm in arms]) if stated else None


def _group(config: AllocateConfig, rows: Rows) -> np.ndarray | None:
    if (config.group is None) != (config.group_min is None):
        raise BadOption(
            "A least share needs groups, and groups a least share",
            value=f"--group {config.group}, --group-min {config.group_min}",
            allowed="both or none",
        )
    return None if config.group is None else np.array(_texts(rows, config.group))


def _texts(rows: Rows, name: str) -> list[str]:
    return ["" if value is None else str(value) for value in rows.table([name]).column(name).to_pylist()]


def _control(rows: Rows) -> str:
    """The label that files of scores keep, "control" where they keep none."""
    return str(rows.options.get("control") or rows.about.get("control") or "control")


def _known(
    config: AllocateConfig,
    rows: Rows,
    arms: tuple[str, ...],
    used: list[str],
    worth: Mapping[str, float],
    reward: Float[np.ndarray, "n M"],
) -> Known | None:
    """Outcomes of these people, where the table carries them; `reward` is what the scores add to the natural response."""
    if config.arm is None:
        return None
    outcomes = list(config.outcome) or used
    for name in used:
        if name not in outcomes:
            raise BadOption(
                "An outcome that is weighed is not among those known",
                value=name,
                allowed=", ".join(outcomes),
                mend="Name it (--outcome)",
            )
    table = rows.table([config.arm, *used, *([config.cluster] if config.cluster else [])])
    labels, known = arm_labels(table.column(config.arm), what=config.arm)
    if not known.all():
        raise BadOption("An arm is missing", value=f"row {int(np.argmin(known))}", allowed="a label in every row")
    control = config.control or _control(rows)
    _, codes = arm_codes(np.asarray(labels, dtype=str), control, list(arms))
    y = np.zeros(len(codes))
    for name in used:
        y += worth[name] * _column(table, name)
    if not np.isfinite(y).all():
        raise BadOption(
            "An outcome is missing",
            value=f"row {int(np.argmin(np.isfinite(y)))}",
            allowed="a number in every row",
            mend="Leave out these rows",
        )
    from querist.effects.serving.names import column_name

    natural = [column_name("natural", name) for name in used]
    mu = None
    if all(name in rows.names for name in natural):
        held = rows.table(natural)
        base = sum(
            (worth[name] * _column(held, column) for name, column in zip(used, natural, strict=True)), np.zeros(len(y))
        )
        mu = np.column_stack([base, base[:, None] + reward])
    cluster = None if config.cluster is None else np.array(_texts(rows, config.cluster))
    return Known(codes, y, mu, cluster)

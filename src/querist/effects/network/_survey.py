"""What a fit must know of a table before it streams it: arms, counts, folds of all rows, and a bounded sample held in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float, Int, UInt64

from querist.effects.arrays import labels_of
from querist.effects.errors import ArmMissing
from querist.errors import BadOption, BadValues
from querist.sources.rows import Columns, Rows, hash_rows
from querist.statistics.streams import torch_seed

__all__ = ["HELD", "Plan", "Survey", "survey"]

HELD = 1 << 20
"""Rows that are held in memory at most: they give the links' constants, the validation rows and the refit."""

_CHUNKS = 1 << 16


@dataclass(frozen=True)
class Plan:
    """Columns of a table by their part, and how rows are dealt to folds: by the hash of their cluster, or of their number.

    A share `valid` of the units of each fold's training rows is set aside; units below the share `held` are kept in memory.
    """

    rows: Rows
    features: tuple[str, ...]
    arm: str
    outcomes: tuple[str, ...]
    cluster: str | None
    weight: str | None
    folds: int
    valid: float
    seed: int
    held: float = 1.0

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        extra = [one for one in (self.cluster, self.weight) if one is not None]
        return list(dict.fromkeys([*self.features, self.arm, *self.outcomes, *extra]))

    def dealt(
        self, table: pa.Table | pa.RecordBatch, start: int
    ) -> tuple[Int[np.ndarray, "n"], np.ndarray, np.ndarray]:
        """Fold of each row (−1 with one fold), whether it is set aside, whether it is held; start: number of the first row."""
        unit = _units(self, table, start)
        fold = (_share(unit, self.seed, "fold") * self.folds).astype(np.int64) if self.folds > 1 else None
        fold = np.full(table.num_rows, -1) if fold is None else fold
        return fold, _share(unit, self.seed, "valid") < self.valid, _share(unit, self.seed, "held") < self.held


def _units(plan: Plan, table: Any, start: int) -> UInt64[np.ndarray, "n"]:
    if plan.cluster is None:
        return np.arange(start, start + table.num_rows, dtype=np.uint64)
    return hash_rows(table, [plan.cluster])


def _share(unit: UInt64[np.ndarray, "n"], seed: int, name: str) -> Float[np.ndarray, "n"]:
    """A uniform number for each unit, the same wherever the unit is met (splitmix64)."""
    with np.errstate(over="ignore"):
        z = unit + np.uint64(torch_seed(seed, "mtmt", "units", name))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z + np.uint64(0x9E3779B97F4A7C15)) if shift == 30 else z
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / (1 << 53)


@dataclass(frozen=True)
class Survey:
    """columns: learnt features; arms: rows (by weight) of each label; groups [G, J + 1]: rows of each piece in each fold that are
    not set aside (column J: without a fold); total weight; n rows; the held rows as columns: features (a table), arm labels,
    outcomes [h, K], cluster ids, weights, folds, set aside."""

    columns: Columns
    arms: Mapping[Any, float]
    groups: Int[np.ndarray, "G J"]
    n: int
    mean_weight: float
    features: pa.Table
    arm: np.ndarray
    outcomes: Float[np.ndarray, "h K"]
    cluster: np.ndarray | None
    weight: Float[np.ndarray, "h"]
    fold: Int[np.ndarray, "h"]
    valid: np.ndarray


def survey(plan: Plan) -> tuple[Plan, Survey]:
    """Two passes that read every column once: features are learnt, then arms counted and rows dealt out.

    Raises ArmMissing, BadValues, UnknownName and what reading raises.
    """
    rows = plan.rows
    if plan.arm in plan.features or set(plan.outcomes) & set(plan.features):
        raise BadOption("A feature is the arm or an outcome", value=plan.arm, mend="Leave it out of features=")
    columns = rows.columns(plan.features)
    n = rows.count()
    plan = Plan(**{**plan.__dict__, "held": min(1.0, HELD / n)})
    arms: Counter[Any] = Counter()
    counts = np.zeros((len(rows.groups), max(plan.folds, 1)), dtype=np.int64)
    kept: dict[str, list[Any]] = {name: [] for name in ("table", "arm", "y", "cluster", "weight", "fold", "valid")}
    start, total = 0, 0.0
    for number in range(len(rows.groups)):
        table = rows.group(number, plan.names)
        fold, valid, held = plan.dealt(table, start)
        label = arm_of(table, plan.arm, start)
        weight = weights_of(table, plan.weight, start)
        seen, place = np.unique(label, return_inverse=True)
        for one, count in zip(seen.tolist(), np.bincount(place.reshape(-1), weight).tolist(), strict=True):
            arms[one] += count
        for j in range(max(plan.folds, 1)):
            counts[number, j] = int((~valid & (fold == (j if plan.folds > 1 else -1))).sum())
        at = np.flatnonzero(held)
        kept["table"].append(table.select(list(plan.features)).take(at))
        kept["arm"].append(label[at])
        kept["y"].append(outcomes_of(table, plan.outcomes)[at])
        kept["weight"].append(weight[at])
        kept["fold"].append(fold[at])
        kept["valid"].append(valid[at])
        if plan.cluster is not None:
            kept["cluster"].append(hash_rows(table, [plan.cluster])[at])
        start, total = start + table.num_rows, total + float(weight.sum())
    if not total > 0:
        raise BadValues("No row has a weight", value=plan.weight, allowed="a positive one")
    joined = {name: np.concatenate(parts) for name, parts in kept.items() if parts and name != "table"}
    return plan, Survey(
        columns,
        dict(arms),
        counts,
        n,
        total / n,
        pa.concat_tables(kept["table"]),
        joined["arm"],
        joined["y"],
        joined.get("cluster"),
        joined["weight"],
        joined["fold"],
        joined["valid"],
    )


def arm_of(table: Any, name: str, start: int) -> np.ndarray:
    """Labels of a piece's rows. Raises ArmMissing with the row's number in the table."""
    column = table.column(name)
    if column.null_count:
        row = start + int(np.argmax(np.asarray(column.is_null())))
        raise ArmMissing(
            f"{name} is missing",
            value=f"first at row {row}",
            allowed="a label in every row",
            mend="Leave these rows out",
        )
    return labels_of(np.asarray(column.to_pylist(), dtype=object), name)


def outcomes_of(table: Any, names: Sequence[str]) -> Float[np.ndarray, "n K"]:
    """Outcomes of a piece, NaN where they are missing."""
    from querist.sources.rows.values import numbers

    return np.stack([numbers(table.column(name), name) for name in names], axis=1)


def weights_of(table: Any, name: str | None, start: int) -> Float[np.ndarray, "n"]:
    """Weights of a piece; 1 without a column of them. Raises BadValues."""
    if name is None:
        return np.ones(table.num_rows)
    from querist.sources.rows.values import numbers

    found = numbers(table.column(name), name)
    wrong = ~(found >= 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadValues(
            "A weight is negative or missing", value=f"{found[row]} in row {start + row}", allowed="0 or more"
        )
    return found
